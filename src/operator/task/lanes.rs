//! Which waiting tasks have to say something else, now that their lane is held, opened, full or resting.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::{Shared, admission};
use crate::api::ingest_task::State;
use crate::domain::lane::{Class, Policy};
use crate::operator::cache::Key;
use crate::operator::lane::Counted;
use crate::store::reads::LaneCounts;

/// Of a lane that became full: each of its tasks would be a write, and the first ones are those that people look at.
const PARKED_AT_ONCE: usize = 20;

/// As much of a lane as its waiting tasks show.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Says {
    Open,
    AtCapacity,
    NoPool,
    /// By the lane, its pool or its provider, for this reason.
    Held {
        by: &'static str,
        reason: Option<String>,
    },
}

impl Says {
    fn of(lane: &LaneCounts, counted: &Counted) -> Self {
        let held = |by| Says::Held { by, reason: lane.policy_reason.clone() };
        if lane.is_pool_held {
            held("pool")
        } else if lane.policy != Policy::None {
            held(lane.policy.as_str())
        } else if counted.unserved.contains(&lane.pool) {
            Says::NoPool
        } else if lane.is_cooling {
            held("provider")
        } else if lane.effective_cap.free(lane.running + lane.stopping) == Some(0) {
            Says::AtCapacity
        } else {
            Says::Open
        }
    }
}

/// Whether a status that was made from `before` need not be made again, now that there is `now`.
pub fn says_the_same(tenant: &str, class: Class, before: &Counted, now: &Counted) -> bool {
    let says = |counted: &Counted| counted.lane(tenant, class).map(|lane| Says::of(lane, counted));
    says(before) == says(now)
}

/// Whether a lane's tasks must be looked at, and how many of them.
fn affected(before: Option<&Says>, now: &Says) -> usize {
    match (before, now) {
        (Some(before), now) if before == now => 0,
        // It starts in a moment, and then says so.
        (Some(Says::AtCapacity) | None, Says::Open) => 0,
        (Some(Says::Open) | None, Says::AtCapacity) => PARKED_AT_ONCE,
        (Some(Says::Open | Says::AtCapacity | Says::NoPool | Says::Held { .. }) | None, _) => usize::MAX,
    }
}

pub async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut counts = shared.caches.lanes.counted();
    let mut said: HashMap<(String, Class), Says> = HashMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            // Its sender is in the caches, which outlive this.
            changed = counts.changed() => if changed.is_err() { return },
        }
        let counted = counts.borrow_and_update().clone();
        shared.lanes_counted.store(true, Ordering::Relaxed);
        let mut looks: HashMap<(String, Class), usize> = HashMap::new();
        let mut seen = HashSet::new();
        for lane in &counted.lanes {
            let key = (lane.tenant.clone(), lane.class);
            let now = Says::of(lane, &counted);
            let count = affected(said.get(&key), &now);
            if count > 0 {
                looks.insert(key.clone(), count);
            }
            said.insert(key.clone(), now);
            seen.insert(key);
        }
        said.retain(|key, _| seen.contains(key));
        if !looks.is_empty() {
            look_again(&shared, looks);
        }
    }
}

fn look_again(shared: &Shared, mut looks: HashMap<(String, Class), usize>) {
    for task in shared.caches.tasks.objects.all() {
        let Some(status) = &task.status else { continue };
        if status.state != Some(State::Pending) && status.children.iter().all(|child| child.state != State::Pending) {
            continue;
        }
        let lane = (admission::tenant(&task).to_owned(), admission::class(&task));
        let Some(left) = looks.get_mut(&lane).filter(|left| **left > 0) else { continue };
        *left -= 1;
        shared.entries.unsettle(task.metadata.uid.as_deref().unwrap_or_default());
        shared.caches.tasks.queue.add(Key::of(&*task));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::task::fixture;

    #[test]
    fn status_is_made_again_when_its_lane_says_something_else() {
        let open = fixture::lane();
        let full = LaneCounts { running: 3, ..open.clone() };
        let busy = LaneCounts { running: 1, ..open.clone() };
        let counted = |lane: &LaneCounts, unserved: &[&str]| Counted {
            lanes: vec![lane.clone()],
            unserved: unserved.iter().map(|pool| (*pool).to_owned()).collect(),
        };
        let before = counted(&open, &[]);
        let rows = [
            (counted(&busy, &[]), true),
            (counted(&full, &[]), false),
            (counted(&open, &["default"]), false),
            (counted(&open, &["another"]), true),
            (Counted::default(), false),
        ];
        for (now, same) in rows {
            assert_eq!(says_the_same("team", Class::Ingest, &before, &now), same);
        }
    }

    #[test]
    fn slots_that_come_and_go_are_no_news_and_holds_are() {
        let held = Says::Held { by: "hold", reason: None };
        let other = Says::Held { by: "hold", reason: Some("maintenance".to_owned()) };
        let rows = [
            (Some(&Says::Open), &Says::Open, 0),
            (Some(&Says::AtCapacity), &Says::Open, 0),
            (None, &Says::Open, 0),
            (Some(&Says::Open), &Says::AtCapacity, PARKED_AT_ONCE),
            (Some(&Says::Open), &held, usize::MAX),
            (Some(&Says::AtCapacity), &held, usize::MAX),
            (Some(&held), &Says::Open, usize::MAX),
            (Some(&held), &Says::AtCapacity, usize::MAX),
            (Some(&held), &other, usize::MAX),
            (Some(&Says::Open), &Says::NoPool, usize::MAX),
            (Some(&Says::NoPool), &Says::Open, usize::MAX),
            (None, &held, usize::MAX),
        ];
        for (before, now, expected) in rows {
            assert_eq!(affected(before, now), expected, "{before:?} {now:?}");
        }
    }
}
