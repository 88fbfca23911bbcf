//! A file below the one directory that is allowed: no link is followed on the way, and nothing but a regular file is read.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, Mode, OFlags, openat};
use rustix::io::Errno;
use walkdir::WalkDir;

use super::LISTED_MAX;
use crate::domain::failure::FailureClass;
use crate::worker::NotDone;

/// Why a file is not read. The messages name what was asked for, and nothing of what is there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("this worker reads no files: set SLUICE_FILE_ROOT in its pool to the directory that it may read below")]
    NoRoot,
    #[error("the directory of SLUICE_FILE_ROOT cannot be opened ({0}): mount it into the pool's pods")]
    RootUnreadable(std::io::ErrorKind),
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
    #[error("the file has more than {0} bytes: split it")]
    TooLarge(u64),
    #[error("there are more than {LISTED_MAX} files: scan its parts one by one")]
    TooMany,
    #[error("the file could not be read: {0}")]
    Failed(std::io::ErrorKind),
}

impl FileError {
    pub fn into_not_done(self) -> NotDone {
        let class = match self {
            FileError::Outside | FileError::Link | FileError::NotRegular | FileError::Denied => {
                FailureClass::SourceForbidden
            }
            FileError::NotFound => FailureClass::SourceNotFound,
            FileError::TooLarge(_) | FileError::TooMany => FailureClass::DocumentTooLarge,
            // Of this worker, not of the source: another one of its pool may have the directory, as during a rollout.
            FileError::NoRoot | FileError::RootUnreadable(_) | FileError::Failed(_) => FailureClass::Unknown,
        };
        NotDone::failed(class, self.to_string())
    }
}

/// A regular file of at most `max_bytes`, to be read. Blocks: call it where that is allowed.
pub fn open(root: Option<&Path>, path: &Path, max_bytes: u64) -> Result<File, FileError> {
    let root = root.ok_or(FileError::NoRoot)?;
    let names = names_below(root, path)?;
    let file = open_below(root, &names)?;
    let metadata = file.metadata().map_err(|error| FileError::Failed(error.kind()))?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }
    if metadata.len() > max_bytes { Err(FileError::TooLarge(max_bytes)) } else { Ok(file) }
}

/// All of an open file, as bytes. Blocks as well.
pub fn read(file: File, max_bytes: u64) -> Result<Vec<u8>, FileError> {
    let mut bytes = Vec::new();
    // It may grow while it is read.
    let read = file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes);
    let read = read.map_err(|error| FileError::Failed(error.kind()))?;
    if u64::try_from(read).is_ok_and(|read| read > max_bytes) { Err(FileError::TooLarge(max_bytes)) } else { Ok(bytes) }
}

/// The regular files in a directory and in those below it, in the order of their names; links are not among them. Blocks too.
pub fn list(root: Option<&Path>, directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let root = root.ok_or(FileError::NoRoot)?;
    open_directory(root, &names_below(root, directory)?)?;
    let mut files = Vec::new();
    for entry in WalkDir::new(directory).sort_by_file_name() {
        // What goes while it is listed is not there.
        let Ok(entry) = entry else { continue };
        if entry.file_type().is_file() {
            files.push(entry.into_path());
        }
        if files.len() > LISTED_MAX {
            return Err(FileError::TooMany);
        }
    }
    Ok(files)
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
    Ok(names)
}

/// One name after the other, each in the directory that was opened before: whoever moves things meanwhile cannot lead out.
fn open_directory(root: &Path, names: &[PathBuf]) -> Result<OwnedFd, FileError> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(root, directory, Mode::empty());
    let mut at = opened.map_err(|error| FileError::RootUnreadable(error.kind()))?;
    for name in names {
        at = openat(&at, name, directory | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| refused(error, true))?;
    }
    Ok(at)
}

fn open_below(root: &Path, names: &[PathBuf]) -> Result<File, FileError> {
    let Some((last, above)) = names.split_last() else { return Err(FileError::NotRegular) };
    let at = open_directory(root, above)?;
    // Opening a FIFO must not wait for who writes into it.
    let file = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(&at, last, file, Mode::empty()).map(File::from).map_err(|error| refused(error, false))
}

fn refused(error: Errno, is_directory: bool) -> FileError {
    match error {
        // Also names that no file can have: with U+0000 in them, or too long.
        Errno::NOENT | Errno::INVAL | Errno::NAMETOOLONG => FileError::NotFound,
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

    const MAX_BYTES: u64 = 1_000;

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
            open(Some(&self.0.join("root")), &self.0.join(path), MAX_BYTES).and_then(|file| read(file, MAX_BYTES))
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
            ("root/page\0.md", FileError::NotFound),
            ("root/\0/page.md", FileError::NotFound),
            (&format!("root/{}", "x".repeat(300)), FileError::NotFound),
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
        let without = open(None, &tree.0.join("root/inner/page.md"), MAX_BYTES);
        assert_eq!(without.map(drop), Err(FileError::NoRoot));
    }

    #[test]
    fn worker_that_has_not_the_directory_does_not_condemn_the_source() {
        let root = Path::new("/nowhere/documents");
        let refusals = [list(None, root).unwrap_err(), list(Some(root), root).unwrap_err()];
        for (refusal, says) in
            refusals.into_iter().zip(["set SLUICE_FILE_ROOT in its pool", "mount it into the pool's pods"])
        {
            let NotDone::Failed { class, message } = refusal.into_not_done() else { panic!("a failure") };
            assert!(!class.is_permanent() && message.contains(says), "{class}: {message}");
        }
    }

    #[test]
    fn regular_files_are_listed_and_nothing_behind_links() {
        let tree = Tree::new();
        let list = |directory: &str| list(Some(&tree.0.join("root")), &tree.0.join(directory));
        fs::write(tree.0.join("root/a.md"), "a").unwrap();

        let all = vec![tree.0.join("root/a.md"), tree.0.join("root/inner/page.md")];
        assert_eq!(list("root"), Ok(all));
        assert_eq!(list("root/inner/"), Ok(vec![tree.0.join("root/inner/page.md")]));
        assert_eq!(list("root/inside"), Err(FileError::Link));
        assert_eq!(list("root/top"), Err(FileError::Link));
        assert_eq!(list("root/none"), Err(FileError::NotFound));
        assert_eq!(list("root/.."), Err(FileError::Outside));
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
        let device = open(Some(Path::new("/dev")), Path::new("/dev/zero"), MAX_BYTES);
        assert_eq!(device.map(drop), Err(FileError::NotRegular));
    }

    #[test]
    fn a_large_file_is_refused() {
        let tree = Tree::new();
        let file = File::create(tree.0.join("root/large")).unwrap();
        file.set_len(MAX_BYTES + 1).unwrap();

        assert_eq!(tree.read("root/large"), Err(FileError::TooLarge(MAX_BYTES)));
    }
}
