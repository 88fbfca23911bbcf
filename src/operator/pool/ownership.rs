//! Whose resource sets a pool's row: one of one operator's, however many clusters and operators share the database.
//!
//! Workers of all of them serve the pool, and each operator runs its own; only what the row says is one's alone.

use kube::Api;
use tokio::time::{Duration, Instant};

use super::apply::{lead, settle_row};
use super::spec::PoolSpec;
use crate::api::WorkerPool;
use crate::operator::cache::Key;
use crate::operator::controller::Fault;
use crate::operator::{Caches, Context};
use crate::store::lanes::{PoolManager, leave_pool, manage_pool, pool_managers};
use crate::store::reads::PoolSettingsRow;

/// A pool whose resource went is free for others within this time.
const LEAVE_INTERVAL: Duration = Duration::from_secs(10);

/// Writes the row if it is ours or nobody's. Answers who else sets it.
pub async fn settle(
    context: &Context,
    spec: &PoolSpec,
    row: Option<&PoolSettingsRow>,
    manager: Option<&PoolManager>,
) -> Result<Option<PoolManager>, Fault> {
    match manager {
        Some(manager) if !is_ours(context, manager) => return Ok(Some(manager.clone())),
        Some(_) => {}
        None => {
            lead(context)?;
            let by = format!("WorkerPool {}", spec.name);
            let namespace = &context.settings.namespace;
            if !manage_pool(&context.database, &spec.name, &context.cluster, namespace, Some(&by)).await? {
                // Another one was faster, and is seen by the next look.
                return Ok(None);
            }
        }
    }
    settle_row(context, spec, row).await?;
    Ok(None)
}

fn is_ours(context: &Context, manager: &PoolManager) -> bool {
    manager.cluster == context.cluster && manager.namespace == context.settings.namespace
}

pub fn conflict(manager: &PoolManager) -> String {
    let PoolManager { pool, cluster, namespace } = manager;
    format!(
        "pool {pool} is set by the WorkerPool in namespace {namespace} of cluster {cluster}: its caps and its lease hold, and this \
         resource only runs workers; give this one another name, delete that one, or, if it is gone for good, call leave_pool"
    )
}

/// Lets go of pools whose resource is gone, whoever saw it go.
#[derive(Default)]
pub struct Leaving {
    looked_at: Option<Instant>,
}

impl Leaving {
    pub async fn look(&mut self, context: &Context, caches: &Caches) -> Result<(), Fault> {
        if self.looked_at.is_some_and(|at| at.elapsed() < LEAVE_INTERVAL) {
            return Ok(());
        }
        self.looked_at = Some(Instant::now());
        let home = &context.settings.namespace;
        let unreadable = caches.pools.objects.unreadable();
        for manager in pool_managers(&context.database).await? {
            let key = Key { namespace: home.clone(), name: manager.pool.clone() };
            let is_known = caches.pools.objects.get(&key).is_some() || unreadable.iter().any(|pool| pool.key == key);
            if !is_ours(context, &manager) || is_known {
                continue;
            }
            let pools: Api<WorkerPool> = Api::namespaced(context.client.clone(), home);
            // Our cache may be behind.
            if pools.get_metadata_opt(&manager.pool).await?.is_some() {
                continue;
            }
            lead(context)?;
            leave_pool(&context.database, &manager.pool, &manager.cluster, &manager.namespace).await?;
            tracing::info!(pool = manager.pool, "the pool's resource is gone: another may set it");
        }
        Ok(())
    }
}
