//! The Kubernetes side: makes Postgres agree with what custom resources ask for, and their statuses with the rows.
//!
//! Caches fill in every process; only the leader acts. Each kind is a folder whose steps are observe → plan → apply →
//! status, driven from its `mod.rs`.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod batch;
pub mod cache;
pub mod condition_list;
pub mod context;
pub mod controller;
mod convert;
pub mod events;
#[cfg(test)]
mod fixture;
pub mod instrument;
mod janitor;
pub mod lane;
pub mod leader;
pub mod pool;
mod probes;
pub mod queue;
pub mod task;
pub mod tenancy;
pub mod uninstall;
pub mod write;

pub use context::{Context, LocalWake, Settings};

/// In the operator's own namespace.
const LEASE: &str = "sluice-operator";

/// Why the operator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error(
        "no cluster is configured: run this in a pod with a service account, or name a kubeconfig in KUBECONFIG: {source}"
    )]
    NoCluster { source: Box<kube::config::InferConfigError> },
    #[error("no client for the API server: {source}")]
    Client { source: Box<kube::Error> },
    #[error("the namespace kube-system, whose uid names this cluster, cannot be read; set SLUICE_CLUSTER_ID: {source}")]
    ClusterId { source: Box<kube::Error> },
    #[error("the namespace kube-system has no uid; set SLUICE_CLUSTER_ID")]
    NoClusterId,
    #[error("probes cannot be served on {address}: {source}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

/// The caches of all kinds: a controller may look at another's kind. Each is filled by its own controller.
pub struct Caches {
    pub tasks: task::Cached,
    pub lanes: lane::Cached,
    pub pools: pool::Cached,
}

/// Runs until `shutdown`: follows with warm caches, leads whenever the Lease is ours.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), OperatorError> {
    let context = Arc::new(Context::new(settings).await?);
    let caches =
        Arc::new(Caches { tasks: task::Cached::new(), lanes: lane::Cached::new(), pools: pool::Cached::new() });
    tracing::info!(cluster = context.cluster, namespace = context.settings.namespace, "the operator starts");
    let mut always = JoinSet::new();
    if let Some(address) = context.settings.listen {
        let listener = probes::bind(address).await?;
        let synced = caches.clone();
        let is_synced = Box::new(move || synced.are_synced());
        always.spawn(probes::run(listener, probes::Probes { context: context.clone(), is_synced }, shutdown.clone()));
    }
    let reach = leader::Reach::new();
    let asking = tokio::spawn(reach.clone().follow(context.database.clone(), shutdown.clone()));
    let election = leader::Election {
        reach,
        client: Context::lease_client().await?,
        namespace: context.settings.namespace.clone(),
        lease: LEASE.to_owned(),
        identity: context.settings.identity.clone(),
        leadership: context.leadership.clone(),
        metrics: context.metrics.clone(),
    };
    let election = tokio::spawn(leader::run(election, shutdown.clone()));
    // Watches hold no database connection, so they may be dropped at any point.
    always.spawn(task::follow(context.clone(), caches.clone()));
    always.spawn(lane::follow(context.clone(), caches.clone()));
    always.spawn(pool::follow(context.clone(), caches.clone()));

    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = context.leadership.gained() => {}
        }
        lead(&context, &caches, &shutdown).await;
    }
    // Gives the Lease back.
    if let Err(error) = election.await {
        tracing::error!(%error, "the election ended badly");
    }
    if let Err(error) = asking.await {
        tracing::error!(%error, "asking the database ended badly");
    }
    always.shutdown().await;
    context.database.close().await;
    Ok(())
}

/// Acts until the Lease is lost or the process ends; what has begun is brought to its end.
async fn lead(context: &Arc<Context>, caches: &Arc<Caches>, shutdown: &CancellationToken) {
    let stop = shutdown.child_token();
    let lost = async {
        context.leadership.lost().await;
        stop.cancel();
    };
    let act = async {
        tokio::select! {
            () = caches.synced() => {}
            () = stop.cancelled() => return,
        }
        tokio::join!(
            task::run(context.clone(), caches.clone(), stop.clone()),
            lane::run(context.clone(), caches.clone(), stop.clone()),
            pool::run(context.clone(), caches.clone(), stop.clone()),
            janitor::run(context.clone(), stop.clone()),
        );
    };
    tokio::pin!(act);
    tokio::select! {
        () = &mut act => {}
        () = lost => act.await,
    }
}

impl Caches {
    pub fn are_synced(&self) -> bool {
        self.tasks.is_synced() && self.lanes.is_synced() && self.pools.is_synced()
    }

    async fn synced(&self) {
        tokio::join!(self.tasks.synced(), self.lanes.synced(), self.pools.synced());
    }
}
