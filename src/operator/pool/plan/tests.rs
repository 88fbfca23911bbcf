use std::collections::HashSet;

use super::*;
use crate::domain::scaling::Reason;

const LIMITS: Limits = Limits { min_replicas: 0, max_replicas: 10, scale_down_delay_secs: 0 };

fn pod(name: &str) -> PodFacts {
    PodFacts {
        name: name.to_owned(),
        uid: name.to_owned(),
        is_ready: true,
        is_marked: false,
        is_released: false,
        age_secs: 100,
        problem: None,
    }
}

fn gone_idle(name: &str) -> PodFacts {
    PodFacts { is_marked: true, is_released: true, is_ready: false, ..pod(name) }
}

fn worker(pod: &str, is_draining: bool, leases: u64) -> PoolWorker {
    PoolWorker {
        worker_id: Uuid::new_v4(),
        pool: "p".to_owned(),
        pod_name: Some(pod.to_owned()),
        pod_uid: Some(pod.to_owned()),
        version: None,
        slots: 4,
        is_draining,
        is_alive: true,
        leases,
    }
}

fn settled(replicas: u32, ready: u32) -> DeploymentFacts {
    DeploymentFacts {
        replicas,
        pods: replicas,
        outdated: 0,
        available: ready,
        is_observed: true,
        rollout: Rollout::Settled,
        replica_set: Some((replicas, ready)),
    }
}

fn facts<'a>(want: u64, deployment: &'a DeploymentFacts, pods: &'a [PodFacts], workers: &'a [PoolWorker]) -> Facts<'a> {
    Facts {
        limits: LIMITS,
        want: Some(want),
        shown: Some(deployment.replicas),
        deployment: Some(deployment),
        pods,
        workers: Some(workers),
        now: 1_000,
    }
}

fn planned(facts: &Facts<'_>) -> Plan {
    plan(facts, &mut Memory::default())
}

fn names(victims: &[Victim]) -> Vec<&str> {
    victims.iter().map(|victim| victim.pod.as_str()).collect()
}

#[test]
fn first_work_makes_workers_at_once() {
    let none = settled(0, 0);
    assert_eq!(planned(&facts(3, &none, &[], &[])).replicas, Some(3));
    let missing = planned(&Facts { deployment: None, shown: None, ..facts(0, &none, &[], &[]) });
    assert_eq!(missing.replicas, Some(0), "an empty pool has its Deployment, so that a bad template shows");
}

#[test]
fn cheapest_workers_are_drained_and_none_is_removed_with_them() {
    let pods = [pod("busy"), pod("idle"), pod("half")];
    let workers = [worker("busy", false, 4), worker("idle", false, 0), worker("half", false, 2)];
    let plan = planned(&facts(1, &settled(3, 3), &pods, &workers));
    assert_eq!(names(&plan.drain), ["idle", "half"]);
    assert_eq!((plan.replicas, plan.wait), (None, Wait::ForDrain));
}

#[test]
fn only_who_is_drained_idle_and_seen_as_not_ready_is_removed() {
    let rows: [(&str, PodFacts, PoolWorker, DeploymentFacts, Option<u32>); 9] = [
        ("not released", PodFacts { is_released: false, ..gone_idle("a") }, worker("a", true, 0), settled(2, 1), None),
        ("idle", gone_idle("a"), worker("a", true, 0), settled(2, 1), Some(1)),
        ("holds a lease", gone_idle("a"), worker("a", true, 1), settled(2, 1), None),
        ("not drained", gone_idle("a"), worker("a", false, 0), settled(2, 1), None),
        ("not marked", PodFacts { is_marked: false, ..gone_idle("a") }, worker("a", true, 0), settled(2, 1), None),
        ("still ready", PodFacts { is_ready: true, ..gone_idle("a") }, worker("a", true, 0), settled(2, 2), None),
        ("its ReplicaSet has not seen it", gone_idle("a"), worker("a", true, 0), settled(2, 2), None),
        (
            "a rollout runs",
            gone_idle("a"),
            worker("a", true, 0),
            DeploymentFacts { rollout: Rollout::Running, ..settled(2, 1) },
            None,
        ),
        (
            "several ReplicaSets",
            gone_idle("a"),
            worker("a", true, 0),
            DeploymentFacts { replica_set: None, ..settled(2, 1) },
            None,
        ),
    ];
    for (what, pod_a, worker_a, deployment, expected) in rows {
        let pods = [pod_a, pod("b")];
        let workers = [worker_a, worker("b", false, 1)];
        assert_eq!(planned(&facts(1, &deployment, &pods, &workers)).replicas, expected, "{what}");
    }
}

