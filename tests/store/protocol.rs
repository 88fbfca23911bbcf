//! docs/protocol.md against the database, and its two workers against the real schema.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::Role;
use sluice::store::control::CancelOutcome;
use sluice::store::enqueue::{Enqueued, NewTask, enqueue_many};
use sluice::store::lanes::{WorkerPoolSettings, set_pool};
use sqlx::Row;
use uuid::Uuid;

use crate::queue::{Queue, insert};

const DOCUMENT: &str = "docs/protocol.md";
const WORKERS: [&str; 2] = ["examples/workers/worker.sql", "examples/workers/worker.py"];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

#[tokio::test]
async fn every_granted_function_is_documented_with_its_signature_and_roles_and_nothing_else_is() {
    let queue = Queue::new().await;
    let rows = sqlx::query(
        r"select p.proname as name,
                 regexp_replace(pg_get_function_arguments(p.oid), '::[a-z]+(\[\])?', '', 'g') as arguments,
                 pg_get_function_result(p.oid) as result,
                 (select string_agg('`' || r || '`', ', ' order by n)
                    from unnest(array['sluice_worker', 'sluice_operator', 'sluice_reader']) with ordinality u (r, n)
                   where has_function_privilege(r, p.oid, 'execute')) as roles
            from pg_proc p where p.pronamespace = 'sluice'::regnamespace and p.proname !~ '^_' order by p.proname",
    )
    .fetch_all(queue.db.admin())
    .await
    .expect("the functions");
    let text = read(DOCUMENT);
    let mut names = BTreeSet::new();
    for row in rows {
        let [name, arguments, result, roles] =
            ["name", "arguments", "result", "roles"].map(|column| row.get::<String, _>(column));
        let head = format!("### `{name}`\n\n```sql\n{name}({arguments})\n  → {result}\n```\n\nMay call: {roles}.\n");
        assert!(text.contains(&head), "{DOCUMENT} does not say:\n{head}");
        names.insert(name);
    }
    let headings = text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    assert_eq!(headings.map(str::to_owned).collect::<BTreeSet<_>>(), names);
}

#[test]
fn every_name_of_a_closed_set_is_documented() {
    let text = read(DOCUMENT);
    let classes = FailureClass::ALL.iter().map(|class| class.as_str());
    let types = TaskType::ALL.iter().map(|task_type| task_type.as_str());
    for name in classes.chain(types).chain(State::ALL.iter().map(|state| state.as_str())) {
        assert!(text.contains(&format!("`{name}`")), "{DOCUMENT} does not name `{name}`");
    }
    for class in FailureClass::ALL {
        let permanent = if class.is_permanent() { "yes" } else { "no" };
        let row = format!("| `{class}` | {permanent} | {} |", class.recommended_action());
        assert!(text.contains(&row), "{DOCUMENT} does not say {row}");
    }
}

#[test]
fn quoted_workers_are_the_files() {
    let text = read(DOCUMENT);
    for path in WORKERS {
        assert!(text.contains(&format!("\n{}```\n", read(path))), "{DOCUMENT} does not quote {path}");
    }
}

/// What libpq understands of a worker's URL.
fn url(queue: &Queue) -> String {
    queue.db.url(Role::Worker).replace("?pgbouncer=true", "")
}

/// Leases of a second: a kill is found out while the test waits.
async fn with_short_leases() -> Queue {
    let queue = Queue::new().await;
    let settings = WorkerPoolSettings { lease_secs: Some(1), ..WorkerPoolSettings::default() };
    set_pool(&queue.operator, "default", settings, None).await.expect("settings");
    queue
}

fn is_found(program: &str, arguments: &[&str]) -> bool {
    let run = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn sql_worker_takes_tasks_until_there_is_none() {
    if !is_found("psql", &["--version"]) {
        eprintln!("skipped sql_worker_takes_tasks_until_there_is_none: psql is not installed");
        return;
    }
    let queue = Queue::new().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(queue.enqueue(&insert()).await);
    }
    let failing = queue.enqueue(&NewTask { payload: json!({ "fail": true }), ..insert() }).await;
    let cancelled = queue.enqueue(&insert()).await;
    queue.cancel(cancelled).await;

    let mut psql = Command::new("psql");
    psql.arg(url(&queue)).args(["--no-psqlrc", "--set=ON_ERROR_STOP=1", "--file"]).arg(file(WORKERS[0]));
    let run = psql.output().expect("psql runs");

    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    for track_id in ids {
        let task = queue.task(track_id).await;
        assert_eq!((task.state, task.result), (State::Completed, Some(json!({ "size": 2 }))));
    }
    let task = queue.task(failing).await;
    assert_eq!((task.state, task.failures, task.error.as_deref()), (State::Pending, 1, Some("the payload says so")));
    assert_eq!(queue.state(cancelled).await, State::Cancelled);
}

/// The Python worker, killed with this value.
struct Python(Child);

