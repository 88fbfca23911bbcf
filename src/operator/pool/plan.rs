//! How many workers a pool gets, which of them go, and when: decided from plain data.
//!
//! Nothing that may be at work is ever removed. Who is to go is marked and drained; in a later look, who is drained and
//! holds no lease is idle, since a claim reads the row that the drain wrote. Replicas are lowered by the idle ones alone,
//! once they are not ready in the eyes of their ReplicaSet: that is what it removes first, and among those the marked ones.

use std::collections::HashMap;

use uuid::Uuid;

use crate::domain::scaling::{Decision, Limits, QuietWindow, decide};
use crate::store::reads::PoolWorker;

/// A pod that has not registered after this time is stuck and not starting.
const STARTING_SECS: i64 = 60;
/// Two changes by others within this time are a fight.
const DRIFT_WINDOW_SECS: i64 = 60;
/// What is fought over is left alone for so long, doubled each time.
const DRIFT_PAUSE_SECS: i64 = 60;
const DRIFT_PAUSE_MAX_SECS: i64 = 600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentFacts {
    /// Of its spec.
    pub replicas: u32,
    /// Of its status.
    pub pods: u32,
    /// Those of them that are not of its newest template.
    pub outdated: u32,
    pub available: u32,
    /// The status speaks of the newest spec.
    pub is_observed: bool,
    pub rollout: Rollout,
    /// Pods of its only ReplicaSet, and those of them that it believes to be ready; `None` while there are several.
    pub replica_set: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollout {
    Settled,
    Running,
    /// It does not go on by itself.
    Stalled,
}

/// A pod that is not on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    pub name: String,
    pub uid: String,
    pub is_ready: bool,
    /// With a deletion cost of ours: it is to go.
    pub is_marked: bool,
    /// With the lowest of them: it is idle, and goes before those that are still at work.
    pub is_released: bool,
    pub age_secs: i64,
    /// Why it does not start, in Kubernetes' words.
    pub problem: Option<String>,
}

/// What is remembered from look to look; lost with the process, and then made anew from what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What was decided last.
    pub agreed: Option<u32>,
    pub quiet: Option<QuietWindow>,
    pub drift: Drift,
}

/// Changes by others of a number that is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// As we last wrote or accepted it.
    known: Option<i64>,
    /// Of the last change.
    at: Option<i64>,
    fights: u32,
    /// Nothing is corrected before.
    until: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftState {
    None,
    /// Somebody changed them just now; it is set back.
    Corrected,
    /// It is left alone for now.
    Tolerated,
}

impl Drift {
    pub fn wrote(&mut self, number: i64) {
        self.known = Some(number);
    }

    /// Whether it was ever written or seen.
    pub fn is_known(&self) -> bool {
        self.known.is_some()
    }

    pub fn look(&mut self, number: i64, now: i64) -> DriftState {
        let changed = self.known.is_some_and(|known| known != number);
        self.known = Some(number);
        if changed {
            let is_recent = |at: i64| now - at < DRIFT_WINDOW_SECS;
            let is_fight = self.at.is_some_and(is_recent) || self.until.is_some_and(is_recent);
            self.at = Some(now);
            if !is_fight {
                self.fights = 0;
                self.until = None;
                return DriftState::Corrected;
            }
            let pause = DRIFT_PAUSE_SECS.saturating_mul(1_i64.checked_shl(self.fights).unwrap_or(i64::MAX));
            self.fights = self.fights.saturating_add(1).min(16);
            self.until = Some(now.saturating_add(pause.min(DRIFT_PAUSE_MAX_SECS)));
        }
        match self.until {
            Some(until) if until > now => DriftState::Tolerated,
            Some(_) | None => DriftState::None,
        }
    }
}

pub struct Facts<'a> {
    pub limits: Limits,
    /// Replicas that the permitted work wants; `None` if the database did not answer.
    pub want: Option<u64>,
    /// What the resource says was decided last.
    pub shown: Option<u32>,
    pub deployment: Option<&'a DeploymentFacts>,
    pub pods: &'a [PodFacts],
    /// `None` if the database did not answer.
    pub workers: Option<&'a [PoolWorker]>,
    /// Seconds since the epoch.
    pub now: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub decision: Decision,
    /// What the Deployment's replicas are to be now; `None` leaves them.
    pub replicas: Option<u32>,
    /// To be marked, then their workers drained.
    pub drain: Vec<Victim>,
    /// Their workers to be undrained, then the mark taken away.
    pub undrain: Vec<Victim>,
    /// Idle by now: to be told from the marked ones that are not, should those fail a probe.
    pub release: Vec<Victim>,
    /// Pods that are to go.
    pub draining: u32,
    pub wait: Wait,
    pub drift: DriftState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub pod: String,
    pub uid: String,
    pub is_marked: bool,
    pub workers: Vec<Uuid>,
}

