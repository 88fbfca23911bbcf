//! The way into the database: a pool, the time limits of a role, and statements that survive a pooler.
//!
//! Directly, statements are prepared by name, run by themselves (autocommit), and the session's limits come with the
//! connection. Through a pooler in transaction mode a session lasts as long as a transaction, so everything runs in an
//! explicit one that sets its limits with BEGIN, and with unnamed statements: the driver parses in one message exchange
//! and executes in the next, and between two of them without a transaction the pooler may change the session.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::{PoolConnection, PoolConnectionMetadata};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool, Postgres, SqlStr};

use super::error::StoreError;
use super::url::DatabaseUrl;

/// How long finding out why a connection was not to be had may take on top of the wait for it.
const DIAGNOSIS_LIMIT: Duration = Duration::from_secs(2);
/// Younger than what load balancers and firewalls usually cut, so that it is ended by us.
const MAX_LIFETIME: Duration = Duration::from_secs(30 * 60);
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

pub(super) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// What a connection is for: decides its name in `pg_stat_activity` and how long it may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The worker's own statements.
    Worker,
    /// Transactions of a worker's handlers.
    Handler,
    Operator,
    Reader,
    Migrator,
}

/// In milliseconds; 0 is no limit.
struct Limits {
    statement_ms: u32,
    lock_ms: u32,
    idle_in_transaction_ms: u32,
}

impl Role {
    fn application_name(self) -> &'static str {
        match self {
            Self::Worker => "sluice worker",
            Self::Handler => "sluice worker handler",
            Self::Operator => "sluice operator",
            Self::Reader => "sluice reader",
            Self::Migrator => "sluice migrate",
        }
    }

    fn limits(self) -> Limits {
        match self {
            // A statement takes less than the shortest lease that is sensible. One that was done, and whose commit never
            // comes since the network has gone silent, holds rows that the other workers wait for.
            Self::Worker => Limits { statement_ms: 30_000, lock_ms: 5_000, idle_in_transaction_ms: 5_000 },
            // It may think for a while between two statements, but not after `complete`, which sets a limit of its own.
            Self::Handler => Limits { statement_ms: 30_000, lock_ms: 5_000, idle_in_transaction_ms: 60_000 },
            Self::Operator => Limits { statement_ms: 30_000, lock_ms: 5_000, idle_in_transaction_ms: 5_000 },
            // Somebody waits for the page.
            Self::Reader => Limits { statement_ms: 10_000, lock_ms: 2_000, idle_in_transaction_ms: 10_000 },
            // An index takes as long as it takes, but what waits for a table's lock stops everybody behind it.
            Self::Migrator => Limits { statement_ms: 0, lock_ms: 3_000, idle_in_transaction_ms: 60_000 },
        }
    }
}

impl Limits {
    fn settings(&self) -> [(&'static str, u32); 3] {
        [
            ("statement_timeout", self.statement_ms),
            ("lock_timeout", self.lock_ms),
            ("idle_in_transaction_session_timeout", self.idle_in_transaction_ms),
        ]
    }
}

#[derive(Debug, Clone, Copy)]
pub struct PoolSettings {
    pub max_connections: u32,
    pub acquire_timeout: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { max_connections: 4, acquire_timeout: Duration::from_secs(10) }
    }
}

/// A pool of connections to one database in one role. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    pool: PgPool,
    shared: Arc<Shared>,
}

struct Shared {
    url: DatabaseUrl,
    settings: PoolSettings,
    begin: SqlStr,
}

impl Database {
    /// Opens nothing yet: a process starts, and says what it misses, also while the database is away.
    pub fn new(url: DatabaseUrl, role: Role, settings: PoolSettings) -> Self {
        // `end_abandoned_transaction` tests the connection as well, in the same round trip.
        let pool = pool_options(settings)
            .before_acquire(|connection, _: PoolConnectionMetadata| Box::pin(end_abandoned_transaction(connection)));
        Self::with_pool(pool, url, role, settings)
    }

