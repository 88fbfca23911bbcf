//! A database of one's own for a test, migrated, with a handle for each role.
//!
//! `DATABASE_URL` (a superuser's) names the server, else the test binary starts one that goes with it. Tests that stop
//! or decode the server take `TestDb::private`. With `SLUICE_TEST_PGBOUNCER=1` the handles of the roles lead through
//! pgbouncer in transaction mode.

use std::sync::OnceLock;
use std::time::Duration;

use private_postgres::{Options, PgBouncer, PgBouncerOptions, Server};
use sha2::{Digest, Sha256};
use sluice::store::{Database, DatabaseUrl, PoolSettings, Role, migrate};
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgPool, Row};
use tokio::sync::OnceCell;

const PASSWORD: &str = "only-for-tests";
/// Login roles belong to the server, like those that they act in.
const LOGINS: [(&str, &str); 3] = [
    ("sluice_test_worker", "sluice_worker"),
    ("sluice_test_operator", "sluice_operator"),
    ("sluice_test_reader", "sluice_reader"),
];
/// Any number that no other lock of the server's first database has.
const TEMPLATE_LOCK: i64 = 0x7465_6d70_6c61;

/// A migrated database, dropped with this value; kept, and named, if the test fails.
pub struct TestDb {
    name: String,
    server: Source,
    pooled: bool,
    admin: PgPool,
}

enum Source {
    Shared(&'static Shared),
    Private(Box<Server>),
}

/// The server of this process: one of its own, or the one in DATABASE_URL.
struct Shared {
    superuser_url: String,
    pooler: OnceLock<Option<PgBouncer>>,
    // Ends with the process.
    _own: Option<Server>,
}

impl TestDb {
    /// On the server that all tests share.
    pub async fn new() -> Self {
        Self::on_shared(pooler_is_asked_for()).await
    }

    /// The roles' handles lead through pgbouncer. `None`, and a line that says so, where it is not installed.
    pub async fn through_pgbouncer(test: &str) -> Option<Self> {
        if shared().pooler().is_none() {
            eprintln!("skipped {test}: pgbouncer is not installed");
            return None;
        }
        Some(Self::on_shared(true).await)
    }

    /// On a server of its own, for tests that stop, crash, fill up or decode it.
    pub async fn private(options: Options) -> Self {
        let server = Server::start(options).expect("a private server starts");
        let superuser_url = server.url("postgres");
        let template = template(&superuser_url).await;
        Self::copy(Source::Private(Box::new(server)), &superuser_url, &template, false).await
    }

    /// On the shared server, without the schema.
    pub async fn unmigrated() -> Self {
        let shared = shared();
        Self::copy(Source::Shared(shared), &shared.superuser_url, "template1", pooler_is_asked_for()).await
    }

    /// As `through_pgbouncer`, without the schema.
    pub async fn unmigrated_through_pgbouncer(test: &str) -> Option<Self> {
        let shared = shared();
        if shared.pooler().is_none() {
            eprintln!("skipped {test}: pgbouncer is not installed");
            return None;
        }
        Some(Self::copy(Source::Shared(shared), &shared.superuser_url, "template1", true).await)
    }

    async fn on_shared(pooled: bool) -> Self {
        static TEMPLATE: OnceCell<String> = OnceCell::const_new();
        let shared = shared();
        assert!(!pooled || shared.pooler().is_some(), "SLUICE_TEST_PGBOUNCER is 1, but pgbouncer is not installed");
        let template = TEMPLATE.get_or_init(|| template(&shared.superuser_url)).await;
        Self::copy(Source::Shared(shared), &shared.superuser_url, template, pooled).await
    }

    async fn copy(server: Source, superuser_url: &str, template: &str, pooled: bool) -> Self {
        let name = format!("sluice_test_{}", uuid::Uuid::new_v4().simple());
        let mut connection = connect(superuser_url).await;
        let statement = format!("create database {name} template {template}");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.expect("a copy of the template");
        connection.close().await.expect("the connection closes");
        let admin = PgPoolOptions::new()
            .max_connections(20)
            .acquire_timeout(Duration::from_secs(30))
            .connect_lazy(&with_database(superuser_url, &name))
            .expect("a URL");
        Self { name, server, pooled, admin }
    }

    /// Whether the roles' handles lead through pgbouncer.
    pub fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// A superuser's pool, never through pgbouncer: for what a test arranges and looks at.
    pub fn admin(&self) -> &PgPool {
        &self.admin
    }

    pub fn worker(&self) -> Database {
        self.connect(Role::Worker, PoolSettings::default())
    }

    pub fn operator(&self) -> Database {
        self.connect(Role::Operator, PoolSettings::default())
    }

    pub fn reader(&self) -> Database {
        self.connect(Role::Reader, PoolSettings::default())
    }

    /// A handle with a pool of its own.
    pub fn connect(&self, role: Role, settings: PoolSettings) -> Database {
        Database::new(self.url(role).parse().expect("a URL"), role, settings)
    }

