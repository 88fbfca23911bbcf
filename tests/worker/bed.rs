//! A database with short leases, tasks for test handlers, and what they left behind.

use std::collections::HashMap;
use std::time::Duration;

use private_postgres::Options;
use serde_json::Value;
use sluice::domain::lane::{Cap, Class, Policy};
use sluice::domain::task::{State, TaskType};
use sluice::store::control::{CancelOutcome, Request, Scope, cancel};
use sluice::store::enqueue::{Enqueued, NewTask, enqueue_many};
use sluice::store::lanes::{LaneSettings, Setting, WorkerPoolSettings, hold_lane, set_lane, set_pool};
use sluice::store::status::{TaskStatus, task_statuses};
use sluice::store::{Database, PoolSettings, Role};
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use crate::common::postgres::TestDb;
use crate::until::until;

pub const TENANT: &str = "acme";
pub const POOL: &str = "default";
/// Short enough to wait for, long enough that a loaded machine loses none. The settings of a process do not take either.
pub const LEASE: Duration = Duration::from_secs(4);
/// Of tests that want leases to be lost, and do not mind if a busy machine loses some more.
pub const SHORT_LEASE: Duration = Duration::from_secs(1);

pub struct Bed {
    pub db: TestDb,
    pub operator: Database,
}

impl Bed {
    /// Its pool has no caps.
    pub async fn new(lease: Duration) -> Self {
        Self::on(TestDb::new().await, lease).await
    }

    /// On a server of its own, to be stopped, filled or decoded.
    pub async fn private(lease: Duration, options: Options) -> Self {
        Self::on(TestDb::private(options).await, lease).await
    }

    async fn on(db: TestDb, lease: Duration) -> Self {
        let settings = PoolSettings { max_connections: 8, ..PoolSettings::default() };
        let operator = db.connect(Role::Operator, settings);
        let bed = Self { db, operator };
        bed.arrange(
            "create table public.sluice_test_effects (track_id uuid not null, attempt int not null);
             grant insert on public.sluice_test_effects to sluice_worker",
        )
        .await;
        bed.set_pool(WorkerPoolSettings {
            ingest_cap: Some(Cap::NONE),
            lifecycle_cap: Some(Cap::NONE),
            lease_secs: Some(u32::try_from(lease.as_secs()).expect("short")),
            ..WorkerPoolSettings::default()
        })
        .await;
        bed
    }

    pub async fn set_pool(&self, settings: WorkerPoolSettings<'_>) {
        set_pool(&self.operator, POOL, settings, None).await.expect("the pool's settings");
    }

    pub async fn set_cap(&self, tenant: &str, cap: u32) {
        let settings = LaneSettings { max_running: Setting::To(Cap::new(cap)), ..LaneSettings::default() };
        set_lane(&self.operator, tenant, Class::Ingest, &settings, None).await.expect("the lane's cap");
    }

    pub async fn hold(&self, policy: Policy) {
        hold_lane(&self.operator, TENANT, Class::Ingest, policy, None, None).await.expect("the lane's policy");
    }

    pub async fn enqueue(&self, task: NewTask) -> Uuid {
        self.enqueue_many(&[task]).await[0]
    }

    pub async fn enqueue_many(&self, tasks: &[NewTask]) -> Vec<Uuid> {
        let mut ids = Vec::with_capacity(tasks.len());
        for batch in tasks.chunks(1_000) {
            for enqueued in enqueue_many(&self.operator, batch).await.expect("an answer") {
                match enqueued {
                    Enqueued::Created { track_id } => ids.push(track_id),
                    other => panic!("{other:?}"),
                }
            }
        }
        ids
    }

    pub async fn cancel(&self, track_id: Uuid) -> CancelOutcome {
        cancel(&self.operator, track_id, Request::default(), Scope::default()).await.expect("an answer")
    }

    pub async fn tasks(&self, ids: &[Uuid]) -> HashMap<Uuid, TaskStatus> {
        let tasks = task_statuses(&self.operator, ids).await.expect("an answer");
        tasks.into_iter().map(|task| (task.track_id, task)).collect()
    }

    pub async fn task(&self, id: Uuid) -> TaskStatus {
        self.tasks(&[id]).await.remove(&id).expect("a task")
    }

    pub async fn state(&self, id: Uuid) -> State {
        self.task(id).await.state
    }

    pub async fn until_state(&self, id: Uuid, state: State) {
        until(&format!("{id} is {state}"), async || self.state(id).await == state).await;
    }

    pub async fn until_ended(&self, ids: &[Uuid]) -> HashMap<Uuid, TaskStatus> {
        let mut tasks = HashMap::new();
        until("all tasks end", async || {
            tasks = self.tasks(ids).await;
            tasks.len() == ids.len() && tasks.values().all(|task| task.state.is_terminal())
        })
        .await;
        tasks
    }

    /// As a superuser, one number.
    pub async fn number(&self, sql: &str) -> i64 {
        sqlx::query(AssertSqlSafe(sql)).fetch_one(self.db.admin()).await.expect(sql).get(0)
    }

    /// As a superuser.
    pub async fn arrange(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.db.admin()).await.expect(sql);
    }
}

/// The attempts whose writes are seen, of each task.
pub async fn effects(bed: &Bed) -> HashMap<Uuid, Vec<i32>> {
    let rows = sqlx::query("select track_id, attempt from public.sluice_test_effects order by attempt");
    let mut effects = HashMap::<Uuid, Vec<i32>>::new();
    for row in rows.fetch_all(bed.db.admin()).await.expect("the effects") {
        effects.entry(row.get(0)).or_default().push(row.get(1));
    }
    effects
}

/// Of the handlers for tests; see `sluice::worker::test_handlers`.
pub fn insert(payload: Value) -> NewTask {
    NewTask { payload, ..NewTask::new(TaskType::Insert, TENANT) }
}
