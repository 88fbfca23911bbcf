//! What a resource shows of its task: made from the row alone, so that the same row makes the same status.

use chrono::{DateTime, Utc};

use super::admission::Refusal;
use super::observe::Seen;
use super::plan::Ignored;
use crate::api::conditions::{ConditionType, Reason, cut};
use crate::api::ingest_task::{CHILDREN_MAX, Child, ChildrenCounts, Failure};
use crate::api::{ConditionStatus, FAILURE_MESSAGE_MAX_BYTES, IngestTaskStatus, SUMMARY_MAX_CHARS, Time};
use crate::domain::lane::{Cap, Policy};
use crate::domain::status::Presentation;
use crate::domain::task::State;
use crate::operator::condition_list::{ConditionList, Standing};
use crate::operator::convert;
use crate::store::reads::LaneCounts;
use crate::store::status::TaskStatus;

/// Of what a failure says inside a condition: the whole is in `status.failure`.
const FAILURE_IN_CONDITION_MAX_BYTES: usize = 200;

pub struct Facts<'a> {
    pub generation: Option<i64>,
    pub before: Option<&'a IngestTaskStatus>,
    pub seen: &'a Seen,
    /// As last counted, if it was.
    pub lane: Option<&'a LaneCounts>,
    /// Somebody may take it, now or after a scale-up.
    pub is_served: bool,
    pub ignored: Option<&'a Ignored>,
    pub observed_retries: u32,
    /// `spec.cancel` is true: a cancelled task is then what was asked for.
    pub wants_cancel: bool,
}

/// Why a task does not run now; what `LanePermitted` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub permitted: bool,
    pub reason: Reason,
    pub message: String,
}

/// `None`: the database does not keep the task any more, and the status stays as it was but for one condition.
pub fn of_row(facts: &Facts<'_>) -> IngestTaskStatus {
    let Facts { generation, before, seen, lane, is_served, ignored, observed_retries, wants_cancel } = *facts;
    let (Some(root), Some(speaker)) = (&seen.root, seen.speaker()) else {
        return expired(before, generation);
    };
    let shown = speaker.presentation();
    let wait = wait(speaker, lane, is_served, before);
    let failure = failure(speaker);
    let held = before.map_or(&[][..], |status| &status.conditions);
    let mut conditions = ConditionList::new(held, generation, moved_at(speaker));
    let taken = format!("the database has it as {}", root.track_id);
    conditions.set(ConditionType::Accepted, ConditionStatus::True, Reason::Accepted, &taken);
    set_progress(&mut conditions, seen, speaker, &wait);
    let standing = standing(speaker, &shown, &wait, failure.as_ref(), wants_cancel);
    let (succeeded, reason) = success(&shown);
    conditions.set(ConditionType::Succeeded, succeeded, reason, told(&standing));
    if let Some(Ignored { reason, message }) = ignored {
        conditions.set(ConditionType::SpecIgnored, ConditionStatus::True, *reason, message);
    }
    conditions.stand(&standing);
    let has_ended = shown.is_terminal() && !seen.is_active();
    IngestTaskStatus {
        observed_generation: generation,
        observed_rev: Some(seen.resource.rev),
        observed_retries: Some(observed_retries),
        track_id: Some(root.track_id.to_string()),
        tenant: Some(root.tenant.clone()),
        class: Some(convert::api_class(root.class)),
        pool: Some(speaker.pool.clone()),
        state: Some(convert::api_state(root.state)),
        display_status: Some(shown.display_status.clone().into_owned()),
        ui_phase: Some(convert::api_ui_phase(shown.ui_phase)),
        stage: speaker.stage.as_deref().filter(|_| speaker.state.is_running()).map(|stage| chars(stage, 64)),
        progress: speaker.progress.filter(|_| speaker.state.is_running()).map(percent),
        attempt: u32::try_from(speaker.attempt).ok(),
        retries: u32::try_from(speaker.retries).ok(),
        worker: speaker.worker_id.filter(|_| speaker.state.is_running()).map(|worker| worker.to_string()),
        document_id: document_id(seen, before),
        children: children(seen),
        children_counts: children_counts(seen),
        started_at: speaker.started_at.map(Time::from),
        finished_at: speaker.finished_at.filter(|_| has_ended).map(Time::from),
        summary: Some(summary(speaker, &shown, &standing)),
        failure,
        conditions: conditions.finish(),
    }
}

