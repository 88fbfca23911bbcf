//! What there is of a task: its rows, and what its spec names.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use uuid::Uuid;

use super::admission::{Content, Document};
use crate::api::IngestTask;
use crate::api::ingest_task::{CHILDREN_MAX, ConfigMapKeyRef, Source};
use crate::domain::task::State;
use crate::operator::context::Context;
use crate::operator::controller::Fault;
use crate::operator::write::is_not_found;
use crate::store::resources::{FollowOn, KnownResource, document_owner, follow_ons, resources};
use crate::store::status::{TaskStatus, task_statuses_without_content};
use crate::store::{Database, StoreError};

/// The rows behind a resource, read after `resource.rev`.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub resource: KnownResource,
    /// `None`: its retention is over.
    pub root: Option<TaskStatus>,
    /// The newest that followed from it, if any did.
    pub newest: Option<TaskStatus>,
    /// The newest first.
    pub children: Vec<FollowOn>,
}

impl Seen {
    /// What speaks for the document.
    pub fn speaker(&self) -> Option<&TaskStatus> {
        self.newest.as_ref().or(self.root.as_ref())
    }

    /// Neither it nor what followed from it has ended.
    pub fn is_active(&self) -> bool {
        [&self.root, &self.newest].into_iter().flatten().any(|task| !task.state.is_terminal())
    }

    pub fn state(&self) -> Option<State> {
        self.speaker().map(|task| task.state)
    }
}

/// Of each uid what is known, in their order: three statements for all.
pub async fn see(database: &Database, cluster: &str, uids: &[String]) -> Result<Vec<Option<Seen>>, StoreError> {
    let known = resources(database, cluster, uids).await?;
    let roots: Vec<Uuid> = known.iter().map(|resource| resource.track_id).collect();
    let followed = |resource: &&KnownResource| resource.newest_track_id != resource.track_id;
    let newest: Vec<Uuid> = known.iter().filter(followed).map(|resource| resource.newest_track_id).collect();
    let mut tasks: HashMap<Uuid, TaskStatus> = HashMap::new();
    if !roots.is_empty() {
        let track_ids: Vec<Uuid> = roots.iter().chain(&newest).copied().collect();
        let statuses = task_statuses_without_content(database, &track_ids).await?;
        tasks.extend(statuses.into_iter().map(|status| (status.track_id, status)));
    }
    let mut children: HashMap<Uuid, Vec<FollowOn>> = HashMap::new();
    if !newest.is_empty() {
        let parents: Vec<Uuid> = known.iter().filter(followed).map(|resource| resource.track_id).collect();
        for child in follow_ons(database, &parents, u32::try_from(CHILDREN_MAX).unwrap_or(u32::MAX)).await? {
            children.entry(child.root_id).or_default().push(child);
        }
    }
    let mut seen: HashMap<String, Seen> = known
        .into_iter()
        .map(|resource| {
            let newest = match resource.newest_track_id == resource.track_id {
                true => None,
                false => tasks.remove(&resource.newest_track_id),
            };
            let root = tasks.remove(&resource.track_id);
            let children = children.remove(&resource.track_id).unwrap_or_default();
            (resource.uid.clone(), Seen { resource, root, newest, children })
        })
        .collect();
    Ok(uids.iter().map(|uid| seen.remove(uid)).collect())
}

/// What the source of a spec names and somebody has to read.
pub async fn content(context: &Context, task: &IngestTask) -> Result<Content, Fault> {
    let Some(Source { config_map_key_ref: Some(named), .. }) = &task.spec.source else { return Ok(Content::NotRead) };
    let ConfigMapKeyRef { name, key } = named;
    let api: Api<ConfigMap> = Api::namespaced(context.client.clone(), &task.namespace().unwrap_or_default());
    let map = match api.get(name).await {
        Ok(map) => map,
        Err(error) if is_not_found(&error) => {
            return Ok(Content::Missing(format!("there is no ConfigMap {name} in this namespace")));
        }
        Err(error) => return Err(error.into()),
    };
    Ok(match map.data.and_then(|mut data| data.remove(key)) {
        Some(text) => Content::Text(text),
        None => Content::Missing(format!("the ConfigMap {name} has no key {key} in its data")),
    })
}

/// Whose the document is that a spec names.
pub async fn document(context: &Context, task: &IngestTask) -> Result<Document, Fault> {
    let named = task.spec.source.as_ref().and_then(|source| source.document_id.as_deref());
    // What is no UUID is refused with its words by the admission.
    let Some(document_id) = named.and_then(|id| Uuid::parse_str(id).ok()) else { return Ok(Document::NotNamed) };
    Ok(match document_owner(&context.database, document_id).await? {
        Some(owner) => Document::Of { tenant: owner.tenant, workspace: owner.workspace },
        None => Document::Missing,
    })
}