/// Why there are more workers than there should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Nothing,
    /// Those that are to go finish what they hold.
    ForDrain,
    ForRollout,
    /// Somebody else keeps changing the number.
    ForOthers,
}

/// What one pod is to a scale-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It never became a worker.
    Stuck,
    /// Drained, and without a lease.
    Idle,
    /// Its worker could be drained, or is.
    Working { leases: u64 },
    /// It may become a worker any moment, or it is one that nobody has heard of for long: unknown is not idle.
    Unknown,
}

pub fn plan(facts: &Facts<'_>, memory: &mut Memory) -> Plan {
    let Facts { limits, want, shown, deployment, pods, workers, now } = *facts;
    let current = deployment.map(|deployment| deployment.replicas);
    let drift = current.map_or(DriftState::None, |current| memory.drift.look(i64::from(current), now));
    let agreed = memory.agreed.or(shown).or(current).unwrap_or(0);
    let decision = decide(limits, agreed, memory.quiet, want, now);
    memory.agreed = Some(decision.replicas);
    memory.quiet = decision.quiet;
    let target = decision.replicas;
    let mut plan = Plan {
        decision,
        replicas: None,
        drain: Vec::new(),
        undrain: Vec::new(),
        release: Vec::new(),
        draining: count(pods.iter().filter(|pod| pod.is_marked)),
        wait: Wait::Nothing,
        drift,
    };
    let Some(deployment) = deployment else {
        plan.replicas = Some(target);
        return plan;
    };
    if drift == DriftState::Tolerated {
        plan.wait = Wait::ForOthers;
        return plan;
    }
    let current = deployment.replicas;
    if target > current {
        plan.replicas = Some(target);
    }
    let Some(workers) = workers else { return plan };

    let by_pod = by_pod(workers);
    let of = |pod: &PodFacts| by_pod.get(pod.uid.as_str()).map_or(&[][..], Vec::as_slice);
    // What was let go, but is still there, goes by itself.
    let leaving = count(pods.iter()).saturating_sub(current);
    let to_go = current.saturating_sub(target);
    let marked = count(pods.iter().filter(|pod| pod.is_marked));
    let keep_marked = to_go.saturating_add(leaving);
    if marked > keep_marked {
        plan.undrain = to_undrain(pods, of, marked - keep_marked);
    }
    if to_go == 0 {
        return plan;
    }
    if deployment.rollout == Rollout::Running {
        plan.wait = Wait::ForRollout;
        return plan;
    }
    plan.wait = Wait::ForDrain;
    plan.drain = to_drain(pods, of, to_go.saturating_add(leaving));
    plan.release = to_release(pods, of);
    let removable = removable(pods, of, deployment, target).min(to_go);
    if removable > 0 {
        plan.replicas = Some(current - removable);
    }
    plan
}

fn by_pod(workers: &[PoolWorker]) -> HashMap<&str, Vec<&PoolWorker>> {
    let mut by_pod: HashMap<&str, Vec<&PoolWorker>> = HashMap::new();
    for worker in workers {
        if let Some(uid) = worker.pod_uid.as_deref() {
            by_pod.entry(uid).or_default().push(worker);
        }
    }
    by_pod
}

/// A container that was started again leaves a worker behind: all that are of the pod count.
fn standing(pod: &PodFacts, workers: &[&PoolWorker]) -> Standing {
    let leases: u64 = workers.iter().map(|worker| worker.leases).sum();
    let alive = || workers.iter().filter(|worker| worker.is_alive);
    if workers.is_empty() || leases == 0 && alive().next().is_none() && !workers.iter().all(|worker| worker.is_draining)
    {
        let is_stuck = !pod.is_ready && (pod.problem.is_some() || pod.age_secs >= STARTING_SECS);
        return if is_stuck { Standing::Stuck } else { Standing::Unknown };
    }
    if leases == 0 && workers.iter().all(|worker| worker.is_draining || !worker.is_alive) {
        return Standing::Idle;
    }
    if alive().next().is_none() { Standing::Unknown } else { Standing::Working { leases } }
}