/// No task was made.
pub fn refused(
    before: Option<&IngestTaskStatus>,
    generation: Option<i64>,
    created_at: Time,
    refusal: &Refusal,
) -> IngestTaskStatus {
    let Refusal { reason, message, again: _ } = refusal;
    let held = before.map_or(&[][..], |status| &status.conditions);
    let mut conditions = ConditionList::new(held, generation, created_at);
    conditions.set(ConditionType::Accepted, ConditionStatus::False, *reason, message);
    let (reason, message) = (*reason, message.clone());
    // What ends by itself is waited for; all else needs a person.
    let standing = match reason {
        Reason::ExclusiveKeyActive => Standing::Reconciling { reason, message },
        _ => Standing::Stalled { reason, message },
    };
    conditions.stand(&standing);
    IngestTaskStatus {
        observed_generation: generation,
        summary: Some(chars(told(&standing), SUMMARY_MAX_CHARS)),
        conditions: conditions.finish(),
        ..before.cloned().unwrap_or_default()
    }
}

/// Somebody waits for what only the database can do. Nothing else of the status changes, the observed generation neither.
pub fn without_database(
    before: Option<&IngestTaskStatus>,
    generation: Option<i64>,
    created_at: Time,
) -> IngestTaskStatus {
    let before = before.cloned().unwrap_or_default();
    let mut conditions = ConditionList::new(&before.conditions, generation, created_at);
    for type_ in ConditionType::ALL {
        match type_ {
            ConditionType::Ready | ConditionType::Reconciling | ConditionType::Stalled => {}
            _ => conditions.keep(*type_),
        }
    }
    let message = "the database does not answer: what the spec asks for is done when it does; work that runs goes on";
    conditions.stand(&Standing::Reconciling { reason: Reason::DatabaseUnavailable, message: message.to_owned() });
    IngestTaskStatus { conditions: conditions.finish(), ..before }
}

/// The task is not in the database (any more): what was last known stays.
pub fn expired(before: Option<&IngestTaskStatus>, generation: Option<i64>) -> IngestTaskStatus {
    let before = before.cloned().unwrap_or_default();
    let last = before.finished_at.or(before.started_at);
    let moved_at = last.or(before.conditions.first().map(|condition| condition.last_transition_time));
    let moved_at = moved_at.unwrap_or_else(|| Time::from(DateTime::UNIX_EPOCH));
    let mut conditions = ConditionList::new(&before.conditions, generation, moved_at);
    let has_ended = before.ui_phase == Some(crate::api::ingest_task::UiPhase::Terminal);
    for type_ in ConditionType::ALL {
        conditions.keep(*type_);
    }
    let mut conditions = conditions.finish();
    if !has_ended {
        let mut list = ConditionList::new(&before.conditions, generation, moved_at);
        let message = "the database does not keep this task; what is shown was last known".to_owned();
        list.stand(&Standing::Stalled { reason: Reason::Expired, message });
        let standing = list.finish();
        conditions.retain(|condition| standing.iter().all(|new| new.type_ != condition.type_));
        conditions.extend(standing);
    }
    IngestTaskStatus { observed_generation: generation, conditions, ..before }
}

fn set_progress(conditions: &mut ConditionList<'_>, seen: &Seen, speaker: &TaskStatus, wait: &Wait) {
    use ConditionStatus::{False, True};
    let permitted = if wait.permitted { True } else { False };
    conditions.set(ConditionType::LanePermitted, permitted, wait.reason, &wait.message);
    let follows = seen.newest.is_some();
    let (running, reason, message) = match speaker.state {
        State::Processing | State::Stopping if follows => {
            (True, Reason::FollowOnRunning, format!("{}, which follows from it, has a worker", speaker.task_type))
        }
        State::Processing | State::Stopping => (True, Reason::Claimed, "a worker holds it".to_owned()),
        State::Pending => (False, Reason::Waiting, "no worker has it".to_owned()),
        State::Completed | State::Failed | State::Cancelled => (False, Reason::Ended, "it has ended".to_owned()),
    };
    conditions.set(ConditionType::Running, running, reason, &message);
    match (speaker.state, &speaker.cancel) {
        (State::Stopping, Some(_)) => {
            let message = format!("{}; it ends when the worker stops, or when its lease runs out", asked(speaker));
            conditions.set(ConditionType::Stopping, True, Reason::CancelRequested, &message);
        }
        (State::Cancelled, _) => conditions.set(ConditionType::Stopping, False, Reason::Cancelled, "it has stopped"),
        _ => conditions.set(ConditionType::Stopping, False, Reason::NotAsked, "nobody asked it to stop"),
    }
}

