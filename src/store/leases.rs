//! What a worker says while it works: that it is there, that it goes on, and how far it has come.

use serde_json::{Map, Value, json};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::claim::{Attempt, Claim, attempt, claimed, split};
use super::error::StoreError;
use super::session::Session;
use super::wire;
use crate::domain::closed_set;
use crate::domain::status::PdfStatus;

/// A process that enters a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorker<'a> {
    pub pool: &'a str,
    /// Tasks that it can run at once.
    pub slots: u32,
    pub version: Option<&'a str>,
    pub pod_name: Option<&'a str>,
    pub pod_uid: Option<&'a str>,
    /// Its claims are for Jobs, whose pods adopt them; their leases are start deadlines.
    pub stands_for_pool: bool,
    /// The id that it had, if its row was lost.
    pub worker_id: Option<Uuid>,
}

/// Answers the worker's id, random for each process. A pool that is not there is [`StoreError::Conflict`].
pub async fn register_worker(mut session: impl Session, worker: &NewWorker<'_>) -> Result<Uuid, StoreError> {
    let NewWorker { pool, slots, version, pod_name, pod_uid, stands_for_pool, worker_id } = worker;
    let statement = sqlx::query("select sluice.register_worker($1, $2, $3, $4, $5, $6, $7) as worker_id")
        .bind(wire::text(pool))
        .bind(wire::int(*slots))
        .bind(wire::optional_text(*version))
        .bind(wire::optional_text(*pod_name))
        .bind(wire::optional_text(*pod_uid))
        .bind(stands_for_pool)
        .bind(worker_id);
    wire::column(&session.fetch_one(statement).await?, "worker_id")
}

closed_set! {
    /// What the database says of the worker itself.
    pub enum WorkerState("worker state") {
        Serving = "serving",
        /// It claims nothing more.
        Draining = "draining",
        /// Its row is gone: register again, under the same id.
        Unregistered = "unregistered",
    }
}

closed_set! {
    pub enum LeaseAnswer("answer of heartbeat") {
        Renewed = "renewed",
        /// Stop, then say `stopped`; the lease is not renewed.
        Cancel = "cancel",
        /// Renewed, but to be given back: the lane is drained.
        Release = "release",
        /// Another session holds the row: ask again soon.
        Busy = "busy",
        /// Not this worker's any more: write nothing.
        Lost = "lost",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    pub worker: WorkerState,
    /// One for each attempt that was named, in no order.
    pub leases: Vec<(Attempt, LeaseAnswer)>,
}

/// Renews what the worker holds, at most 1,000 attempts a call. `sequence` is that of the newest claim sent: what an
/// older one took and `attempts` does not name, since its reply never came, is given back.
pub async fn heartbeat(
    mut session: impl Session,
    worker_id: Uuid,
    sequence: i64,
    attempts: &[Attempt],
) -> Result<Heartbeat, StoreError> {
    let (track_ids, numbers) = split(attempts);
    let statement = sqlx::query("select track_id, attempt, answer from sluice.heartbeat($1, $2, $3, $4)")
        .bind(worker_id)
        .bind(sequence)
        .bind(track_ids)
        .bind(numbers);
    let rows = session.fetch_all(statement).await?;
    let (worker, leases) = rows.split_first().ok_or_else(|| wire::not_understood(&"heartbeat gave no row"))?;
    Ok(Heartbeat {
        worker: wire::named(worker, "answer", WorkerState::parse)?,
        leases: wire::rows(leases, |row| Ok((attempt(row)?, wire::named(row, "answer", LeaseAnswer::parse)?)))?,
    })
}

closed_set! {
    /// Why a task is to stop; as in `LeaseAnswer`.
    pub enum StopReason("answer of watch") {
        Cancel = "cancel",
        Release = "release",
        Lost = "lost",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub is_draining: bool,
    /// Those of the tasks that are to stop.
    pub stops: Vec<(Uuid, StopReason)>,
}

/// The cheap probe between heartbeats; at most 1,000 tasks a call.
pub async fn watch(mut session: impl Session, worker_id: Uuid, track_ids: &[Uuid]) -> Result<Watch, StoreError> {
    let statement =
        sqlx::query("select track_id, answer from sluice.watch($1, $2)").bind(worker_id).bind(track_ids.to_vec());
    let mut watch = Watch { is_draining: false, stops: Vec::new() };
    for row in session.fetch_all(statement).await? {
        match wire::column::<Option<Uuid>>(&row, "track_id")? {
            // Only a draining worker has a row of its own.
            None => watch.is_draining = true,
            Some(track_id) => watch.stops.push((track_id, wire::named(&row, "answer", StopReason::parse)?)),
        }
    }
    Ok(watch)
}

/// What an attempt has come to; what is `None` stays as it is. Names are cut to 64 characters, the message to 1,024.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report<'a> {
    pub stage: Option<&'a str>,
    /// 0 to 1.
    pub progress: Option<f64>,
    pub message: Option<&'a str>,
    /// Of all attempts so far, in the provider's currency; it never goes down.
    pub cost: Option<f64>,
    /// Of all attempts so far; it never goes down.
    pub tokens: Option<u64>,
    pub document: DocumentChange<'a>,
}

/// What changed of the task's document; what is `None` stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DocumentChange<'a> {
    pub status: Option<&'a str>,
    pub stage: Option<&'a str>,
    pub pdf_status: Option<PdfStatus>,
    pub pages: Option<u32>,
}

