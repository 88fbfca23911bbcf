//! What the model knows: pools, lanes, tasks, documents, keys and workers, as plain data.

use std::collections::BTreeMap;

use sluice::domain::lane::{Class, Policy};
use sluice::domain::task::{State, TaskType};
use uuid::Uuid;

/// Model time: a step is one tick, and nothing that the database lets expire lasts less than [`LONG`].
pub type Tick = i64;
pub const LONG: Tick = 1_000_000;

pub const NO_CAP: usize = usize::MAX;
pub const RETRIES_MAX: i32 = 3;
pub const LOST_LEASES_MAX: i32 = 5;
pub const TIMEOUTS_MAX: i32 = 3;

/// A tenant and a class.
pub type LaneKey = (String, Class);

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub ingest_cap: i32,
    pub lifecycle_cap: i32,
    pub ingest_clamp: Option<i32>,
    pub auto_resume: bool,
    pub held: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    pub pool: String,
    pub max_running: i32,
    pub is_default: bool,
    pub weight: i32,
    pub policy: Policy,
    /// What the claim looks at: a hold, or a rest that nobody has ended yet.
    pub is_held: bool,
    pub cooled_until: Option<Tick>,
    /// When a rest starts over at 30 s.
    pub cool_forgotten: Tick,
    pub cool_downs: i32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub lane: LaneKey,
    pub task_type: TaskType,
    pub state: State,
    pub priority: i32,
    pub arrival: i64,
    pub ready: bool,
    pub suspended: bool,
    pub max_attempts: i32,
    pub failures: i32,
    pub retries: i32,
    pub lost_leases: i32,
    pub timeouts: i32,
    pub attempt: i32,
    pub worker: Option<Uuid>,
    pub sequence: Option<i64>,
    pub available_at: Tick,
    pub lease_until: Tick,
    pub deadline: Tick,
    pub cancel_asked: bool,
    pub progressed: bool,
    pub stage: Option<String>,
    pub workspace: Option<String>,
    pub document: Option<Uuid>,
    pub parent: Option<Uuid>,
    pub root: Option<Uuid>,
    pub exclusive: Option<u8>,
    pub failure_class: Option<String>,
}

impl Task {
    pub fn is_leased(&self) -> bool {
        self.state.is_running()
    }

    pub fn is_live(&self) -> bool {
        !self.state.is_terminal()
    }

    pub fn tenant(&self) -> &str {
        &self.lane.0
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub tenant: String,
    pub workspace: Option<String>,
    pub status: String,
    pub stage: Option<String>,
    pub pdf_status: Option<String>,
    pub failure_class: Option<String>,
    pub published_status: Option<String>,
    pub task: Uuid,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    pub pool: String,
    pub draining: bool,
    pub stands_for_pool: bool,
    /// Its row is old enough for `retain`.
    pub forgotten: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub track_id: Uuid,
    /// What two requests must agree in; `None` for a resource.
    pub content: Option<String>,
    pub is_old: bool,
}

/// The whole of it. Every map's entry is one row of the database, so that what a call changed can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    pub pools: BTreeMap<String, Pool>,
    pub lanes: BTreeMap<LaneKey, Lane>,
    pub tasks: BTreeMap<Uuid, Task>,
    pub documents: BTreeMap<Uuid, Document>,
    pub workers: BTreeMap<Uuid, Worker>,
    /// By scope, kind and key.
    pub keys: BTreeMap<(String, String, String), Key>,
}

impl Model {
    pub fn running(&self, lane: &LaneKey) -> usize {
        self.tasks.values().filter(|task| task.lane == *lane && task.is_leased()).count()
    }

    pub fn effective_cap(&self, lane: &LaneKey) -> i32 {
        let lane_row = &self.lanes[lane];
        match (lane_row.max_running, lane.1, self.pools[&lane_row.pool].ingest_clamp) {
            (cap, Class::Ingest, Some(clamp)) if cap != 0 => cap.min(clamp),
            (cap, Class::Ingest | Class::Lifecycle, _) => cap,
        }
    }

    /// Slots that a lane has left; none if it has more running than its cap allows.
    pub fn free(&self, lane: &LaneKey) -> usize {
        match self.effective_cap(lane) {
            0 => NO_CAP,
            cap => usize::try_from(cap).expect("caps are positive").saturating_sub(self.running(lane)),
        }
    }

    /// What could be claimed in a lane now, first come first.
    pub fn heads(&self, lane: &LaneKey) -> Vec<Uuid> {
        let row = &self.lanes[lane];
        if row.is_held || self.pools[&row.pool].held {
            return Vec::new();
        }
        let mut ready: Vec<(&Uuid, &Task)> =
            self.tasks.iter().filter(|(_, task)| task.lane == *lane && task.ready).collect();
        ready.sort_by_key(|(_, task)| (-task.priority, task.arrival));
        ready.into_iter().map(|(id, _)| *id).collect()
    }

    pub fn lanes_of(&self, pool: &str) -> Vec<LaneKey> {
        self.lanes.iter().filter(|(_, lane)| lane.pool == pool).map(|(key, _)| key.clone()).collect()
    }

    /// The other tasks of a tree included.
    pub fn root_of(&self, id: Uuid) -> Uuid {
        self.tasks[&id].root.unwrap_or(id)
    }
}

/// Carries into `target` each row that a call changed from `before` to `after`: two transactions never change the same
/// row at the same time.
pub fn carry_over(before: &Model, after: &Model, target: &mut Model) {
    carry(&before.pools, &after.pools, &mut target.pools);
    carry(&before.lanes, &after.lanes, &mut target.lanes);
    carry(&before.tasks, &after.tasks, &mut target.tasks);
    carry(&before.documents, &after.documents, &mut target.documents);
    carry(&before.workers, &after.workers, &mut target.workers);
    carry(&before.keys, &after.keys, &mut target.keys);
}

fn carry<K: Ord + Clone, V: PartialEq + Clone>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    target: &mut BTreeMap<K, V>,
) {
    for (key, value) in after {
        if before.get(key) != Some(value) {
            target.insert(key.clone(), value.clone());
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(key)) {
        target.remove(key);
    }
}
