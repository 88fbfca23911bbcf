//! What every process does a little of, safe in parallel.

use uuid::Uuid;

use super::error::StoreError;
use super::session::Session;
use super::wire;
use crate::domain::closed_set;

closed_set! {
    pub enum ReapOutcome("outcome of reap") {
        /// Its worker is gone: pending again.
        Lost = "lost",
        /// A Job did not start in time: pending again, and no lost lease.
        Released = "released",
        /// It was over its deadline: pending again, after its back-off.
        Retry = "retry",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

/// Ends or gives back attempts whose lease ran out, or that are over their deadline by a lease; at most `limit`, and
/// never over 1,000.
pub async fn reap(mut session: impl Session, limit: u32) -> Result<Vec<(Uuid, ReapOutcome)>, StoreError> {
    let statement = sqlx::query("select track_id, outcome from sluice.reap($1)").bind(wire::int(limit));
    let rows = session.fetch_all(statement).await?;
    wire::rows(&rows, |row| Ok((wire::column(row, "track_id")?, wire::named(row, "outcome", ReapOutcome::parse)?)))
}

/// Makes ready what is due, at most `limit` tasks and never over 1,000, and lets rested lanes go on. Answers how many.
pub async fn promote(mut session: impl Session, limit: u32) -> Result<u32, StoreError> {
    let statement = sqlx::query("select sluice.promote($1) as tasks").bind(wire::int(limit));
    wire::small_count(&session.fetch_one(statement).await?, "tasks")
}

/// What one round of upkeep did, and whether the worker that asked is draining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    pub promoted: u32,
    pub reaped: u64,
    pub is_draining: bool,
}

/// `promote`, `reap` and a look at the worker's own row, in one statement: a worker that idles asks little.
pub async fn round(mut session: impl Session, worker_id: Uuid, limit: u32) -> Result<Round, StoreError> {
    let statement = sqlx::query(
        "select sluice.promote($2) as promoted, (select count(*) from sluice.reap($2)) as reaped,
                exists (select from sluice.watch($1, '{}')) as draining",
    )
    .bind(worker_id)
    .bind(wire::int(limit));
    let row = session.fetch_one(statement).await?;
    Ok(Round {
        promoted: wire::small_count(&row, "promoted")?,
        reaped: wire::count(&row, "reaped")?,
        is_draining: wire::column(&row, "draining")?,
    })
}

/// In days, 1 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub archive_days: u32,
    pub history_days: u32,
    /// Of idempotency keys; a resource's key stays as long as the resource.
    pub key_days: u32,
    /// Rows deleted of each table in one call.
    pub batch: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { archive_days: 30, history_days: 90, key_days: 30, batch: 10_000 }
    }
}

/// One thing that `retain` did, in words, with the rows that went with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retained {
    pub what: String,
    pub rows: u64,
}

/// Makes partitions ahead and lets go what is older than its retention.
pub async fn retain(mut session: impl Session, retention: Retention) -> Result<Vec<Retained>, StoreError> {
    let Retention { archive_days, history_days, key_days, batch } = retention;
    let statement = sqlx::query("select what, rows from sluice.retain($1, $2, $3, $4)")
        .bind(wire::int(archive_days))
        .bind(wire::int(history_days))
        .bind(wire::int(key_days))
        .bind(wire::int(batch));
    let rows = session.fetch_all(statement).await?;
    wire::rows(&rows, |row| Ok(Retained { what: wire::column(row, "what")?, rows: wire::count(row, "rows")? }))
}

/// Mends lanes whose mark is wrong, and answers how many there were: 0, always.
pub async fn settle(mut session: impl Session) -> Result<u32, StoreError> {
    let statement = sqlx::query("select sluice.settle() as lanes");
    wire::small_count(&session.fetch_one(statement).await?, "lanes")
}