    /// The URL that a process in this role is given; the superuser's for migrations.
    pub fn url(&self, role: Role) -> String {
        let login = match role {
            Role::Worker | Role::Handler => LOGINS[0].0,
            Role::Operator => LOGINS[1].0,
            Role::Reader => LOGINS[2].0,
            Role::Migrator => return self.pooled_url(None),
        };
        self.pooled_url(Some(login))
    }

    /// The superuser's URL, never through pgbouncer.
    pub fn admin_url(&self) -> String {
        match &self.server {
            Source::Shared(shared) => with_database(&shared.superuser_url, &self.name),
            Source::Private(server) => server.url(&self.name),
        }
    }

    /// The private server, to stop, crash or configure it.
    pub fn server(&mut self) -> &mut Server {
        match &mut self.server {
            Source::Private(server) => server,
            Source::Shared(_) => panic!("a test that touches the server asks for TestDb::private"),
        }
    }

    fn pooled_url(&self, login: Option<&str>) -> String {
        let pooler = match &self.server {
            Source::Shared(shared) if self.pooled => shared.pooler(),
            Source::Shared(_) | Source::Private(_) => None,
        };
        match (pooler, login) {
            (Some(pooler), Some(login)) => pooler.url_as(login, PASSWORD, &self.name) + "?pgbouncer=true",
            (Some(pooler), None) => pooler.url(&self.name) + "?pgbouncer=true",
            (None, Some(login)) => as_role(&self.admin_url(), login),
            (None, None) => self.admin_url(),
        }
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let Source::Shared(shared) = self.server else { return };
        if std::thread::panicking() {
            eprintln!("the test's database is kept: {}", self.name);
            return;
        }
        // A drop cannot wait for a future of the test's own runtime.
        let statement = format!("drop database if exists {} with (force)", self.name);
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut connection = connect(&shared.superuser_url).await;
                connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.expect("the database is dropped");
            });
        });
        dropper.join().expect("dropping the test's database");
    }
}

impl Shared {
    fn pooler(&self) -> Option<&PgBouncer> {
        self.pooler
            .get_or_init(|| {
                PgBouncer::start(&self.superuser_url, &PgBouncerOptions::default()).expect("pgbouncer starts")
            })
            .as_ref()
    }
}

fn pooler_is_asked_for() -> bool {
    std::env::var("SLUICE_TEST_PGBOUNCER").is_ok_and(|value| value == "1")
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| match std::env::var("DATABASE_URL") {
        Ok(superuser_url) => Shared { superuser_url, pooler: OnceLock::new(), _own: None },
        Err(_) => {
            let server = Server::start(Options::fast()).expect("a private server starts");
            Shared { superuser_url: server.url("postgres"), pooler: OnceLock::new(), _own: Some(server) }
        }
    })
}

/// Makes the migrated template and the login roles, once for a server and a state of `migrations/`. Other processes may
/// want the same at this moment: the lock is the server's, and the template is marked as one when it is complete.
async fn template(superuser_url: &str) -> String {
    let mut hash = Sha256::new();
    for migration in migrate::MIGRATIONS {
        hash.update(migration.name);
        hash.update(migration.sql);
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("sluice_template_{digest}");

    let mut connection = connect(superuser_url).await;
    let locked = sqlx::query("select pg_advisory_lock($1)").bind(TEMPLATE_LOCK);
    connection.execute(locked).await.expect("the lock");
    let complete = sqlx::query("select datistemplate from pg_database where datname = $1").bind(&name);
    let complete = connection.fetch_optional(complete).await.expect("the list of databases");
    if !complete.is_some_and(|row| row.get(0)) {
        for statement in [format!("drop database if exists {name} with (force)"), format!("create database {name}")] {
            connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.expect("a database");
        }
        let url: DatabaseUrl = with_database(superuser_url, &name).parse().expect("a URL");
        let database =
            Database::new(url, Role::Migrator, PoolSettings { max_connections: 1, ..PoolSettings::default() });
        migrate::migrate(&database, migrate::MIGRATIONS).await.expect("the migrations");
        database.close().await;
        create_logins(&mut connection).await;
        let statement = format!("alter database {name} is_template true");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.expect("the mark");
    }
    // Closing releases the lock.
    connection.close().await.expect("the connection closes");
    name
}

async fn create_logins(connection: &mut PgConnection) {
    for (login, role) in LOGINS {
        let statement = format!(
            "do $$ begin
               if not exists (select from pg_roles where rolname = '{login}') then
                 create role {login} login password '{PASSWORD}' in role {role};
               end if;
             end $$"
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.expect("a login role");
    }
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("the server answers")
}

fn with_database(url: &str, database: &str) -> String {
    let (location, query) = url.split_once('?').unwrap_or((url, ""));
    let authority = location.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    format!("{authority}/{database}?{query}")
}

fn as_role(url: &str, login: &str) -> String {
    let host = url.rsplit_once('@').expect("a superuser's URL").1;
    format!("postgres://{login}:{PASSWORD}@{host}")
}
