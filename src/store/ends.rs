//! What a worker says of an attempt when it is over.
//!
//! A handler's own writes and `complete` share one transaction, and `complete` is its last statement: any answer but
//! `Completed` means to roll back, then [`stopped`], or nothing if the attempt is lost.

use std::collections::HashMap;

use serde_json::Value;
use uuid::Uuid;

use super::claim::{Attempt, attempt, split};
use super::enqueue::NewTask;
use super::error::StoreError;
use super::leases::DocumentChange;
use super::session::Session;
use super::wire;
use crate::domain::closed_set;
use crate::domain::failure::FailureClass;

closed_set! {
    pub enum CompleteOutcome("outcome of complete") {
        Completed = "completed",
        /// A cancel was first.
        Cancelled = "cancelled",
        /// This attempt has ended already.
        Refused = "refused",
        /// Another attempt has the task, or nobody.
        Lost = "lost",
        NotFound = "not_found",
    }
}

pub async fn complete(
    mut session: impl Session,
    attempt: Attempt,
    result: Option<&Value>,
    document: DocumentChange<'_>,
) -> Result<CompleteOutcome, StoreError> {
    let statement = sqlx::query("select sluice.complete($1, $2, $3, $4) as outcome")
        .bind(attempt.track_id)
        .bind(attempt.number)
        .bind(result.map(wire::json))
        .bind(document.to_json());
    wire::named(&session.fetch_one(statement).await?, "outcome", CompleteOutcome::parse)
}

/// At most 1,000, each with the result that it came to. Answers one for each, in no order.
///
/// Only what is not completed is sent back: that is seldom anything, and a thousand rows cost both sides time.
pub async fn complete_many(
    mut session: impl Session,
    completed: &[(Attempt, Option<Value>)],
) -> Result<Vec<(Attempt, CompleteOutcome)>, StoreError> {
    let attempts: Vec<_> = completed.iter().map(|(attempt, _)| *attempt).collect();
    let has_results = completed.iter().any(|(_, result)| result.is_some());
    let results: Option<Vec<_>> =
        has_results.then(|| completed.iter().map(|(_, result)| result.as_ref().map(wire::json)).collect());
    let (track_ids, numbers) = split(&attempts);
    let statement = sqlx::query(
        "select track_id, attempt, outcome from sluice.complete_many($1, $2, $3) where outcome <> 'completed'",
    )
    .bind(track_ids)
    .bind(numbers)
    .bind(results);
    let rows = session.fetch_all(statement).await?;
    let mut others =
        wire::rows(&rows, |row| Ok((attempt(row)?, wire::named(row, "outcome", CompleteOutcome::parse)?)))?;
    // A pair may stand twice: its first line was completed.
    let mut answered = HashMap::<Attempt, usize>::new();
    others.iter().for_each(|(attempt, _)| *answered.entry(*attempt).or_default() += 1);
    let is_completed = |attempt: &Attempt| match answered.get_mut(attempt).filter(|left| **left > 0) {
        Some(left) => {
            *left -= 1;
            false
        }
        None => true,
    };
    others.extend(attempts.into_iter().filter(is_completed).map(|attempt| (attempt, CompleteOutcome::Completed)));
    Ok(others)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletedWithNext {
    /// The follow-on is pending, or was there already.
    Completed { next: Uuid },
    /// As for `complete`; there is no follow-on.
    Not(CompleteOutcome),
}

/// Completes, and enqueues what follows, in one transaction. Tenant, workspace and document of the follow-on are this
/// task's, whatever `next` says. One that cannot be taken in is [`StoreError::BadInput`]: nothing is completed.
pub async fn complete_with_next(
    mut session: impl Session,
    attempt: Attempt,
    next: &NewTask,
    result: Option<&Value>,
    document: DocumentChange<'_>,
) -> Result<CompletedWithNext, StoreError> {
    let statement = sqlx::query("select outcome, next_track_id from sluice.complete_with_next($1, $2, $3, $4, $5)")
        .bind(attempt.track_id)
        .bind(attempt.number)
        .bind(next.to_item())
        .bind(result.map(wire::json))
        .bind(document.to_json());
    let row = session.fetch_one(statement).await?;
    Ok(match wire::named(&row, "outcome", CompleteOutcome::parse)? {
        CompleteOutcome::Completed => CompletedWithNext::Completed { next: wire::column(&row, "next_track_id")? },
        other => CompletedWithNext::Not(other),
    })
}

closed_set! {
    pub enum FailOutcome("outcome of fail") {
        /// Pending again, after its back-off.
        Retry = "retry",
        /// The class is permanent, or the budget is spent.
        Failed = "failed",
        Cancelled = "cancelled",
        Refused = "refused",
        Lost = "lost",
        NotFound = "not_found",
    }
}

/// `error` is for people, cut to 4,096 characters. `Cancelled` is no class that a handler may give
/// ([`StoreError::BadInput`]): only a cancel cancels.
pub async fn fail(
    mut session: impl Session,
    attempt: Attempt,
    class: FailureClass,
    error: Option<&str>,
    document: DocumentChange<'_>,
) -> Result<FailOutcome, StoreError> {
    let statement = sqlx::query("select sluice.fail($1, $2, $3, $4, $5) as outcome")
        .bind(attempt.track_id)
        .bind(attempt.number)
        .bind(class.as_str())
        .bind(wire::optional_text(error))
        .bind(document.to_json());
    wire::named(&session.fetch_one(statement).await?, "outcome", FailOutcome::parse)
}

closed_set! {
    pub enum StoppedOutcome("outcome of stopped") {
        Cancelled = "cancelled",
        /// Nobody asked it to stop, or it has ended.
        Refused = "refused",
        Lost = "lost",
        NotFound = "not_found",
    }
}

pub async fn stopped(mut session: impl Session, attempt: Attempt) -> Result<StoppedOutcome, StoreError> {
    let statement = sqlx::query("select sluice.stopped($1, $2) as outcome").bind(attempt.track_id).bind(attempt.number);
    wire::named(&session.fetch_one(statement).await?, "outcome", StoppedOutcome::parse)
}

closed_set! {
    pub enum ReleaseOutcome("outcome of release") {
        /// Pending again; it counts as no failure.
        Released = "released",
        Cancelled = "cancelled",
        Refused = "refused",
        Lost = "lost",
        NotFound = "not_found",
    }
}

/// Whether the lanes rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoolDown {
    No,
    /// A provider said 429: for 30, 60, 120, then 300 s, or as long as it asked for if that is longer.
    Lanes {
        retry_after_secs: Option<u32>,
    },
}

/// Gives back at most 1,000 attempts. Answers one for each, in no order.
pub async fn release(
    mut session: impl Session,
    attempts: &[Attempt],
    reason: Option<&str>,
    cool_down: CoolDown,
) -> Result<Vec<(Attempt, ReleaseOutcome)>, StoreError> {
    let (track_ids, numbers) = split(attempts);
    let (cools_down, retry_after_secs) = match cool_down {
        CoolDown::No => (false, None),
        CoolDown::Lanes { retry_after_secs } => (true, retry_after_secs),
    };
    let statement = sqlx::query("select track_id, attempt, outcome from sluice.release($1, $2, $3, $4, $5)")
        .bind(track_ids)
        .bind(numbers)
        .bind(wire::optional_text(reason))
        .bind(cools_down)
        .bind(retry_after_secs.map(wire::int));
    let rows = session.fetch_all(statement).await?;
    wire::rows(&rows, |row| Ok((attempt(row)?, wire::named(row, "outcome", ReleaseOutcome::parse)?)))
}
