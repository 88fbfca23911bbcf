//! What the operator, the API and people read, one call for all, and the wake after a commit.

use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::connect::Database;
use super::error::StoreError;
use super::session::Session;
use super::wire;
use crate::domain::lane::{Cap, Class, Policy};

/// Tells the workers of a pool that there is work: after the commit that made it, since inside of it the NOTIFY would
/// cost most of the transaction's speed. Who misses it polls.
pub async fn wake(database: &Database, pool: &str) -> Result<(), StoreError> {
    database.fetch_one(sqlx::query("select from sluice.wake($1)").bind(wire::text(pool))).await.map(drop)
}

/// A lane's settings and counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneCounts {
    pub tenant: String,
    pub class: Class,
    pub pool: String,
    /// As asked for.
    pub cap: Cap,
    pub effective_cap: Cap,
    /// Why it differs.
    pub effective_reason: Option<String>,
    pub weight: u32,
    pub policy: Policy,
    /// Why it is held, if it is, or its pool.
    pub policy_reason: Option<String>,
    pub cluster: Option<String>,
    pub resource_uid: Option<String>,
    pub running: u64,
    pub stopping: u64,
    pub ready: u64,
    /// Of the ready ones: what may not start, since the lane is full, held or resting.
    pub parked: u64,
    pub suspended: u64,
    pub backing_off: u64,
    /// Ready, suspended and backing off.
    pub pending: u64,
    /// Kept in the archive.
    pub failed: u64,
    /// It starts over when work comes to a lane where nothing ran and nothing was ready.
    pub completed_since_idle: u64,
    /// Nobody has set its cap.
    pub is_default: bool,
    pub allowed_sources: Vec<String>,
    pub mirror_limit: u32,
    /// By `hold_all`.
    pub is_pool_held: bool,
    /// A provider said 429: nothing starts for a while.
    pub is_cooling: bool,
}

/// The lanes of these tenants, or all.
pub async fn lane_counts(mut session: impl Session, tenants: Option<&[String]>) -> Result<Vec<LaneCounts>, StoreError> {
    let tenants: Option<Vec<_>> =
        tenants.map(|tenants| tenants.iter().map(|tenant| wire::text(tenant).into_owned()).collect());
    let statement = sqlx::query(
        "select tenant, class, pool, max_running, effective_max_running, effective_reason, weight, policy,
                policy_reason, cluster, resource_uid, running, stopping, ready, parked, suspended, backing_off, pending, failed,
                completed_since_idle, is_default, allowed_sources, mirror_limit, pool_held, cooling
           from sluice.lane_counts($1)",
    )
    .bind(tenants);
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(LaneCounts {
            tenant: wire::column(row, "tenant")?,
            class: wire::named(row, "class", Class::parse)?,
            pool: wire::column(row, "pool")?,
            cap: Cap::new(wire::small_count(row, "max_running")?),
            effective_cap: Cap::new(wire::small_count(row, "effective_max_running")?),
            effective_reason: wire::column(row, "effective_reason")?,
            weight: wire::small_count(row, "weight")?,
            policy: wire::named(row, "policy", Policy::parse)?,
            policy_reason: wire::column(row, "policy_reason")?,
            cluster: wire::column(row, "cluster")?,
            resource_uid: wire::column(row, "resource_uid")?,
            running: wire::count(row, "running")?,
            stopping: wire::count(row, "stopping")?,
            ready: wire::count(row, "ready")?,
            parked: wire::count(row, "parked")?,
            suspended: wire::count(row, "suspended")?,
            backing_off: wire::count(row, "backing_off")?,
            pending: wire::count(row, "pending")?,
            failed: wire::count(row, "failed")?,
            completed_since_idle: wire::count(row, "completed_since_idle")?,
            is_default: wire::column(row, "is_default")?,
            allowed_sources: wire::column(row, "allowed_sources")?,
            mirror_limit: wire::small_count(row, "mirror_limit")?,
            is_pool_held: wire::column(row, "pool_held")?,
            is_cooling: wire::column(row, "cooling")?,
        })
    })
}

/// What a pool could do now, under the caps of its lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDemand {
    pub pool: String,
    /// Slots: running + stopping + startable.
    pub demand: u64,
    pub running: u64,
    pub stopping: u64,
    pub startable: u64,
    pub is_held: bool,
    /// Alive, the draining ones included.
    pub workers: u64,
    pub draining: u64,
}

/// All pools.
pub async fn pool_demand(mut session: impl Session) -> Result<Vec<PoolDemand>, StoreError> {
    let statement = sqlx::query(
        "select pool, demand, running, stopping, startable, held, workers, draining from sluice.pool_demand()",
    );
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(PoolDemand {
            pool: wire::column(row, "pool")?,
            demand: wire::count(row, "demand")?,
            running: wire::count(row, "running")?,
            stopping: wire::count(row, "stopping")?,
            startable: wire::count(row, "startable")?,
            is_held: wire::column(row, "held")?,
            workers: wire::count(row, "workers")?,
            draining: wire::count(row, "draining")?,
        })
    })
}

