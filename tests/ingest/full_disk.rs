//! A small disk of its own under tables of the pipeline, which a test fills and empties. Only root may mount one.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use uuid::Uuid;

use crate::bed::Bed;

/// Room for what a test publishes.
const SIZE: &str = "size=512m,mode=0700";

pub struct FullDisk(PathBuf);

impl FullDisk {
    /// Moves the tables there. `None`, and a line that says so, where it cannot be mounted.
    pub async fn under(bed: &mut Bed, tables: &[&str]) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("sluice-disk-{}", Uuid::new_v4().simple()));
        fs::create_dir(&folder).expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&folder).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: a full disk, as only root may mount a small one");
            let _ = fs::remove_dir(&folder);
            return None;
        }
        let disk = Self(folder);
        let tablespace = disk.0.join("tablespace");
        fs::create_dir(&tablespace).expect("a directory");
        let server = fs::metadata(bed.db.server().data_directory()).expect("the server's directory");
        for path in [&disk.0, &tablespace] {
            chown(path, Some(server.uid()), Some(server.gid())).expect("root may");
        }
        bed.arrange(&format!("create tablespace small location '{}'", tablespace.display())).await;
        for table in tables {
            bed.arrange(&format!("alter table ingest.{table} set tablespace small")).await;
        }
        Some(disk)
    }

    pub fn fill(&self) {
        let ballast = fs::File::create(self.ballast()).expect("a file");
        // To the last page.
        let _ = std::io::copy(&mut std::io::repeat(0), &mut &ballast);
    }

    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        // Lazily: the server may still have files open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}
