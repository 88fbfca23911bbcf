//! The stage of a trap: a database, its roles, the protocol in short calls, and sessions that can be seen to wait.

use std::future::Future;
use std::time::Duration;

use serde_json::{Value, json};
use sluice::store::{Database, PoolSettings, Role, StoreError, Transaction};
use sqlx::Row;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::common::postgres::TestDb;

pub const TENANT: &str = "a";
/// Long enough for a loaded machine; a condition that will come has come long before.
const DEADLINE: Duration = Duration::from_secs(60);

pub type Statement<'q> = Query<'q, sqlx::Postgres, PgArguments>;

/// Where a call runs: by itself on a pool, or in an open transaction.
pub trait Session {
    async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError>;
}

impl Session for Database {
    async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        self.fetch_all(statement).await
    }
}

/// An open transaction, with the server process that runs it.
pub struct Open {
    pub pid: i32,
    transaction: Transaction,
}

impl Session for Open {
    async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        self.transaction.fetch_all(statement).await
    }
}

impl Open {
    pub async fn begin(database: &Database) -> Self {
        let mut transaction = database.begin().await.expect("a transaction");
        // Half a day from the other sessions, on the far side of the date line: nothing may depend on it.
        let elsewhere = "select pg_backend_pid(), set_config('timezone', 'Pacific/Kiritimati', true)";
        let row = transaction.fetch_one(sqlx::query(elsewhere)).await.expect("a pid");
        Self { pid: row.get(0), transaction }
    }

    pub async fn commit(self) {
        self.transaction.commit().await.expect("the commit");
    }

    pub async fn rollback(self) {
        self.transaction.rollback().await.expect("the rollback");
    }

