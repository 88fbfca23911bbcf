//! Which resource speaks for a lane, and what its row has to be told: decided from plain data.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::api::conditions::{ConditionType, Reason};
use crate::api::tenant_lane::{LaneClass, LanePolicy, MIRROR_LIMIT_DEFAULT, MirrorPolicy};
use crate::api::{ConditionStatus, TenantLane};
use crate::domain::lane::{Cap, Class, Policy, Weight, WeightOutOfRange};
use crate::store::lanes::Setting;
use crate::store::reads::LaneCounts;

/// Of lanes and tasks that name none.
pub const DEFAULT_POOL: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey {
    pub tenant: String,
    pub class: Class,
}

/// A resource that wants to speak for a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Seconds since the epoch.
    pub created_at: i64,
    pub lane: LaneKey,
    pub right: Right,
    pub wanted: Wanted,
}

/// Whether its namespace may name the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    Granted,
    Refused(String),
    /// The namespace could not be read: nothing changes.
    Unknown,
}

/// What its spec asks for, with the defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub pool: String,
    /// `None` is the pool's default.
    pub cap: Option<Cap>,
    pub weight: Weight,
    pub policy: WantedPolicy,
    pub allowed_sources: Vec<String>,
    pub mirror_limit: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedPolicy {
    To {
        policy: Policy,
        reason: Option<String>,
    },
    /// The spec says nothing, so a hold by SQL or HTTP stays; one that an earlier spec asked for goes.
    Unset {
        held_by_spec: bool,
    },
}

/// Who holds the rows that this process may change.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub cluster: &'a str,
    /// Namespaces that are watched; empty is all.
    pub namespaces: &'a [String],
}

impl Scope<'_> {
    fn watches(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.iter().any(|watched| watched == namespace)
    }
}

/// What a resource is to its lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Speaks,
    NotAllowed(String),
    /// It is not known yet whether it may.
    Unknown,
    /// Another resource speaks for it.
    Conflict(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// By uid.
    pub verdicts: HashMap<String, Verdict>,
    /// Rows to be told, those of deleted resources last.
    pub changes: Vec<Change>,
    /// Uids of resources whose pool is not there.
    pub without_pool: BTreeSet<String>,
}

/// One call of `set_lane`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub lane: LaneKey,
    pub kind: ChangeKind,
    pub settings: Settings,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// For the resource with this uid.
    Of { uid: String, by: String },
    /// Its resource, with this uid, may not manage it any more.
    Revoked { uid: String },
    /// Its resource, with this uid, is not in the cache: only after the API server has confirmed that.
    Orphan { namespace: String, uid: String },
}

/// As `LaneSettings`, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub pool: Setting<String>,
    pub max_running: Setting<Cap>,
    pub weight: Setting<Weight>,
    pub policy: Setting<Policy>,
    pub policy_reason: Setting<String>,
    pub allowed_sources: Setting<Vec<String>>,
    pub mirror_limit: Setting<u32>,
    pub cluster: Setting<String>,
    pub resource_uid: Setting<String>,
}

impl Settings {
    /// The lane as if nobody had ever managed it.
    fn defaults() -> Self {
        Self {
            pool: Setting::Reset,
            max_running: Setting::Reset,
            weight: Setting::Reset,
            policy: Setting::Reset,
            policy_reason: Setting::Reset,
            allowed_sources: Setting::Reset,
            mirror_limit: Setting::Reset,
            cluster: Setting::Reset,
            resource_uid: Setting::Reset,
        }
    }
}

impl Claimant {
    /// Of a stored resource; its schema bounds the weight, but a stored object may be older than its schema.
    pub fn of(lane: &TenantLane, right: Right) -> Result<Self, WeightOutOfRange> {
        let namespace = lane.metadata.namespace.clone().unwrap_or_default();
        let tenant = tenant(lane).to_owned();
        let mirror = lane.spec.mirror.unwrap_or_default();
        let wanted = Wanted {
            pool: lane.spec.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
            cap: lane.spec.max_running.map(Cap::new),
            weight: Weight::new(i64::from(lane.spec.weight.unwrap_or(1)))?,
            policy: wanted_policy(lane),
            allowed_sources: lane.spec.allowed_sources.clone().unwrap_or_default(),
            mirror_limit: match mirror.policy.unwrap_or_default() {
                MirrorPolicy::None => 0,
                MirrorPolicy::Active => mirror.limit.unwrap_or(MIRROR_LIMIT_DEFAULT),
            },
        };
        Ok(Self {
            name: lane.metadata.name.clone().unwrap_or_default(),
            uid: lane.metadata.uid.clone().unwrap_or_default(),
            created_at: lane.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            right,
            lane: LaneKey { tenant, class: class(lane.spec.class) },
            namespace,
            wanted,
        })
    }

