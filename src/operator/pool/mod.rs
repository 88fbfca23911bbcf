//! The pool controller: as many workers as the permitted work wants, and none of them removed while it may be at work.
//!
//! One pass looks at all pools with one statement for their demand. It polls: a NOTIFY is sent only by who calls `wake`, and
//! work that comes by SQL alone must start a pool from zero as quickly.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cache::{self, Cache, Change, Follow, strip_metadata};
use super::controller::Fault;
use super::instrument::{Kind, Outcome};
use super::{Caches, Context};
use crate::api::WorkerPool;

mod apply;
mod jobs;
mod look;
mod observe;
mod ownership;
mod plan;
mod rollout;
mod spec;
mod status;
mod workload;

/// A first pending row has its Deployment scaled within a second.
const PASS_INTERVAL: Duration = Duration::from_millis(400);
/// The statements take at most this part of one connection's time, however long the queue is.
const BUSY_SHARE: u32 = 10;
/// Between two passes, however much the watches tell: a rollout of many pods is hundreds of changes.
const PASS_PAUSE: Duration = Duration::from_millis(50);

/// What is known of its kind, whether this process leads or not.
pub struct Cached {
    pub objects: Arc<Cache<WorkerPool>>,
    deployments: Arc<Cache<Deployment>>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    pods: Arc<Cache<Pod>>,
    jobs: Arc<Cache<Job>>,
    changed: Notify,
}

impl Cached {
    #[expect(clippy::new_without_default, reason = "made once, by the operator")]
    pub fn new() -> Self {
        Self {
            objects: Arc::new(Cache::new()),
            deployments: Arc::new(Cache::new()),
            replica_sets: Arc::new(Cache::new()),
            pods: Arc::new(Cache::new()),
            jobs: Arc::new(Cache::new()),
            changed: Notify::new(),
        }
    }

    pub fn is_synced(&self) -> bool {
        self.objects.is_synced()
            && self.deployments.is_synced()
            && self.replica_sets.is_synced()
            && self.pods.is_synced()
            && self.jobs.is_synced()
    }

    pub async fn synced(&self) {
        tokio::join!(
            self.objects.synced(),
            self.deployments.synced(),
            self.replica_sets.synced(),
            self.pods.synced(),
            self.jobs.synced(),
        );
    }
}

/// Fills the caches, in followers too, until it is dropped.
pub async fn follow(context: Arc<Context>, caches: Arc<Caches>) {
    let home = vec![context.settings.namespace.clone()];
    // A pool in another namespace is told that it is in the wrong place, if its namespace may be read at all.
    let everywhere = if context.settings.watch_namespaces.is_empty() { Vec::new() } else { home.clone() };
    let events = context.events.clone();
    let notice_pool = {
        let caches = caches.clone();
        move |change| {
            if let Change::Unreadable(unreadable) = &change {
                events.publish_unreadable::<WorkerPool>(Kind::Pool, unreadable);
            }
            caches.pools.changed.notify_one();
        }
    };
    let pools = &caches.pools;
    let changed = || pools.changed.notify_one();
    tokio::join!(
        cache::follow(pools.objects.clone(), how(&context, everywhere, strip_metadata, notice_pool)),
        cache::follow(pools.deployments.clone(), how(&context, home.clone(), strip_metadata, |_| changed())),
        cache::follow(pools.replica_sets.clone(), how(&context, home.clone(), strip_metadata, |_| changed())),
        cache::follow(pools.pods.clone(), how(&context, home.clone(), strip_pod, |_| changed())),
        cache::follow(pools.jobs.clone(), how(&context, home.clone(), strip_metadata, |_| changed())),
    );
}

fn how<K, N>(context: &Context, namespaces: Vec<String>, strip: fn(&mut K), notice: N) -> Follow<K, N> {
    Follow {
        client: context.watch_client.clone(),
        kind: Kind::Pool,
        namespaces,
        strip,
        notice,
        metrics: context.metrics.clone(),
    }
}

/// Where it stands is all that is read of a pod.
fn strip_pod(pod: &mut Pod) {
    strip_metadata(pod);
    pod.spec = None;
}

/// Acts until `stop`; called each time that this process begins to lead, with the caches filled.
pub async fn run(context: Arc<Context>, caches: Arc<Caches>, stop: CancellationToken) {
    let mut controller = look::Controller::new(context.clone(), caches.clone());
    // Those that were met before this process led: events of a follower are not written.
    for unreadable in caches.pools.objects.unreadable() {
        context.events.publish_unreadable::<WorkerPool>(Kind::Pool, &unreadable);
    }
    while !stop.is_cancelled() {
        let begun = Instant::now();
        // Never raced: a statement on its way must come to its end.
        let outcomes = controller.pass().await;
        let took = begun.elapsed();
        for outcome in &outcomes {
            let outcome = match outcome {
                Ok(()) => Outcome::Done,
                Err(Fault::Stale) => Outcome::Waiting,
                Err(fault) => {
                    tracing::debug!(%fault, "a look at a pool failed and is tried again");
                    Outcome::Error
                }
            };
            context.metrics.reconciled(Kind::Pool, outcome, took);
        }
        let failed = outcomes.iter().any(|outcome| matches!(outcome, Err(Fault::Api(_) | Fault::Store(_))));
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(PASS_INTERVAL.max(controller.read_took().saturating_mul(BUSY_SHARE))) => {}
            () = told(&caches.pools.changed), if !failed => {}
        }
    }
}

async fn told(changed: &Notify) {
    tokio::time::sleep(PASS_PAUSE).await;
    changed.notified().await;
}

/// Of the pool's objects that are looked at together, by the pool's uid.
type ByUid<T> = HashMap<String, T>;

fn uid(pool: &WorkerPool) -> String {
    pool.uid().unwrap_or_default()
}