    pub async fn end(self, ending: Ending) {
        match ending {
            Ending::Commit => self.commit().await,
            Ending::Rollback => self.rollback().await,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Commit,
    Rollback,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub track_id: Uuid,
    pub attempt: i32,
}

pub struct Scene {
    pub db: TestDb,
    pub worker: Database,
    pub operator: Database,
    /// Registered in the default pool.
    pub id: Uuid,
}

impl Scene {
    pub async fn new() -> Self {
        Self::on(TestDb::new().await).await
    }

    pub async fn on(db: TestDb) -> Self {
        let settings = PoolSettings { max_connections: 30, ..PoolSettings::default() };
        let mut worker = db.connect(Role::Worker, settings);
        let operator = db.connect(Role::Operator, settings);
        let id = register(&mut worker, "default").await;
        Self { db, worker, operator, id }
    }

    /// As new, with one lane of this cap and so many tasks in it. Cheaper than another
    /// database.
    pub async fn lane(&self, cap: i32, tasks: usize) -> Vec<Uuid> {
        self.admin_execute(
            "truncate sluice.tasks, sluice.tasks_archive, sluice.tenant_lanes, sluice.lane_turns, sluice.lane_wakes,
                      sluice.documents, sluice.task_keys, sluice.mirrors, sluice.mirror_dirty, sluice.task_events restart identity;
             truncate sluice.pools restart identity;
             insert into sluice.pools (pool) values ('default');
             update sluice.workers set draining = false;",
        )
        .await;
        set_lane(&mut self.operator.clone(), TENANT, json!({ "max_running": cap })).await;
        enqueue(&mut self.worker.clone(), TENANT, tasks).await
    }

    pub async fn with_lane(cap: i32, tasks: usize) -> (Self, Vec<Uuid>) {
        let scene = Self::new().await;
        let ids = scene.lane(cap, tasks).await;
        (scene, ids)
    }

    pub async fn claim(&self, want: i32) -> Vec<Attempt> {
        claim(&mut self.worker.clone(), self.id, 1, want).await
    }

    pub async fn claim_one(&self) -> Attempt {
        let claimed = self.claim(1).await;
        assert_eq!(claimed.len(), 1, "one task is to be had");
        claimed[0]
    }

    /// A claim in a transaction that stays open.
    pub async fn open_claim(&self, want: i32) -> (Open, Vec<Attempt>) {
        let mut open = Open::begin(&self.worker).await;
        let claimed = claim(&mut open, self.id, 1, want).await;
        (open, claimed)
    }

    pub async fn admin_value<T>(&self, statement: &'static str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        sqlx::query(statement).fetch_one(self.db.admin()).await.expect("an answer").get(0)
    }

    pub async fn admin_execute(&self, statement: &'static str) {
        sqlx::raw_sql(statement).execute(self.db.admin()).await.expect("it is done");
    }

    pub async fn state(&self, track_id: Uuid) -> String {
        let statement = "select state from sluice.task_status where track_id = $1";
        sqlx::query(statement).bind(track_id).fetch_one(self.db.admin()).await.expect("the task").get(0)
    }

    /// Puts a lease's end into the past, as time would.
    pub async fn expire_lease(&self, track_id: Uuid) {
        let statement = "update sluice.tasks set lease_until = now() - interval '1 s' where track_id = $1";
        let done = sqlx::query(statement).bind(track_id).execute(self.db.admin()).await.expect("an update");
        assert_eq!(done.rows_affected(), 1, "a worker holds it");
    }

    /// A second session does something that has to wait for the first, which then ends as it is told to. Whether it ever
    /// waits is the point of many tests. The second stays open.
    pub async fn meet<T>(
        &self,
        first: Open,
        ending: Ending,
        database: &Database,
        act: impl AsyncFnOnce(&mut Open) -> T,
    ) -> (Open, T) {
        let mut second = Open::begin(database).await;
        let (waiting, holder) = (second.pid, first.pid);
        let (outcome, ()) = tokio::join!(act(&mut second), async {
            self.until_blocked(waiting, holder).await;
            first.end(ending).await;
        });
        (second, outcome)
    }

    /// As `meet`, and the second commits.
    pub async fn outcome<T>(
        &self,
        first: Open,
        ending: Ending,
        database: &Database,
        act: impl AsyncFnOnce(&mut Open) -> T,
    ) -> T {
        let (second, outcome) = self.meet(first, ending, database, act).await;
        second.commit().await;
        outcome
    }

    /// Until one session waits for the other.
    pub async fn until_blocked(&self, waiting: i32, holder: i32) {
        until(&format!("session {waiting} waits for {holder}"), async || {
            let statement = "select $2 = any (pg_blocking_pids($1))";
            sqlx::query(statement)
                .bind(waiting)
                .bind(holder)
                .fetch_one(self.db.admin())
                .await
                .expect("an answer")
                .get(0)
        })
        .await;
    }
}

/// Polls until the condition holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition().await {
        assert!(Instant::now() < deadline, "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The result of what must not wait for anybody.
pub async fn at_once<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE / 4, future).await.unwrap_or_else(|_| panic!("it waits: {what}"))
}

/// A call in a session of its own, in the background.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

pub async fn rows(session: &mut impl Session, statement: Statement<'_>) -> Vec<PgRow> {
    session.rows(statement).await.expect("an answer")
}

pub async fn text(session: &mut impl Session, statement: Statement<'_>) -> String {
    rows(session, statement).await[0].get(0)
}

pub async fn register(session: &mut impl Session, pool: &str) -> Uuid {
    rows(session, sqlx::query("select sluice.register_worker($1)").bind(pool)).await[0].get(0)
}

pub async fn set_lane(session: &mut impl Session, tenant: &str, settings: Value) {
    rows(session, sqlx::query("select lane_id from sluice.set_lane($1, 'ingest', $2)").bind(tenant).bind(settings))
        .await;
}

/// Plain tasks of one tenant, in this order.
pub async fn enqueue(session: &mut impl Session, tenant: &str, count: usize) -> Vec<Uuid> {
    let mut ids = Vec::with_capacity(count);
    for batch in vec![json!({ "type": "insert", "tenant": tenant }); count].chunks(1_000) {
        ids.extend(enqueue_items(session, batch).await.into_iter().map(|(id, _)| id.expect("a task")));
    }
    ids
}

pub async fn enqueue_items(session: &mut impl Session, items: &[Value]) -> Vec<(Option<Uuid>, String)> {
    try_enqueue_items(session, items).await.expect("an answer")
}

pub async fn try_enqueue_items(
    session: &mut impl Session,
    items: &[Value],
) -> Result<Vec<(Option<Uuid>, String)>, StoreError> {
    let statement =
        sqlx::query("select track_id, outcome from sluice.enqueue_many($1) order by item").bind(json!(items));
    Ok(session.rows(statement).await?.iter().map(|row| (row.get(0), row.get(1))).collect())
}

pub async fn claim(session: &mut impl Session, worker: Uuid, sequence: i64, want: i32) -> Vec<Attempt> {
    try_claim(session, worker, sequence, want, 1).await.expect("a claim's answer")
}

pub async fn try_claim(
    session: &mut impl Session,
    worker: Uuid,
    sequence: i64,
    want: i32,
    quantum: i32,
) -> Result<Vec<Attempt>, StoreError> {
    let statement = sqlx::query("select track_id, attempt from sluice.claim($1, $2, $3, $4)")
        .bind(worker)
        .bind(sequence)
        .bind(want)
        .bind(quantum);
    Ok(session.rows(statement).await?.iter().map(attempt).collect())
}

pub async fn complete(session: &mut impl Session, task: Attempt) -> String {
    text(session, sqlx::query("select sluice.complete($1, $2)").bind(task.track_id).bind(task.attempt)).await
}

pub async fn complete_many(session: &mut impl Session, tasks: &[Attempt]) -> Vec<String> {
    let (ids, attempts) = split(tasks);
    let statement = sqlx::query("select outcome from sluice.complete_many($1, $2)").bind(ids).bind(attempts);
    rows(session, statement).await.iter().map(|row| row.get(0)).collect()
}

pub async fn fail(session: &mut impl Session, task: Attempt, class: &str) -> String {
    let statement = sqlx::query("select sluice.fail($1, $2, $3)").bind(task.track_id).bind(task.attempt).bind(class);
    text(session, statement).await
}

pub async fn release(session: &mut impl Session, task: Attempt) -> String {
    let statement = sqlx::query("select outcome from sluice.release($1, $2)");
    text(session, statement.bind(vec![task.track_id]).bind(vec![task.attempt])).await
}

pub async fn stopped(session: &mut impl Session, task: Attempt) -> String {
    text(session, sqlx::query("select sluice.stopped($1, $2)").bind(task.track_id).bind(task.attempt)).await
}

pub async fn cancel(session: &mut impl Session, track_id: Uuid) -> String {
    text(session, sqlx::query("select sluice.cancel($1, 'a test')").bind(track_id)).await
}

pub async fn retry(session: &mut impl Session, track_id: Uuid) -> String {
    text(session, sqlx::query("select outcome from sluice.retry($1)").bind(track_id)).await
}

/// What became of each task that was reaped.
pub async fn reap(session: &mut impl Session) -> Vec<(Uuid, String)> {
    rows(session, sqlx::query("select track_id, outcome from sluice.reap()"))
        .await
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect()
}

pub async fn promote(session: &mut impl Session) -> i32 {
    rows(session, sqlx::query("select sluice.promote()")).await[0].get(0)
}

pub async fn settle(session: &mut impl Session) -> i32 {
    rows(session, sqlx::query("select sluice.settle()")).await[0].get(0)
}

/// The answers of a heartbeat: of the worker, then of each task in the order asked.
pub async fn heartbeat(session: &mut impl Session, worker: Uuid, sequence: i64, tasks: &[Attempt]) -> Vec<String> {
    let (ids, attempts) = split(tasks);
    let statement = sqlx::query("select answer from sluice.heartbeat($1, $2, $3, $4)")
        .bind(worker)
        .bind(sequence)
        .bind(ids)
        .bind(attempts);
    rows(session, statement).await.iter().map(|row| row.get(0)).collect()
}

fn attempt(row: &PgRow) -> Attempt {
    Attempt { track_id: row.get(0), attempt: row.get(1) }
}

fn split(tasks: &[Attempt]) -> (Vec<Uuid>, Vec<i32>) {
    tasks.iter().map(|task| (task.track_id, task.attempt)).unzip()
}