/// What a pending task waits for. A task that was parked is said to be so until it starts: a lane's slots come and go
/// by the second, and each move would be a write for each of its tasks.
pub fn wait(
    speaker: &TaskStatus,
    lane: Option<&LaneCounts>,
    is_served: bool,
    before: Option<&IngestTaskStatus>,
) -> Wait {
    let say = |permitted, reason, message: String| Wait { permitted, reason, message };
    match speaker.state {
        State::Pending => {}
        State::Processing | State::Stopping => return say(true, Reason::LaneOpen, "it has its slot".to_owned()),
        State::Completed | State::Failed | State::Cancelled => {
            return say(true, Reason::Ended, "it needs no slot any more".to_owned());
        }
    }
    if speaker.is_suspended {
        return say(false, Reason::Suspended, "it is suspended; set spec.suspend to false to let it run".to_owned());
    }
    if !speaker.is_ready {
        let at = speaker.available_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        let after = speaker.failure_class.map(|class| format!(" after {class}")).unwrap_or_default();
        return say(false, Reason::BackingOff, format!("the next attempt{after} starts at {at}"));
    }
    let lane_name = format!("the {} lane of {}", speaker.class, speaker.tenant);
    let why = |reason: Option<&String>| reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    if let Some(lane) = lane {
        let reason = lane.policy_reason.as_ref();
        if lane.is_pool_held {
            return say(false, Reason::PoolHeld, format!("the pool {} is held{}", lane.pool, why(reason)));
        }
        if lane.policy != Policy::None {
            return say(false, Reason::LaneHeld, format!("{lane_name} is held{}", why(reason)));
        }
    }
    if !is_served {
        return pool_missing(&speaker.pool);
    }
    if let Some(lane) = lane {
        if lane.is_cooling {
            return say(false, Reason::LaneResting, format!("{lane_name} rests, since its provider asked for it"));
        }
        if lane.effective_cap.free(lane.running + lane.stopping) == Some(0) {
            return at_capacity(&lane_name, lane.effective_cap);
        }
    }
    let was_parked = before.is_some_and(|status| {
        let parked = |condition: &crate::api::Condition| {
            condition.is(ConditionType::LanePermitted) && condition.reason == Reason::LaneAtCapacity.as_str()
        };
        let same_attempt = status.attempt == u32::try_from(speaker.attempt).ok();
        same_attempt && status.retries == u32::try_from(speaker.retries).ok() && status.conditions.iter().any(parked)
    });
    match lane {
        Some(lane) if was_parked && lane.effective_cap != Cap::NONE => at_capacity(&lane_name, lane.effective_cap),
        Some(_) | None => say(true, Reason::LaneOpen, "a worker with a free slot takes it".to_owned()),
    }
}

fn pool_missing(pool: &str) -> Wait {
    let message = format!(
        "no worker serves the pool {pool}, and there is no WorkerPool of that name: make it in the operator's namespace, or \
         name another pool in the TenantLane"
    );
    Wait { permitted: false, reason: Reason::PoolMissing, message }
}

fn at_capacity(lane_name: &str, cap: Cap) -> Wait {
    let message = format!("{lane_name} runs as many as it may ({cap}); it starts when its turn comes");
    Wait { permitted: false, reason: Reason::LaneAtCapacity, message }
}

fn standing(
    speaker: &TaskStatus,
    shown: &Presentation,
    wait: &Wait,
    failure: Option<&Failure>,
    wants_cancel: bool,
) -> Standing {
    if !shown.is_terminal() {
        let (reason, message) = match speaker.state {
            State::Pending => (wait.reason, wait.message.clone()),
            State::Stopping => (Reason::CancelRequested, format!("it is stopping: {}", asked(speaker))),
            State::Processing | State::Completed | State::Failed | State::Cancelled => {
                (Reason::InProgress, format!("it is {}", shown.display_status))
            }
        };
        return Standing::Reconciling { reason, message };
    }
    if shown.is_cancelled {
        let message = format!("it was cancelled: {}", asked(speaker));
        return match wants_cancel {
            true => Standing::Ready { reason: Reason::Cancelled, message },
            false => Standing::Stalled { reason: Reason::Cancelled, message },
        };
    }
    if shown.is_failure {
        let message = failure.map_or_else(
            || "it failed".to_owned(),
            |failure| {
                let said = cut(&failure.message, FAILURE_IN_CONDITION_MAX_BYTES);
                format!("{}: {said}; {}", failure.class, failure.recommended_action)
            },
        );
        return Standing::Stalled { reason: Reason::Failed, message };
    }
    let (_, reason) = success(shown);
    Standing::Ready { reason, message: shown.display_status.clone().into_owned() }
}

