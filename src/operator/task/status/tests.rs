use uuid::Uuid;

use super::*;
use crate::api::Condition;
use crate::api::ingest_task::UiPhase;
use crate::domain::failure::FailureClass;
use crate::domain::task::TaskType;
use crate::operator::task::fixture;
use crate::store::resources::FollowOn;

fn shown(seen: &Seen, before: Option<&IngestTaskStatus>) -> IngestTaskStatus {
    let lane = fixture::lane();
    of_row(&Facts {
        generation: Some(2),
        before,
        seen,
        lane: Some(&lane),
        is_served: true,
        ignored: None,
        observed_retries: 0,
        wants_cancel: false,
    })
}

fn condition(status: &IngestTaskStatus, type_: ConditionType) -> (ConditionStatus, &str) {
    let found = status.conditions.iter().find(|condition| condition.is(type_));
    let Condition { status, reason, .. } = found.unwrap_or_else(|| panic!("no {type_} in {status:#?}"));
    (*status, reason)
}

#[test]
fn each_state_is_told_in_every_condition() {
    use ConditionStatus::{False, True, Unknown};
    let rows = [
        (State::Pending, UiPhase::Idle, True, False, False, Unknown, [False, True, False]),
        (State::Processing, UiPhase::Running, True, True, False, Unknown, [False, True, False]),
        (State::Stopping, UiPhase::Stopping, True, True, True, Unknown, [False, True, False]),
        (State::Completed, UiPhase::Terminal, True, False, False, True, [True, False, False]),
        (State::Failed, UiPhase::Terminal, True, False, False, False, [False, False, True]),
        (State::Cancelled, UiPhase::Terminal, True, False, False, False, [False, False, True]),
    ];
    for (state, phase, permitted, running, stopping, succeeded, standing) in rows {
        let mut seen = fixture::seen(state);
        fixture::cancelled(&mut seen, "why");
        let status = shown(&seen, None);
        assert_eq!(status.ui_phase, Some(phase), "{state}");
        let told = [
            (ConditionType::Accepted, True),
            (ConditionType::LanePermitted, permitted),
            (ConditionType::Running, running),
            (ConditionType::Stopping, stopping),
            (ConditionType::Succeeded, succeeded),
            (ConditionType::Ready, standing[0]),
            (ConditionType::Reconciling, standing[1]),
            (ConditionType::Stalled, standing[2]),
        ];
        for (type_, expected) in told {
            assert_eq!(condition(&status, type_).0, expected, "{state} {type_}");
        }
    }
}

#[test]
fn pending_task_says_what_it_waits_for() {
    let lane = fixture::lane();
    let row = fixture::row(State::Pending);
    let rows: Vec<(TaskStatus, LaneCounts, Reason)> = vec![
        (row.clone(), lane.clone(), Reason::LaneOpen),
        (TaskStatus { is_suspended: true, ..row.clone() }, lane.clone(), Reason::Suspended),
        (TaskStatus { is_ready: false, ..row.clone() }, lane.clone(), Reason::BackingOff),
        (row.clone(), LaneCounts { running: 2, stopping: 1, ..lane.clone() }, Reason::LaneAtCapacity),
        (row.clone(), LaneCounts { policy: Policy::Hold, ..lane.clone() }, Reason::LaneHeld),
        (row.clone(), LaneCounts { policy: Policy::HoldAndDrain, ..lane.clone() }, Reason::LaneHeld),
        (row.clone(), LaneCounts { is_pool_held: true, ..lane.clone() }, Reason::PoolHeld),
        (row.clone(), LaneCounts { is_cooling: true, ..lane.clone() }, Reason::LaneResting),
    ];
    for (row, lane, reason) in rows {
        let wait = wait(&row, Some(&lane), true, None);
        assert_eq!((wait.reason, wait.permitted), (reason, reason == Reason::LaneOpen));
    }
    let unserved = wait(&row, Some(&lane), false, None);
    assert_eq!((unserved.reason, unserved.permitted), (Reason::PoolMissing, false));
    assert!(unserved.message.contains("default") && unserved.message.contains("make it"), "{}", unserved.message);
    let held = wait(&row, Some(&LaneCounts { policy: Policy::Hold, ..lane }), false, None);
    assert_eq!(held.reason, Reason::LaneHeld, "who held it knows why");
}

