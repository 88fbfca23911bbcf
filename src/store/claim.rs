//! The claim: new attempts under the caps of their lanes, fair between lanes.

use serde_json::Value;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::connect::Database;
use super::error::StoreError;
use super::wire;
use crate::domain::UnknownName;
use crate::domain::task::TaskType;

/// One attempt of a task: the token that every later write carries. With another number than the newest, it writes
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    pub track_id: Uuid,
    pub number: i32,
}

/// A task that this worker holds until its lease runs out.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedTask {
    pub attempt: Attempt,
    /// A newer schema may know types that this program does not: such a task fails as `unsupported_type`.
    pub task_type: Result<TaskType, UnknownName>,
    pub tenant: String,
    pub workspace: Option<String>,
    pub document_id: Option<Uuid>,
    pub payload: Value,
    /// From the claim on.
    pub timeout_secs: u32,
    /// The time between two heartbeats must be a fraction of it.
    pub lease_secs: u32,
    /// Earlier attempts that their handler failed.
    pub failures: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// Empty: nothing is claimable now, or the worker drains, or its pool is held.
    Tasks(Vec<ClaimedTask>),
    /// The worker's row is gone: register again.
    Unregistered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRequest {
    pub worker_id: Uuid,
    /// Grows with each claim of the worker; the next heartbeat names the newest one.
    pub sequence: i64,
    /// 1 to 1,000 tasks.
    pub want: u32,
    /// Tasks of one lane in one turn while other lanes have work; 1 to 1,000.
    pub quantum: u32,
}

/// A transaction of its own, so that lanes are never locked across a round trip; nor across a wait for the disk, which comes
/// after it.
pub async fn claim(database: &Database, request: ClaimRequest) -> Result<Claim, StoreError> {
    let claim = claim_unflushed(database, request).await?;
    if matches!(&claim, Claim::Tasks(tasks) if !tasks.is_empty()) {
        flush(database).await?;
    }
    Ok(claim)
}

/// The same, but that nobody may work on these tasks before [`flush`] has answered: a crash of the server could take them
/// back until then, and give another worker the same attempt.
pub async fn claim_unflushed(database: &Database, request: ClaimRequest) -> Result<Claim, StoreError> {
    let ClaimRequest { worker_id, sequence, want, quantum } = request;
    let statement = sqlx::query(
        "select track_id, attempt, type, tenant, workspace, document_id, payload, timeout_secs, lease_secs, failures
           from sluice.claim($1, $2, $3, $4, false)",
    )
    .bind(worker_id)
    .bind(sequence)
    .bind(wire::int(want))
    .bind(wire::int(quantum));
    claimed(database.fetch_all(statement).await)
}

/// Answers when every claim that was answered before is on disk.
pub async fn flush(database: &Database) -> Result<(), StoreError> {
    database.execute(sqlx::query("select from sluice.flush()")).await.map(drop)
}

/// What `claim` and `adopt` answer.
pub(super) fn claimed(answer: Result<Vec<PgRow>, StoreError>) -> Result<Claim, StoreError> {
    /// Only a worker without a row makes these functions say so.
    const NO_DATA_FOUND: &str = "P0002";

    match answer {
        Ok(rows) => wire::rows(&rows, claimed_task).map(Claim::Tasks),
        Err(error) if error.sqlstate().as_deref() == Some(NO_DATA_FOUND) => Ok(Claim::Unregistered),
        Err(error) => Err(error),
    }
}

/// By place, in the order of both statements: a claim may bring a thousand rows, and names are looked up in each.
fn claimed_task(row: &PgRow) -> Result<ClaimedTask, StoreError> {
    let count = |place: usize| {
        let number: i32 = wire::at(row, place)?;
        u32::try_from(number).map_err(|_| wire::not_understood(&format!("column {place} is {number}")))
    };
    Ok(ClaimedTask {
        attempt: Attempt { track_id: wire::at(row, 0)?, number: wire::at(row, 1)? },
        task_type: TaskType::parse(wire::at(row, 2)?),
        tenant: wire::at(row, 3)?,
        workspace: wire::at(row, 4)?,
        document_id: wire::at(row, 5)?,
        payload: wire::at(row, 6)?,
        timeout_secs: count(7)?,
        lease_secs: count(8)?,
        failures: count(9)?,
    })
}

/// The two arrays in which attempts travel.
pub(super) fn split(attempts: &[Attempt]) -> (Vec<Uuid>, Vec<i32>) {
    attempts.iter().map(|attempt| (attempt.track_id, attempt.number)).unzip()
}

/// The attempt that a row speaks of.
pub(super) fn attempt(row: &PgRow) -> Result<Attempt, StoreError> {
    Ok(Attempt { track_id: wire::column(row, "track_id")?, number: wire::column(row, "attempt")? })
}
