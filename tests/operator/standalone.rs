//! `sluice standalone`: migrations, a worker and, where a cluster is named, the operator, in one process.

use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice::store::Role;

use crate::common::postgres::TestDb;
use crate::scene::{SOON, Scene};

/// Killed with this value.
struct Standalone(Child);

impl Standalone {
    fn start(db: &TestDb) -> Self {
        let mut command = sluice(&[]);
        command.env("DATABASE_URL", db.url(Role::Migrator)).stdin(Stdio::null());
        Self(command.spawn().expect("it starts"))
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
    let mut process = Standalone::start(&db);
    let enqueue =
        "select (sluice.enqueue('insert', 'acme', '{\"text\": \"A harbour has quays.\"}')).track_id is not null";
    until("nothing can be enqueued", async || sqlx::query(enqueue).execute(db.admin()).await.is_ok()).await;
    let chunks = "select count(*) from ingest.chunks where tenant = 'acme'";
    let state = "select state::text from sluice.task_status";
    until("the text is not taken in", async || {
        let state: String = sqlx::query_scalar(state).fetch_one(db.admin()).await.expect("a task");
        state == "completed"
    })
    .await;
    assert_eq!(sqlx::query_scalar::<_, i64>(chunks).fetch_one(db.admin()).await.expect("a count"), 1);
    assert!(process.end_by(Signal::SIGTERM).success());
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
