//! Whether a resource gets a task, and which; if not, why, in words for whoever wrote it.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api::IngestTask;
use crate::api::conditions::Reason;
use crate::api::ingest_task::{IngestTaskSpec, Source};
use crate::domain::lane::Class;
use crate::domain::source::{self, SourceRefusal};
use crate::domain::task::TaskType;
use crate::operator::convert;
use crate::store::enqueue::{NewTask, Resource};

/// Of a payload; a little is left for what is around the text.
const TEXT_MAX_BYTES: usize = 1_048_576 - 256;
/// What somebody else has to change, and no watch tells of.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The content of a source that the operator reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    NotRead,
    Text(String),
    Missing(String),
}

/// The document that a source names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    NotNamed,
    Missing,
    Of { tenant: String, workspace: Option<String> },
}

/// What is known besides the resource.
pub struct Facts<'a> {
    pub cluster: &'a str,
    /// Of the lane, if it is there.
    pub allowed_sources: &'a [String],
    pub content: Content,
    pub document: Document,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    Enqueue(Box<NewTask>),
    /// A task that is there already.
    Mirror {
        resource: Resource,
        track_id: Uuid,
        tenant: String,
    },
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub message: String,
    /// When to look again; `None`: only a new resource can help.
    pub again: Option<Duration>,
}

impl Refusal {
    pub fn final_(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), again: None }
    }

    /// Somebody can change it without touching the resource.
    pub fn waiting(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), again: Some(LOOK_AGAIN) }
    }
}

/// The namespace's, unless it says another.
pub fn tenant(task: &IngestTask) -> &str {
    let namespace = task.metadata.namespace.as_deref().unwrap_or_default();
    task.spec.tenant.as_deref().unwrap_or(namespace)
}

pub fn class(task: &IngestTask) -> Class {
    convert::task_type(task.spec.task_type).class()
}

/// The namespace's right to the tenant was asked before.
pub fn admit(task: &IngestTask, facts: Facts<'_>) -> Admission {
    let Facts { cluster, allowed_sources, content, document } = facts;
    let tenant = tenant(task).to_owned();
    let resource = Resource {
        cluster: cluster.to_owned(),
        namespace: task.namespace().unwrap_or_default(),
        name: task.name_any(),
        uid: task.uid().unwrap_or_default(),
    };
    let source = task.spec.source.clone().unwrap_or_default();
    if let Some(track_id) = &source.track_id {
        return match Uuid::parse_str(track_id) {
            Ok(track_id) => Admission::Mirror { resource, track_id, tenant },
            Err(_) => Admission::Refused(Refusal::final_(Reason::Invalid, "spec.source.trackId is not a UUID")),
        };
    }
    match payload(&task.spec, &source, allowed_sources, content, document, &tenant) {
        Ok((payload, document_id)) => {
            Admission::Enqueue(Box::new(new_task(&task.spec, resource, tenant, payload, document_id)))
        }
        Err(refusal) => Admission::Refused(refusal),
    }
}

fn new_task(
    spec: &IngestTaskSpec,
    resource: Resource,
    tenant: String,
    payload: Value,
    document_id: Option<Uuid>,
) -> NewTask {
    NewTask {
        workspace: spec.workspace.clone(),
        payload,
        priority: spec.priority.unwrap_or_default(),
        // A cancel that is there from the start must come before any worker.
        suspended: spec.suspend == Some(true) || spec.cancel == Some(true),
        max_attempts: spec.max_attempts,
        timeout_secs: spec.timeout_seconds,
        document_id,
        idempotency_key: spec.idempotency_key.clone(),
        exclusive_key: spec.exclusive_key.clone(),
        resource: Some(resource),
        ..NewTask::new(convert::task_type(spec.task_type), tenant)
    }
}

/// What travels with the task, as handlers read it: where the content is, or the text itself. A document is named by the task,
/// not by its payload.
fn payload(
    spec: &IngestTaskSpec,
    source: &Source,
    allowed_sources: &[String],
    content: Content,
    document: Document,
    tenant: &str,
) -> Result<(Value, Option<Uuid>), Refusal> {
    let Source { url, text, config_map_key_ref, document_id, track_id: _ } = source;
    if let Some(url) = url {
        check_url(url, allowed_sources)?;
        return Ok((json!({ "url": url }), None));
    }
    if let Some(text) = text {
        return check_size(text).map(|()| (json!({ "text": text }), None));
    }
    if config_map_key_ref.is_some() {
        return match content {
            Content::Text(text) => check_size(&text).map(|()| (json!({ "text": text }), None)),
            Content::Missing(problem) => Err(Refusal::waiting(Reason::SourceMissing, problem)),
            Content::NotRead => Err(Refusal::waiting(Reason::SourceMissing, "the ConfigMap was not read")),
        };
    }
    if let Some(document_id) = document_id {
        let id = Uuid::parse_str(document_id)
            .map_err(|_| Refusal::final_(Reason::Invalid, "spec.source.documentId is not a UUID"))?;
        let own = Document::Of { tenant: tenant.to_owned(), workspace: spec.workspace.clone() };
        if document != own {
            // Whether it is there for another tenant is not told.
            let message = format!("tenant {tenant} has no document {id} in the workspace that the spec names");
            return Err(Refusal::waiting(Reason::DocumentNotFound, message));
        }
        return Ok((json!({}), Some(id)));
    }
    match convert::task_type(spec.task_type) {
        TaskType::WorkspaceWipe => Ok((json!({}), None)),
        TaskType::PdfProcessing
        | TaskType::Insert
        | TaskType::Upload
        | TaskType::Scan
        | TaskType::Reindex
        | TaskType::KnowledgeInjection
        | TaskType::Deletion => Err(Refusal::final_(Reason::Invalid, "spec.source names nothing")),
    }
}

fn check_size(text: &str) -> Result<(), Refusal> {
    if text.len() <= TEXT_MAX_BYTES {
        return Ok(());
    }
    let message = format!("the text has {} bytes, at most {TEXT_MAX_BYTES} fit; put it behind a url", text.len());
    Err(Refusal::final_(Reason::SourceTooLarge, message))
}

/// The same rule as the worker's, which looks again when it reads.
fn check_url(url: &str, allowed_sources: &[String]) -> Result<(), Refusal> {
    let checked = source::check_form(url).and_then(|url| source::check_named(&url, allowed_sources));
    checked.map_err(|refusal| {
        let message = format!("spec.source.{refusal}");
        match refusal {
            SourceRefusal::NotUrl(_) | SourceRefusal::Credentials => Refusal::final_(Reason::Invalid, message),
            SourceRefusal::Climbs | SourceRefusal::NotNamed | SourceRefusal::NotAllowed(_) => {
                Refusal::waiting(Reason::SourceNotAllowed, message)
            }
        }
    })
}

#[cfg(test)]
mod tests;
