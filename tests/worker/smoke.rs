//! The first things that a worker does, in this process: it completes, publishes, hears of a cancel, survives a panic, drains.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice::domain::lane::Cap;
use sluice::domain::task::{State, TaskType};
use sluice::store::Role;
use sluice::store::control::{CancelOutcome, Request, Scope, cancel};
use sluice::store::enqueue::{Enqueued, NewTask, enqueue};
use sluice::store::lanes::{WorkerPoolSettings, set_pool};
use sluice::store::status::{TaskStatus, task_status};
use sluice::worker::test_handlers::test_handlers;
use sluice::worker::{Ended, Shutdown, Worker, WorkerError, WorkerSettings};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::common::postgres::TestDb;

const PATIENCE: Duration = Duration::from_secs(60);

struct Scene {
    db: TestDb,
    shutdown: Shutdown,
    worker: JoinHandle<Result<Ended, WorkerError>>,
}

impl Scene {
    async fn new() -> Self {
        let db = TestDb::new().await;
        let settings =
            WorkerPoolSettings { ingest_cap: Some(Cap::NONE), lease_secs: Some(3), ..WorkerPoolSettings::default() };
        set_pool(&db.operator(), "default", settings, None).await.expect("the pool's settings");
        let table = "create table sluice_test_effects (track_id uuid not null, attempt int not null);
                     grant insert on sluice_test_effects to sluice_worker";
        sqlx::raw_sql(table).execute(db.admin()).await.expect("a table");
        let settings = WorkerSettings::new(db.url(Role::Worker).parse().expect("a URL"), 4);
        let worker = Worker::new(settings, test_handlers(&[]));
        let shutdown = Shutdown::new();
        let worker = tokio::spawn(worker.run(shutdown.clone()));
        Self { db, shutdown, worker }
    }

    async fn enqueue(&self, payload: Value) -> Uuid {
        let task = NewTask { payload, ..NewTask::new(TaskType::Insert, "acme") };
        match enqueue(&self.db.worker(), &task).await.expect("an answer") {
            Enqueued::Created { track_id } => track_id,
            other => panic!("{other:?}"),
        }
    }

    async fn until(&self, track_id: Uuid, state: State) -> TaskStatus {
        let (database, started) = (self.db.reader(), Instant::now());
        loop {
            let task = task_status(&database, track_id).await.expect("an answer").expect("a task");
            if task.state == state {
                return task;
            }
            assert!(started.elapsed() < PATIENCE, "it is not {state}: {task:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self) -> Ended {
        self.shutdown.drain();
        self.worker.await.expect("no panic").expect("a good end")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_completes_publishes_and_ends() {
    let scene = Scene::new().await;
    let plain = scene.enqueue(json!({ "handler": "noop" })).await;
    let counted = scene.enqueue(json!({ "handler": "count" })).await;
    let converted = scene.enqueue(json!({ "handler": "convert", "pages": 3 })).await;
    for track_id in [plain, counted, converted] {
        scene.until(track_id, State::Completed).await;
    }

    let rows: i64 = sqlx::query_scalar("select count(*) from sluice_test_effects where track_id = $1")
        .bind(counted)
        .fetch_one(scene.db.admin())
        .await
        .expect("a count");
    assert_eq!(rows, 1);
    assert_eq!(scene.end().await, Ended { given_back: 0, adopted: None });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_stops_a_handler_and_publishes_nothing() {
    let scene = Scene::new().await;
    let track_id = scene.enqueue(json!({ "handler": "count", "inside_ms": 600_000 })).await;
    scene.until(track_id, State::Processing).await;

    let request = Request { by: None, reason: None };
    let answer = cancel(&scene.db.operator(), track_id, request, Scope { tenant: None, workspace: None }).await;
    assert_eq!(answer.expect("an answer"), CancelOutcome::Stopping);

    scene.until(track_id, State::Cancelled).await;
    let rows: i64 = sqlx::query_scalar("select count(*) from sluice_test_effects")
        .fetch_one(scene.db.admin())
        .await
        .expect("a count");
    assert_eq!(rows, 0);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_costs_its_task_one_attempt() {
    let scene = Scene::new().await;
    let track_id = scene.enqueue(json!({ "handler": "panic", "message": "no end" })).await;
    let task = scene.until(track_id, State::Failed).await;
    assert_eq!((task.attempt, task.failures), (3, 3));
    assert_eq!(task.error.as_deref(), Some("the handler panicked: no end"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_signal_gives_back_what_runs() {
    let scene = Scene::new().await;
    let mut tasks = Vec::new();
    for work in [json!({ "handler": "sleep", "ms": 600_000 }), json!({ "handler": "hang" })] {
        tasks.push(scene.enqueue(work).await);
    }
    for track_id in &tasks {
        scene.until(*track_id, State::Processing).await;
    }

    scene.shutdown.give_back();
    for track_id in tasks {
        let task = scene.until(track_id, State::Pending).await;
        assert_eq!((task.failures, task.lost_leases), (0, 0));
    }
    assert_eq!(scene.end().await.given_back, 2);
}