    /// For who runs statements one by one, and tries again when one fails: connections are used as they are, which saves
    /// a round trip each time.
    pub fn for_retried_statements(url: DatabaseUrl, role: Role, settings: PoolSettings) -> Self {
        Self::with_pool(pool_options(settings), url, role, settings)
    }

    fn with_pool(pool: PgPoolOptions, url: DatabaseUrl, role: Role, settings: PoolSettings) -> Self {
        let pool = pool.connect_lazy_with(connect_options(&url, role));
        let begin = begin_statement(&url, role);
        Self { pool, shared: Arc::new(Shared { url, settings, begin }) }
    }

    pub fn url(&self) -> &DatabaseUrl {
        &self.shared.url
    }

    /// Asks for nothing but an answer.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.execute(sqlx::query("select 1")).await.map(drop)
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub async fn fetch_all(&self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        if self.url().is_pooler() {
            let mut transaction = self.begin().await?;
            let rows = transaction.fetch_all(statement).await?;
            transaction.commit().await?;
            return Ok(rows);
        }
        let mut connection = self.acquire().await?;
        connection.fetch_all(statement).await.map_err(|error| self.sorted(error))
    }

    pub async fn fetch_one(&self, statement: Statement<'_>) -> Result<PgRow, StoreError> {
        self.fetch_optional(statement).await?.ok_or_else(|| self.sorted(sqlx::Error::RowNotFound))
    }

    /// The first row, if there is one.
    pub async fn fetch_optional(&self, statement: Statement<'_>) -> Result<Option<PgRow>, StoreError> {
        self.fetch_all(statement).await.map(|rows| rows.into_iter().next())
    }

    /// The number of rows that changed.
    pub async fn execute(&self, statement: Statement<'_>) -> Result<u64, StoreError> {
        if self.url().is_pooler() {
            let mut transaction = self.begin().await?;
            let changed = transaction.execute(statement).await?;
            transaction.commit().await?;
            return Ok(changed);
        }
        let mut connection = self.acquire().await?;
        let result = connection.execute(statement).await.map_err(|error| self.sorted(error))?;
        Ok(result.rows_affected())
    }

    /// In a task of its own, so that whoever drops this future leaves no open transaction behind: the driver would give
    /// the connection back with the `begin` on its way. Never race any other future of this file all the same.
    pub async fn begin(&self) -> Result<Transaction, StoreError> {
        let (pool, statement) = (self.pool.clone(), self.shared.begin.clone());
        let begun = tokio::spawn(async move { pool.begin_with(statement).await }).await;
        match begun.unwrap_or(Err(sqlx::Error::BeginFailed)) {
            Ok(inner) => Ok(Transaction { inner, database: self.clone() }),
            Err(error) => Err(self.explained(error).await),
        }
    }

    async fn acquire(&self) -> Result<PoolConnection<Postgres>, StoreError> {
        match self.pool.acquire().await {
            Ok(connection) => Ok(connection),
            Err(error) => Err(self.explained(error).await),
        }
    }

    async fn explained(&self, error: sqlx::Error) -> StoreError {
        match error {
            sqlx::Error::PoolTimedOut => self.reason_of_timeout().await,
            error => self.sorted(error),
        }
    }

    /// The pool retries a refused connection until its time is up, and then has forgotten why.
    async fn reason_of_timeout(&self) -> StoreError {
        let Shared { url, settings, .. } = &*self.shared;
        if self.pool.size() >= settings.max_connections {
            return StoreError::pool_exhausted(url, settings.max_connections, settings.acquire_timeout);
        }
        let options = self.pool.connect_options();
        match tokio::time::timeout(DIAGNOSIS_LIMIT, PgConnection::connect_with(&options)).await {
            Ok(Ok(connection)) => {
                // It is back, or has a connection again; the next call will find it.
                drop(connection);
                StoreError::no_connection(url, settings.acquire_timeout)
            }
            Ok(Err(error)) => self.sorted(error),
            Err(_) => StoreError::no_connection(url, settings.acquire_timeout),
        }
    }