impl Python {
    /// `None`, and a line that says so, where no Python has the driver.
    fn start(queue: &Queue, test: &str) -> Option<Self> {
        // Debian's own, in case another one is first in PATH.
        let interpreter =
            ["python3", "/usr/bin/python3"].into_iter().find(|python| is_found(python, &["-c", "import psycopg2"]));
        let Some(interpreter) = interpreter else {
            eprintln!("skipped {test}: no python3 has psycopg2");
            return None;
        };
        let worker = Command::new(interpreter).arg(file(WORKERS[1])).env("DATABASE_URL", url(queue)).spawn();
        Some(Self(worker.expect("Python runs")))
    }

    /// As by Kubernetes: told to end, it ends by itself.
    fn terminate(mut self) {
        assert!(is_found("kill", &["-TERM", &self.0.id().to_string()]));
        let status = self.0.wait().expect("an end");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Python {
    /// Like `kill -9`, which nothing survives.
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

async fn until(what: &str, queue: &Queue, sql: &str, expected: i64) {
    let started = Instant::now();
    loop {
        let number = queue.number(sql).await;
        if number == expected {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{what}: {number}, not {expected}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// In one transaction, so that one claim takes them all.
async fn enqueue_sleeping(queue: &Queue, sleep_secs: &[f64]) -> Vec<Uuid> {
    let tasks: Vec<_> =
        sleep_secs.iter().map(|secs| NewTask { payload: json!({ "sleep_secs": secs }), ..insert() }).collect();
    let answers = enqueue_many(&queue.worker, &tasks).await.expect("answers");
    let track_ids = answers.into_iter().map(|answer| match answer {
        Enqueued::Created { track_id } => track_id,
        other => panic!("{other:?}"),
    });
    track_ids.collect()
}

const COMPLETED: &str = "select count(*) from sluice.tasks_archive where state = 'completed'";
const RENEWED: &str =
    "select count(*) from sluice.tasks where state = 'processing' and lease_until > started_at + interval '1.1 s'";
const RUNNING: &str = "select count(*) from sluice.tasks where state = 'processing'";

#[tokio::test]
async fn python_worker_drains_a_thousand_tasks() {
    let queue = with_short_leases().await;
    let tasks: Vec<_> = (0..1_000).map(|n| NewTask::new(TaskType::Insert, format!("tenant {}", n % 7))).collect();
    enqueue_many(&queue.worker, &tasks).await.expect("answers");
    let Some(python) = Python::start(&queue, "python_worker_drains_a_thousand_tasks") else { return };

    until("completed", &queue, COMPLETED, 1_000).await;
    python.terminate();

    assert_eq!(queue.number("select count(*) from sluice.tasks_archive where attempt <> 1 or result is null").await, 0);
}

#[tokio::test]
async fn python_worker_stops_what_is_cancelled_and_gives_back_the_rest() {
    let queue = with_short_leases().await;
    let cancelled = enqueue_sleeping(&queue, &[600.0]).await[0];
    let Some(python) = Python::start(&queue, "python_worker_stops_what_is_cancelled_and_gives_back_the_rest") else {
        return;
    };
    until("running", &queue, RUNNING, 1).await;

    // It runs for longer than its lease, so that this is the worker's answer, not the end of a lease.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(queue.cancel(cancelled).await, CancelOutcome::Stopping);
    until("cancelled", &queue, "select count(*) from sluice.tasks_archive where state = 'cancelled'", 1).await;

    let task = queue.task(cancelled).await;
    assert_eq!((task.state, task.attempt, task.lost_leases, task.result), (State::Cancelled, 1, 0, None));
    // Told to end, it ends what it is doing and gives back what it only holds. The rows say that both run a moment before it has
    // them; when it has renewed their leases, it is at the first.
    let batch = enqueue_sleeping(&queue, &[4.0, 600.0]).await;
    until("held", &queue, RENEWED, 2).await;
    python.terminate();
    assert_eq!(queue.state(batch[0]).await, State::Completed);
    let task = queue.task(batch[1]).await;
    assert_eq!((task.state, task.failures, task.lost_leases), (State::Pending, 0, 0));
}

#[tokio::test]
async fn tasks_of_a_killed_python_worker_come_back_after_their_lease() {
    let queue = with_short_leases().await;
    let ids = enqueue_sleeping(&queue, &[600.0, 0.0, 0.0]).await;
    let Some(python) = Python::start(&queue, "tasks_of_a_killed_python_worker_come_back_after_their_lease") else {
        return;
    };
    until("running", &queue, RUNNING, 3).await;

    drop(python);
    queue.arrange("update sluice.tasks set payload = '{}' where track_id = $1", ids[0]).await;
    let other = Python::start(&queue, "the same test").expect("it was found before");
    until("completed", &queue, COMPLETED, 3).await;
    other.terminate();

    for track_id in ids {
        let task = queue.task(track_id).await;
        assert_eq!((task.state, task.attempt, task.lost_leases, task.failures), (State::Completed, 2, 1, 0));
    }
}
