//! The one server of a run, and a database of its own for each cell.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use private_postgres::{Options, Server};
use sluice::store::migrate::{MIGRATIONS, migrate};
use sluice::store::{Database as Store, PoolSettings, Role};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

/// The database with our schema that every other one is a copy of.
const TEMPLATE: &str = "sluice_template";
/// Each with the rights of its role, and for LISTEN none at all.
const LOGINS: &str =
    "create role bench_worker login in role sluice_worker; create role bench_operator login in role sluice_operator;
                      create role bench_listener login";
/// More than any cell has clients.
const CONNECTIONS: u32 = 80;

pub struct Bed {
    server: Server,
    made: AtomicU32,
    quick: bool,
}

impl Bed {
    /// A server as production has it, but for what would make one repetition differ from the next: a checkpoint or a
    /// compilation in the middle of a cell. `wal_level=replica`, since nothing here decodes the log.
    pub async fn start(quick: bool) -> anyhow::Result<Self> {
        let options = Options::durable()
            .setting("shared_buffers", "2GB")
            .setting("max_wal_size", "24GB")
            .setting("min_wal_size", "2GB")
            .setting("checkpoint_timeout", "1h")
            .setting("synchronous_commit", "on")
            .setting("maintenance_work_mem", "512MB")
            .setting("wal_level", "replica")
            .setting("jit", "off");
        let server = Server::start(options)?;
        server.create_database(TEMPLATE)?;
        let server_url = server.socket_url(TEMPLATE);
        let bed = Self { server, made: AtomicU32::new(0), quick };
        let pool = bed.connect(TEMPLATE).await?;
        let store = Store::new(server_url.parse()?, Role::Migrator, PoolSettings::default());
        migrate(&store, MIGRATIONS).await?;
        store.close().await;
        sqlx::raw_sql(LOGINS).execute(&pool).await?;
        pool.close().await;
        Ok(bed)
    }

    /// A database with our schema and nothing in it.
    pub async fn ours(&self) -> anyhow::Result<Database> {
        let name = self.next_name();
        self.server.copy_database(&name, TEMPLATE)?;
        self.open(name).await
    }

    /// A database with nothing at all in it.
    pub async fn empty(&self) -> anyhow::Result<Database> {
        let name = self.next_name();
        self.server.create_database(&name)?;
        self.open(name).await
    }

    /// With new sessions, which read the database's settings anew.
    pub async fn reopen(&self, database: Database) -> anyhow::Result<Database> {
        database.pool.close().await;
        self.open(database.name).await
    }

    /// Only a full run needs the room: each drop is a checkpoint, and the server goes with all that it has.
    pub async fn drop(&self, database: Database) -> anyhow::Result<()> {
        database.pool.close().await;
        if self.quick {
            return Ok(());
        }
        self.server.psql("postgres", &format!("drop database {} with (force)", database.name))?;
        Ok(())
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.server.binaries().path(name)
    }

    /// What the sessions of databases with `log_statement = 'all'` have sent so far: the server's log misses nothing.
    pub fn statements(&self) -> anyhow::Result<Vec<String>> {
        let path = self.server.directory().join("postgres.log");
        let log = std::fs::read_to_string(path).context("read the server's log")?;
        let mut statements = Vec::<String>::new();
        let mut is_open = false;
        for line in log.lines() {
            // A statement's further lines are indented.
            if line.starts_with('\t') {
                if let Some(last) = statements.last_mut().filter(|_| is_open) {
                    last.push_str(line);
                }
                continue;
            }
            is_open = line.contains("LOG:  execute ") || line.contains("LOG:  statement: ");
            if is_open {
                statements.push(line.to_owned());
            }
        }
        Ok(statements)
    }

    pub fn version(&self) -> u32 {
        self.server.binaries().version()
    }

    fn next_name(&self) -> String {
        format!("cell_{}", self.made.fetch_add(1, Ordering::Relaxed))
    }

    async fn open(&self, name: String) -> anyhow::Result<Database> {
        Ok(Database {
            pool: self.connect(&name).await?,
            url: self.server.socket_url(&name),
            name,
            checkpoints: !self.quick,
        })
    }

    async fn connect(&self, name: &str) -> anyhow::Result<PgPool> {
        let options = PgConnectOptions::from_str(&self.server.socket_url(name))?;
        Ok(PgPoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?)
    }
}

pub struct Database {
    pub name: String,
    pub url: String,
    pub pool: PgPool,
    checkpoints: bool,
}

impl Database {
    pub async fn execute(&self, sql: impl Into<String>) -> anyhow::Result<()> {
        let sql = sql.into();
        sqlx::raw_sql(AssertSqlSafe(sql.as_str())).execute(&self.pool).await.with_context(|| sql.clone())?;
        Ok(())
    }

    pub async fn number(&self, sql: &'static str) -> anyhow::Result<i64> {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.context(sql)
    }

    /// The URL that a worker's process is given.
    pub fn worker_url(&self) -> String {
        self.url.replacen("postgres@", "bench_worker@", 1)
    }

    /// The URL that an operator's process is given.
    pub fn operator_url(&self) -> String {
        self.url.replacen("postgres@", "bench_operator@", 1)
    }

    /// The URL that a worker listens with.
    pub fn listener_url(&self) -> String {
        self.url.replacen("postgres@", "bench_listener@", 1)
    }

    /// From now on nobody listens, however often they try.
    pub async fn shut_listeners_out(&self) -> anyhow::Result<()> {
        // Committed before: else they are back before it holds.
        self.execute("alter role bench_listener nologin").await?;
        self.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'bench_listener'")
            .await
    }

    pub async fn let_listeners_in(&self) -> anyhow::Result<()> {
        self.execute("alter role bench_listener login").await
    }

    /// What each cell starts from: fresh statistics, a visibility map, and a checkpoint behind it.
    pub async fn settle(&self) -> anyhow::Result<()> {
        let tables: Vec<String> = sqlx::query_scalar(
            "select c.oid::regclass::text from pg_class c
              where c.relkind = 'r' and c.relnamespace::regnamespace::text not in ('pg_catalog', 'information_schema', 'pg_toast')",
        )
        .fetch_all(&self.pool)
        .await?;
        self.execute(format!("vacuum analyze {}", tables.join(", "))).await?;
        self.checkpoint().await
    }

    /// A quick look does without: nothing makes one of its own, and each costs a tenth of a cell.
    pub async fn checkpoint(&self) -> anyhow::Result<()> {
        if self.checkpoints { self.execute("checkpoint").await } else { Ok(()) }
    }
}