/// What was set of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettingsRow {
    pub pool: String,
    pub ingest_cap: Cap,
    pub lifecycle_cap: Cap,
    pub ingest_clamp: Option<u32>,
    pub lifecycle_clamp: Option<u32>,
    pub clamp_reason: Option<String>,
    pub lease_secs: u32,
    pub auto_resume: bool,
    pub is_held: bool,
    pub hold_reason: Option<String>,
}

/// All pools.
pub async fn pool_settings(mut session: impl Session) -> Result<Vec<PoolSettingsRow>, StoreError> {
    let statement = sqlx::query(
        "select pool, ingest_cap, lifecycle_cap, ingest_clamp, lifecycle_clamp, clamp_reason, lease_secs, auto_resume, held,
                hold_reason
           from sluice.pool_settings()",
    );
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(PoolSettingsRow {
            pool: wire::column(row, "pool")?,
            ingest_cap: Cap::new(wire::small_count(row, "ingest_cap")?),
            lifecycle_cap: Cap::new(wire::small_count(row, "lifecycle_cap")?),
            ingest_clamp: wire::optional_small_count(row, "ingest_clamp")?,
            lifecycle_clamp: wire::optional_small_count(row, "lifecycle_clamp")?,
            clamp_reason: wire::column(row, "clamp_reason")?,
            lease_secs: wire::small_count(row, "lease_secs")?,
            auto_resume: wire::column(row, "auto_resume")?,
            is_held: wire::column(row, "held")?,
            hold_reason: wire::column(row, "hold_reason")?,
        })
    })
}

/// A worker with the leases that it holds: what scale-down looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolWorker {
    pub worker_id: Uuid,
    pub pool: String,
    pub pod_name: Option<String>,
    pub pod_uid: Option<String>,
    pub version: Option<String>,
    pub slots: u32,
    pub is_draining: bool,
    /// It was heard of within a lease.
    pub is_alive: bool,
    pub leases: u64,
}

/// The workers of a pool, or all.
pub async fn pool_workers(mut session: impl Session, pool: Option<&str>) -> Result<Vec<PoolWorker>, StoreError> {
    let statement = sqlx::query(
        "select worker_id, pool, pod_name, pod_uid, version, slots, draining, alive, leases from sluice.pool_workers($1)",
    )
    .bind(wire::optional_text(pool));
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(PoolWorker {
            worker_id: wire::column(row, "worker_id")?,
            pool: wire::column(row, "pool")?,
            pod_name: wire::column(row, "pod_name")?,
            pod_uid: wire::column(row, "pod_uid")?,
            version: wire::column(row, "version")?,
            slots: wire::small_count(row, "slots")?,
            is_draining: wire::column(row, "draining")?,
            is_alive: wire::column(row, "alive")?,
            leases: wire::count(row, "leases")?,
        })
    })
}

/// A resource whose status is behind its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorChange {
    pub mirror_id: i64,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// To be acknowledged once the status says what the task was at this revision.
    pub rev: i64,
    pub track_id: Uuid,
    /// Of the tree; the task itself if nothing followed it.
    pub newest_track_id: Uuid,
}

/// At most `limit` resources of a cluster, and never over 1,000; the same ones until they are acknowledged.
pub async fn mirror_changes(session: impl Session, cluster: &str, limit: u32) -> Result<Vec<MirrorChange>, StoreError> {
    mirror_changes_after(session, cluster, &[], 0, limit).await
}

/// A page of them: those of these namespaces, if any are named, with an id above `after`.
pub async fn mirror_changes_after(
    mut session: impl Session,
    cluster: &str,
    namespaces: &[String],
    after: i64,
    limit: u32,
) -> Result<Vec<MirrorChange>, StoreError> {
    let statement = sqlx::query(
        "select mirror_id, namespace, name, uid, rev, track_id, newest_track_id from sluice.mirror_changes($1, $2, $3, $4)",
    )
    .bind(wire::text(cluster))
    .bind(wire::int(limit))
    .bind(some_of(namespaces))
    .bind(after);
    wire::rows(&session.fetch_all(statement).await?, mirror_change)
}

/// None named is all.
pub(super) fn some_of(namespaces: &[String]) -> Option<Vec<String>> {
    (!namespaces.is_empty()).then(|| namespaces.to_vec())
}

fn mirror_change(row: &PgRow) -> Result<MirrorChange, StoreError> {
    Ok(MirrorChange {
        mirror_id: wire::column(row, "mirror_id")?,
        namespace: wire::column(row, "namespace")?,
        name: wire::column(row, "name")?,
        uid: wire::column(row, "uid")?,
        rev: wire::column(row, "rev")?,
        track_id: wire::column(row, "track_id")?,
        newest_track_id: wire::column(row, "newest_track_id")?,
    })
}

/// The status of these mirrors was written at these revisions: `(mirror_id, rev)`, at most 1,000. Answers how many moved.
pub async fn mirror_ack(mut session: impl Session, written: &[(i64, i64)]) -> Result<u32, StoreError> {
    let (mirrors, revs): (Vec<i64>, Vec<i64>) = written.iter().copied().unzip();
    let statement = sqlx::query("select sluice.mirror_ack($1, $2) as moved").bind(mirrors).bind(revs);
    wire::small_count(&session.fetch_one(statement).await?, "moved")
}
