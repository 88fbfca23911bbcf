//! A queue with one worker: tasks in every state, for tests that care about what comes next.

use std::sync::atomic::{AtomicI64, Ordering};

use sluice::domain::failure::FailureClass;
use sluice::domain::lane::Cap;
use sluice::domain::task::{State, TaskType};
use sluice::store::claim::{Attempt, Claim, ClaimRequest, ClaimedTask, claim};
use sluice::store::control::{CancelOutcome, Request, Scope, cancel};
use sluice::store::ends::{CompleteOutcome, CoolDown, FailOutcome, ReleaseOutcome, complete, fail, release};
use sluice::store::enqueue::{Enqueued, NewTask, enqueue};
use sluice::store::lanes::{WorkerPoolSettings, set_pool};
use sluice::store::leases::{DocumentChange, NewWorker, register_worker};
use sluice::store::status::{TaskStatus, task_status};
use sluice::store::upkeep::promote;
use sluice::store::{Database, StoreError};
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use crate::common::postgres::TestDb;

pub const TENANT: &str = "acme";
pub const NOTHING: DocumentChange<'_> = DocumentChange { status: None, stage: None, pdf_status: None, pages: None };
pub const ANYBODY: Scope<'_> = Scope { tenant: None, workspace: None };
pub const UNNAMED: Request<'_> = Request { by: None, reason: None };

pub struct Queue {
    pub db: TestDb,
    /// In the role of a worker.
    pub worker: Database,
    /// In the role of the operator.
    pub operator: Database,
    pub worker_id: Uuid,
    sequence: AtomicI64,
}

impl Queue {
    /// Its pool sets no caps, so that a test meets only the limits that it sets.
    pub async fn new() -> Self {
        let db = TestDb::new().await;
        let (worker, operator) = (db.worker(), db.operator());
        let uncapped = WorkerPoolSettings {
            ingest_cap: Some(Cap::NONE),
            lifecycle_cap: Some(Cap::NONE),
            ..WorkerPoolSettings::default()
        };
        set_pool(&operator, "default", uncapped, None).await.expect("the pool's settings");
        let worker_id = register_worker(&worker, &serving("default")).await.expect("a worker");
        Self { db, worker, operator, worker_id, sequence: AtomicI64::new(0) }
    }

    pub async fn enqueue(&self, task: &NewTask) -> Uuid {
        match enqueue(&self.worker, task).await.expect("an answer") {
            Enqueued::Created { track_id } => track_id,
            other => panic!("{other:?}"),
        }
    }

    /// Up to so many tasks, whatever their lane; a claim that comes back short is made again, as a worker does.
    pub async fn claim(&self, want: u32) -> Vec<ClaimedTask> {
        let mut claimed = Vec::new();
        loop {
            let left = want - u32::try_from(claimed.len()).expect("few");
            if left == 0 {
                return claimed;
            }
            let request =
                ClaimRequest { worker_id: self.worker_id, sequence: self.next_sequence(), want: left, quantum: 1_000 };
            match claim(&self.worker, request).await.expect("a claim") {
                Claim::Tasks(tasks) if tasks.is_empty() => return claimed,
                Claim::Tasks(tasks) => claimed.extend(tasks),
                Claim::Unregistered => panic!("the worker is registered"),
            }
        }
    }

    pub fn next_sequence(&self) -> i64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Claims all there is, and answers this task's attempt if it is among it.
    pub async fn claim_this(&self, track_id: Uuid) -> Option<Attempt> {
        let claimed = self.claim(1_000).await;
        claimed.into_iter().map(|task| task.attempt).find(|attempt| attempt.track_id == track_id)
    }

    pub async fn run(&self, track_id: Uuid) -> Attempt {
        self.claim_this(track_id).await.expect("a claimable task")
    }

    pub async fn running(&self) -> Attempt {
        let track_id = self.enqueue(&insert()).await;
        self.run(track_id).await
    }

    pub async fn stopping(&self) -> Attempt {
        let attempt = self.running().await;
        assert_eq!(self.cancel(attempt.track_id).await, CancelOutcome::Stopping);
        attempt
    }

    /// A task in this state; its newest attempt, for a pending one that of a release.
    pub async fn in_state(&self, state: State) -> Attempt {
        match state {
            State::Pending => {
                let attempt = self.running().await;
                self.release(attempt).await;
                attempt
            }
            State::Processing => self.running().await,
            State::Stopping => self.stopping().await,
            State::Completed => {
                let attempt = self.running().await;
                assert_eq!(self.complete(attempt).await, CompleteOutcome::Completed);
                attempt
            }
            State::Failed => {
                let attempt = self.running().await;
                assert_eq!(self.fail(attempt, FailureClass::InvalidDocument).await, FailOutcome::Failed);
                attempt
            }
            State::Cancelled => {
                let attempt = self.stopping().await;
                assert_eq!(self.complete(attempt).await, CompleteOutcome::Cancelled);
                attempt
            }
        }
    }

    pub async fn complete(&self, attempt: Attempt) -> CompleteOutcome {
        complete(&self.worker, attempt, None, NOTHING).await.expect("an answer")
    }

    pub async fn fail(&self, attempt: Attempt, class: FailureClass) -> FailOutcome {
        fail(&self.worker, attempt, class, Some("why"), NOTHING).await.expect("an answer")
    }

    pub async fn cancel(&self, track_id: Uuid) -> CancelOutcome {
        cancel(&self.operator, track_id, UNNAMED, ANYBODY).await.expect("an answer")
    }

    async fn release(&self, attempt: Attempt) {
        let answers = release(&self.worker, &[attempt], None, CoolDown::No).await.expect("an answer");
        assert_eq!(answers, [(attempt, ReleaseOutcome::Released)]);
    }

    pub async fn task(&self, track_id: Uuid) -> TaskStatus {
        task_status(&self.worker, track_id).await.expect("an answer").expect("a task")
    }

    pub async fn state(&self, track_id: Uuid) -> State {
        self.task(track_id).await.state
    }

    pub async fn expire_lease(&self, track_id: Uuid) {
        self.arrange(
            "update sluice.tasks set lease_until = now() - interval '1 s' where track_id = $1 and leased",
            track_id,
        )
        .await;
    }

    /// Its back-off or delay is over.
    pub async fn make_due(&self, track_id: Uuid) {
        self.arrange("update sluice.tasks set available_at = now() - interval '1 s' where track_id = $1", track_id)
            .await;
        promote(&self.worker, 1_000).await.expect("an answer");
    }

    /// As a superuser, about one task.
    pub async fn arrange(&self, sql: &str, track_id: Uuid) {
        sqlx::query(AssertSqlSafe(sql)).bind(track_id).execute(self.db.admin()).await.expect(sql);
    }

    /// As a superuser, one number.
    pub async fn number(&self, sql: &str) -> i64 {
        sqlx::query(AssertSqlSafe(sql)).fetch_one(self.db.admin()).await.expect(sql).get(0)
    }
}

pub fn serving(pool: &str) -> NewWorker<'_> {
    NewWorker { pool, slots: 4, version: None, pod_name: None, pod_uid: None, stands_for_pool: false, worker_id: None }
}

/// Work without a document.
pub fn insert() -> NewTask {
    NewTask::new(TaskType::Insert, TENANT)
}

#[track_caller]
pub fn assert_sqlstate<T: std::fmt::Debug>(answer: Result<T, StoreError>, sqlstate: &str, words: &str) {
    let error = answer.expect_err("it is refused");
    assert_eq!(error.sqlstate().as_deref(), Some(sqlstate), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}
