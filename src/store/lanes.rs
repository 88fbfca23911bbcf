//! Limits, weights and holds of lanes and pools: what the platform sets.

use serde_json::{Map, Value, json};

use super::error::StoreError;
use super::session::Session;
use super::wire;
use crate::domain::lane::{Cap, Class, Policy, Weight};

/// What to do with one field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Setting<T> {
    #[default]
    Keep,
    /// Back to its default.
    Reset,
    To(T),
}

impl<T> Setting<T> {
    /// `None` is `Keep`.
    fn map_json(self, to_json: impl FnOnce(T) -> Value) -> Option<Value> {
        match self {
            Self::Keep => None,
            Self::Reset => Some(Value::Null),
            Self::To(value) => Some(to_json(value)),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneSettings<'a> {
    pub pool: Setting<&'a str>,
    /// The default is the pool's.
    pub max_running: Setting<Cap>,
    pub weight: Setting<Weight>,
    pub policy: Setting<Policy>,
    /// Why the policy is what it is; forgotten when the policy is set without it.
    pub policy_reason: Setting<&'a str>,
    /// Prefixes of the URLs that its tasks may read.
    pub allowed_sources: Setting<Vec<String>>,
    /// Resources made for tasks that were born elsewhere, at most.
    pub mirror_limit: Setting<u32>,
    /// Who manages it.
    pub cluster: Setting<&'a str>,
    pub resource_uid: Setting<&'a str>,
}

impl LaneSettings<'_> {
    fn to_json(&self) -> Value {
        let Self {
            pool,
            max_running,
            weight,
            policy,
            policy_reason,
            allowed_sources,
            mirror_limit,
            cluster,
            resource_uid,
        } = self.clone();
        object([
            ("pool", pool.map_json(|pool| json!(pool))),
            ("max_running", max_running.map_json(|cap| json!(cap.get()))),
            ("weight", weight.map_json(|weight| json!(weight.get()))),
            ("policy", policy.map_json(|policy| json!(policy.as_str()))),
            ("policy_reason", policy_reason.map_json(|reason| json!(reason))),
            ("allowed_sources", allowed_sources.map_json(|sources| json!(sources))),
            ("mirror_limit", mirror_limit.map_json(|limit| json!(limit))),
            ("cluster", cluster.map_json(|cluster| json!(cluster))),
            ("resource_uid", resource_uid.map_json(|uid| json!(uid))),
        ])
    }
}

/// What holds for a lane now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneLimits {
    pub effective_cap: Cap,
    /// Why it differs from what was asked for.
    pub reason: Option<String>,
}

/// Makes the lane if there is none. A lowered cap kills nothing. A pool that is not there is [`StoreError::Conflict`],
/// any other value that cannot be is [`StoreError::BadInput`].
pub async fn set_lane(
    mut session: impl Session,
    tenant: &str,
    class: Class,
    settings: &LaneSettings<'_>,
    by: Option<&str>,
) -> Result<LaneLimits, StoreError> {
    let statement = sqlx::query("select effective_max_running, effective_reason from sluice.set_lane($1, $2, $3, $4)")
        .bind(wire::text(tenant))
        .bind(class.as_str())
        .bind(settings.to_json())
        .bind(wire::optional_text(by));
    let row = session.fetch_one(statement).await?;
    Ok(LaneLimits {
        effective_cap: Cap::new(wire::small_count(&row, "effective_max_running")?),
        reason: wire::column(&row, "effective_reason")?,
    })
}

/// Prefixes of the URLs that the tasks of a lane may read; none also of a lane that nobody has made.
pub async fn lane_sources(mut session: impl Session, tenant: &str, class: Class) -> Result<Vec<String>, StoreError> {
    let statement = sqlx::query("select coalesce(sluice.lane_sources($1, $2), '{}') as allowed_sources")
        .bind(wire::text(tenant))
        .bind(class.as_str());
    wire::column(&session.fetch_one(statement).await?, "allowed_sources")
}

/// Pauses a lane, or lets it go on; the reason is shown as long as it holds.
pub async fn hold_lane(
    mut session: impl Session,
    tenant: &str,
    class: Class,
    policy: Policy,
    reason: Option<&str>,
    by: Option<&str>,
) -> Result<Policy, StoreError> {
    let statement = sqlx::query("select sluice.hold_lane($1, $2, $3, $4, $5) as policy")
        .bind(wire::text(tenant))
        .bind(class.as_str())
        .bind(policy.as_str())
        .bind(wire::optional_text(reason))
        .bind(wire::optional_text(by));
    wire::named(&session.fetch_one(statement).await?, "policy", Policy::parse)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    Held,
    Open,
}

