//! Rows for the tests of decisions.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::observe::Seen;
use crate::domain::lane::{Cap, Class};
use crate::domain::task::{State, TaskType};
use crate::operator::fixture::idle_lane;
use crate::store::reads::LaneCounts;
use crate::store::resources::KnownResource;
use crate::store::status::{CancelRequest, TaskStatus};

pub fn at(secs: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(secs, 0).unwrap()
}

pub fn row(state: State) -> TaskStatus {
    TaskStatus {
        track_id: Uuid::from_u128(1),
        tenant: "team".to_owned(),
        class: Class::Ingest,
        pool: "default".to_owned(),
        workspace: None,
        task_type: TaskType::Insert,
        state,
        is_ready: state == State::Pending,
        is_suspended: false,
        priority: 0,
        attempt: 1,
        failures: 0,
        retries: 0,
        lost_leases: 0,
        max_attempts: 3,
        worker_id: state.is_running().then(|| Uuid::from_u128(9)),
        stage: None,
        progress: None,
        message: None,
        parent_id: None,
        root_id: None,
        failure_class: None,
        error: None,
        cost: 0.0,
        tokens: 0,
        cancel: None,
        created_at: at(100),
        available_at: at(100),
        started_at: (state != State::Pending).then(|| at(200)),
        lease_until: None,
        finished_at: state.is_terminal().then(|| at(300)),
        timeout_secs: 7_200,
        payload: json!({}),
        result: None,
        document: None,
    }
}

pub fn seen(state: State) -> Seen {
    let root = row(state);
    let resource = KnownResource {
        mirror_id: 1,
        namespace: "team".to_owned(),
        name: "one".to_owned(),
        uid: "u".to_owned(),
        rev: 5,
        mirrored_rev: 4,
        track_id: root.track_id,
        newest_track_id: root.track_id,
        retains: false,
    };
    Seen { resource, root: Some(root), newest: None, children: Vec::new() }
}

pub fn cancelled(seen: &mut Seen, reason: &str) {
    let cancel = CancelRequest { at: at(250), by: Some("somebody".to_owned()), reason: Some(reason.to_owned()) };
    seen.root.as_mut().unwrap().cancel = Some(cancel);
}

pub fn lane() -> LaneCounts {
    LaneCounts {
        tenant: "team".to_owned(),
        cap: Cap::new(3),
        effective_cap: Cap::new(3),
        is_default: true,
        ..idle_lane()
    }
}