    fn sorted(&self, error: sqlx::Error) -> StoreError {
        StoreError::sort(error, self.url())
    }
}

/// An open transaction; dropped without `commit`, it is rolled back.
pub struct Transaction {
    inner: sqlx::Transaction<'static, Postgres>,
    database: Database,
}

impl Transaction {
    pub async fn fetch_all(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        let statement = self.prepared(statement);
        self.inner.fetch_all(statement).await.map_err(|error| self.database.sorted(error))
    }

    pub async fn fetch_one(&mut self, statement: Statement<'_>) -> Result<PgRow, StoreError> {
        let statement = self.prepared(statement);
        self.inner.fetch_one(statement).await.map_err(|error| self.database.sorted(error))
    }

    pub async fn fetch_optional(&mut self, statement: Statement<'_>) -> Result<Option<PgRow>, StoreError> {
        let statement = self.prepared(statement);
        self.inner.fetch_optional(statement).await.map_err(|error| self.database.sorted(error))
    }

    pub async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, StoreError> {
        let statement = self.prepared(statement);
        let result = self.inner.execute(statement).await.map_err(|error| self.database.sorted(error))?;
        Ok(result.rows_affected())
    }

    /// Any number of statements without parameters, in one message.
    pub async fn execute_script(&mut self, script: &'static str) -> Result<(), StoreError> {
        self.inner.execute(sqlx::raw_sql(script)).await.map(drop).map_err(|error| self.database.sorted(error))
    }

    pub async fn commit(self) -> Result<(), StoreError> {
        let Self { inner, database } = self;
        inner.commit().await.map_err(|error| database.sorted(error))
    }

    pub async fn rollback(self) -> Result<(), StoreError> {
        let Self { inner, database } = self;
        inner.rollback().await.map_err(|error| database.sorted(error))
    }

    /// A name would outlive the transaction on a session that is another's by then.
    fn prepared<'q>(&self, statement: Statement<'q>) -> Statement<'q> {
        statement.persistent(!self.database.url().is_pooler())
    }
}

fn pool_options(settings: PoolSettings) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(settings.max_connections)
        .acquire_timeout(settings.acquire_timeout)
        .max_lifetime(MAX_LIFETIME)
        .idle_timeout(IDLE_TIMEOUT)
        .test_before_acquire(false)
}

pub(super) fn connect_options(url: &DatabaseUrl, role: Role) -> PgConnectOptions {
    let options = url.options().clone().application_name(role.application_name());
    if url.is_pooler() {
        // A pooler refuses start-up parameters that it does not know.
        options.statement_cache_capacity(0).extra_float_digits(None)
    } else {
        options.options(role.limits().settings())
    }
}

/// The limits travel with BEGIN through a pooler, so that they cost no round trip of their own.
fn begin_statement(url: &DatabaseUrl, role: Role) -> SqlStr {
    let mut statement = "begin".to_owned();
    if url.is_pooler() {
        for (setting, milliseconds) in role.limits().settings() {
            statement.push_str(&format!("; set local {setting} = {milliseconds}"));
        }
    }
    // Only names and numbers of this file.
    sqlx::SqlSafeStr::into_sql_str(AssertSqlSafe(statement))
}

/// A cancelled `begin` leaves its transaction open and the driver does not know of it (sqlx 0.9): the next user would
/// work, and commit nothing, inside it. A statement in a transaction of its own starts at that transaction's time.
async fn end_abandoned_transaction(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    const IN_OLDER_TRANSACTION: &str = "select where pg_catalog.now() <> pg_catalog.statement_timestamp()";
    const FAILED_TRANSACTION: &str = "25P02";

    let abandoned = match connection.fetch_optional(sqlx::raw_sql(IN_OLDER_TRANSACTION)).await {
        Ok(row) => row.is_some(),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(FAILED_TRANSACTION) => true,
        // Broken: the pool opens another one in its place.
        Err(_) => return Ok(false),
    };
    if abandoned {
        connection.execute(sqlx::raw_sql("rollback")).await?;
    }
    Ok(true)
}
