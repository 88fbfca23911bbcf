//! What a process asks the database before it works: whether the schema is this program's, and how long leases are.

use super::connect::Database;
use super::error::StoreError;
use super::migrate::MIGRATIONS;
use super::url::DatabaseUrl;
use super::wire;

/// What a pool's worker must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    pub lease_secs: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the database's schema is at version {database}, this program needs {program}: run `sluice migrate`")]
    SchemaIsOlder { database: i32, program: i32 },
    #[error(
        "the database's schema is at version {database}, this program knows it up to {program}: run a newer version of sluice"
    )]
    SchemaIsNewer { database: i32, program: i32 },
    #[error(
        "there is no pool {pool:?} in this database: set SLUICE_POOL to one of its pools, or make it with set_pool"
    )]
    NoPool { pool: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("role {role} may not work here, grant it sluice_worker: {source}")]
    NoRights { role: String, source: StoreError },
}

impl StartError {
    /// With what to grant, if it is a right that is missing.
    pub fn of(error: StoreError, url: &DatabaseUrl) -> Self {
        const INSUFFICIENT_PRIVILEGE: &str = "42501";
        match error.sqlstate().as_deref() {
            Some(INSUFFICIENT_PRIVILEGE) => Self::NoRights { role: url.role().to_owned(), source: error },
            Some(_) | None => Self::Store(error),
        }
    }

    /// Starting again does not help until somebody changes something.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::SchemaIsOlder { .. } | Self::SchemaIsNewer { .. } | Self::NoPool { .. } | Self::NoRights { .. } => {
                true
            }
            Self::Store(error) => error.is_setting(),
        }
    }
}

/// Refuses a schema that is not this program's, and a pool that is not there.
pub async fn about(database: &Database, pool: &str) -> Result<About, StartError> {
    let statement = sqlx::query("select schema_version, lease_secs from sluice.about($1)").bind(wire::text(pool));
    let row = database.fetch_one(statement).await.map_err(|error| StartError::of(error, database.url()))?;
    let program = MIGRATIONS.last().map_or(0, |migration| migration.version);
    check_version(wire::column(&row, "schema_version")?, program)?;
    match wire::column::<Option<i32>>(&row, "lease_secs")? {
        Some(_) => Ok(About { lease_secs: wire::small_count(&row, "lease_secs")? }),
        None => Err(StartError::NoPool { pool: pool.to_owned() }),
    }
}

fn check_version(database: i32, program: i32) -> Result<(), StartError> {
    match database.cmp(&program) {
        std::cmp::Ordering::Less => Err(StartError::SchemaIsOlder { database, program }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(StartError::SchemaIsNewer { database, program }),
    }
}