fn success(shown: &Presentation) -> (ConditionStatus, Reason) {
    match () {
        () if !shown.is_terminal() => (ConditionStatus::Unknown, Reason::InProgress),
        () if shown.is_cancelled => (ConditionStatus::False, Reason::Cancelled),
        () if shown.is_failure => (ConditionStatus::False, Reason::Failed),
        () if shown.display_status == "completed" => (ConditionStatus::True, Reason::Completed),
        () => (ConditionStatus::True, Reason::PartlyCompleted),
    }
}

/// Who asked it to stop, and why.
fn asked(task: &TaskStatus) -> String {
    let Some(cancel) = &task.cancel else { return "a cancel was asked for".to_owned() };
    let by = cancel.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let why = cancel.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    visible(&format!("a cancel was asked for{by}{why}"))
}

fn told(standing: &Standing) -> &str {
    let (Standing::Ready { message, .. } | Standing::Reconciling { message, .. } | Standing::Stalled { message, .. }) =
        standing;
    message
}

fn summary(speaker: &TaskStatus, shown: &Presentation, standing: &Standing) -> String {
    let said = speaker.message.as_deref().filter(|_| speaker.state.is_running() || shown.is_terminal());
    let text = match (speaker.state, said) {
        (State::Processing | State::Completed | State::Cancelled, Some(said)) => said,
        _ => told(standing),
    };
    chars(text, SUMMARY_MAX_CHARS)
}

fn failure(task: &TaskStatus) -> Option<Failure> {
    let class = task.failure_class.filter(|_| matches!(task.state, State::Failed | State::Pending))?;
    Some(Failure {
        class: class.as_str().to_owned(),
        message: cut(&visible(task.error.as_deref().unwrap_or_default()), FAILURE_MESSAGE_MAX_BYTES).to_owned(),
        recommended_action: class.recommended_action().as_str().to_owned(),
    })
}

/// A deleted document's id stays where it was shown.
fn document_id(seen: &Seen, before: Option<&IngestTaskStatus>) -> Option<String> {
    let document = seen.speaker().and_then(|task| task.document.as_ref());
    document
        .map(|document| document.document_id.to_string())
        .or_else(|| before.and_then(|status| status.document_id.clone()))
}

fn children(seen: &Seen) -> Vec<Child> {
    let child = |child: &crate::store::resources::FollowOn| Child {
        track_id: child.track_id.to_string(),
        task_type: convert::api_task_type(child.task_type),
        state: convert::api_state(child.state),
    };
    seen.children.iter().map(child).collect()
}

/// `None` without any, and with more than are read.
fn children_counts(seen: &Seen) -> Option<ChildrenCounts> {
    if seen.children.is_empty() || seen.children.len() >= CHILDREN_MAX {
        return None;
    }
    let mut counts = ChildrenCounts::default();
    for child in &seen.children {
        let count = match child.state {
            State::Pending => &mut counts.pending,
            State::Processing | State::Stopping => &mut counts.running,
            State::Completed => &mut counts.completed,
            State::Failed => &mut counts.failed,
            State::Cancelled => &mut counts.cancelled,
        };
        *count += 1;
    }
    Some(counts)
}

/// When the row came to be as it is, as far as it says so.
fn moved_at(task: &TaskStatus) -> Time {
    let at: Option<DateTime<Utc>> = match task.state {
        State::Completed | State::Failed | State::Cancelled => task.finished_at,
        State::Stopping => task.cancel.as_ref().map(|cancel| cancel.at),
        State::Processing => task.started_at,
        // A back-off ends in the future.
        State::Pending if !task.is_ready => task.started_at,
        State::Pending => Some(task.available_at),
    };
    Time::from(at.unwrap_or(task.created_at))
}

fn percent(progress: f32) -> u32 {
    let hundredths = f64::from(progress) * 100.0 + 0.001;
    (0..=100).rev().find(|percent| f64::from(*percent) <= hundredths).unwrap_or_default()
}

fn chars(text: &str, max: usize) -> String {
    visible(text).chars().take(max).collect()
}

/// One line: control characters would be escaped to six bytes each, and break what prints them.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