/// The marked pods, and as many others as are missing: first those that cost the least.
fn to_drain<'w>(pods: &[PodFacts], of: impl Fn(&PodFacts) -> &'w [&'w PoolWorker], wanted: u32) -> Vec<Victim> {
    let marked = pods.iter().filter(|pod| pod.is_marked);
    let missing = wanted.saturating_sub(count(marked.clone()));
    let mut others: Vec<_> = pods
        .iter()
        .filter(|pod| !pod.is_marked)
        .map(|pod| (standing(pod, of(pod)), pod))
        .filter(|(standing, _)| *standing != Standing::Unknown)
        .collect();
    others.sort_by_key(|(standing, pod)| (*standing, pod.is_ready, pod.age_secs));
    let others = others.into_iter().map(|(_, pod)| pod).take(usize::try_from(missing).unwrap_or(usize::MAX));
    let victim = |pod: &PodFacts| {
        let undrained = of(pod).iter().filter(|worker| worker.is_alive && !worker.is_draining);
        Victim {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            is_marked: pod.is_marked,
            workers: undrained.map(|worker| worker.worker_id).collect(),
        }
    };
    marked.chain(others).map(victim).filter(|victim| !victim.is_marked || !victim.workers.is_empty()).collect()
}

/// Those that hold work first, and what is still ready before what is not.
fn to_undrain<'w>(pods: &[PodFacts], of: impl Fn(&PodFacts) -> &'w [&'w PoolWorker], excess: u32) -> Vec<Victim> {
    let mut marked: Vec<_> = pods.iter().filter(|pod| pod.is_marked).collect();
    marked.sort_by_key(|pod| {
        let leases: u64 = of(pod).iter().map(|worker| worker.leases).sum();
        (std::cmp::Reverse(leases), !pod.is_ready)
    });
    let victim = |pod: &PodFacts| Victim {
        pod: pod.name.clone(),
        uid: pod.uid.clone(),
        is_marked: true,
        workers: of(pod).iter().filter(|worker| worker.is_draining).map(|worker| worker.worker_id).collect(),
    };
    marked.into_iter().take(usize::try_from(excess).unwrap_or(usize::MAX)).map(victim).collect()
}

fn to_release<'w>(pods: &[PodFacts], of: impl Fn(&PodFacts) -> &'w [&'w PoolWorker]) -> Vec<Victim> {
    let is_due = |pod: &&PodFacts| pod.is_marked && !pod.is_released && may_go(pod, of(pod));
    let victim =
        |pod: &PodFacts| Victim { pod: pod.name.clone(), uid: pod.uid.clone(), is_marked: true, workers: Vec::new() };
    pods.iter().filter(is_due).map(victim).collect()
}

fn may_go(pod: &PodFacts, workers: &[&PoolWorker]) -> bool {
    match standing(pod, workers) {
        Standing::Idle | Standing::Stuck => pod.is_marked,
        Standing::Working { .. } | Standing::Unknown => false,
    }
}

/// By how many the replicas may be lowered now.
fn removable<'w>(
    pods: &[PodFacts],
    of: impl Fn(&PodFacts) -> &'w [&'w PoolWorker],
    deployment: &DeploymentFacts,
    target: u32,
) -> u32 {
    let may_go = |pod: &&PodFacts| may_go(pod, of(pod));
    // Down to nothing no one is picked, so readiness does not matter; but all pods must be known.
    if target == 0 && count(pods.iter()) == deployment.pods && pods.iter().all(|pod| may_go(&pod)) {
        return deployment.replicas;
    }
    if deployment.rollout != Rollout::Settled {
        return 0;
    }
    let Some((all, ready)) = deployment.replica_set else { return 0 };
    // One that is about to be removed already must not be counted again.
    if all != count(pods.iter()) {
        return 0;
    }
    let leaving = all.saturating_sub(deployment.replicas);
    let idle = count(pods.iter().filter(may_go).filter(|pod| pod.is_released && !pod.is_ready));
    idle.min(all.saturating_sub(ready)).saturating_sub(leaving)
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
