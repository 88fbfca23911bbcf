//! What a resource and its rows need of each other: decided from plain data, a second look decides the same.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use kube::ResourceExt;
use uuid::Uuid;

use super::observe::Seen;
use crate::api::IngestTask;
use crate::api::conditions::Reason;
use crate::api::ingest_task::DeletionPolicy;
use crate::domain::retry::{Verdict, manual_retry};
use crate::domain::task::State;

/// Keeps a resource with `CancelAndWait` until its worker has stopped.
pub const FINALIZER: &str = "sluice.dev/stop";
/// Why a cancel of ours was asked for, as the row keeps it.
pub const CANCEL_BY_SPEC: &str = "spec.cancel is true";
pub const CANCEL_BY_DELETION: &str = "the resource was deleted";
/// A finalizer waits no longer, whatever the worker and the database do.
pub const STOP_LIMIT_SECS: i64 = 120;
/// Between looks at a stop that is waited for: the mirror tells of it sooner.
const STOP_LOOK: Duration = Duration::from_secs(1);

/// One call that changes the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Cancel { reason: &'static str },
    Retry,
    Suspend(Uuid),
    Resume(Uuid),
    SetPriority { track_id: Uuid, priority: i32 },
    SetRetains(bool),
}

/// What is to become of the resource itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    AddFinalizer,
    RemoveFinalizer,
    /// Its time after the end is over.
    Delete,
}

/// A part of the spec that changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    pub reason: Reason,
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    pub fate: Fate,
    pub ignored: Option<Ignored>,
    /// The value of `spec.retries` that needs nothing more.
    pub observed_retries: u32,
    /// When to look again, though nothing changes.
    pub again: Option<Duration>,
}

pub struct Facts<'a> {
    pub task: &'a IngestTask,
    pub seen: &'a Seen,
    /// A value of `spec.retries` that was acted upon, and is not in the status yet.
    pub retried: Option<u32>,
    pub now: DateTime<Utc>,
}

pub fn deletion_policy(task: &IngestTask) -> DeletionPolicy {
    task.spec.deletion_policy.unwrap_or_default()
}

/// Whether the going of the resource leaves its task alone: by its policy, or since it was made for a task.
pub fn retains(task: &IngestTask) -> bool {
    let is_shown_only = task.spec.source.as_ref().is_some_and(|source| source.track_id.is_some());
    is_shown_only || deletion_policy(task) == DeletionPolicy::Retain
}

pub fn is_being_deleted(task: &IngestTask) -> bool {
    task.metadata.deletion_timestamp.is_some()
}

