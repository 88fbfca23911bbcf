//! Before the operator is removed: ends it, and takes its finalizers away, so that nothing waits for one that is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use super::OperatorError;
use super::context::client;
use super::write::is_not_found;
use crate::api::{GROUP, IngestTask};

/// Of every request.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// Above the time in which the operator ends. A pod of a lost node may stay for longer, and must not be waited for.
const END_LIMIT: Duration = Duration::from_secs(60);
const END_POLL: Duration = Duration::from_millis(250);
/// Tasks in one answer: about 2 MiB at most, since only their metadata is asked for.
const PAGE: u32 = 500;
/// Patches on their way at once.
const PATCHES: usize = 16;
/// A task that somebody else changes all the time is given up after so many tries.
const TRIES: usize = 5;

/// What is to be removed.
#[derive(Clone, Debug)]
pub struct Uninstall {
    /// The operator's own; that of the client if it is not given.
    pub namespace: Option<String>,
    /// Those that it served; all if there is none.
    pub watch_namespaces: Vec<String>,
    /// The operator's Deployment, which would put finalizers back; `None` if it has ended already.
    pub deployment: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    #[error(transparent)]
    Client(#[from] OperatorError),
    #[error("the operator could not be ended: deployment {deployment}: {source}")]
    End { deployment: String, source: Box<kube::Error> },
    #[error("IngestTasks could not be listed: {0}")]
    List(#[source] Box<kube::Error>),
    #[error("{failed} IngestTasks keep their finalizer, the first for this reason: {first}")]
    Kept { failed: usize, first: Box<kube::Error> },
}

/// Answers how many tasks had a finalizer of ours.
pub async fn run(uninstall: &Uninstall) -> Result<usize, UninstallError> {
    let client = client(REQUEST_LIMIT).await?;
    if let Some(deployment) = &uninstall.deployment {
        let namespace = uninstall.namespace.as_deref().unwrap_or(client.default_namespace());
        end(&client, namespace, deployment)
            .await
            .map_err(|source| UninstallError::End { deployment: deployment.clone(), source: Box::new(source) })?;
    }
    let scopes: Vec<Api<IngestTask>> = match uninstall.watch_namespaces.as_slice() {
        [] => vec![Api::all(client.clone())],
        namespaces => namespaces.iter().map(|namespace| Api::namespaced(client.clone(), namespace)).collect(),
    };
    let mut freed = Freed::default();
    for scope in scopes {
        freed.scope(&client, &scope).await.map_err(|source| UninstallError::List(Box::new(source)))?;
    }
    match freed.first_failure {
        None => Ok(freed.tasks),
        Some(first) => Err(UninstallError::Kept { failed: freed.failed, first: Box::new(first) }),
    }
}

/// Scales the Deployment to nothing, and waits until its pods are gone.
async fn end(client: &Client, namespace: &str, name: &str) -> Result<(), kube::Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let nothing = json!({ "spec": { "replicas": 0 } });
    let deployment = match deployments.patch(name, &PatchParams::default(), &Patch::Merge(&nothing)).await {
        Ok(deployment) => deployment,
        Err(error) if is_not_found(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let labels = deployment.spec.and_then(|spec| spec.selector.match_labels).unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let ours = ListParams::default().labels(&selector(&labels));
    let begun = Instant::now();
    while !pods.list_metadata(&ours).await?.items.is_empty() {
        if begun.elapsed() >= END_LIMIT {
            tracing::warn!(deployment = name, "a pod of the operator does not end and is left behind");
            break;
        }
        tokio::time::sleep(END_POLL).await;
    }
    Ok(())
}

fn selector(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

#[derive(Default)]
struct Freed {
    tasks: usize,
    failed: usize,
    first_failure: Option<kube::Error>,
}

impl Freed {
    async fn scope(&mut self, client: &Client, scope: &Api<IngestTask>) -> Result<(), kube::Error> {
        let mut params = ListParams::default().limit(PAGE);
        loop {
            // Metadata alone, so that a task that does not parse is freed like any other.
            let page = match scope.list_metadata(&params).await {
                Ok(page) => page,
                // The definitions are gone already, and all tasks with them.
                Err(error) if is_not_found(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let held = page.items.into_iter().filter(|task| without_ours(task.finalizers()).is_some());
            let mut answers = stream::iter(held.map(|task| free(client, task))).buffer_unordered(PATCHES);
            while let Some(answer) = answers.next().await {
                self.count(answer);
            }
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params = params.continue_token(&token),
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn count(&mut self, answer: Result<bool, kube::Error>) {
        match answer {
            Ok(had_one) => self.tasks += usize::from(had_one),
            Err(error) => {
                self.failed += 1;
                self.first_failure.get_or_insert(error);
            }
        }
    }
}

/// Whether there was something to take away.
async fn free(client: &Client, mut task: PartialObjectMeta<IngestTask>) -> Result<bool, kube::Error> {
    let name = task.name_any();
    let tasks: Api<IngestTask> = Api::namespaced(client.clone(), &task.namespace().unwrap_or_default());
    let mut tries = 1;
    while let Some(left) = without_ours(task.finalizers()) {
        // Names a version: a finalizer that somebody else has added meanwhile must stay.
        let patch = json!({
            "metadata": { "uid": task.uid(), "resourceVersion": task.resource_version(), "finalizers": left },
        });
        match tasks.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => return Ok(true),
            Err(error) if is_not_found(&error) => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {
                let Some(newer) = tasks.get_metadata_opt(&name).await? else { return Ok(false) };
                task = newer;
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The finalizers that are not ours; `None` if there is none of ours.
fn without_ours(finalizers: &[String]) -> Option<Vec<&str>> {
    let is_ours = |finalizer: &str| finalizer.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/'));
    let left: Vec<_> = finalizers.iter().map(String::as_str).filter(|finalizer| !is_ours(finalizer)).collect();
    (left.len() < finalizers.len()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finalizers_of_ours_are_taken() {
        let rows: [(&[&str], Option<&[&str]>); 5] = [
            (&[], None),
            (&["foregroundDeletion", "sluice.device/x", "sluice.dev"], None),
            (&["sluice.dev/cancel"], Some(&[])),
            (&["a/b", "sluice.dev/cancel", "c/d"], Some(&["a/b", "c/d"])),
            (&["sluice.dev/cancel", "sluice.dev/later"], Some(&[])),
        ];
        for (finalizers, left) in rows {
            let finalizers: Vec<String> = finalizers.iter().map(ToString::to_string).collect();
            assert_eq!(without_ours(&finalizers).as_deref(), left, "{finalizers:?}");
        }
    }

    #[test]
    fn selector_names_every_label() {
        let labels = BTreeMap::from([("a/b".to_owned(), "c".to_owned()), ("d".to_owned(), "e".to_owned())]);
        assert_eq!(selector(&labels), "a/b=c,d=e");
    }
}
