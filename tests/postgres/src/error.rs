//! What can go wrong with a private server, each with what to do about it.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no PostgreSQL server {minimum} or newer was found{found}: install one \
         (`apt-get install postgresql`, `dnf install postgresql-server`, `brew install postgresql@17`) \
         or set POSTGRES_BIN to the directory that has `initdb`, `postgres` and `psql`"
    )]
    NoServer { minimum: u32, found: String },
    #[error(
        "POSTGRES_BIN is {}, which has no `initdb`, `postgres` and `psql` of version {minimum} or newer",
        directory.display()
    )]
    WrongServer { minimum: u32, directory: PathBuf },
    #[error("PostgreSQL refuses to run as root, and there is neither a user `postgres` nor `nobody` to run it as")]
    NoAccount,
    #[error(
        "no socket can be made in {}, its path is too long: set TMPDIR to a shorter one",
        directory.display()
    )]
    PathTooLong { directory: PathBuf },
    #[error("could not {doing}")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{program} ended with code {code}; the end of its log:\n{log}")]
    Ended { program: String, code: i32, log: String },
    #[error("{program} was not ready within {seconds} s; the end of its log:\n{log}")]
    TimedOut { program: String, seconds: u64, log: String },
    #[error("the server does not run: it was stopped or killed")]
    NotRunning,
    #[error("a superuser's URL is needed: postgres://role:password@host:port/database")]
    WrongUrl,
    #[error("psql failed: {message}")]
    Psql { message: String },
}

pub type Result<T> = std::result::Result<T, Error>;

/// Names the step that an I/O error stopped.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io { doing, source })
    }
}