    pub fn manager(&self) -> String {
        manager(&self.namespace, &self.uid)
    }

    fn age(&self) -> (i64, &str) {
        (self.created_at, &self.uid)
    }
}

/// Its namespace's name by default.
pub fn tenant(lane: &TenantLane) -> &str {
    lane.spec.tenant.as_deref().or(lane.metadata.namespace.as_deref()).unwrap_or_default()
}

pub fn class(class: LaneClass) -> Class {
    match class {
        LaneClass::Ingest => Class::Ingest,
        LaneClass::Lifecycle => Class::Lifecycle,
    }
}

fn wanted_policy(lane: &TenantLane) -> WantedPolicy {
    let policy = match lane.spec.policy {
        Some(LanePolicy::None) => Policy::None,
        Some(LanePolicy::Hold) => Policy::Hold,
        Some(LanePolicy::HoldAndDrain) => Policy::HoldAndDrain,
        None => {
            let conditions = lane.status.iter().flat_map(|status| &status.conditions);
            let mut held = conditions.filter(|condition| condition.is(ConditionType::Held));
            let by_spec = |condition: &crate::api::Condition| {
                condition.status == ConditionStatus::True && condition.reason == Reason::HeldByPolicy.as_str()
            };
            return WantedPolicy::Unset { held_by_spec: held.any(by_spec) };
        }
    };
    let reason = lane.spec.policy_reason.clone().filter(|_| !policy.admits());
    WantedPolicy::To { policy, reason }
}

/// What is there: all resources that parse, uids of those that do not, all rows, and the pools that the database knows.
pub struct Observed<'a> {
    pub claimants: &'a [Claimant],
    pub unreadable: &'a BTreeSet<String>,
    pub rows: &'a [LaneCounts],
    pub pools: &'a BTreeSet<String>,
}

pub fn plan(observed: &Observed<'_>, scope: Scope<'_>) -> Plan {
    let Observed { claimants, unreadable, rows, pools } = observed;
    let mut plan = Plan::default();
    let mut by_lane: BTreeMap<&LaneKey, Vec<&Claimant>> = BTreeMap::new();
    for claimant in *claimants {
        let verdict = match &claimant.right {
            Right::Granted => {
                by_lane.entry(&claimant.lane).or_default().push(claimant);
                continue;
            }
            Right::Refused(why) => Verdict::NotAllowed(why.clone()),
            Right::Unknown => Verdict::Unknown,
        };
        plan.verdicts.insert(claimant.uid.clone(), verdict);
    }
    let rows: HashMap<LaneKey, &LaneCounts> =
        rows.iter().map(|row| (LaneKey { tenant: row.tenant.clone(), class: row.class }, row)).collect();

    for (lane, claimants) in &mut by_lane {
        claimants.sort_by_key(|claimant| claimant.age());
        let Some((oldest, younger)) = claimants.split_first() else { continue };
        for claimant in younger {
            let verdict = Verdict::Conflict(format!(
                "TenantLane {}/{} is older and speaks for the {} lane of this tenant; delete one of the two",
                oldest.namespace, oldest.name, lane.class
            ));
            plan.verdicts.insert(claimant.uid.clone(), verdict);
        }
        let row = rows.get(*lane).copied();
        if let Some(elsewhere) = row.and_then(|row| managed_elsewhere(row, scope)) {
            plan.verdicts.insert(oldest.uid.clone(), Verdict::Conflict(elsewhere));
            continue;
        }
        plan.verdicts.insert(oldest.uid.clone(), Verdict::Speaks);
        let has_pool = pools.contains(&oldest.wanted.pool);
        if !has_pool {
            plan.without_pool.insert(oldest.uid.clone());
        }
        let settings = difference(oldest, row, has_pool, scope);
        if settings != Settings::default() {
            let by = format!("TenantLane {}/{}", oldest.namespace, oldest.name);
            let kind = ChangeKind::Of { uid: oldest.uid.clone(), by };
            plan.changes.push(Change { lane: (*lane).clone(), kind, settings });
        }
    }

    let mut left: Vec<_> = rows.iter().filter(|(lane, _)| !by_lane.contains_key(lane)).collect();
    left.sort_by_key(|(lane, _)| *lane);
    for (lane, row) in left {
        let Some((namespace, uid)) = managed_here(row, scope) else { continue };
        let (namespace, uid) = (namespace.to_owned(), uid.to_owned());
        let kind = match plan.verdicts.get(&uid) {
            _ if unreadable.contains(&uid) => continue,
            Some(Verdict::Unknown) => continue,
            Some(Verdict::Speaks | Verdict::NotAllowed(_) | Verdict::Conflict(_)) => ChangeKind::Revoked { uid },
            None => ChangeKind::Orphan { namespace, uid },
        };
        plan.changes.push(Change { lane: lane.clone(), kind, settings: Settings::defaults() });
    }
    plan
}

