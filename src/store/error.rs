//! What went wrong with the database, sorted by what the caller can do, with the cause in words.

use std::io::ErrorKind;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::PgDatabaseError;

use super::url::DatabaseUrl;

/// The text names the cause, and never a password. The driver's error is kept for code that asks it, and is no
/// `#[source]`: what it says stands in the text already, and a chain would print it two more times.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Try again later: the database is away, busy, or not set up yet. It says nothing about the work.
    #[error("{cause}")]
    Transient { cause: String, driver: Option<sqlx::Error> },
    /// The server takes no writes: a standby, or set read-only. Try again later, and expect another server.
    #[error("{cause}")]
    ReadOnly { cause: String, driver: Option<sqlx::Error> },
    /// What the rows say by now stands against it.
    #[error("{cause}")]
    Conflict { cause: String, driver: Option<sqlx::Error> },
    /// The values given cannot be stored, however often it is tried.
    #[error("{cause}")]
    BadInput { cause: String, driver: Option<sqlx::Error> },
    /// A mistake in this program or in how it was installed.
    #[error("{cause}")]
    Bug { cause: String, driver: Option<sqlx::Error> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Transient,
    ReadOnly,
    Conflict,
    BadInput,
    Bug,
}

impl StoreError {
    /// The server's SQLSTATE, if the server said it.
    pub fn sqlstate(&self) -> Option<String> {
        self.database_error()?.code().map(Into::into)
    }

    /// The database is away, or refuses everybody: it says nothing about what was asked. A statement that took too long is
    /// none, since it may do so each time.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Transient { .. } => match self.sqlstate() {
                Some(code) => {
                    matches!(&code[..2], "08" | "53" | "58") || matches!(&*code, "57P01" | "57P02" | "57P03" | "57P05")
                }
                None => true,
            },
            Self::ReadOnly { .. } => true,
            Self::Conflict { .. } | Self::BadInput { .. } | Self::Bug { .. } => false,
        }
    }

    /// The server's own words, if it said any.
    pub fn server_message(&self) -> Option<&str> {
        self.database_error().map(DatabaseError::message)
    }

    /// It stays until somebody changes what was set: a URL, a password, who may enter, a grant, the schema. At a start, that
    /// is; later a right may be missing for a moment.
    pub fn is_setting(&self) -> bool {
        match self.driver() {
            Some(sqlx::Error::Tls(_) | sqlx::Error::Configuration(_)) => true,
            Some(sqlx::Error::Database(error)) => match error.code().as_deref() {
                Some("28P01" | "28000" | "3D000" | "3F000" | "42P01" | "42883" | "42703" | "42501") => true,
                Some("08P01") => error.message().contains("startup parameter"),
                Some(_) | None => false,
            },
            Some(_) | None => false,
        }
    }

    fn database_error(&self) -> Option<&dyn DatabaseError> {
        self.driver()?.as_database_error()
    }

    fn driver(&self) -> Option<&sqlx::Error> {
        match self {
            Self::Transient { driver, .. }
            | Self::ReadOnly { driver, .. }
            | Self::Conflict { driver, .. }
            | Self::BadInput { driver, .. }
            | Self::Bug { driver, .. } => driver.as_ref(),
        }
    }

    pub(super) fn sort(error: sqlx::Error, url: &DatabaseUrl) -> Self {
        let (sort, cause) = match &error {
            sqlx::Error::Database(database) => sort_sqlstate(&**database, url),
            sqlx::Error::Io(io) => (Sort::Transient, describe_io(io, url)),
            sqlx::Error::Tls(tls) => {
                (Sort::Transient, format!("{} and this program found no TLS: {tls}", url.server()))
            }
            // What the driver makes of a connection that ends before its first answer (sqlx 0.9).
            sqlx::Error::Protocol(problem) if problem.contains("SSLRequest: 0x00") => {
                (Sort::Transient, format!("{} closed the connection before it was made", url.server()))
            }
            sqlx::Error::PoolTimedOut => (Sort::Transient, format!("no connection to {url} was to be had in time")),
            sqlx::Error::PoolClosed => (Sort::Transient, "this program closes its connections".to_owned()),
            sqlx::Error::BeginFailed => (Sort::Transient, "the server did not begin a transaction".to_owned()),
            sqlx::Error::Configuration(problem) => {
                (Sort::Bug, format!("the connection's settings are wrong: {problem}"))
            }
            sqlx::Error::Encode(problem) => (Sort::BadInput, format!("a value cannot be sent: {problem}")),
            // What else there is cannot come from the server's state or the caller's values.
            other => (Sort::Bug, format!("the answer of the database was not understood: {other}")),
        };
        Self::new(sort, cause, Some(error))
    }

    pub(super) fn pool_exhausted(url: &DatabaseUrl, connections: u32, waited: Duration) -> Self {
        let cause = format!(
            "all {connections} connections of this process to {url} were in use for {} s: allow more, or find what holds them",
            waited.as_secs()
        );
        Self::new(Sort::Transient, cause, Some(sqlx::Error::PoolTimedOut))
    }

    pub(super) fn no_connection(url: &DatabaseUrl, waited: Duration) -> Self {
        let cause = format!("{} gave no connection within {} s", url.server(), waited.as_secs());
        Self::new(Sort::Transient, cause, Some(sqlx::Error::PoolTimedOut))
    }

    fn new(sort: Sort, cause: String, driver: Option<sqlx::Error>) -> Self {
        match sort {
            Sort::Transient => Self::Transient { cause, driver },
            Sort::ReadOnly => Self::ReadOnly { cause, driver },
            Sort::Conflict => Self::Conflict { cause, driver },
            Sort::BadInput => Self::BadInput { cause, driver },
            Sort::Bug => Self::Bug { cause, driver },
        }
    }
}

