//! Brings the schema up to this program's version, and says what a database lacks.
//!
//! Each migration is one transaction that holds an advisory lock of its own, so it works through a pooler in
//! transaction mode and any number may start at once. The lock is tried and never waited for: a waiting statement would
//! pin the horizon for as long as another's migration takes.

use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use sqlx::Row;

use super::connect::{Database, Transaction};
use super::error::StoreError;

/// "sluice" in ASCII, cut to what fits: no other program's lock.
const LOCK_KEY: i64 = 0x736c_7569_6365;
const LOCK_POLL: Duration = Duration::from_millis(200);
/// As long as the longest migration of another process may take.
const LOCK_WAIT: Duration = Duration::from_secs(15 * 60);
/// A busy table is asked for again: its queue of waiters must dissolve in between.
const BUSY_ATTEMPTS: u32 = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// Roles belong to the server, so another database's migration may change one at this moment. Each loser loses to one
/// that got ahead, so as many tries as databases are enough.
const ROLE_RACE_ATTEMPTS: u32 = 50;
const ROLE_RACE_PAUSE: Duration = Duration::from_millis(20);

/// One file of `migrations/`.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub sql: &'static str,
}

/// All of `migrations/`, oldest first; `build.rs` lists them.
pub const MIGRATIONS: &[Migration] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(
        "the database is at migration {database}, this program knows them up to {program}: run a newer version of sluice"
    )]
    DatabaseIsNewer { database: i32, program: i32 },
    #[error(
        "migration {name} is not the one that was applied to this database: it was changed since, or belongs to another \
         build; run the version of sluice that applied it, or a later release"
    )]
    Changed { name: &'static str },
    #[error("migration {name} was left out when a later one was applied: this database was migrated by another build")]
    LeftOut { name: &'static str },
    #[error("another migration of this database has been running for {} minutes", waited.as_secs() / 60)]
    Locked { waited: Duration },
    #[error("migration {name} failed and was rolled back")]
    Failed {
        name: &'static str,
        #[source]
        source: StoreError,
    },
    #[error("the state of the database's schema could not be read")]
    Unreadable(#[source] StoreError),
}

/// Applies what is missing and says what that was.
pub async fn migrate(database: &Database, migrations: &[Migration]) -> Result<Vec<&'static str>, MigrateError> {
    let mut applied = Vec::new();
    loop {
        match step(database, migrations).await? {
            Step::Applied(name) => applied.push(name),
            Step::UpToDate => return Ok(applied),
        }
    }
}

/// The names of migrations that the database lacks.
pub async fn missing(database: &Database, migrations: &[Migration]) -> Result<Vec<&'static str>, MigrateError> {
    let mut transaction = database.begin().await.map_err(MigrateError::Unreadable)?;
    let recorded = recorded(&mut transaction).await.map_err(MigrateError::Unreadable)?;
    transaction.rollback().await.map_err(MigrateError::Unreadable)?;
    pending(migrations, &recorded).map(|pending| pending.iter().map(|migration| migration.name).collect())
}

enum Step {
    Applied(&'static str),
    UpToDate,
}

/// Everything is read again under each lock: another process may have gone on in between.
async fn step(database: &Database, migrations: &[Migration]) -> Result<Step, MigrateError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut transaction = lock(database).await?;
        let recorded = recorded(&mut transaction).await.map_err(MigrateError::Unreadable)?;
        let Some(next) = pending(migrations, &recorded)?.first() else { return Ok(Step::UpToDate) };
        let error = match apply(transaction, next).await {
            Ok(()) => return Ok(Step::Applied(next.name)),
            Err(error) => error,
        };
        match pause_before_retry(&error, attempt) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(MigrateError::Failed { name: next.name, source: error }),
        }
    }
}

