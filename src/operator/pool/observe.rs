//! What there is of a pool in Kubernetes, in plain data.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use super::Cached;
use super::plan::{DeploymentFacts, PodFacts, Rollout};
use super::workload::{POOL_LABEL, pool_label, workload_name};
use crate::api::WorkerPool;
use crate::operator::cache::Key;

pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
/// Below that of any pod that is not to go.
pub const VICTIM_COST: &str = "-1000";
/// Below that of any pod that may be at work.
pub const IDLE_COST: &str = "-2000";
/// What a status shows of Kubernetes' words.
const WORDS_MAX_BYTES: usize = 250;
/// With what to do about it.
const PROBLEM_MAX_BYTES: usize = 400;

pub struct Seen {
    pub deployment: Option<Arc<Deployment>>,
    pub facts: Option<DeploymentFacts>,
    pub pods: Vec<PodFacts>,
    /// Uids of pods that were told to end and have not.
    pub leaving: Vec<String>,
    /// Of mode Job, those that have not ended.
    pub jobs: u32,
    /// Why workers do not start, if some do not.
    pub problem: Option<String>,
}

/// Whose the Deployment of the pool's name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owned {
    Ours,
    /// It has no owner, but was made for this pool: it can be taken over.
    Orphan,
    /// It goes, or is somebody else's.
    Foreign,
}

pub fn see(pool: &WorkerPool, cached: &Cached, now: i64) -> Seen {
    let name = pool.name_any();
    let namespace = pool.namespace().unwrap_or_default();
    let key = Key { namespace: namespace.clone(), name: workload_name(&name) };
    let deployment = cached.deployments.get(&key);
    let label = pool_label(&name);
    let is_of_pool = |object: &dyn Labelled| object.in_namespace(&namespace) && object.label() == Some(label.as_str());
    let replica_sets: Vec<_> = cached.replica_sets.all().into_iter().filter(|set| is_of_pool(&**set)).collect();
    let pods: Vec<_> = cached.pods.all().into_iter().filter(|pod| is_of_pool(&**pod) && of_deployment(pod)).collect();
    let facts = deployment.as_deref().map(|deployment| deployment_facts(deployment, &replica_sets));
    let leaving = pods.iter().filter(|pod| is_leaving(pod)).filter_map(|pod| pod.uid()).collect();
    let live = pods.iter().filter(|pod| is_live(pod));
    let pods: Vec<_> = live.map(|pod| pod_facts(pod, now)).collect();
    let failed_create = deployment.as_deref().and_then(|deployment| condition(deployment, "ReplicaFailure", "True"));
    let failed_create =
        failed_create.map(|words| format!("{}; correct spec.template, or what forbids its pods", words_of(&words)));
    let pod_problem =
        || pods.iter().find_map(|pod| pod.problem.clone().map(|problem| format!("pod {}: {problem}", pod.name)));
    let no_progress = || deployment.as_deref().and_then(|deployment| condition(deployment, "Progressing", "False"));
    let problem = failed_create.or_else(pod_problem).or_else(no_progress).map(|problem| cut(&problem).to_owned());
    let jobs = cached.jobs.all().into_iter().filter(|job| is_of_pool(&**job) && !has_ended(job)).count();
    Seen { deployment, facts, pods, leaving, jobs: u32::try_from(jobs).unwrap_or(u32::MAX), problem }
}

pub fn owned(deployment: &Deployment, pool: &WorkerPool) -> Owned {
    if deployment.metadata.deletion_timestamp.is_some() {
        return Owned::Foreign;
    }
    let owners = deployment.metadata.owner_references.iter().flatten();
    match owners.filter(|owner| owner.controller == Some(true)).map(|owner| &owner.uid).next() {
        Some(uid) if Some(uid) == pool.metadata.uid.as_ref() => Owned::Ours,
        Some(_) => Owned::Foreign,
        None if deployment.labels().get(POOL_LABEL) == Some(&pool_label(&pool.name_any())) => Owned::Orphan,
        None => Owned::Foreign,
    }
}

fn deployment_facts(deployment: &Deployment, replica_sets: &[Arc<ReplicaSet>]) -> DeploymentFacts {
    let spec = deployment.spec.as_ref();
    let replicas = size(spec.and_then(|spec| spec.replicas).or(Some(1)));
    let status = deployment.status.clone().unwrap_or_default();
    let pods = size(status.replicas);
    let is_observed = status.observed_generation == deployment.metadata.generation;
    let is_stalled = condition(deployment, "Progressing", "False").is_some()
        || condition(deployment, "ReplicaFailure", "True").is_some();
    let rollout = match (is_observed, is_stalled) {
        (false, _) => Rollout::Running,
        (true, true) => Rollout::Stalled,
        (true, false) if size(status.updated_replicas) == replicas && pods == replicas => Rollout::Settled,
        (true, false) => Rollout::Running,
    };
    let with_pods = |set: &&Arc<ReplicaSet>| {
        let wanted = size(set.spec.as_ref().and_then(|spec| spec.replicas));
        wanted > 0 || set.status.as_ref().is_some_and(|status| status.replicas > 0)
    };
    let mut sets = replica_sets.iter().filter(with_pods);
    let replica_set = match (sets.next(), sets.next()) {
        (Some(only), None) => only.status.as_ref().and_then(|status| {
            let is_observed = status.observed_generation == only.metadata.generation;
            is_observed.then(|| (size(Some(status.replicas)), size(status.ready_replicas)))
        }),
        _ => None,
    };
    DeploymentFacts {
        replicas,
        pods,
        outdated: pods.saturating_sub(size(status.updated_replicas)),
        available: size(status.available_replicas),
        is_observed,
        rollout,
        replica_set,
    }
}

