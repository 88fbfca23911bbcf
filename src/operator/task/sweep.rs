//! Finds what no watch told of: rows whose resource went while nobody looked, and tasks that were born elsewhere and are to
//! have a resource.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::gone::cancel;
use crate::api::ingest_task::{IngestTaskSpec, Source};
use crate::api::{IngestTask, TenantLane};
use crate::operator::cache::Key;
use crate::operator::context::{Context, FIELD_MANAGER};
use crate::operator::controller::Fault;
use crate::operator::convert;
use crate::operator::instrument::{ApiWrite, Kind};
use crate::operator::lane::manager;
use crate::operator::write::is_gone_or_changed;
use crate::store::resources::{ListedResource, Unmirrored, forget_resources, resources_after, unmirrored};

/// A missed deletion is found within this time.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// A task that was born elsewhere is shown within this time.
const BORN_INTERVAL: Duration = Duration::from_secs(2);
const PAGE: u32 = 1_000;
/// New resources of one pass.
const BORN_AT_ONCE: u32 = 50;
/// How long a resource that we made stays after the end.
const MADE_TTL_SECS: u32 = 600;
/// Says that a resource was made by the operator; nothing depends on it.
const MADE_LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "sluice");

pub async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut swept_at: Option<Instant> = None;
    while !stop.is_cancelled() {
        if swept_at.is_none_or(|at| at.elapsed() >= SWEEP_INTERVAL) {
            swept_at = Some(Instant::now());
            tell(sweep(&shared).await, "rows without a resource could not be looked for");
        }
        tell(show_born(&shared).await, "tasks that were born elsewhere could not be looked for");
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(BORN_INTERVAL) => {}
        }
    }
}

fn tell(result: Result<(), Fault>, what: &str) {
    if let Err(fault) = result {
        tracing::debug!(%fault, "{what}");
    }
}

/// All rows of this cluster: those that no resource in the cache stands for are believed gone only after the API server
/// has said so.
async fn sweep(shared: &Shared) -> Result<(), Fault> {
    let Context { database, cluster, settings, .. } = &*shared.context;
    let unreadable: HashSet<String> =
        shared.caches.tasks.objects.unreadable().into_iter().map(|unreadable| unreadable.uid).collect();
    let mut after = 0;
    loop {
        let page = resources_after(database, cluster, &settings.watch_namespaces, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.mirror_id;
        for resource in &page {
            let key = Key { namespace: resource.namespace.clone(), name: resource.name.clone() };
            let held = shared.caches.tasks.objects.get(&key).and_then(|task| task.uid());
            if held.as_ref() == Some(&resource.uid) || unreadable.contains(&resource.uid) {
                continue;
            }
            if is_gone(shared, resource).await? {
                bury(shared, resource).await?;
            }
        }
    }
}

/// 404, or another object under its name.
async fn is_gone(shared: &Shared, resource: &ListedResource) -> Result<bool, Fault> {
    let api: Api<IngestTask> = Api::namespaced(shared.context.client.clone(), &resource.namespace);
    let found = api.get_metadata_opt(&resource.name).await?;
    Ok(found.and_then(|found| found.metadata.uid).is_none_or(|uid| uid != resource.uid))
}

async fn bury(shared: &Shared, resource: &ListedResource) -> Result<(), Fault> {
    let Context { database, cluster, .. } = &*shared.context;
    let ListedResource { namespace, name, uid, track_id, retains, mirror_id: _ } = resource;
    tracing::info!(namespace, name, %track_id, retains, "a resource went while nobody looked");
    if !retains {
        cancel(&shared.context, *track_id, &format!("IngestTask {namespace}/{name}")).await?;
    }
    forget_resources(database, cluster, std::slice::from_ref(uid)).await?;
    shared.entries.forget(uid);
    Ok(())
}

/// Makes resources for tasks that have none, where their lane asks for it; each is then looked at as any other.
async fn show_born(shared: &Shared) -> Result<(), Fault> {
    let named = |lane: Arc<TenantLane>| Some((manager(&lane.namespace()?, &lane.uid()?), lane));
    // Nothing is asked of the database where no lane asks for it, and nothing of lanes that are another operator's.
    let asks = |lane: &Arc<TenantLane>| lane.spec.mirror.is_some();
    let lanes: HashMap<String, Arc<TenantLane>> =
        shared.caches.lanes.objects.all().into_iter().filter(asks).filter_map(named).collect();
    if lanes.is_empty() {
        return Ok(());
    }
    let context = &shared.context;
    let managers: Vec<String> = lanes.keys().cloned().collect();
    let mut failed: HashMap<String, Fault> = HashMap::new();
    for born in unmirrored(&context.database, &context.cluster, &managers, BORN_AT_ONCE).await? {
        let Some(lane) = lanes.get(&born.lane_uid).filter(|_| !failed.contains_key(&born.lane_uid)) else { continue };
        if !context.leadership.is_held() {
            return Err(Fault::Stale);
        }
        let task = resource_for(&born, &lane.namespace().unwrap_or_default());
        let api: Api<IngestTask> = Api::namespaced(context.client.clone(), &task.namespace().unwrap_or_default());
        context.metrics.wrote(Kind::Task, ApiWrite::Create);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match api.create(&params, &task).await {
            Ok(_) => tracing::debug!(task = %Key::of(&task), "a resource was made for a task that was born elsewhere"),
            // It is there already, or its namespace is going.
            Err(error) if is_gone_or_changed(&error) => {
                tracing::debug!(task = %Key::of(&task), %error, "no resource was made for a task that was born elsewhere");
            }
            // What keeps one namespace from having resources, such as a quota, keeps no other.
            Err(error @ kube::Error::Api(_)) => drop(failed.insert(born.lane_uid, error.into())),
            Err(error) => return Err(error.into()),
        }
    }
    failed.into_values().next().map_or(Ok(()), Err)
}

fn resource_for(born: &Unmirrored, namespace: &str) -> IngestTask {
    let Unmirrored { lane_uid: _, tenant, class: _, track_id, task_type, workspace } = born;
    IngestTask {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(format!("{}-{track_id}", task_type.as_str().replace('_', "-"))),
            labels: Some(BTreeMap::from([(MADE_LABEL.0.to_owned(), MADE_LABEL.1.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: IngestTaskSpec {
            task_type: convert::api_task_type(*task_type),
            tenant: (tenant != namespace).then(|| tenant.clone()),
            workspace: workspace.clone(),
            source: Some(Source { track_id: Some(track_id.to_string()), ..Source::default() }),
            priority: None,
            suspend: None,
            cancel: None,
            retries: None,
            max_attempts: None,
            timeout_seconds: None,
            idempotency_key: None,
            exclusive_key: None,
            ttl_seconds_after_finished: Some(MADE_TTL_SECS),
            deletion_policy: None,
        },
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::lane::Class;
    use crate::domain::task::TaskType;

    #[test]
    fn resource_of_a_task_names_its_track_and_no_more_than_it_must() {
        let born = Unmirrored {
            lane_uid: "l".to_owned(),
            tenant: "team".to_owned(),
            class: Class::Ingest,
            track_id: Uuid::nil(),
            task_type: TaskType::PdfProcessing,
            workspace: None,
        };
        let own = resource_for(&born, "team");
        assert_eq!(own.name_any(), format!("pdf-processing-{}", Uuid::nil()));
        assert_eq!(own.spec.tenant, None);
        assert_eq!(own.spec.source.and_then(|source| source.track_id), Some(Uuid::nil().to_string()));
        assert_eq!(resource_for(&born, "platform").spec.tenant.as_deref(), Some("team"));
    }
}
