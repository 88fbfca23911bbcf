//! Whether what a claim returned was permitted, and whether it left something that it should have taken. The order in
//! which a claim picks lanes is its own business.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::state::{LaneKey, Model};

pub struct Asked<'a> {
    pub pool: &'a str,
    pub want: usize,
    pub quantum: usize,
}

/// What another session's open transaction may hold.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub tasks: BTreeSet<Uuid>,
    pub lanes: BTreeSet<LaneKey>,
    pub all_lanes: bool,
}

impl Held {
    fn lane(&self, lane: &LaneKey) -> bool {
        self.all_lanes || self.lanes.contains(lane)
    }
}

/// What may be left of what is claimable.
#[derive(Clone, Copy, PartialEq)]
pub enum Left {
    Nothing,
    /// A claim that brought something may be short: the worker claims again at once.
    Something,
}

pub fn check(model: &Model, asked: &Asked<'_>, claimed: &[Uuid], held: &Held, may_be_left: Left) -> Result<(), String> {
    let taken: BTreeSet<Uuid> = claimed.iter().copied().collect();
    if taken.len() != claimed.len() || claimed.len() > asked.want {
        return Err(format!("{} rows, {} of them different, of {} asked", claimed.len(), taken.len(), asked.want));
    }
    let lanes = model.lanes_of(asked.pool);
    let mut known = 0;
    let mut counts = BTreeMap::new();
    let mut left = Vec::new();
    for lane in &lanes {
        let heads = model.heads(lane);
        let count = heads.iter().filter(|id| taken.contains(id)).count();
        let free = model.free(lane);
        if count > free {
            return Err(format!("{count} of lane {lane:?}, which had {free} slots"));
        }
        // The first ones, but for those that another session holds.
        let mut open = heads.iter().filter(|id| taken.contains(id) || !held.tasks.contains(id));
        if let Some(skipped) = open.by_ref().take(count).find(|id| !taken.contains(id)) {
            return Err(format!("{skipped} of lane {lane:?} was passed over"));
        }
        let rest = open.count().min(free - count);
        if rest > 0 && !held.lane(lane) {
            left.push(format!("{rest} of lane {lane:?}"));
        }
        known += count;
        counts.insert(lane.clone(), (count, heads.len().min(free)));
    }
    if known != claimed.len() {
        return Err("something that was not claimable".to_owned());
    }
    if (claimed.is_empty() || may_be_left == Left::Nothing) && !left.is_empty() {
        return Err(format!("{} of {} asked, and left {}", claimed.len(), asked.want, left.join(", ")));
    }
    check_quantum(asked, &counts, lanes.iter().any(|lane| held.lane(lane)))
}

/// Where each lane has its quantum to give, none gives more.
fn check_quantum(asked: &Asked<'_>, counts: &BTreeMap<LaneKey, (usize, usize)>, is_held: bool) -> Result<(), String> {
    let all_can = counts.values().all(|(_, could)| *could >= asked.quantum);
    if is_held || !all_can || counts.len() * asked.quantum < asked.want {
        return Ok(());
    }
    match counts.iter().find(|(_, (count, _))| *count > asked.quantum) {
        Some((lane, (count, _))) => Err(format!("{count} of lane {lane:?} with a quantum of {}", asked.quantum)),
        None => Ok(()),
    }
}
