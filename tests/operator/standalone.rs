//! `sluice standalone`: migrations, a worker and, where a cluster is named, the operator, in one process.

use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice::store::Role;
use sqlx::{AssertSqlSafe, Executor};

use crate::common::postgres::TestDb;
use crate::scene::{SOON, Scene};

/// Killed with this value.
struct Standalone(Child);

impl Standalone {
    fn start(database_url: &str) -> Self {
        let mut command = sluice(&[("DATABASE_URL", database_url)]);
        Self(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }

    fn end_by(&mut self, signal: Signal) -> ExitStatus {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).expect("a child that was not waited for has its pid");
        self.0.wait().expect("it ends")
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A login that owns its database and is no superuser, as docs/install.md makes one.
struct Owner {
    name: String,
    url: String,
}

impl Owner {
    async fn of(db: &TestDb) -> Self {
        // The roles belong to the server: whoever migrates without being a superuser finds them.
        drop(TestDb::new().await);
        let name = format!("owner_{}", uuid::Uuid::new_v4().simple());
        let mut url = url::Url::parse(&db.admin_url()).expect("a URL");
        url.set_username(&name).and_then(|()| url.set_password(Some(&name))).expect("a URL of a server");
        let database = url.path().trim_start_matches('/').to_owned();
        run(db, format!("create role {name} login password '{name}' in role sluice_owner")).await;
        run(db, format!("alter database {database} owner to {name}")).await;
        Self { name, url: url.into() }
    }

    async fn drop(self, db: &TestDb) {
        run(db, format!("reassign owned by {0} to current_user; drop owned by {0}; drop role {0}", self.name)).await;
    }
}

async fn run(db: &TestDb, sql: String) {
    db.admin().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.expect("a statement");
}

fn sluice(environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("standalone").env_clear().envs(environment.iter().copied());
    command
}

/// Of a start that goes wrong.
fn refusal(db: &TestDb, environment: &[(&str, &str)]) -> Output {
    let mut command = sluice(environment);
    command.env("DATABASE_URL", db.url(Role::Migrator)).output().expect("it runs")
}

async fn until(otherwise: &str, is_so: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < SOON, "after {SOON:?}, {otherwise}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn empty_database_is_all_that_it_needs() {
    let db = TestDb::unmigrated().await;
    let owner = Owner::of(&db).await;
    let mut process = Standalone::start(&owner.url);
    let enqueue = "select * from sluice.enqueue('insert', 'acme', '{\"text\": \"A harbour has quays.\"}')";
    until("nothing can be enqueued", async || sqlx::query(enqueue).execute(db.admin()).await.is_ok()).await;
    let completed = "select count(*) from sluice.task_status where state = 'completed'";
    let chunks = "select count(*) from ingest.chunks where tenant = 'acme'";
    for query in [completed, chunks] {
        until("the text is not taken in", async || {
            sqlx::query_scalar::<_, i64>(query).fetch_one(db.admin()).await.is_ok_and(|count| count == 1)
        })
        .await;
    }
    assert!(process.end_by(Signal::SIGTERM).success());
    owner.drop(&db).await;
}

#[tokio::test]
async fn where_a_cluster_is_named_it_serves_resources_and_does_their_work() {
    let Some(mut scene) = Scene::without_operator("standalone").await else { return };
    scene.start_standalone();
    scene.accepted("first").await;
    scene.wait_condition("first", "Succeeded", "True", "Completed").await;
    // Everything that the first process has left is taken up by the next one.
    scene.stop_operator();
    scene.create("second", serde_json::json!({ "type": "Insert", "source": { "text": "quays" } })).await;
    scene.start_standalone();
    scene.wait_condition("second", "Succeeded", "True", "Completed").await;
}

#[tokio::test]
async fn what_cannot_run_ends_with_a_sentence() {
    let db = TestDb::unmigrated().await;
    let two = refusal(&db, &[("SLUICE_REPLICAS", "2"), ("SLUICE_TASK_DELIVERY", "bridged")]);
    let said = String::from_utf8_lossy(&two.stderr);
    assert_eq!((two.status.code(), said.lines().count()), (Some(78), 1), "{said}");
    assert!(said.contains("standalone"), "{said}");

    let nowhere = refusal(&db, &[("KUBECONFIG", "/nowhere/kubeconfig"), ("SLUICE_LOG", "off")]);
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(nowhere.status.code().is_some_and(|code| code != 0), "{said}");
    assert!(said.contains("/nowhere/kubeconfig"), "{said}");
}