#[test]
fn parked_task_stays_parked_until_it_starts() {
    let mut seen = fixture::seen(State::Pending);
    let full = LaneCounts { running: 3, ..fixture::lane() };
    let facts = |lane, before| Facts {
        generation: Some(2),
        before,
        seen: &seen,
        lane: Some(lane),
        is_served: true,
        ignored: None,
        observed_retries: 0,
        wants_cancel: false,
    };
    let free = fixture::lane();
    let parked = of_row(&facts(&full, None));
    assert_eq!(of_row(&facts(&free, Some(&parked))), parked);
    seen.root = Some(fixture::row(State::Processing));
    let running = of_row(&facts_of(&seen, &free, &parked));
    assert_eq!(condition(&running, ConditionType::LanePermitted), (ConditionStatus::True, "LaneOpen"));
}

fn facts_of<'a>(seen: &'a Seen, lane: &'a LaneCounts, before: &'a IngestTaskStatus) -> Facts<'a> {
    Facts {
        generation: Some(2),
        before: Some(before),
        seen,
        lane: Some(lane),
        is_served: true,
        ignored: None,
        observed_retries: 0,
        wants_cancel: false,
    }
}

#[test]
fn same_row_makes_the_same_status() {
    for state in State::ALL {
        let mut seen = fixture::seen(*state);
        fixture::cancelled(&mut seen, "why");
        let first = shown(&seen, None);
        assert_eq!(shown(&seen, Some(&first)), first, "{state}");
    }
}

#[test]
fn time_of_a_condition_is_the_rows() {
    let status = shown(&fixture::seen(State::Completed), None);
    assert!(status.conditions.iter().all(|condition| condition.last_transition_time == Time::from(fixture::at(300))));
}

#[test]
fn convert_speaks_for_its_insert() {
    let mut seen = fixture::seen(State::Completed);
    let insert = TaskStatus { stage: Some("extracting".to_owned()), ..fixture::row(State::Processing) };
    seen.newest = Some(insert);
    let status = shown(&seen, None);
    assert_eq!(status.state, Some(crate::api::ingest_task::State::Completed));
    assert_eq!(status.display_status.as_deref(), Some("extracting"));
    assert_eq!(status.ui_phase, Some(UiPhase::Running));
    assert_eq!(condition(&status, ConditionType::Running), (ConditionStatus::True, "FollowOnRunning"));
    assert_eq!(condition(&status, ConditionType::Succeeded).0, ConditionStatus::Unknown);
    assert_eq!(status.finished_at, None);
}

#[test]
fn failure_says_what_to_do_and_stays_small() {
    let mut seen = fixture::seen(State::Failed);
    let row = seen.root.as_mut().unwrap();
    row.failure_class = Some(FailureClass::NoTextLayer);
    row.error = Some("ü\u{1}\"\\\n".repeat(600_000));
    row.message = Some("€\"".repeat(100_000));
    let status = shown(&seen, None);
    let failure = status.failure.as_ref().unwrap();
    assert_eq!((failure.class.as_str(), failure.recommended_action.as_str()), ("no_text_layer", "fix_document"));
    assert!(failure.message.len() <= FAILURE_MESSAGE_MAX_BYTES);
    assert_eq!(condition(&status, ConditionType::Stalled), (ConditionStatus::True, "Failed"));
    let bytes = serde_json::to_vec(&status).unwrap().len();
    assert!(bytes < 16 * 1_024, "{bytes}");
}

