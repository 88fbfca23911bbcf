//! What a lane's resource shows: its limits, its counts, and what it waits for.

use super::plan::{Claimant, Verdict, WantedPolicy};
use crate::api::conditions::{ConditionType, Reason, cut};
use crate::api::{ConditionStatus, SUMMARY_MAX_CHARS, TenantLaneStatus, Time};
use crate::domain::lane::{Cap, Policy};
use crate::operator::condition_list::{ConditionList, Standing};
use crate::operator::events::EventReason;
use crate::store::reads::LaneCounts;

/// Why the row is not as the spec wants it, although the resource speaks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    PoolMissing(String),
    /// The database does not take the values.
    Invalid(String),
    /// The row was not written yet, or not seen since.
    NotYet,
}

/// What is known of one resource.
pub struct Known<'a> {
    pub claimant: &'a Claimant,
    pub generation: Option<i64>,
    pub verdict: &'a Verdict,
    pub row: Option<&'a LaneCounts>,
    pub obstacle: Option<&'a Obstacle>,
    pub before: Option<&'a TenantLaneStatus>,
}

/// `now` is for the conditions whose status changes.
pub fn status(known: &Known<'_>, now: Time) -> TenantLaneStatus {
    let Known { claimant, generation, verdict, row, obstacle, before } = known;
    let before = before.map_or(&[][..], |status| &status.conditions);
    let mut conditions = ConditionList::new(before, *generation, now);
    // Counts of a lane that another resource speaks for would be shown twice, and those of a foreign tenant never.
    let row = row.filter(|_| **verdict == Verdict::Speaks);
    let standing = standing(verdict, row, *obstacle);
    let accepted = match &standing {
        Standing::Ready { .. } => ConditionStatus::True,
        Standing::Reconciling { .. } => ConditionStatus::Unknown,
        Standing::Stalled { .. } => ConditionStatus::False,
    };
    let (reason, message) = match &standing {
        Standing::Ready { .. } => (Reason::Accepted, "the lane has these limits"),
        Standing::Reconciling { reason, message } | Standing::Stalled { reason, message } => {
            (*reason, message.as_str())
        }
    };
    conditions.set(ConditionType::Accepted, accepted, reason, message);
    let by_spec = matches!(&claimant.wanted.policy, WantedPolicy::To { policy, .. } if !policy.admits());
    let held = row.map(|row| hold(row, by_spec));
    if let Some((reason, message)) = &held {
        let status = if *reason == Reason::NotHeld { ConditionStatus::False } else { ConditionStatus::True };
        conditions.set(ConditionType::Held, status, *reason, message);
    }
    let summary = match &standing {
        Standing::Ready { .. } => row.map(|row| summary(row, held.as_ref())),
        Standing::Reconciling { message, .. } | Standing::Stalled { message, .. } => Some(message.clone()),
    };
    conditions.stand(&standing);
    TenantLaneStatus {
        observed_generation: *generation,
        tenant: Some(claimant.lane.tenant.clone()),
        effective_max_running: row.map(|row| row.effective_cap.get()),
        effective_reason: row.and_then(|row| row.effective_reason.clone()),
        running: row.map(|row| row.running),
        stopping: row.map(|row| row.stopping),
        pending: row.map(|row| row.pending),
        parked: row.map(|row| row.parked),
        suspended: row.map(|row| row.suspended),
        backing_off: row.map(|row| row.backing_off),
        failed: row.map(|row| row.failed),
        completed_since_idle: row.map(|row| row.completed_since_idle),
        summary: summary.map(|summary| shorten(&summary)),
        conditions: conditions.finish(),
    }
}

/// The same status, but for the database being away: what was last known stays.
pub fn without_database(before: Option<&TenantLaneStatus>, generation: Option<i64>, now: Time) -> TenantLaneStatus {
    const MESSAGE: &str =
        "the database does not answer: the lane keeps its limits, and what is shown is the last that was seen";

    let status = before.cloned().unwrap_or_default();
    let mut conditions = ConditionList::new(&status.conditions, generation, now);
    conditions.keep(ConditionType::Accepted);
    conditions.keep(ConditionType::Held);
    conditions.stand(&Standing::Reconciling { reason: Reason::DatabaseUnavailable, message: MESSAGE.to_owned() });
    let conditions = conditions.finish();
    TenantLaneStatus { summary: Some(MESSAGE.to_owned()), conditions, ..status }
}

/// Of a stored spec that cannot be meant.
pub fn invalid(
    before: Option<&TenantLaneStatus>,
    generation: Option<i64>,
    problem: &str,
    now: Time,
) -> TenantLaneStatus {
    let mut conditions = ConditionList::new(before.map_or(&[], |status| &status.conditions), generation, now);
    conditions.set(ConditionType::Accepted, ConditionStatus::False, Reason::Invalid, problem);
    conditions.stand(&Standing::Stalled { reason: Reason::Invalid, message: problem.to_owned() });
    TenantLaneStatus {
        observed_generation: generation,
        summary: Some(shorten(problem)),
        conditions: conditions.finish(),
        ..TenantLaneStatus::default()
    }
}