pub fn has_finalizer(task: &IngestTask) -> bool {
    task.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Who asks, in a row's history.
pub fn asked_by(task: &IngestTask) -> String {
    format!("IngestTask {}/{}", task.namespace().unwrap_or_default(), task.name_any())
}

/// Also for a resource that has no task.
pub fn fate_without_task(task: &IngestTask) -> Fate {
    let waits = deletion_policy(task) == DeletionPolicy::CancelAndWait && !is_being_deleted(task);
    match (waits, has_finalizer(task)) {
        (true, false) => Fate::AddFinalizer,
        (false, true) => Fate::RemoveFinalizer,
        (true, true) | (false, false) => Fate::Keep,
    }
}

pub fn plan(facts: &Facts<'_>) -> Plan {
    let Facts { task, seen, retried, now } = *facts;
    let spec = &task.spec;
    let asked = spec.retries.unwrap_or_default();
    let baseline = task.status.as_ref().and_then(|status| status.observed_retries).unwrap_or(asked);
    let observed_retries = retried.unwrap_or(baseline);
    let mut plan = Plan { steps: Vec::new(), fate: Fate::Keep, ignored: None, observed_retries, again: None };
    if seen.resource.retains != retains(task) {
        plan.steps.push(Step::SetRetains(retains(task)));
    }
    let Some(state) = seen.state() else {
        plan.fate = fate_without_task(task);
        return plan;
    };

    let is_gone = is_being_deleted(task) && !retains(task);
    if is_gone || spec.cancel == Some(true) {
        if state == State::Pending || state == State::Processing {
            plan.steps.push(Step::Cancel { reason: if is_gone { CANCEL_BY_DELETION } else { CANCEL_BY_SPEC } });
        }
    } else if asked > observed_retries && matches!(state, State::Failed | State::Cancelled) && may_retry(seen) {
        plan.steps.push(Step::Retry);
    } else {
        plan.steps.extend(adjustments(task, seen));
    }
    plan.ignored = ignored(task, seen, asked > observed_retries);
    (plan.fate, plan.again) = fate(task, seen, now);
    plan
}

fn may_retry(seen: &Seen) -> bool {
    let retries = seen.speaker().and_then(|task| u32::try_from(task.retries).ok()).unwrap_or_default();
    !seen.is_active() && manual_retry(retries) == Verdict::Again
}

/// Suspension and priority of what has not started. What the spec does not say is left to others, but for what an earlier spec said.
fn adjustments(task: &IngestTask, seen: &Seen) -> Vec<Step> {
    let Some(speaker) = seen.speaker().filter(|speaker| speaker.state == State::Pending) else { return Vec::new() };
    let spec = &task.spec;
    let observed = task.status.as_ref().and_then(|status| status.observed_generation);
    let is_new_spec = observed.is_some() && observed != task.metadata.generation;
    let mut steps = Vec::new();
    match spec.suspend.or(is_new_spec.then_some(false)) {
        Some(true) if !speaker.is_suspended => steps.push(Step::Suspend(speaker.track_id)),
        Some(false) if speaker.is_suspended => steps.push(Step::Resume(speaker.track_id)),
        Some(_) | None => {}
    }
    if let Some(priority) = spec.priority.or(is_new_spec.then_some(0))
        && priority != i32::from(speaker.priority)
    {
        steps.push(Step::SetPriority { track_id: speaker.track_id, priority });
    }
    steps
}

fn ignored(task: &IngestTask, seen: &Seen, asks_for_retry: bool) -> Option<Ignored> {
    let speaker = seen.speaker()?;
    let say = |reason, message: &str| Some(Ignored { reason, message: message.to_owned() });
    let is_cancelled = task.spec.cancel == Some(true);
    if asks_for_retry {
        return match speaker.state {
            State::Completed => say(
                Reason::RetryOfCompleted,
                "spec.retries was raised, but the task ended well; make a new resource to run it again",
            ),
            _ if is_cancelled => say(
                Reason::RetryBlockedByCancel,
                "spec.retries was raised while spec.cancel is true; set spec.cancel to false to run it again",
            ),
            State::Failed | State::Cancelled if may_retry(seen) => None,
            State::Failed | State::Cancelled if !seen.is_active() => say(
                Reason::MaxRetriesExceeded,
                "it was retried by hand as often as it may be; look at the document, and make a new resource",
            ),
            State::Pending | State::Processing | State::Stopping | State::Failed | State::Cancelled => say(
                Reason::RetryWhileActive,
                "spec.retries was raised while the task is active; it runs again if it ends without success",
            ),
        };
    }
    let is_ours = speaker.cancel.as_ref().is_some_and(|cancel| cancel.reason.as_deref() == Some(CANCEL_BY_SPEC));
    match speaker.state {
        State::Completed | State::Failed if is_cancelled => {
            say(Reason::CancelTooLate, "spec.cancel came after the end, and changed nothing")
        }
        State::Stopping | State::Cancelled if is_ours && !is_cancelled => say(
            Reason::CancelIsFinal,
            "spec.cancel was taken back, which changes nothing; raise spec.retries to run it again",
        ),
        State::Pending | State::Processing | State::Stopping | State::Completed | State::Failed | State::Cancelled => {
            None
        }
    }
}

/// With the time to look again, if only time is missing.
fn fate(task: &IngestTask, seen: &Seen, now: DateTime<Utc>) -> (Fate, Option<Duration>) {
    if is_being_deleted(task) {
        if !has_finalizer(task) {
            return (Fate::Keep, None);
        }
        let is_over = stop_limit(task).is_none_or(|limit| now >= limit);
        return match !seen.is_active() || retains(task) || is_over {
            true => (Fate::RemoveFinalizer, None),
            false => (Fate::Keep, Some(STOP_LOOK)),
        };
    }
    let fate = fate_without_task(task);
    if fate != Fate::Keep {
        return (fate, None);
    }
    let finished_at = seen.speaker().filter(|_| !seen.is_active()).and_then(|speaker| speaker.finished_at);
    let (Some(ttl), Some(finished_at)) = (task.spec.ttl_seconds_after_finished, finished_at) else {
        return (Fate::Keep, None);
    };
    match (finished_at + TimeDelta::seconds(i64::from(ttl)) - now).to_std() {
        Ok(left) if !left.is_zero() => (Fate::Keep, Some(left)),
        Ok(_) | Err(_) => (Fate::Delete, None),
    }
}

/// Until when a finalizer waits at the latest.
pub fn stop_limit(task: &IngestTask) -> Option<DateTime<Utc>> {
    let deleted_at = task.metadata.deletion_timestamp.as_ref()?.0.as_second();
    DateTime::from_timestamp(deleted_at.saturating_add(STOP_LIMIT_SECS), 0)
}

#[cfg(test)]
mod tests;
