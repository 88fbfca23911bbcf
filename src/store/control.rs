//! Cancel, retry, suspend, resume, priority: the same functions, whoever asks.

use serde_json::json;
use uuid::Uuid;

use super::error::StoreError;
use super::session::Session;
use super::wire;
use crate::domain::closed_set;
use crate::domain::lane::Class;
use crate::domain::task::TaskType;

/// Whose tasks the caller may touch: another's are not there for it. `None` is any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    pub tenant: Option<&'a str>,
    pub workspace: Option<&'a str>,
}

/// Who asks, and why; kept in the history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// Cut to 253 characters.
    pub by: Option<&'a str>,
    /// Cut to 1,024 characters.
    pub reason: Option<&'a str>,
}

closed_set! {
    pub enum CancelOutcome("outcome of cancel") {
        /// It was pending, and has ended.
        Cancelled = "cancelled",
        /// A worker holds it, and was told; it ends as cancelled, whatever the worker says.
        Stopping = "stopping",
        /// It was cancelled before.
        Unchanged = "unchanged",
        ConflictCompleted = "conflict_completed",
        /// It failed before.
        AlreadyFinished = "already_finished",
        NotFound = "not_found",
    }
}

pub async fn cancel(
    mut session: impl Session,
    track_id: Uuid,
    request: Request<'_>,
    scope: Scope<'_>,
) -> Result<CancelOutcome, StoreError> {
    let statement = sqlx::query("select sluice.cancel($1, $2, $3, $4, $5) as outcome")
        .bind(track_id)
        .bind(wire::optional_text(request.by))
        .bind(wire::optional_text(request.reason))
        .bind(wire::optional_text(scope.tenant))
        .bind(wire::optional_text(scope.workspace));
    wire::named(&session.fetch_one(statement).await?, "outcome", CancelOutcome::parse)
}

/// The task with all of its tree, whichever of them is named: one answer for each that was alive, or one for the task
/// that was named.
pub async fn cancel_linked(
    mut session: impl Session,
    track_id: Uuid,
    request: Request<'_>,
    scope: Scope<'_>,
) -> Result<Vec<(Uuid, CancelOutcome)>, StoreError> {
    let statement = sqlx::query("select track_id, outcome from sluice.cancel_linked($1, $2, $3, $4, $5)")
        .bind(track_id)
        .bind(wire::optional_text(request.by))
        .bind(wire::optional_text(request.reason))
        .bind(wire::optional_text(scope.tenant))
        .bind(wire::optional_text(scope.workspace));
    let rows = session.fetch_all(statement).await?;
    wire::rows(&rows, |row| Ok((wire::column(row, "track_id")?, wire::named(row, "outcome", CancelOutcome::parse)?)))
}

/// What `cancel_active` cancels; `None` filters nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActiveFilter<'a> {
    pub scope: Scope<'a>,
    pub class: Option<Class>,
    pub task_type: Option<TaskType>,
    pub pool: Option<&'a str>,
}

/// All that is active, pending too, at most `limit` (1 to 1,000): call it until it answers none.
pub async fn cancel_active(
    mut session: impl Session,
    filter: ActiveFilter<'_>,
    request: Request<'_>,
    limit: u32,
) -> Result<Vec<(Uuid, CancelOutcome)>, StoreError> {
    let ActiveFilter { scope: Scope { tenant, workspace }, class, task_type, pool } = filter;
    let filter = json!({
        "tenant": tenant, "workspace": workspace, "class": class.map(Class::as_str),
        "type": task_type.map(TaskType::as_str), "pool": pool,
    });
    let statement = sqlx::query("select track_id, outcome from sluice.cancel_active($1, $2, $3, $4)")
        .bind(wire::json(&filter))
        .bind(wire::optional_text(request.by))
        .bind(wire::optional_text(request.reason))
        .bind(wire::int(limit));
    let rows = session.fetch_all(statement).await?;
    wire::rows(&rows, |row| Ok((wire::column(row, "track_id")?, wire::named(row, "outcome", CancelOutcome::parse)?)))
}

closed_set! {
    pub enum RetryOutcome("outcome of retry") {
        Pending = "pending",
        /// It, or another task of its tree, has not ended.
        Active = "active",
        Completed = "completed",
        MaxRetriesExceeded = "max_retries_exceeded",
        /// Its exclusive key is another task's by now.
        ConflictActive = "conflict_active",
        NotFound = "not_found",
    }
}

/// By hand, at most three times a task. Answers the task that it is about: of a root, its failed or cancelled
/// descendant if there is one.
pub async fn retry(
    mut session: impl Session,
    track_id: Uuid,
    by: Option<&str>,
    scope: Scope<'_>,
) -> Result<(Uuid, RetryOutcome), StoreError> {
    let statement = sqlx::query("select outcome, track_id from sluice.retry($1, $2, $3, $4)")
        .bind(track_id)
        .bind(wire::optional_text(by))
        .bind(wire::optional_text(scope.tenant))
        .bind(wire::optional_text(scope.workspace));
    let row = session.fetch_one(statement).await?;
    Ok((wire::column(&row, "track_id")?, wire::named(&row, "outcome", RetryOutcome::parse)?))
}

closed_set! {
    pub enum SuspendOutcome("outcome of suspend") {
        Suspended = "suspended",
        Unchanged = "unchanged",
        /// It is not pending.
        Refused = "refused",
        NotFound = "not_found",
    }
}

/// Pending work waits until it is resumed; running work is not touched.
pub async fn suspend(
    mut session: impl Session,
    track_id: Uuid,
    by: Option<&str>,
    scope: Scope<'_>,
) -> Result<SuspendOutcome, StoreError> {
    let statement = sqlx::query("select sluice.suspend($1, $2, $3, $4) as outcome")
        .bind(track_id)
        .bind(wire::optional_text(by))
        .bind(wire::optional_text(scope.tenant))
        .bind(wire::optional_text(scope.workspace));
    wire::named(&session.fetch_one(statement).await?, "outcome", SuspendOutcome::parse)
}

closed_set! {
    pub enum ResumeOutcome("outcome of resume") {
        Resumed = "resumed",
        Unchanged = "unchanged",
        /// It is not pending.
        Refused = "refused",
        NotFound = "not_found",
    }
}

pub async fn resume(
    mut session: impl Session,
    track_id: Uuid,
    by: Option<&str>,
    scope: Scope<'_>,
) -> Result<ResumeOutcome, StoreError> {
    let statement = sqlx::query("select sluice.resume($1, $2, $3, $4) as outcome")
        .bind(track_id)
        .bind(wire::optional_text(by))
        .bind(wire::optional_text(scope.tenant))
        .bind(wire::optional_text(scope.workspace));
    wire::named(&session.fetch_one(statement).await?, "outcome", ResumeOutcome::parse)
}

closed_set! {
    pub enum PriorityOutcome("outcome of set_priority") {
        Changed = "changed",
        Unchanged = "unchanged",
        /// It is not pending.
        Refused = "refused",
        NotFound = "not_found",
    }
}

/// -1,000 to 1,000; higher goes first in its lane.
pub async fn set_priority(
    mut session: impl Session,
    track_id: Uuid,
    priority: i32,
    scope: Scope<'_>,
) -> Result<PriorityOutcome, StoreError> {
    let statement = sqlx::query("select sluice.set_priority($1, $2, $3, $4) as outcome")
        .bind(track_id)
        .bind(priority)
        .bind(wire::optional_text(scope.tenant))
        .bind(wire::optional_text(scope.workspace));
    wire::named(&session.fetch_one(statement).await?, "outcome", PriorityOutcome::parse)
}