#[test]
fn one_that_is_on_its_way_out_is_not_counted_twice() {
    // 4 → 3 was written; the pod and the ReplicaSet's status are still those of before.
    let pods = [gone_idle("a"), pod("b"), pod("c"), pod("d")];
    let workers = [worker("a", true, 0), worker("b", false, 1), worker("c", false, 1), worker("d", false, 1)];
    let deployment = DeploymentFacts { replicas: 3, replica_set: Some((4, 3)), ..settled(4, 3) };
    let plan = planned(&facts(2, &deployment, &pods, &workers));
    assert_eq!(plan.replicas, None);
    assert_eq!(plan.undrain, []);
    assert_eq!(plan.drain.len(), 1, "one more is to go");
}

#[test]
fn demand_that_rises_undoes_drains_before_it_adds() {
    let pods = [gone_idle("a"), PodFacts { is_marked: true, ..pod("b") }, pod("c")];
    let workers = [worker("a", true, 0), worker("b", true, 3), worker("c", false, 4)];
    let plan = planned(&facts(2, &settled(3, 2), &pods, &workers));
    assert_eq!((names(&plan.undrain), plan.replicas), (vec!["b"], Some(2)));
    let plan = planned(&facts(3, &settled(3, 2), &pods, &workers));
    assert_eq!((names(&plan.undrain), plan.replicas), (vec!["b", "a"], None));
    let plan = planned(&facts(5, &settled(3, 2), &pods, &workers));
    assert_eq!((names(&plan.undrain), plan.replicas), (vec!["b", "a"], Some(5)));
}

#[test]
fn to_nothing_needs_all_idle_and_all_known() {
    let pods = [PodFacts { is_ready: true, ..gone_idle("a") }, gone_idle("b")];
    let workers = [worker("a", true, 0), worker("b", true, 0)];
    assert_eq!(planned(&facts(0, &settled(2, 2), &pods, &workers)).replicas, Some(0));
    let unknown_pod = settled(3, 2);
    assert_eq!(planned(&facts(0, &unknown_pod, &pods, &workers)).replicas, None);
    let unknown_worker = [workers[1].clone()];
    assert_eq!(planned(&facts(0, &settled(2, 2), &pods, &unknown_worker)).replicas, None);
}

#[test]
fn unknown_is_not_idle_but_what_never_starts_can_go() {
    let starting = PodFacts { is_ready: false, age_secs: 2, ..pod("a") };
    let plan = planned(&facts(0, &settled(1, 0), std::slice::from_ref(&starting), &[]));
    assert_eq!((plan.drain.len(), plan.replicas), (0, None));

    let failing = PodFacts { problem: Some("ErrImagePull".to_owned()), ..starting };
    let plan = planned(&facts(0, &settled(1, 0), std::slice::from_ref(&failing), &[]));
    assert_eq!(names(&plan.drain), ["a"], "it is marked first");
    let marked = PodFacts { is_marked: true, ..failing };
    assert_eq!(planned(&facts(0, &settled(1, 0), &[marked], &[])).replicas, Some(0));

    let silent = PoolWorker { is_alive: false, ..worker("a", false, 0) };
    let plan = planned(&facts(0, &settled(1, 1), &[pod("a")], &[silent]));
    assert_eq!((plan.drain.len(), plan.replicas), (0, None), "it may come back");
}

#[test]
fn worker_of_a_container_that_was_started_again_is_drained_too() {
    let old = PoolWorker { is_alive: false, ..worker("a", true, 0) };
    let new = PoolWorker { worker_id: Uuid::nil(), ..worker("a", false, 0) };
    let plan = planned(&facts(0, &settled(1, 0), &[gone_idle("a")], &[old, new]));
    assert_eq!((plan.replicas, plan.drain[0].workers.clone()), (None, vec![Uuid::nil()]));
}

#[test]
fn database_that_is_away_changes_nothing() {
    let pods = [gone_idle("a"), pod("b")];
    let deployment = settled(2, 1);
    let plan = planned(&Facts { want: None, workers: None, shown: Some(1), ..facts(0, &deployment, &pods, &[]) });
    assert_eq!((plan.replicas, plan.drain.len(), plan.undrain.len()), (None, 0, 0));
    assert_eq!(plan.decision.reason, Reason::DemandUnknown);
    assert_eq!(plan.decision.replicas, 1);
}

#[test]
fn replicas_of_others_are_set_back_once_and_not_fought_over() {
    let mut memory = Memory::default();
    let look = |memory: &mut Memory, replicas, now| {
        let deployment = settled(replicas, replicas);
        let plan = plan(&Facts { shown: None, now, ..facts(5, &deployment, &[], &[]) }, memory);
        if let Some(replicas) = plan.replicas {
            memory.drift.wrote(i64::from(replicas));
        }
        (plan.replicas, plan.drift)
    };
    assert_eq!(look(&mut memory, 5, 0), (None, DriftState::None));
    assert_eq!(look(&mut memory, 2, 10), (Some(5), DriftState::Corrected));
    assert_eq!(look(&mut memory, 5, 11), (None, DriftState::None));
    assert_eq!(look(&mut memory, 2, 20), (None, DriftState::Tolerated));
    assert_eq!(look(&mut memory, 2, 79), (None, DriftState::Tolerated));
    assert_eq!(look(&mut memory, 2, 80), (Some(5), DriftState::None), "tried again, later each time");
    assert_eq!(look(&mut memory, 2, 81), (None, DriftState::Tolerated));
    assert_eq!(look(&mut memory, 2, 200), (None, DriftState::Tolerated));
    assert_eq!(look(&mut memory, 2, 201), (Some(5), DriftState::None));
    assert_eq!(look(&mut memory, 5, 900), (None, DriftState::None));
    assert_eq!(look(&mut memory, 6, 2_000).1, DriftState::Corrected);
}