/// What has come to be with this status, for an event.
pub fn news(before: Option<&TenantLaneStatus>, after: &TenantLaneStatus) -> Option<(EventReason, String)> {
    const NEWS: [(Reason, EventReason); 5] = [
        (Reason::Conflict, EventReason::Conflict),
        (Reason::TenantNotAllowed, EventReason::Refused),
        (Reason::PoolMissing, EventReason::Refused),
        (Reason::Invalid, EventReason::Refused),
        (Reason::Clamped, EventReason::Clamped),
    ];
    let ready = |status: &TenantLaneStatus| {
        status.conditions.iter().find(|condition| condition.is(ConditionType::Ready)).cloned()
    };
    let after = ready(after)?;
    if before.and_then(ready).is_some_and(|before| before.reason == after.reason) {
        return None;
    }
    let (_, event) = NEWS.into_iter().find(|(reason, _)| reason.as_str() == after.reason)?;
    Some((event, after.message))
}

fn standing(verdict: &Verdict, row: Option<&LaneCounts>, obstacle: Option<&Obstacle>) -> Standing {
    match (verdict, obstacle) {
        (Verdict::NotAllowed(why), _) => Standing::Stalled { reason: Reason::TenantNotAllowed, message: why.clone() },
        (Verdict::Unknown, _) => Standing::Reconciling {
            reason: Reason::InProgress,
            message: "the namespace could not be read, so it is not known whether it may name this tenant".to_owned(),
        },
        (Verdict::Conflict(why), _) => Standing::Stalled { reason: Reason::Conflict, message: why.clone() },
        (Verdict::Speaks, Some(Obstacle::PoolMissing(pool))) => Standing::Stalled {
            reason: Reason::PoolMissing,
            message: format!(
                "there is no pool {pool}: make the WorkerPool in the operator's namespace, or name another; until then the \
                 lane stays in its pool{}",
                row.map(|row| format!(" {}", row.pool)).unwrap_or_default()
            ),
        },
        (Verdict::Speaks, Some(Obstacle::Invalid(why))) => {
            Standing::Stalled { reason: Reason::Invalid, message: why.clone() }
        }
        (Verdict::Speaks, Some(Obstacle::NotYet)) => Standing::Reconciling {
            reason: Reason::InProgress,
            message: "the limits are on their way to the database".to_owned(),
        },
        (Verdict::Speaks, None) => {
            let message = match row.and_then(|row| row.effective_reason.as_ref()) {
                Some(why) => return Standing::Ready { reason: Reason::Clamped, message: why.clone() },
                None => "the lane has these limits".to_owned(),
            };
            Standing::Ready { reason: Reason::UpToDate, message }
        }
    }
}

fn hold(row: &LaneCounts, by_spec: bool) -> (Reason, String) {
    let why = row.policy_reason.as_deref().filter(|why| !why.is_empty());
    let with_reason = |what: &str| why.map_or_else(|| what.to_owned(), |why| format!("{what}: {why}"));
    if row.is_pool_held {
        return (Reason::PoolHeld, with_reason(&format!("pool {} is held", row.pool)));
    }
    let what = match row.policy {
        Policy::None if row.is_cooling => {
            let message = "the provider asked for fewer calls (429): the lane rests, and goes on by itself";
            return (Reason::LaneResting, message.to_owned());
        }
        Policy::None => return (Reason::NotHeld, "the lane lets work start".to_owned()),
        Policy::Hold => "nothing new starts, what runs goes on",
        Policy::HoldAndDrain => "nothing new starts, what runs is given back",
    };
    (if by_spec { Reason::HeldByPolicy } else { Reason::LaneHeld }, with_reason(what))
}

/// Without numbers that stand beside it.
fn summary(row: &LaneCounts, held: Option<&(Reason, String)>) -> String {
    match held {
        Some((Reason::NotHeld, _)) | None => {}
        Some((_, message)) => return message.clone(),
    }
    let is_full = row.effective_cap.free(row.running.saturating_add(row.stopping)) == Some(0);
    match (row.parked > 0, is_full) {
        (true, _) => {
            let clamp = row.effective_reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("at its cap{}{clamp}: the rest is parked", cap(row.effective_cap))
        }
        (false, true) => "at its cap, and nothing is parked".to_owned(),
        (false, false) if row.ready > 0 => "work waits for a worker".to_owned(),
        (false, false) if row.running + row.stopping > 0 => "working".to_owned(),
        (false, false) if row.pending > 0 => "what is pending is suspended or backing off".to_owned(),
        (false, false) => "no work".to_owned(),
    }
}

fn cap(cap: Cap) -> String {
    if cap == Cap::NONE { String::new() } else { format!(" of {cap}") }
}

/// The schema counts characters.
fn shorten(text: &str) -> String {
    cut(text, text.char_indices().nth(SUMMARY_MAX_CHARS).map_or(text.len(), |(at, _)| at)).to_owned()
}

#[cfg(test)]
mod tests;
