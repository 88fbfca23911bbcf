//! Files that a test makes.

use std::fs;
use std::path::PathBuf;

use uuid::Uuid;

/// A directory of one test, gone with it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        let folder = Self(std::env::temp_dir().join(format!("sluice-pdf-{}", Uuid::new_v4().simple())));
        fs::create_dir_all(&folder.0).expect("a directory");
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