impl DocumentChange<'_> {
    /// `None` if nothing changed.
    pub(super) fn to_json(self) -> Option<Value> {
        let Self { status, stage, pdf_status, pages } = self;
        object([
            ("status", status.map(|status| json!(status))),
            ("stage", stage.map(|stage| json!(stage))),
            ("pdf_status", pdf_status.map(|status| json!(status.as_str()))),
            ("pages", pages.map(|pages| json!(pages))),
        ])
    }
}

impl Report<'_> {
    fn to_json(&self) -> Value {
        let Self { stage, progress, message, cost, tokens, document } = self;
        let fields = object([
            ("stage", stage.map(|stage| json!(stage))),
            ("progress", progress.map(|progress| json!(progress))),
            ("message", message.map(|message| json!(message))),
            ("cost", cost.map(|cost| json!(cost))),
            ("tokens", tokens.map(|tokens| json!(tokens))),
            ("document", document.to_json()),
        ]);
        fields.unwrap_or_else(|| json!({}))
    }
}

/// The fields that are there; `None` if there is none.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Option<Value> {
    let present: Map<_, _> =
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), wire::json(&value?)))).collect();
    (!present.is_empty()).then_some(Value::Object(present))
}

closed_set! {
    pub enum ReportOutcome("outcome of report") {
        Ok = "ok",
        /// Noted, but the task is to stop.
        Cancel = "cancel",
        Lost = "lost",
        /// The attempt has ended.
        Refused = "refused",
        NotFound = "not_found",
    }
}

/// A number out of its bounds is [`StoreError::BadInput`].
pub async fn report(
    mut session: impl Session,
    attempt: Attempt,
    report: &Report<'_>,
) -> Result<ReportOutcome, StoreError> {
    let statement = sqlx::query("select sluice.report($1, $2, $3) as outcome")
        .bind(attempt.track_id)
        .bind(attempt.number)
        .bind(report.to_json());
    wire::named(&session.fetch_one(statement).await?, "outcome", ReportOutcome::parse)
}

/// A Job's pod takes over the attempt that the operator claimed for it. It succeeds once: the answer is empty if the
/// attempt is not there to be taken.
pub async fn adopt(mut session: impl Session, worker_id: Uuid, attempt: Attempt) -> Result<Claim, StoreError> {
    let statement = sqlx::query(
        "select track_id, attempt, type, tenant, workspace, document_id, payload, timeout_secs, lease_secs, failures
           from sluice.adopt($1, $2, $3)",
    )
    .bind(worker_id)
    .bind(attempt.track_id)
    .bind(attempt.number);
    claimed(session.fetch_all(statement).await)
}

closed_set! {
    pub enum DrainOutcome("outcome of drain_worker") {
        Draining = "draining",
        NotFound = "not_found",
    }
}

/// The worker claims nothing more. That it holds no lease is true of it only if a **later** transaction says so.
pub async fn drain_worker(session: impl Session, worker_id: Uuid) -> Result<DrainOutcome, StoreError> {
    let row = one_worker(session, "select sluice.drain_worker($1) as outcome", worker_id).await?;
    wire::named(&row, "outcome", DrainOutcome::parse)
}

closed_set! {
    pub enum UndrainOutcome("outcome of undrain_worker") {
        Serving = "serving",
        NotFound = "not_found",
    }
}

pub async fn undrain_worker(session: impl Session, worker_id: Uuid) -> Result<UndrainOutcome, StoreError> {
    let row = one_worker(session, "select sluice.undrain_worker($1) as outcome", worker_id).await?;
    wire::named(&row, "outcome", UndrainOutcome::parse)
}

async fn one_worker(mut session: impl Session, statement: &'static str, worker_id: Uuid) -> Result<PgRow, StoreError> {
    session.fetch_one(sqlx::query(statement).bind(worker_id)).await
}