/// Pauses a pool, or lets it go on, or all of them if `pool` is `None`; running work goes on. Answers how many changed.
pub async fn hold_all(
    mut session: impl Session,
    hold: Hold,
    pool: Option<&str>,
    reason: Option<&str>,
    by: Option<&str>,
) -> Result<u32, StoreError> {
    let statement = sqlx::query("select sluice.hold_all($1, $2, $3, $4) as pools")
        .bind(hold == Hold::Held)
        .bind(wire::optional_text(pool))
        .bind(wire::optional_text(reason))
        .bind(wire::optional_text(by));
    wire::small_count(&session.fetch_one(statement).await?, "pools")
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerPoolSettings<'a> {
    /// Of the lanes whose limits nobody set.
    pub ingest_cap: Option<Cap>,
    pub lifecycle_cap: Option<Cap>,
    /// Nothing above it, 1 or more; the default is none.
    pub ingest_clamp: Setting<u32>,
    pub lifecycle_clamp: Setting<u32>,
    /// What lanes show as the reason of a clamped cap.
    pub clamp_reason: Setting<&'a str>,
    /// 1 to 86,400.
    pub lease_secs: Option<u32>,
    /// Whether an interrupted task goes on by itself.
    pub auto_resume: Option<bool>,
}

impl WorkerPoolSettings<'_> {
    fn to_json(self) -> Value {
        let Self { ingest_cap, lifecycle_cap, ingest_clamp, lifecycle_clamp, clamp_reason, lease_secs, auto_resume } =
            self;
        object([
            ("ingest_cap", ingest_cap.map(|cap| json!(cap.get()))),
            ("lifecycle_cap", lifecycle_cap.map(|cap| json!(cap.get()))),
            ("ingest_clamp", ingest_clamp.map_json(|clamp| json!(clamp))),
            ("lifecycle_clamp", lifecycle_clamp.map_json(|clamp| json!(clamp))),
            ("clamp_reason", clamp_reason.map_json(|reason| json!(reason))),
            ("lease_secs", lease_secs.map(|secs| json!(secs))),
            ("auto_resume", auto_resume.map(|auto_resume| json!(auto_resume))),
        ])
    }
}

/// Makes the pool if there is none, and applies its limits to its lanes.
pub async fn set_pool(
    mut session: impl Session,
    pool: &str,
    settings: WorkerPoolSettings<'_>,
    by: Option<&str>,
) -> Result<(), StoreError> {
    let statement = sqlx::query("select from sluice.set_pool($1, $2, $3)")
        .bind(wire::text(pool))
        .bind(settings.to_json())
        .bind(wire::optional_text(by));
    session.fetch_one(statement).await.map(drop)
}

/// Whose resource sets a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolManager {
    pub pool: String,
    pub cluster: String,
    pub namespace: String,
}

/// Of the pools that a resource sets.
pub async fn pool_managers(mut session: impl Session) -> Result<Vec<PoolManager>, StoreError> {
    let statement = sqlx::query("select pool, cluster, namespace from sluice.pool_managers()");
    wire::rows(&session.fetch_all(statement).await?, |row| {
        Ok(PoolManager {
            pool: wire::column(row, "pool")?,
            cluster: wire::column(row, "cluster")?,
            namespace: wire::column(row, "namespace")?,
        })
    })
}

/// The resource of this namespace sets the pool from now on, unless another one does. Makes the pool if there is none.
/// Answers whether it may.
pub async fn manage_pool(
    mut session: impl Session,
    pool: &str,
    cluster: &str,
    namespace: &str,
    by: Option<&str>,
) -> Result<bool, StoreError> {
    let statement = sqlx::query("select sluice.manage_pool($1, $2, $3, $4) as is_ours")
        .bind(wire::text(pool))
        .bind(wire::text(cluster))
        .bind(wire::text(namespace))
        .bind(wire::optional_text(by));
    wire::column(&session.fetch_one(statement).await?, "is_ours")
}

/// The resource is gone: another may set the pool. Answers whether it was theirs.
pub async fn leave_pool(
    mut session: impl Session,
    pool: &str,
    cluster: &str,
    namespace: &str,
) -> Result<bool, StoreError> {
    let statement = sqlx::query("select sluice.leave_pool($1, $2, $3) as was_ours")
        .bind(wire::text(pool))
        .bind(wire::text(cluster))
        .bind(wire::text(namespace));
    wire::column(&session.fetch_one(statement).await?, "was_ours")
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let present = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), wire::json(&value?))));
    Value::Object(present.collect::<Map<_, _>>())
}