/// The message of a condition, if it stands so.
fn condition(deployment: &Deployment, type_: &str, status: &str) -> Option<String> {
    let conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut found = conditions.filter(|condition| condition.type_ == type_ && condition.status == status);
    found.next().map(|condition| condition.message.clone().or(condition.reason.clone()).unwrap_or_default())
}

fn pod_facts(pod: &Pod, now: i64) -> PodFacts {
    let status = pod.status.as_ref();
    let conditions = || status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let unscheduled = conditions()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
        .and_then(|condition| condition.message.clone());
    let containers = status.iter().flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    });
    let unscheduled =
        unscheduled.map(|words| format!("{}; make room for it, or ask for less in spec.template", words_of(&words)));
    let problem = if is_ready { None } else { unscheduled.or_else(|| containers.filter_map(waits_badly).next()) };
    let cost = pod.annotations().get(DELETION_COST);
    PodFacts {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        is_ready,
        is_marked: cost.is_some_and(|cost| cost == VICTIM_COST || cost == IDLE_COST),
        is_released: cost.is_some_and(|cost| cost == IDLE_COST),
        age_secs: pod.creation_timestamp().map_or(0, |created| now.saturating_sub(created.0.as_second())),
        problem: problem.map(|problem| cut(&problem).to_owned()),
    }
}

/// The same from one try to the next, and without the numbers that move with each: a status must not change with time.
fn waits_badly(container: &ContainerStatus) -> Option<String> {
    const NORMAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];
    /// A container that ended once may have had its reason.
    const CRASHES: i32 = 2;

    let state = container.state.as_ref()?;
    let waiting = state.waiting.as_ref();
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).filter(|reason| !NORMAL.contains(reason));
    let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = state.terminated.as_ref().or(last).filter(|ended| ended.exit_code != 0);
    let crashes = container.restart_count >= CRASHES && ended.is_some();
    if reason == Some("CrashLoopBackOff") || reason.is_none() && crashes {
        let code = ended.map(|ended| format!(" with exit code {}", ended.exit_code)).unwrap_or_default();
        return Some(format!("CrashLoopBackOff: container {} ends{code}; look at its log", container.name));
    }
    let words = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or("look at the pod");
    // Between two tries, it says what the last one said.
    let (reason, words) = match (reason?, words.split_once("ErrImagePull: ")) {
        ("ImagePullBackOff", Some((_, words))) => ("ErrImagePull", words),
        (reason, _) => (reason, words),
    };
    let advice = match reason {
        "CreateContainerConfigError" => "make what is missing, or name another in spec.template",
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => {
            "correct the image in spec.template, or let the nodes pull it"
        }
        _ => "correct spec.template",
    };
    Some(format!("{reason}: {}; {advice}", words_of(words)))
}

fn words_of(text: &str) -> &str {
    crate::api::conditions::cut(text, WORDS_MAX_BYTES)
}

/// It has not ended and is not on its way out.
fn is_live(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !is_over(pod)
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && !is_over(pod)
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Pods of Jobs have the label too.
fn of_deployment(pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| owner.kind == "ReplicaSet")
}

fn has_ended(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    job.metadata.deletion_timestamp.is_some()
        || conditions
            .into_iter()
            .any(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True")
}

trait Labelled {
    fn label(&self) -> Option<&str>;
    fn in_namespace(&self, namespace: &str) -> bool;
}

impl<K: kube::Resource> Labelled for K {
    fn label(&self) -> Option<&str> {
        self.meta().labels.as_ref()?.get(POOL_LABEL).map(String::as_str)
    }

    fn in_namespace(&self, namespace: &str) -> bool {
        self.meta().namespace.as_deref() == Some(namespace)
    }
}

fn size(number: Option<i32>) -> u32 {
    u32::try_from(number.unwrap_or(0)).unwrap_or(0)
}

fn cut(text: &str) -> &str {
    crate::api::conditions::cut(text, PROBLEM_MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(container: Value) -> Option<String> {
        let mut container = container;
        container["name"] = json!("worker");
        container["image"] = json!("sluice:1");
        container["imageID"] = json!("");
        container["ready"] = json!(false);
        waits_badly(&serde_json::from_value(container).unwrap())
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({ "restartCount": 0, "state": { "waiting": { "reason": reason, "message": message } } })
    }

    #[test]
    fn image_that_cannot_be_pulled_is_told_alike_during_a_try_and_between_two() {
        let during = told(waiting("ErrImagePull", "no such image"));
        let between =
            told(waiting("ImagePullBackOff", "Back-off pulling image \"sluice:1\": ErrImagePull: no such image"));
        assert_eq!(during, between);
        assert!(during.unwrap().starts_with("ErrImagePull: no such image; correct the image"));
    }

    #[test]
    fn container_that_keeps_ending_is_told_alike_while_it_runs_and_while_it_waits() {
        let ended = json!({ "terminated": { "exitCode": 78 } });
        let waits = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s" } });
        let at = |state: &Value, restarts: i32| {
            told(json!({ "restartCount": restarts, "state": state, "lastState": ended }))
        };
        let said = at(&waits, 1);
        assert_eq!(said.as_deref(), Some("CrashLoopBackOff: container worker ends with exit code 78; look at its log"));
        assert_eq!(at(&waits, 3), said);
        assert_eq!(at(&json!({ "running": {} }), 3), said);
        assert_eq!(at(&ended, 3), said);
        assert_eq!(at(&json!({ "running": {} }), 1), None, "it ended once");
    }

    #[test]
    fn what_is_on_its_way_is_no_problem() {
        assert_eq!(told(waiting("ContainerCreating", "")), None);
        assert_eq!(told(json!({ "restartCount": 0, "state": { "running": {} } })), None);
    }
}