/// A pool of workers under random demand, with a Kubernetes that removes pods as a ReplicaSet does, its cache being late.
#[test]
fn five_hundred_random_scale_downs_remove_no_busy_worker() {
    let mut random = Random(42);
    let (mut removed, mut downs) = (0, 0);
    for _ in 0..500 {
        let mut scene = Scene::new(&mut random);
        let from = scene.pods.len();
        for now in 0..60 {
            scene.step(now, &mut random);
        }
        removed += scene.removed;
        downs += usize::from(scene.pods.len() < from);
    }
    assert!(removed > 500 && downs > 300, "{removed} {downs}");
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

struct Scene {
    memory: Memory,
    replicas: u32,
    pods: Vec<PodFacts>,
    workers: Vec<PoolWorker>,
    made: usize,
    removed: usize,
}

impl Scene {
    fn new(random: &mut Random) -> Self {
        let mut scene =
            Self { memory: Memory::default(), replicas: 0, pods: vec![], workers: vec![], made: 0, removed: 0 };
        scene.replicas = u32::try_from(2 + random.below(6)).unwrap();
        scene.make_pods(random);
        scene
    }

    fn make_pods(&mut self, random: &mut Random) {
        while self.pods.len() < usize::try_from(self.replicas).unwrap() {
            let name = format!("pod-{}", self.made);
            self.made += 1;
            self.workers.push(worker(&name, false, random.below(4)));
            self.pods.push(pod(&name));
        }
    }

    fn step(&mut self, now: i64, random: &mut Random) {
        // Workers take and end work; a drained one only ends it. Readiness follows, now and then late; a busy one may
        // fail its probe.
        for (pod, worker) in self.pods.iter_mut().zip(&mut self.workers) {
            match random.below(4) {
                0 if !worker.is_draining => worker.leases += 1,
                1 | 2 => worker.leases = worker.leases.saturating_sub(1),
                _ => {}
            }
            let is_able = !(worker.is_draining && worker.leases == 0);
            if random.below(3) > 0 {
                pod.is_ready = is_able && random.below(20) > 0;
            }
        }
        let ready = u32::try_from(self.pods.iter().filter(|pod| pod.is_ready).count()).unwrap();
        let deployment = settled(self.replicas, ready);
        let busy: u64 = self.workers.iter().map(|worker| worker.leases.min(1)).sum();
        let want = busy.min(random.below(4));
        let plan =
            plan(&Facts { now, shown: None, ..facts(want, &deployment, &self.pods, &self.workers) }, &mut self.memory);
        self.obey(&plan, random);
    }

    fn obey(&mut self, plan: &Plan, random: &mut Random) {
        for victim in &plan.undrain {
            self.set(victim, false);
        }
        for victim in &plan.drain {
            self.set(victim, true);
        }
        for victim in &plan.release {
            let index = self.pods.iter().position(|pod| pod.uid == victim.uid).unwrap();
            self.pods[index].is_released = true;
        }
        let Some(replicas) = plan.replicas else { return };
        let gone = self.pods.len().saturating_sub(usize::try_from(replicas).unwrap());
        self.replicas = replicas;
        self.memory.drift.wrote(i64::from(replicas));
        // As a ReplicaSet ranks them: not ready first, then by their cost.
        let mut order: Vec<usize> = (0..self.pods.len()).collect();
        let cost = |pod: &PodFacts| i32::from(pod.is_marked) + i32::from(pod.is_released);
        order.sort_by_key(|index| (self.pods[*index].is_ready, -cost(&self.pods[*index])));
        let victims: HashSet<usize> = order.into_iter().take(gone).collect();
        for index in &victims {
            assert_eq!(self.workers[*index].leases, 0, "a busy worker was removed: {plan:?}");
            assert!(self.workers[*index].is_draining, "one that could claim was removed: {plan:?}");
        }
        self.removed += gone;
        let mut index = 0;
        self.pods.retain(|_| {
            index += 1;
            !victims.contains(&(index - 1))
        });
        index = 0;
        self.workers.retain(|_| {
            index += 1;
            !victims.contains(&(index - 1))
        });
        self.make_pods(random);
    }

    fn set(&mut self, victim: &Victim, drains: bool) {
        let index = self.pods.iter().position(|pod| pod.uid == victim.uid).unwrap();
        self.pods[index].is_marked = drains;
        self.pods[index].is_released &= drains;
        if victim.workers.contains(&self.workers[index].worker_id) {
            self.workers[index].is_draining = drains;
        }
    }
}
