//! Whether the workers of a pool are what its template says: what people and tools wait for after a change of it.

use super::plan::{DeploymentFacts, PodFacts};
use crate::store::reads::PoolWorker;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All workers are of the newest template and available, and no other one claims.
    Done,
    /// Not all of them are there and ready.
    Starting,
    /// One of an earlier template may still claim.
    RollingOut,
}

/// `leaving` are uids of pods that were told to end. Such a one claims until its worker has heard of it, and its row tells
/// when: a claim reads what the drain wrote. `workers` is `None` if the database did not answer; unknown is not idle.
pub fn progress(
    deployment: Option<&DeploymentFacts>,
    pods: &[PodFacts],
    leaving: &[String],
    workers: Option<&[PoolWorker]>,
) -> Progress {
    let Some(deployment) = deployment else { return Progress::Starting };
    let may_claim = |uid: &String| {
        let is_its = |worker: &&PoolWorker| worker.pod_uid.as_ref() == Some(uid);
        workers.is_none_or(|all| all.iter().filter(is_its).any(|worker| worker.is_alive && !worker.is_draining))
    };
    if deployment.outdated > 0 || leaving.iter().any(may_claim) {
        return Progress::RollingOut;
    }
    let ready = pods.iter().filter(|pod| pod.is_ready).count();
    let is_all = |count: usize| u32::try_from(count) == Ok(deployment.replicas);
    let is_done = deployment.is_observed
        && deployment.available == deployment.replicas
        && deployment.pods == deployment.replicas
        && is_all(pods.len())
        && is_all(ready);
    if is_done { Progress::Done } else { Progress::Starting }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::operator::pool::plan::Rollout;

    fn pod(uid: &str, is_ready: bool) -> PodFacts {
        PodFacts {
            name: uid.to_owned(),
            uid: uid.to_owned(),
            is_ready,
            is_marked: false,
            is_released: false,
            age_secs: 1,
            problem: None,
        }
    }

    fn worker(pod: &str, is_draining: bool) -> PoolWorker {
        PoolWorker {
            worker_id: Uuid::from_u128(1),
            pool: "p".to_owned(),
            pod_name: None,
            pod_uid: Some(pod.to_owned()),
            version: None,
            slots: 4,
            is_draining,
            is_alive: true,
            leases: 0,
        }
    }

    fn deployment(replicas: u32) -> DeploymentFacts {
        DeploymentFacts {
            replicas,
            pods: replicas,
            outdated: 0,
            available: replicas,
            is_observed: true,
            rollout: Rollout::Settled,
            replica_set: None,
        }
    }

    #[test]
    fn pool_is_done_when_all_its_workers_are_new_and_available() {
        let (one, none) = (deployment(1), deployment(0));
        let new = [pod("new", true)];
        let rows = [
            ("all there", progress(Some(&one), &new, &[], Some(&[worker("new", false)])), Progress::Done),
            ("none wanted, none there", progress(Some(&none), &[], &[], Some(&[])), Progress::Done),
            ("none wanted, the database away", progress(Some(&none), &[], &[], None), Progress::Done),
            ("no Deployment", progress(None, &[], &[], Some(&[])), Progress::Starting),
            ("the pod is not seen yet", progress(Some(&one), &[], &[], Some(&[])), Progress::Starting),
            ("not ready", progress(Some(&one), &[pod("new", false)], &[], Some(&[])), Progress::Starting),
        ];
        for (name, is, should_be) in rows {
            assert_eq!(is, should_be, "{name}");
        }
        let behind = [
            DeploymentFacts { is_observed: false, ..deployment(1) },
            DeploymentFacts { available: 0, ..deployment(1) },
            DeploymentFacts { pods: 0, ..deployment(1) },
        ];
        for facts in behind {
            assert_eq!(progress(Some(&facts), &new, &[], Some(&[])), Progress::Starting, "{facts:?}");
        }
    }

    #[test]
    fn who_is_of_an_earlier_template_and_may_claim_keeps_it_waiting() {
        let new = [pod("new", true)];
        let old = ["old".to_owned()];
        let serving = [worker("new", false), worker("old", false)];
        let drained = [worker("new", false), worker("old", true)];
        let lost = [PoolWorker { is_alive: false, ..worker("old", false) }];
        let of = |deployment: DeploymentFacts, leaving: &[String], workers: Option<&[PoolWorker]>| {
            progress(Some(&deployment), &new, leaving, workers)
        };
        assert_eq!(of(deployment(1), &old, Some(&serving)), Progress::RollingOut);
        assert_eq!(of(deployment(1), &old, None), Progress::RollingOut);
        assert_eq!(of(deployment(1), &old, Some(&drained)), Progress::Done);
        assert_eq!(of(deployment(1), &old, Some(&lost)), Progress::Done);
        let outdated = DeploymentFacts { pods: 2, outdated: 1, ..deployment(1) };
        assert_eq!(of(outdated, &[], Some(&drained)), Progress::RollingOut);
    }
}
