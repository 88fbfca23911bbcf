//! How many replicas a pool should have, and the reason.

use std::fmt;
use std::num::NonZeroU32;

use super::lane::{Cap, Policy};

/// What the database says of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneDemand {
    pub running: u64,
    pub stopping: u64,
    /// Pending, not suspended, due.
    pub ready: u64,
    pub cap: Cap,
    pub policy: Policy,
}

impl LaneDemand {
    /// Slots that the lane holds, and those that it may take now.
    fn slots(self) -> u64 {
        let LaneDemand { running, stopping, ready, cap, policy } = self;
        let held = running.saturating_add(stopping);
        let may_start = match (policy.admits(), cap.free(held)) {
            (false, _) => 0,
            (true, None) => ready,
            (true, Some(free)) => ready.min(free),
        };
        held.saturating_add(may_start)
    }
}

/// Replicas that could work at once on what the caps permit; 0 exactly when nothing runs, stops or may start.
pub fn want(lanes: impl IntoIterator<Item = LaneDemand>, threads: NonZeroU32) -> u64 {
    let slots = lanes.into_iter().fold(0_u64, |sum, lane| sum.saturating_add(lane.slots()));
    slots.div_ceil(u64::from(threads.get()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub min_replicas: u32,
    /// Wins over `min_replicas` if that is larger.
    pub max_replicas: u32,
    pub scale_down_delay_secs: u64,
}

/// A time of less demand than replicas: the fewest that would have been enough all along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietWindow {
    /// Seconds since the epoch.
    pub since: i64,
    pub peak: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub replicas: u32,
    pub reason: Reason,
    /// To be handed in at the next decision.
    pub quiet: Option<QuietWindow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    MatchesDemand,
    DemandRose,
    DemandFell,
    NothingToDo,
    /// Demand is lower, but not for long enough.
    WaitsToScaleDown {
        remaining_secs: u64,
    },
    /// The pool may not have what it wants.
    AtMaximum {
        want: u64,
    },
    /// The pool keeps more than it wants.
    AtMinimum {
        want: u64,
    },
    /// The database did not answer; that is never a zero.
    DemandUnknown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::MatchesDemand => f.write_str("replicas match the permitted work"),
            Reason::DemandRose => f.write_str("scaled up: more work is permitted"),
            Reason::DemandFell => f.write_str("scaled down: less work is permitted"),
            Reason::NothingToDo => f.write_str("scaled to zero: nothing is ready, running or stopping"),
            Reason::WaitsToScaleDown { remaining_secs } => {
                write!(f, "less work is permitted: scales down in {remaining_secs} s unless that changes")
            }
            Reason::AtMaximum { want } => write!(f, "held at maxReplicas: the permitted work wants {want}"),
            Reason::AtMinimum { want } => write!(f, "held at minReplicas: the permitted work wants {want}"),
            Reason::DemandUnknown => f.write_str("demand is unknown: the last decision stays"),
        }
    }
}

/// The next number of replicas: up at once, down to the peak of a quiet time that lasted the delay.
/// `want` is `None` when it could not be read; `now` is seconds since the epoch.
pub fn decide(limits: Limits, replicas: u32, quiet: Option<QuietWindow>, want: Option<u64>, now: i64) -> Decision {
    let Limits { min_replicas, max_replicas, scale_down_delay_secs } = limits;
    let Some(want) = want else {
        return Decision { replicas, reason: Reason::DemandUnknown, quiet };
    };
    let target = u32::try_from(want).unwrap_or(u32::MAX).max(min_replicas).min(max_replicas);
    let bounded = if want > u64::from(max_replicas) {
        Some(Reason::AtMaximum { want })
    } else if want < u64::from(target) {
        Some(Reason::AtMinimum { want })
    } else {
        None
    };
    // A lowered maximum is an order, not a change of demand.
    let current = replicas.min(max_replicas);
    if target >= current {
        let unbounded = if target > replicas { Reason::DemandRose } else { Reason::MatchesDemand };
        return Decision { replicas: target, reason: bounded.unwrap_or(unbounded), quiet: None };
    }

    // A clock that went back starts the wait again.
    let quiet = match quiet {
        Some(QuietWindow { since, peak }) if since <= now => QuietWindow { since, peak: peak.max(target) },
        Some(_) | None => QuietWindow { since: now, peak: target },
    };
    let waited_secs = now.abs_diff(quiet.since);
    if waited_secs < scale_down_delay_secs {
        let remaining_secs = scale_down_delay_secs - waited_secs;
        return Decision { replicas: current, reason: Reason::WaitsToScaleDown { remaining_secs }, quiet: Some(quiet) };
    }
    let replicas = quiet.peak.min(current);
    let reason = match replicas {
        0 => Reason::NothingToDo,
        _ => bounded.unwrap_or(Reason::DemandFell),
    };
    let quiet = (target < replicas).then_some(QuietWindow { since: now, peak: target });
    Decision { replicas, reason, quiet }
}

#[cfg(test)]
mod tests;
