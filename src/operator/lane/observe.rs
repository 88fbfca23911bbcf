//! What there is: the resources of lanes, the rights of their namespaces, and the rows.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Counted;
use super::plan::{Claimant, Right, tenant};
use crate::api::TenantLane;
use crate::operator::cache::Key;
use crate::operator::{Caches, Context};
use crate::store::StoreError;
use crate::store::reads::{LaneCounts, lane_counts, pool_settings, pool_workers};

pub struct Observation {
    pub lanes: Vec<Lane>,
    /// Uids of resources that do not parse.
    pub unreadable: BTreeSet<String>,
    pub counted: Arc<Counted>,
    pub pools: BTreeSet<String>,
    pub read_took: Duration,
}

pub struct Lane {
    pub object: Arc<TenantLane>,
    /// Or why a stored spec cannot be meant.
    pub claimant: Result<Claimant, String>,
}

/// One statement for the counts of all lanes, and a small one for the pools.
pub async fn observe(context: &Context, caches: &Caches) -> Result<Observation, StoreError> {
    // The resources first: a row that one of them made meanwhile is seen with it.
    let objects = caches.lanes.objects.all();
    let mut unreadable: BTreeSet<String> =
        caches.lanes.objects.unreadable().into_iter().map(|unreadable| unreadable.uid).collect();
    let mut lanes = Vec::with_capacity(objects.len());
    for object in objects {
        let claimant = Claimant::of(&object, right(context, caches, &object).await);
        let claimant = claimant.map_err(|error| error.to_string());
        if claimant.is_err() {
            // Its lane stays as it is until somebody writes the spec anew.
            unreadable.extend(object.metadata.uid.clone());
        }
        lanes.push(Lane { object, claimant });
    }
    let begun = Instant::now();
    let rows = lane_counts(&context.database, None).await?;
    let pools = pool_settings(&context.database).await?.into_iter().map(|pool| pool.pool).collect();
    let unserved = unserved(context, caches, &rows).await?;
    let counted = Arc::new(Counted { lanes: rows, unserved });
    Ok(Observation { lanes, unreadable, counted, pools, read_took: begun.elapsed() })
}

/// Workers are asked for only where no resource speaks for a pool: they may be of another cluster, or of none.
async fn unserved(context: &Context, caches: &Caches, rows: &[LaneCounts]) -> Result<BTreeSet<String>, StoreError> {
    let home = &context.settings.namespace;
    let has_resource =
        |pool: &String| caches.pools.objects.get(&Key { namespace: home.clone(), name: pool.clone() }).is_some();
    let pools: BTreeSet<_> = rows.iter().map(|lane| &lane.pool).collect();
    let mut unserved: BTreeSet<_> = pools.into_iter().filter(|pool| !has_resource(pool)).cloned().collect();
    if !unserved.is_empty() {
        for worker in pool_workers(&context.database, None).await?.iter().filter(|worker| worker.is_alive) {
            unserved.remove(&worker.pool);
        }
    }
    Ok(unserved)
}

async fn right(context: &Context, caches: &Caches, lane: &TenantLane) -> Right {
    // What is being deleted speaks for nothing any more.
    if lane.metadata.deletion_timestamp.is_some() {
        return Right::Refused("the resource is being deleted".to_owned());
    }
    let namespace = lane.metadata.namespace.as_deref().unwrap_or_default();
    match caches.lanes.grants.check(&context.client, namespace, tenant(lane)).await {
        Ok(Ok(())) => Right::Granted,
        Ok(Err(why)) => Right::Refused(why),
        Err(error) => {
            tracing::debug!(namespace, %error, "a namespace's tenants could not be read");
            Right::Unknown
        }
    }
}
