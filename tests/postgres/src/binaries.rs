//! Finds an installed PostgreSQL server that is new enough.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// The oldest major version that Sluice runs on.
pub const MINIMUM_VERSION: u32 = 15;

/// A directory with the programs of one PostgreSQL version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    directory: PathBuf,
    version: u32,
}

impl Binaries {
    /// `POSTGRES_BIN` if it is set, else PATH, else the newest in the usual places.
    pub fn find() -> Result<Self> {
        if let Some(directory) = std::env::var_os("POSTGRES_BIN").map(PathBuf::from) {
            return match probe(&directory) {
                Some(found) if found.version >= MINIMUM_VERSION => Ok(found),
                Some(_) | None => Err(Error::WrongServer { minimum: MINIMUM_VERSION, directory }),
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        find_in(std::env::split_paths(&path).collect(), usual_places(Path::new("/")))
    }

    pub fn path(&self, program: impl AsRef<OsStr>) -> PathBuf {
        self.directory.join(program.as_ref())
    }

    pub fn version(&self) -> u32 {
        self.version
    }
}

/// Takes the first of `preferred` that will do, else the newest of `fallbacks`.
fn find_in(preferred: Vec<PathBuf>, fallbacks: Vec<PathBuf>) -> Result<Binaries> {
    let preferred: Vec<_> = preferred.iter().filter_map(|directory| probe(directory)).collect();
    let mut fallbacks: Vec<_> = fallbacks.iter().filter_map(|directory| probe(directory)).collect();
    fallbacks.sort_by_key(|found| std::cmp::Reverse(found.version));

    let (usable, too_old): (Vec<_>, Vec<_>) =
        preferred.into_iter().chain(fallbacks).partition(|found| found.version >= MINIMUM_VERSION);
    usable.into_iter().next().ok_or_else(|| Error::NoServer {
        minimum: MINIMUM_VERSION,
        found: too_old
            .first()
            .map(|old| format!(" (only {} in {})", old.version, old.directory.display()))
            .unwrap_or_default(),
    })
}

/// Where Debian, Fedora and the PGDG packages, Homebrew and Postgres.app put a server.
fn usual_places(root: &Path) -> Vec<PathBuf> {
    let versioned = [
        ("usr/lib/postgresql", "", "bin"),
        ("usr", "pgsql-", "bin"),
        ("opt/homebrew/opt", "postgresql", "bin"),
        ("usr/local/opt", "postgresql", "bin"),
        ("home/linuxbrew/.linuxbrew/opt", "postgresql", "bin"),
        ("Applications/Postgres.app/Contents/Versions", "", "bin"),
    ];
    let mut places = vec![root.join("usr/bin"), root.join("usr/local/bin"), root.join("usr/local/pgsql/bin")];
    for (parent, prefix, leaf) in versioned {
        let Ok(entries) = fs::read_dir(root.join(parent)) else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                places.push(entry.path().join(leaf));
            }
        }
    }
    places
}

fn probe(directory: &Path) -> Option<Binaries> {
    // A link in PATH leads to the directory that has the other programs as well.
    let directory = fs::canonicalize(directory.join("postgres")).ok()?.parent()?.to_owned();
    if !["initdb", "psql"].iter().all(|program| directory.join(program).is_file()) {
        return None;
    }
    let output = Command::new(directory.join("postgres")).arg("--version").output().ok()?;
    let version = major_version(&String::from_utf8_lossy(&output.stdout))?;
    Some(Binaries { directory, version })
}

/// `postgres (PostgreSQL) 15.8 (Debian …)` → 15; also `18beta1`.
fn major_version(text: &str) -> Option<u32> {
    let number = text.split_whitespace().nth(2)?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn install(root: &Path, place: &str, version: &str) -> PathBuf {
        let directory = root.join(place);
        fs::create_dir_all(&directory).expect("a directory for fake binaries");
        for program in ["initdb", "postgres", "psql"] {
            let path = directory.join(program);
            fs::write(&path, format!("#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n")).expect("a fake binary");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable");
        }
        fs::canonicalize(directory).expect("a path without links")
    }

    #[test]
    fn newest_server_of_the_usual_places_is_taken() {
        let root = tempfile::tempdir().expect("a directory");
        install(root.path(), "usr/lib/postgresql/15/bin", "15.8 (Debian 15.8-0+deb12u1)");
        let newest = install(root.path(), "usr/pgsql-18/bin", "18beta1");
        install(root.path(), "opt/homebrew/opt/postgresql@16/bin", "16.2 (Homebrew)");

        let found = find_in(vec![], usual_places(root.path())).expect("a server");

        assert_eq!(found, Binaries { directory: newest, version: 18 });
    }

    #[test]
    fn server_in_path_goes_before_a_newer_one_elsewhere() {
        let root = tempfile::tempdir().expect("a directory");
        let chosen = install(root.path(), "custom/bin", "16.1");
        install(root.path(), "usr/lib/postgresql/17/bin", "17.0");

        let found = find_in(vec![chosen.clone()], usual_places(root.path())).expect("a server");

        assert_eq!(found.path("psql"), chosen.join("psql"));
    }

    #[test]
    fn link_in_path_leads_to_the_directory_of_all_programs() {
        let root = tempfile::tempdir().expect("a directory");
        let real = install(root.path(), "usr/lib/postgresql/16/bin", "16.1");
        let path = root.path().join("bin");
        fs::create_dir(&path).expect("a directory");
        std::os::unix::fs::symlink(real.join("postgres"), path.join("postgres")).expect("a link");

        let found = find_in(vec![path], vec![]).expect("a server");

        assert_eq!(found.path("psql"), real.join("psql"));
    }

    #[test]
    fn missing_server_is_one_sentence_that_says_what_to_install() {
        let error = find_in(vec![], vec![]).expect_err("there is none").to_string();

        assert!(error.starts_with("no PostgreSQL server 15 or newer was found: install one"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn server_that_is_too_old_is_named() {
        let root = tempfile::tempdir().expect("a directory");
        let old = install(root.path(), "usr/lib/postgresql/13/bin", "13.15");

        let error = find_in(vec![], usual_places(root.path())).expect_err("too old").to_string();

        assert!(error.contains(&format!("(only 13 in {})", old.display())), "{error}");
    }
}
