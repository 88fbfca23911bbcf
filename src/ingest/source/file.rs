//! A file below the one directory that is allowed: no link is followed on the way, and nothing but a regular file is read.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;

use crate::domain::failure::FailureClass;
use crate::ingest::text::MARKDOWN_MAX_BYTES;
use crate::worker::NotDone;

/// Why a file is not read. The messages name what was asked for, and nothing of what is there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("this worker reads no files: set SLUICE_FILE_ROOT to the directory that it may read below")]
    NoRoot,
    #[error("the file is not below the directory that may be read (SLUICE_FILE_ROOT)")]
    Outside,
    #[error("a link or something else that is no directory is on the way to the file: give its real path")]
    Link,
    #[error("it is no regular file")]
    NotRegular,
    #[error("there is no such file")]
    NotFound,
    #[error("the worker may not read the file: its owner, mode or mount forbids it")]
    Denied,
    #[error("the file has more than {MARKDOWN_MAX_BYTES} bytes: split it")]
    TooLarge,
    #[error("the file could not be read: {0}")]
    Failed(std::io::ErrorKind),
}

impl FileError {
    pub fn into_not_done(self) -> NotDone {
        let class = match self {
            FileError::NoRoot | FileError::Outside | FileError::Link | FileError::NotRegular | FileError::Denied => {
                FailureClass::SourceForbidden
            }
            FileError::NotFound => FailureClass::SourceNotFound,
            FileError::TooLarge => FailureClass::DocumentTooLarge,
            FileError::Failed(_) => FailureClass::Unknown,
        };
        NotDone::failed(class, self.to_string())
    }
}

/// All of it, as bytes. Blocks: call it where that is allowed.
pub fn read(root: Option<&Path>, path: &Path) -> Result<Vec<u8>, FileError> {
    let root = root.ok_or(FileError::NoRoot)?;
    let names = names_below(root, path)?;
    let file = open_below(root, &names)?;
    let metadata = file.metadata().map_err(|error| FileError::Failed(error.kind()))?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MARKDOWN_MAX_BYTES).unwrap_or(u64::MAX);
    // It may grow while it is read.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| FileError::Failed(error.kind()))?;
    if bytes.len() > MARKDOWN_MAX_BYTES { Err(FileError::TooLarge) } else { Ok(bytes) }
}

/// The names that lead from the root to the path, by their spelling alone.
fn names_below(root: &Path, path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let below = path.strip_prefix(root).map_err(|_| FileError::Outside)?;
    let mut names = Vec::new();
    for component in below.components() {
        match component {
            Component::Normal(name) => names.push(PathBuf::from(name)),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(FileError::Outside),
        }
    }
    if names.is_empty() { Err(FileError::NotRegular) } else { Ok(names) }
}

/// One name after the other, each in the directory that was opened before: whoever moves things meanwhile cannot lead out.
fn open_below(root: &Path, names: &[PathBuf]) -> Result<File, FileError> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = open(root, directory, Mode::empty()).map_err(|error| refused(error, true))?;
    let Some((last, above)) = names.split_last() else { return Err(FileError::NotRegular) };
    for name in above {
        at = openat(&at, name, directory | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| refused(error, true))?;
    }
    // Opening a FIFO must not wait for who writes into it.
    let file = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(&at, last, file, Mode::empty()).map(File::from).map_err(|error| refused(error, false))
}

fn refused(error: Errno, is_directory: bool) -> FileError {
    match error {
        Errno::NOENT => FileError::NotFound,
        Errno::LOOP | Errno::MLINK => FileError::Link,
        Errno::NOTDIR if is_directory => FileError::Link,
        Errno::ACCESS | Errno::PERM => FileError::Denied,
        // A socket, or a device without a driver.
        Errno::NXIO | Errno::NODEV => FileError::NotRegular,
        other => FileError::Failed(other.kind()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A directory with a file of each kind, removed with this value.
    struct Tree(PathBuf);

    impl Tree {
        fn new() -> Self {
            let tree = Self(std::env::temp_dir().join(format!("sluice-file-{}", uuid::Uuid::new_v4().simple())));
            fs::create_dir_all(tree.0.join("root/inner")).unwrap();
            fs::write(tree.0.join("root/inner/page.md"), "# Page").unwrap();
            fs::write(tree.0.join("secret"), "secret").unwrap();
            symlink(tree.0.join("secret"), tree.0.join("root/link")).unwrap();
            symlink(tree.0.join("root/inner"), tree.0.join("root/inside")).unwrap();
            symlink("/", tree.0.join("root/top")).unwrap();
            tree
        }

        fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
            read(Some(&self.0.join("root")), &self.0.join(path))
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn a_file_below_the_root_is_read() {
        let tree = Tree::new();
        for path in ["root/inner/page.md", "root/./inner/page.md", "root//inner/page.md"] {
            assert_eq!(tree.read(path).as_deref(), Ok(b"# Page".as_slice()), "{path}");
        }
    }

    #[test]
    fn no_way_leads_out() {
        let tree = Tree::new();
        let rows = [
            ("secret", FileError::Outside),
            ("root/../secret", FileError::Outside),
            ("root/inner/../../secret", FileError::Outside),
            ("root/inner/../inner/page.md", FileError::Outside),
            ("rootless", FileError::Outside),
            ("root/link", FileError::Link),
            ("root/inside/page.md", FileError::Link),
            ("root/top/etc/hostname", FileError::Link),
            ("root/inner/page.md/x", FileError::Link),
            ("root", FileError::NotRegular),
            ("root/inner", FileError::NotRegular),
            ("root/none", FileError::NotFound),
            ("root/none/page.md", FileError::NotFound),
        ];
        for (path, expected) in rows {
            assert_eq!(tree.read(path), Err(expected), "{path}");
        }
        assert_eq!(read(None, &tree.0.join("root/inner/page.md")), Err(FileError::NoRoot));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let tree = Tree::new();
        let _listener = UnixListener::bind(tree.0.join("root/socket")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            tree.0.join("root/fifo"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();

        for path in ["root/socket", "root/fifo"] {
            assert_eq!(tree.read(path), Err(FileError::NotRegular), "{path}");
        }
        assert_eq!(read(Some(Path::new("/dev")), Path::new("/dev/zero")), Err(FileError::NotRegular));
    }

    #[test]
    fn a_large_file_is_refused() {
        let tree = Tree::new();
        let file = File::create(tree.0.join("root/large")).unwrap();
        file.set_len(u64::try_from(MARKDOWN_MAX_BYTES).unwrap() + 1).unwrap();

        assert_eq!(tree.read("root/large"), Err(FileError::TooLarge));
    }
}