#[test]
fn cancel_that_was_asked_for_by_the_spec_is_what_it_wants() {
    let mut seen = fixture::seen(State::Cancelled);
    fixture::cancelled(&mut seen, "spec.cancel is true");
    let lane = fixture::lane();
    let before = IngestTaskStatus::default();
    let wanted = of_row(&Facts { wants_cancel: true, ..facts_of(&seen, &lane, &before) });
    assert_eq!(condition(&wanted, ConditionType::Ready), (ConditionStatus::True, "Cancelled"));
    let unwanted = of_row(&facts_of(&seen, &lane, &before));
    assert_eq!(condition(&unwanted, ConditionType::Stalled), (ConditionStatus::True, "Cancelled"));
}

#[test]
fn refusal_is_stalled_unless_it_waits_for_another_task() {
    let created_at = Time::from(fixture::at(100));
    let refusal = Refusal::final_(Reason::Duplicate, "the key has its task");
    let status = refused(None, Some(1), created_at, &refusal);
    assert_eq!(condition(&status, ConditionType::Accepted), (ConditionStatus::False, "Duplicate"));
    assert_eq!(condition(&status, ConditionType::Stalled).0, ConditionStatus::True);
    assert_eq!(refused(Some(&status), Some(1), created_at, &refusal), status);
    let waiting = refused(None, Some(1), created_at, &Refusal::final_(Reason::ExclusiveKeyActive, "taken"));
    assert_eq!(condition(&waiting, ConditionType::Reconciling).0, ConditionStatus::True);
}

#[test]
fn database_that_is_away_changes_nothing_but_how_it_stands() {
    let before = shown(&fixture::seen(State::Processing), None);
    let away = without_database(Some(&before), Some(3), Time::from(fixture::at(100)));
    assert_eq!(condition(&away, ConditionType::Reconciling), (ConditionStatus::True, "DatabaseUnavailable"));
    assert_eq!(condition(&away, ConditionType::Running), condition(&before, ConditionType::Running));
    assert_eq!((away.state, away.observed_generation), (before.state, before.observed_generation));
    assert_eq!(without_database(Some(&away), Some(3), Time::from(fixture::at(100))), away);
}

#[test]
fn task_that_is_not_kept_leaves_what_was_last_known() {
    let ended = shown(&fixture::seen(State::Completed), None);
    assert_eq!(expired(Some(&ended), Some(2)), ended);
    let running = shown(&fixture::seen(State::Processing), None);
    let lost = expired(Some(&running), Some(2));
    assert_eq!(condition(&lost, ConditionType::Stalled), (ConditionStatus::True, "Expired"));
    assert_eq!(expired(Some(&lost), Some(2)), lost);
}

#[test]
fn progress_is_a_whole_percent() {
    for (progress, expected) in [(0.0, 0), (0.29, 29), (0.999, 99), (1.0, 100), (7.0, 100), (-1.0, 0), (f32::NAN, 0)] {
        assert_eq!(percent(progress), expected, "{progress}");
    }
}

#[test]
fn what_follows_is_counted_by_state() {
    let mut seen = fixture::seen(State::Completed);
    assert_eq!(shown(&seen, None).children_counts, None);
    let follow_on = |n: u128, state| FollowOn {
        root_id: Uuid::from_u128(1),
        track_id: Uuid::from_u128(n),
        task_type: TaskType::Insert,
        state,
    };
    seen.children = vec![follow_on(4, State::Stopping), follow_on(3, State::Processing), follow_on(2, State::Failed)];
    let counts = ChildrenCounts { running: 2, failed: 1, ..ChildrenCounts::default() };
    assert_eq!(shown(&seen, None).children_counts, Some(counts));
    seen.children = (0..CHILDREN_MAX).map(|n| follow_on(n as u128, State::Completed)).collect();
    assert_eq!(shown(&seen, None).children_counts, None, "there may be more");
}
