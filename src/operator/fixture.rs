//! What tests of several controllers begin with.

use crate::domain::lane::{Cap, Class, Policy};
use crate::store::reads::LaneCounts;

/// Of the tenant acme, for ingestion: without a cap, a resource or a task.
pub fn idle_lane() -> LaneCounts {
    LaneCounts {
        tenant: "acme".to_owned(),
        class: Class::Ingest,
        pool: "default".to_owned(),
        cap: Cap::NONE,
        effective_cap: Cap::NONE,
        effective_reason: None,
        weight: 1,
        policy: Policy::None,
        policy_reason: None,
        cluster: None,
        resource_uid: None,
        running: 0,
        stopping: 0,
        ready: 0,
        parked: 0,
        suspended: 0,
        backing_off: 0,
        pending: 0,
        failed: 0,
        completed_since_idle: 0,
        is_default: false,
        allowed_sources: Vec::new(),
        mirror_limit: 0,
        is_pool_held: false,
        is_cooling: false,
    }
}
