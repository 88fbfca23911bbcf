//! Where tasks are, live or ended, and what users see of them.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::error::StoreError;
use super::session::Session;
use super::wire;
use crate::domain::failure::FailureClass;
use crate::domain::lane::Class;
use crate::domain::status::{PdfStatus, Presentation, Signals, Stage, present};
use crate::domain::task::{State, TaskType};

/// A task and what its document's row says. Times are the database's.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskStatus {
    pub track_id: Uuid,
    pub tenant: String,
    pub class: Class,
    pub pool: String,
    pub workspace: Option<String>,
    pub task_type: TaskType,
    pub state: State,
    /// Pending, not suspended, due.
    pub is_ready: bool,
    pub is_suspended: bool,
    pub priority: i16,
    /// Of the newest attempt; 0 before the first.
    pub attempt: i32,
    pub failures: i16,
    /// By hand.
    pub retries: i16,
    pub lost_leases: i16,
    pub max_attempts: i16,
    pub worker_id: Option<Uuid>,
    pub stage: Option<String>,
    /// 0 to 1.
    pub progress: Option<f32>,
    pub message: Option<String>,
    pub parent_id: Option<Uuid>,
    pub root_id: Option<Uuid>,
    pub failure_class: Option<FailureClass>,
    pub error: Option<String>,
    /// In the provider's currency.
    pub cost: f64,
    pub tokens: i64,
    pub cancel: Option<CancelRequest>,
    pub created_at: DateTime<Utc>,
    /// It is not claimed before.
    pub available_at: DateTime<Utc>,
    /// Of the newest attempt.
    pub started_at: Option<DateTime<Utc>>,
    pub lease_until: Option<DateTime<Utc>>,
    pub finished_at: Option<DateTime<Utc>>,
    pub timeout_secs: i32,
    pub payload: Value,
    pub result: Option<Value>,
    pub document: Option<DocumentStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRequest {
    pub at: DateTime<Utc>,
    pub by: Option<String>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentStatus {
    pub document_id: Uuid,
    /// `None`: the document is not there any more.
    pub status: Option<String>,
    pub stage: Option<String>,
    pub pdf_status: Option<PdfStatus>,
    pub pages: Option<i32>,
    pub failure_class: Option<FailureClass>,
}

impl TaskStatus {
    /// What users see, if this is the newest task of its document.
    pub fn presentation(&self) -> Presentation {
        let document = self.document.as_ref();
        let stage = |name: &Option<String>| name.as_deref().and_then(Stage::parse);
        let own_stage = || if self.state.is_running() { stage(&self.stage) } else { None };
        present(&Signals {
            task: Some(self.state),
            document: document.and_then(|document| stage(&document.status)),
            stage: document.and_then(|document| stage(&document.stage)).or_else(own_stage),
            pdf: document.and_then(|document| document.pdf_status),
            failure_class: document.map_or(self.failure_class, |document| document.failure_class),
            cancel_asked: self.state == State::Stopping,
        })
    }
}

/// Those of the tasks that there are, in no order.
pub async fn task_statuses(session: impl Session, track_ids: &[Uuid]) -> Result<Vec<TaskStatus>, StoreError> {
    read(session, track_ids, true).await
}

/// The same without payloads and results, which may be large: they are empty.
pub async fn task_statuses_without_content(
    session: impl Session,
    track_ids: &[Uuid],
) -> Result<Vec<TaskStatus>, StoreError> {
    read(session, track_ids, false).await
}

async fn read(mut session: impl Session, track_ids: &[Uuid], content: bool) -> Result<Vec<TaskStatus>, StoreError> {
    let statement = sqlx::query(
        "select track_id, tenant, class, pool, workspace, type, state, ready, suspended, priority, attempt, failures,
                retries, lost_leases, max_attempts, worker_id, stage, progress, message, document_id, parent_id, root_id,
                failure_class, error, cost, tokens, cancel_at, cancel_by, cancel_reason, created_at, available_at,
                started_at, lease_until, finished_at, timeout_secs, document_status, document_stage, pdf_status, pages,
                document_failure_class, case when $2 then payload else '{}' end as payload, case when $2 then result end as result
           from sluice.task_status where track_id = any ($1)",
    )
    .bind(track_ids.to_vec())
    .bind(content);
    wire::rows(&session.fetch_all(statement).await?, task_status_of)
}

/// `None`: there never was such a task, or its retention is over.
pub async fn task_status(session: impl Session, track_id: Uuid) -> Result<Option<TaskStatus>, StoreError> {
    Ok(task_statuses(session, &[track_id]).await?.pop())
}

fn task_status_of(row: &PgRow) -> Result<TaskStatus, StoreError> {
    Ok(TaskStatus {
        track_id: wire::column(row, "track_id")?,
        tenant: wire::column(row, "tenant")?,
        class: wire::named(row, "class", Class::parse)?,
        pool: wire::column(row, "pool")?,
        workspace: wire::column(row, "workspace")?,
        task_type: wire::named(row, "type", TaskType::parse)?,
        state: wire::named(row, "state", State::parse)?,
        is_ready: wire::column(row, "ready")?,
        is_suspended: wire::column(row, "suspended")?,
        priority: wire::column(row, "priority")?,
        attempt: wire::column(row, "attempt")?,
        failures: wire::column(row, "failures")?,
        retries: wire::column(row, "retries")?,
        lost_leases: wire::column(row, "lost_leases")?,
        max_attempts: wire::column(row, "max_attempts")?,
        worker_id: wire::column(row, "worker_id")?,
        stage: wire::column(row, "stage")?,
        progress: wire::column(row, "progress")?,
        message: wire::column(row, "message")?,
        parent_id: wire::column(row, "parent_id")?,
        root_id: wire::column(row, "root_id")?,
        failure_class: wire::optional_named(row, "failure_class", FailureClass::parse)?,
        error: wire::column(row, "error")?,
        cost: wire::column(row, "cost")?,
        tokens: wire::column(row, "tokens")?,
        cancel: cancel_request(row)?,
        created_at: wire::column(row, "created_at")?,
        available_at: wire::column(row, "available_at")?,
        started_at: wire::column(row, "started_at")?,
        lease_until: wire::column(row, "lease_until")?,
        finished_at: wire::column(row, "finished_at")?,
        timeout_secs: wire::column(row, "timeout_secs")?,
        payload: wire::column(row, "payload")?,
        result: wire::column(row, "result")?,
        document: document_status(row)?,
    })
}

fn cancel_request(row: &PgRow) -> Result<Option<CancelRequest>, StoreError> {
    let Some(at) = wire::column(row, "cancel_at")? else { return Ok(None) };
    Ok(Some(CancelRequest { at, by: wire::column(row, "cancel_by")?, reason: wire::column(row, "cancel_reason")? }))
}

fn document_status(row: &PgRow) -> Result<Option<DocumentStatus>, StoreError> {
    let Some(document_id) = wire::column(row, "document_id")? else { return Ok(None) };
    Ok(Some(DocumentStatus {
        document_id,
        status: wire::column(row, "document_status")?,
        stage: wire::column(row, "document_stage")?,
        pdf_status: wire::optional_named(row, "pdf_status", PdfStatus::parse)?,
        pages: wire::column(row, "pages")?,
        failure_class: wire::optional_named(row, "document_failure_class", FailureClass::parse)?,
    }))
}