async fn lock(database: &Database) -> Result<Transaction, MigrateError> {
    let started = Instant::now();
    loop {
        let mut transaction = database.begin().await.map_err(MigrateError::Unreadable)?;
        let locked: bool = transaction
            .fetch_one(sqlx::query("select pg_catalog.pg_try_advisory_xact_lock($1)").bind(LOCK_KEY))
            .await
            .map_err(MigrateError::Unreadable)?
            .get(0);
        if locked {
            return Ok(transaction);
        }
        transaction.rollback().await.map_err(MigrateError::Unreadable)?;
        if started.elapsed() > LOCK_WAIT {
            return Err(MigrateError::Locked { waited: started.elapsed() });
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}

struct Recorded {
    version: i32,
    checksum: String,
}

async fn recorded(transaction: &mut Transaction) -> Result<Vec<Recorded>, StoreError> {
    let exists = sqlx::query("select pg_catalog.to_regclass('sluice.migrations') is not null");
    if !transaction.fetch_one(exists).await?.get::<bool, _>(0) {
        return Ok(Vec::new());
    }
    let rows =
        transaction.fetch_all(sqlx::query("select version, checksum from sluice.migrations order by version")).await?;
    Ok(rows.iter().map(|row| Recorded { version: row.get("version"), checksum: row.get("checksum") }).collect())
}

/// What comes after the recorded ones, if those are a beginning of ours.
fn pending<'m>(migrations: &'m [Migration], recorded: &[Recorded]) -> Result<&'m [Migration], MigrateError> {
    let newest_known = migrations.last().map_or(0, |migration| migration.version);
    if let Some(newer) = recorded.last().filter(|record| record.version > newest_known) {
        return Err(MigrateError::DatabaseIsNewer { database: newer.version, program: newest_known });
    }
    let newest_recorded = recorded.last().map_or(0, |record| record.version);
    for migration in migrations.iter().filter(|migration| migration.version <= newest_recorded) {
        match recorded.iter().find(|record| record.version == migration.version) {
            Some(record) if record.checksum == checksum(migration.sql) => {}
            Some(_) => return Err(MigrateError::Changed { name: migration.name }),
            None => return Err(MigrateError::LeftOut { name: migration.name }),
        }
    }
    Ok(&migrations[migrations.partition_point(|migration| migration.version <= newest_recorded)..])
}

/// The first one finds neither the schema nor the table of records; it may make the schema itself.
const RECORDS: &str = "
    create schema if not exists sluice;
    create table if not exists sluice.migrations (
        version    int primary key,
        name       text not null,
        checksum   text not null,
        applied_at timestamptz not null default now()
    )";

async fn apply(mut transaction: Transaction, migration: &Migration) -> Result<(), StoreError> {
    // That something is there already is why it says `if not exists`.
    transaction.execute_script("set local client_min_messages = warning").await?;
    if migration.version == 1 {
        transaction.execute_script(RECORDS).await?;
    }
    transaction.execute_script(migration.sql).await?;
    // The migration may have worked as the owner of the schema; the records belong to whoever migrates.
    transaction.execute_script("reset role").await?;
    let record = sqlx::query("insert into sluice.migrations (version, name, checksum) values ($1, $2, $3)")
        .bind(migration.version)
        .bind(migration.name)
        .bind(checksum(migration.sql));
    transaction.execute(record).await?;
    transaction.commit().await
}

/// `None` if trying again would not help.
fn pause_before_retry(error: &StoreError, attempt: u32) -> Option<Duration> {
    let message = error.server_message().unwrap_or_default();
    match error.sqlstate()?.as_str() {
        "55P03" | "40P01" if attempt < BUSY_ATTEMPTS => Some(BUSY_PAUSE * attempt.min(10)),
        // Shared catalogs are updated without a lock that spans databases.
        "XX000" if message.starts_with("tuple concurrently") && attempt < ROLE_RACE_ATTEMPTS => Some(ROLE_RACE_PAUSE),
        "42710" | "23505" if message.contains("pg_") || message.contains("role") => {
            (attempt < ROLE_RACE_ATTEMPTS).then_some(ROLE_RACE_PAUSE)
        }
        _ => None,
    }
}

fn checksum(sql: &str) -> String {
    Sha256::digest(sql).iter().map(|byte| format!("{byte:02x}")).collect()
}