fn describe_io(error: &std::io::Error, url: &DatabaseUrl) -> String {
    let server = url.server();
    match error.kind() {
        ErrorKind::ConnectionRefused => format!("nothing listens on {server}: the port is wrong or the server is down"),
        ErrorKind::NotFound => format!("there is no socket in {server}: the directory is wrong or the server is down"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => format!("no network leads to {server}"),
        ErrorKind::TimedOut => format!("{server} did not answer in time"),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => {
            format!("{server} closed the connection: it restarts, or ended the session")
        }
        // Name resolution has no kind of its own.
        _ if error.to_string().contains("lookup address") => {
            format!("the host of {server} is not known: its name is wrong or name resolution is down")
        }
        _ => format!("the connection to {server} failed: {error}"),
    }
}

fn sort_sqlstate(error: &dyn DatabaseError, url: &DatabaseUrl) -> (Sort, String) {
    let code = error.code().unwrap_or_default();
    let message = error.message();
    let said = || format!("{message} (SQLSTATE {code}, {url})");
    let lost_statement =
        matches!(&*code, "26000" | "42P05") || code == "08P01" && message.contains("prepared statement");
    match code.as_ref() {
        "28P01" => (Sort::Transient, format!("{} refused the password of role {}", url.server(), url.role())),
        "28000" => (Sort::Transient, format!("{} lets role {} not in: {message}", url.server(), url.role())),
        "3D000" => (Sort::Transient, format!("there is no database {} on {}", url.database(), url.server())),
        "53300" => (Sort::Transient, format!("{} has no connection left: {message}", url.server())),
        "57P01" | "57P02" | "57P03" | "57P05" => (Sort::Transient, format!("{} restarts: {message}", url.server())),
        "3F000" | "42P01" | "42883" | "42703" => (
            Sort::Transient,
            format!("the schema is missing or older than this program, run `sluice migrate`: {}", said()),
        ),
        // A pooler's own answers.
        "08P01" if message.contains("startup parameter") => (
            Sort::Transient,
            format!(
                "a pooler at {} refuses this connection, add pgbouncer=true to the database URL: {message}",
                url.server()
            ),
        ),
        _ if lost_statement => (
            Sort::Transient,
            format!(
                "a pooler changed the session between two messages, add pgbouncer=true to the database URL: {}",
                said()
            ),
        ),
        "25006" => (Sort::ReadOnly, format!("{} takes no writes: {message}", url.server())),
        _ if message.contains("during recovery") => {
            (Sort::ReadOnly, format!("{} is a standby: {message}", url.server()))
        }
        // The lock table is full: the hint names the setting.
        "53200" => (Sort::Transient, format!("{}: {}", url.server(), with_hint(error))),
        "57014" | "55P03" | "40001" | "40P01" | "25P03" | "25P04" => (Sort::Transient, said()),
        "42501" => (
            Sort::Bug,
            format!("role {} may not do this, grant it the sluice role that it is to act in: {}", url.role(), said()),
        ),
        "23505" | "23503" | "23P01" | "P0002" => (Sort::Conflict, said()),
        "23502" | "23514" | "54000" => (Sort::BadInput, with_hint(error)),
        _ => match code.get(..2) {
            Some("08" | "53" | "58") => (Sort::Transient, said()),
            Some("22") => (Sort::BadInput, with_hint(error)),
            _ => (Sort::Bug, said()),
        },
    }
}

/// The functions of the schema say in their hint what to do.
fn with_hint(error: &dyn DatabaseError) -> String {
    let hint = error.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::hint);
    match hint {
        Some(hint) if !hint.is_empty() => format!("{}: {hint}", error.message()),
        Some(_) | None => error.message().to_owned(),
    }
}
