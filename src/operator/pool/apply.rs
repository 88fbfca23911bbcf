//! Makes the workers of a pool what the plan says, one careful write at a time.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::observe::{DELETION_COST, IDLE_COST, VICTIM_COST};
use super::plan::Victim;
use super::spec::PoolSpec;
use crate::operator::cache::strip_metadata;
use crate::operator::context::FIELD_MANAGER;
use crate::operator::controller::Fault;
use crate::operator::instrument::{ApiWrite, Kind};
use crate::operator::{Caches, Context};
use crate::store::lanes::set_pool;
use crate::store::leases::{drain_worker, undrain_worker};
use crate::store::reads::PoolSettingsRow;

/// Kubernetes does not take what was built from the template, in its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Answers whether the row was written.
pub async fn settle_row(context: &Context, spec: &PoolSpec, row: Option<&PoolSettingsRow>) -> Result<bool, Fault> {
    let Some(settings) = spec.row.difference(row) else { return Ok(false) };
    lead(context)?;
    let by = format!("WorkerPool {}", spec.name);
    set_pool(&context.database, &spec.name, settings, Some(&by)).await?;
    tracing::info!(pool = spec.name, "the pool's settings were written");
    Ok(true)
}

/// Server-side apply without an effect: what the Deployment would be, or why not.
pub async fn dry_run(context: &Context, wanted: &Value) -> Result<Result<Deployment, Refused>, Fault> {
    let params = PatchParams { dry_run: true, ..PatchParams::apply(FIELD_MANAGER).force() };
    refusable(deployments(context).patch(name(wanted), &params, &Patch::Apply(wanted)).await)
}

/// Server-side apply; on the version that was looked at, if there is one.
pub async fn apply_deployment(
    context: &Context,
    caches: &Caches,
    mut wanted: Value,
    held: Option<&Deployment>,
) -> Result<Result<Deployment, Refused>, Fault> {
    lead(context)?;
    if let Some(version) = held.and_then(ResourceExt::resource_version) {
        wanted["metadata"]["resourceVersion"] = json!(version);
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = refusable(deployments(context).patch(name(&wanted), &params, &Patch::Apply(&wanted)).await)?;
    if let Ok(deployment) = &applied {
        let write = if held.is_some() { ApiWrite::Update } else { ApiWrite::Create };
        context.metrics.wrote(Kind::Pool, write);
        remember(caches, deployment);
    }
    Ok(applied)
}

/// On the version that was looked at: whoever was faster wins, and is looked at again.
pub async fn set_replicas(
    context: &Context,
    caches: &Caches,
    held: &Deployment,
    replicas: u32,
) -> Result<Deployment, Fault> {
    lead(context)?;
    let patch = json!({
        "metadata": { "uid": held.uid(), "resourceVersion": held.resource_version() },
        "spec": { "replicas": replicas },
    });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patched = deployments(context).patch(&held.name_any(), &params, &Patch::Merge(patch)).await;
    let deployment = patched.map_err(stale)?;
    context.metrics.wrote(Kind::Pool, ApiWrite::Update);
    remember(caches, &deployment);
    Ok(deployment)
}

pub async fn delete_deployment(context: &Context, held: &Deployment) -> Result<(), Fault> {
    lead(context)?;
    let preconditions = Preconditions { uid: held.uid(), resource_version: held.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
    deployments(context).delete(&held.name_any(), &params).await.map(drop).map_err(stale)?;
    context.metrics.wrote(Kind::Pool, ApiWrite::Delete);
    Ok(())
}

/// First the mark, then the drain: what is drained by us is always marked, and is found again after a crash.
pub async fn drain(context: &Context, caches: &Caches, victims: &[Victim]) -> Result<(), Fault> {
    for victim in victims {
        lead(context)?;
        if !victim.is_marked && !mark(context, caches, victim, Some(VICTIM_COST)).await? {
            continue;
        }
        for worker in &victim.workers {
            drain_worker(&context.database, *worker).await?;
            tracing::info!(pod = victim.pod, %worker, "the worker drains: fewer are wanted");
        }
    }
    Ok(())
}

/// First the workers, then the mark.
pub async fn undrain(context: &Context, caches: &Caches, victims: &[Victim]) -> Result<(), Fault> {
    for victim in victims {
        lead(context)?;
        for worker in &victim.workers {
            undrain_worker(&context.database, *worker).await?;
            tracing::info!(pod = victim.pod, %worker, "the worker serves again: it is wanted");
        }
        mark(context, caches, victim, None).await?;
    }
    Ok(())
}

/// Tells the idle ones from those that only will be.
pub async fn release(context: &Context, caches: &Caches, victims: &[Victim]) -> Result<(), Fault> {
    for victim in victims {
        lead(context)?;
        mark(context, caches, victim, Some(IDLE_COST)).await?;
    }
    Ok(())
}

/// Whether the pod is there still.
async fn mark(context: &Context, caches: &Caches, victim: &Victim, cost: Option<&str>) -> Result<bool, Fault> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let patch = json!({ "metadata": { "uid": victim.uid, "annotations": { DELETION_COST: cost } } });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    match pods.patch(&victim.pod, &params, &Patch::Merge(patch)).await {
        Ok(mut pod) => {
            context.metrics.wrote(Kind::Pool, ApiWrite::Update);
            strip_metadata(&mut pod);
            caches.pools.pods.put(pod);
            Ok(true)
        }
        Err(error) if is_code(&error, &[404, 409]) => Ok(false),
        Err(error) => Err(Fault::Api(error)),
    }
}

fn remember(caches: &Caches, deployment: &Deployment) {
    let mut deployment = deployment.clone();
    strip_metadata(&mut deployment);
    caches.pools.deployments.put(deployment);
}

pub fn lead(context: &Context) -> Result<(), Fault> {
    if context.leadership.is_held() { Ok(()) } else { Err(Fault::Stale) }
}

fn deployments(context: &Context) -> Api<Deployment> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// What Kubernetes does not take is an answer; all else that goes wrong is tried again.
pub fn refusable<T>(answer: Result<T, kube::Error>) -> Result<Result<T, Refused>, Fault> {
    match answer {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) if is_refusal(&status) => {
            Ok(Err(Refused(format!("{}; correct spec.template", status.message))))
        }
        Err(error) => Err(stale(error)),
    }
}

/// A field of a wrong type is answered as if the server had failed.
fn is_refusal(status: &kube::core::Status) -> bool {
    [400, 403, 422].contains(&status.code)
        || status.code == 500 && status.message.contains("failed to create typed patch object")
}

fn stale(error: kube::Error) -> Fault {
    if is_code(&error, &[404, 409]) { Fault::Stale } else { Fault::Api(error) }
}

fn is_code(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}