/// How the row names its resource: with the namespace, so that another operator knows whose it is without reading it.
pub fn manager(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

/// Namespace and uid of the resource that manages the row, if that is one of ours.
fn managed_here<'r>(row: &'r LaneCounts, scope: Scope<'_>) -> Option<(&'r str, &'r str)> {
    let (namespace, uid) = row.resource_uid.as_deref()?.split_once('/')?;
    (row.cluster.as_deref() == Some(scope.cluster) && scope.watches(namespace)).then_some((namespace, uid))
}

fn managed_elsewhere(row: &LaneCounts, scope: Scope<'_>) -> Option<String> {
    let manager = row.resource_uid.as_deref()?;
    if managed_here(row, scope).is_some() {
        return None;
    }
    let cluster = row.cluster.as_deref().unwrap_or("unknown");
    Some(format!(
        "the lane's row is managed by resource {manager} of cluster {cluster}, which this operator does not watch; delete \
         that resource, or, if it is gone for good, call set_lane with cluster and resource_uid null"
    ))
}

/// What of the row is not as wanted.
fn difference(claimant: &Claimant, row: Option<&LaneCounts>, has_pool: bool, scope: Scope<'_>) -> Settings {
    let Wanted { pool, cap, weight, policy, allowed_sources, mirror_limit } = &claimant.wanted;
    let manager = claimant.manager();
    let has_predecessor = row.and_then(|row| row.resource_uid.as_deref()).is_some_and(|before| before != manager);
    let is_pool_set = row.is_some_and(|row| row.pool == *pool) || !has_pool;
    // Before the row is there it is made with the default pool.
    let is_pool_set = is_pool_set || row.is_none() && pool == DEFAULT_POOL;
    let is_cap_set = match (cap, row) {
        (None, row) => row.is_none_or(|row| row.is_default),
        (Some(cap), row) => row.is_some_and(|row| !row.is_default && row.cap == *cap),
    };
    let weight_now = row.map_or(1, |row| row.weight);
    let policy_now = row.map_or(Policy::None, |row| row.policy);
    let (policy, policy_reason) = match policy {
        WantedPolicy::To { policy, reason } => {
            // The row shows the pool's reason while that is held; ours is looked at when it is not.
            let reason_now = row.filter(|row| !row.is_pool_held).map(|row| row.policy_reason.as_deref());
            let is_set = policy_now == *policy && reason_now.is_none_or(|now| now == reason.as_deref());
            match (is_set, reason) {
                (true, _) => (Setting::Keep, Setting::Keep),
                (false, Some(reason)) => (Setting::To(*policy), Setting::To(reason.clone())),
                (false, None) => (Setting::To(*policy), Setting::Reset),
            }
        }
        // A hold that a resource before this one asked for went with it.
        WantedPolicy::Unset { held_by_spec } if policy_now != Policy::None && (*held_by_spec || has_predecessor) => {
            (Setting::Reset, Setting::Reset)
        }
        WantedPolicy::Unset { .. } => (Setting::Keep, Setting::Keep),
    };
    Settings {
        pool: unless(is_pool_set, pool.clone()),
        max_running: match cap {
            _ if is_cap_set => Setting::Keep,
            None => Setting::Reset,
            Some(cap) => Setting::To(*cap),
        },
        weight: unless(weight_now == u32::from(weight.get()), *weight),
        policy,
        policy_reason,
        allowed_sources: unless(
            row.map_or(&[][..], |row| &row.allowed_sources) == allowed_sources.as_slice(),
            allowed_sources.clone(),
        ),
        mirror_limit: unless(row.map_or(0, |row| row.mirror_limit) == *mirror_limit, *mirror_limit),
        cluster: unless(row.and_then(|row| row.cluster.as_deref()) == Some(scope.cluster), scope.cluster.to_owned()),
        resource_uid: unless(row.and_then(|row| row.resource_uid.as_deref()) == Some(&*manager), manager),
    }
}

fn unless<T>(is_set: bool, value: T) -> Setting<T> {
    if is_set { Setting::Keep } else { Setting::To(value) }
}

#[cfg(test)]
mod tests;
