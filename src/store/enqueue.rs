//! Work comes in.

use serde_json::{Map, Value, json};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::error::StoreError;
use super::session::Session;
use super::wire;
use crate::domain::task::TaskType;

/// Items of one call, of this and of every other function: each may take a lock, and the server's lock table is shared.
pub const BATCH_MAX: usize = 1_000;

/// What is asked for; what is `None` is left to the schema.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    pub task_type: TaskType,
    /// 1 to 253 characters.
    pub tenant: String,
    pub workspace: Option<String>,
    /// A JSON object of at most 1 MiB.
    pub payload: Value,
    /// Higher goes first within the lane: -1,000 to 1,000. A follow-on with 0 has that of the task before it.
    pub priority: i32,
    pub delay_secs: f64,
    pub suspended: bool,
    /// 1 to 100; 3 if it is not said.
    pub max_attempts: Option<u32>,
    /// 1 to 86,400; 7,200 if it is not said.
    pub timeout_secs: Option<u32>,
    pub document_id: Option<Uuid>,
    /// The same key and content later: the same task. 1 to 255 characters.
    pub idempotency_key: Option<String>,
    /// At most one active task of the tenant has it. 1 to 255 characters.
    pub exclusive_key: Option<String>,
    pub resource: Option<Resource>,
}

/// The custom resource that asked for a task; at most one task for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    pub cluster: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// What became of an item. The messages say what to do, and quote no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    Created {
        track_id: Uuid,
    },
    /// The idempotency key or the resource has its task already, whatever has become of it.
    Existing {
        track_id: Uuid,
    },
    /// The idempotency key was used for other content.
    ConflictIdempotency {
        track_id: Uuid,
        message: String,
    },
    /// A task with the exclusive key is active; which one is `None` if it ended just now.
    ConflictActive {
        track_id: Option<Uuid>,
        message: String,
    },
    Invalid {
        message: String,
    },
}

impl NewTask {
    pub fn new(task_type: TaskType, tenant: impl Into<String>) -> Self {
        Self {
            task_type,
            tenant: tenant.into(),
            workspace: None,
            payload: json!({}),
            priority: 0,
            delay_secs: 0.0,
            suspended: false,
            max_attempts: None,
            timeout_secs: None,
            document_id: None,
            idempotency_key: None,
            exclusive_key: None,
            resource: None,
        }
    }

    /// As the functions of the schema take it.
    pub(super) fn to_item(&self) -> Value {
        let Self {
            task_type,
            tenant,
            workspace,
            payload,
            priority,
            delay_secs,
            suspended,
            max_attempts,
            timeout_secs,
            document_id,
            idempotency_key,
            exclusive_key,
            resource,
        } = self;
        let resource = resource.as_ref().map(|Resource { cluster, namespace, name, uid }| {
            json!({ "cluster": cluster, "namespace": namespace, "name": name, "uid": uid })
        });
        let fields = [
            ("type", Some(json!(task_type.as_str()))),
            ("tenant", Some(json!(tenant))),
            ("workspace", workspace.as_ref().map(|workspace| json!(workspace))),
            ("payload", Some(payload.clone())),
            // Left out, a follow-on has that of the task before it.
            ("priority", (*priority != 0).then(|| json!(priority))),
            ("delay_secs", Some(json!(delay_secs))),
            ("suspended", Some(json!(suspended))),
            ("max_attempts", max_attempts.map(|attempts| json!(attempts))),
            ("timeout_secs", timeout_secs.map(|secs| json!(secs))),
            ("document_id", document_id.map(|id| json!(id))),
            ("idempotency_key", idempotency_key.as_ref().map(|key| json!(key))),
            ("exclusive_key", exclusive_key.as_ref().map(|key| json!(key))),
            ("resource", resource),
        ];
        let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        wire::json(&Value::Object(present.collect::<Map<_, _>>()))
    }
}

/// Takes one task in. Call [`super::reads::wake`] after the commit.
pub async fn enqueue(session: impl Session, task: &NewTask) -> Result<Enqueued, StoreError> {
    let mut answers = enqueue_many(session, std::slice::from_ref(task)).await?;
    answers.pop().ok_or_else(|| wire::not_understood(&"enqueue_many gave no row"))
}

/// Takes at most [`BATCH_MAX`] tasks in, and answers in their order; a bad item costs the others nothing. More of them
/// are [`StoreError::BadInput`]. Call [`super::reads::wake`] after the commit.
pub async fn enqueue_many(mut session: impl Session, tasks: &[NewTask]) -> Result<Vec<Enqueued>, StoreError> {
    let items = Value::Array(tasks.iter().map(NewTask::to_item).collect());
    let statement =
        sqlx::query("select track_id, outcome, message from sluice.enqueue_many($1) order by item").bind(items);
    wire::rows(&session.fetch_all(statement).await?, enqueued)
}

fn enqueued(row: &PgRow) -> Result<Enqueued, StoreError> {
    let message = || wire::column::<String>(row, "message");
    Ok(match wire::column::<&str>(row, "outcome")? {
        "created" => Enqueued::Created { track_id: wire::column(row, "track_id")? },
        "existing" => Enqueued::Existing { track_id: wire::column(row, "track_id")? },
        "conflict_idempotency" => {
            Enqueued::ConflictIdempotency { track_id: wire::column(row, "track_id")?, message: message()? }
        }
        "conflict_active" => Enqueued::ConflictActive { track_id: wire::column(row, "track_id")?, message: message()? },
        "invalid" => Enqueued::Invalid { message: message()? },
        unknown => return Err(wire::not_understood(&format!("enqueue_many says {unknown:?}"))),
    })
}
