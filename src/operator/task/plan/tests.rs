use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::operator::task::fixture;

fn task(spec: Value, status: Value) -> IngestTask {
    let mut whole = json!({ "type": "Insert", "source": { "text": "x" } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    IngestTask {
        metadata: ObjectMeta {
            namespace: Some("team".to_owned()),
            name: Some("one".to_owned()),
            generation: Some(2),
            ..ObjectMeta::default()
        },
        spec: serde_json::from_value(whole).unwrap(),
        status: serde_json::from_value(status).unwrap(),
    }
}

fn deleted(mut task: IngestTask, finalizer: bool) -> IngestTask {
    let at = k8s_openapi::jiff::Timestamp::from_second(1_000).unwrap();
    task.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
    task.metadata.finalizers = finalizer.then(|| vec![FINALIZER.to_owned()]);
    task
}

fn at(secs: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(secs, 0).unwrap()
}

fn planned(task: &IngestTask, seen: &Seen) -> Plan {
    plan(&Facts { task, seen, retried: None, now: at(1_000) })
}

fn reason(plan: &Plan) -> Option<Reason> {
    plan.ignored.as_ref().map(|ignored| ignored.reason)
}

const CANCEL: Step = Step::Cancel { reason: CANCEL_BY_SPEC };

#[test]
fn cancel_reaches_what_is_active_and_says_when_it_comes_too_late() {
    let task = task(json!({ "cancel": true }), json!({ "observedGeneration": 1 }));
    let rows = [
        (State::Pending, vec![CANCEL], None),
        (State::Processing, vec![CANCEL], None),
        (State::Stopping, vec![], None),
        (State::Cancelled, vec![], None),
        (State::Completed, vec![], Some(Reason::CancelTooLate)),
        (State::Failed, vec![], Some(Reason::CancelTooLate)),
    ];
    for (state, steps, ignored) in rows {
        let plan = planned(&task, &fixture::seen(state));
        assert_eq!((plan.steps.clone(), reason(&plan)), (steps, ignored), "{state}");
    }
}

#[test]
fn cancel_of_a_convert_reaches_the_insert_that_follows() {
    let mut seen = fixture::seen(State::Completed);
    seen.newest = Some(fixture::row(State::Processing));
    let plan = planned(&task(json!({ "cancel": true }), json!(null)), &seen);
    assert_eq!(plan.steps, [CANCEL]);
}

#[test]
fn cancel_that_was_taken_back_is_reported_and_changes_nothing() {
    for state in [State::Stopping, State::Cancelled] {
        let mut seen = fixture::seen(state);
        fixture::cancelled(&mut seen, CANCEL_BY_SPEC);
        for cancel in [json!({ "cancel": false }), json!({})] {
            let plan = planned(&task(cancel, json!({ "observedGeneration": 1 })), &seen);
            assert_eq!((plan.steps.len(), reason(&plan)), (0, Some(Reason::CancelIsFinal)), "{state}");
        }
        // One that came by another way was never the spec's to take back.
        fixture::cancelled(&mut seen, "by hand");
        assert_eq!(reason(&planned(&task(json!({}), json!(null)), &seen)), None);
    }
}

#[test]
fn first_value_of_retries_is_the_baseline_and_only_a_higher_one_starts_again() {
    let failed = fixture::seen(State::Failed);
    let rows = [
        (json!({ "retries": 5 }), json!(null), 0, 5),
        (json!({}), json!({ "observedRetries": 0 }), 0, 0),
        (json!({ "retries": 1 }), json!({ "observedRetries": 0 }), 1, 0),
        (json!({ "retries": 1 }), json!({ "observedRetries": 1 }), 0, 1),
        (json!({ "retries": 0 }), json!({ "observedRetries": 1 }), 0, 1),
    ];
    for (spec, status, retries, observed) in rows {
        let plan = planned(&task(spec.clone(), status), &failed);
        assert_eq!((plan.steps.len(), plan.observed_retries), (retries, observed), "{spec}");
        assert!(plan.steps.iter().all(|step| *step == Step::Retry));
    }
    // It was granted a moment ago, and the status does not say so yet.
    let asked = task(json!({ "retries": 1 }), json!({ "observedRetries": 0 }));
    let plan = plan(&Facts { task: &asked, seen: &failed, retried: Some(1), now: at(0) });
    assert_eq!((plan.steps, plan.observed_retries), (vec![], 1));
}

#[test]
fn retry_that_cannot_be_says_why() {
    let status = json!({ "observedRetries": 0, "observedGeneration": 1 });
    let plain = task(json!({ "retries": 1 }), status.clone());
    let blocked = task(json!({ "retries": 1, "cancel": true }), status);
    let rows = [
        (&plain, State::Pending, Some(Reason::RetryWhileActive)),
        (&plain, State::Processing, Some(Reason::RetryWhileActive)),
        (&plain, State::Stopping, Some(Reason::RetryWhileActive)),
        (&plain, State::Completed, Some(Reason::RetryOfCompleted)),
        (&plain, State::Cancelled, None),
        (&blocked, State::Cancelled, Some(Reason::RetryBlockedByCancel)),
        (&blocked, State::Failed, Some(Reason::RetryBlockedByCancel)),
    ];
    for (task, state, expected) in rows {
        let plan = planned(task, &fixture::seen(state));
        assert_eq!(reason(&plan), expected, "{state}");
        assert_eq!(plan.steps.contains(&Step::Retry), expected.is_none(), "{state}");
    }
    let mut spent = fixture::seen(State::Failed);
    spent.root.as_mut().unwrap().retries = 3;
    let plan = planned(&plain, &spent);
    assert_eq!((plan.steps.len(), reason(&plan)), (0, Some(Reason::MaxRetriesExceeded)));
}

#[test]
fn suspension_and_priority_follow_the_spec_and_leave_alone_what_it_never_said() {
    let track_id = fixture::row(State::Pending).track_id;
    let old = json!({ "observedGeneration": 1, "observedRetries": 0 });
    let same = json!({ "observedGeneration": 2, "observedRetries": 0 });
    let priority = |priority| Step::SetPriority { track_id, priority };
    let rows = [
        (json!({ "suspend": true }), &same, false, 0, vec![Step::Suspend(track_id)]),
        (json!({ "suspend": true }), &same, true, 0, vec![]),
        (json!({ "suspend": false }), &same, true, 0, vec![Step::Resume(track_id)]),
        (json!({}), &same, true, 7, vec![]),
        (json!({}), &old, true, 7, vec![Step::Resume(track_id), priority(0)]),
        (json!({ "priority": 5 }), &same, false, 7, vec![priority(5)]),
        (json!({ "priority": 5, "suspend": true, "cancel": true }), &same, false, 7, vec![CANCEL]),
    ];
    for (spec, status, is_suspended, priority, expected) in rows {
        let mut seen = fixture::seen(State::Pending);
        let row = seen.root.as_mut().unwrap();
        (row.is_suspended, row.priority) = (is_suspended, priority);
        assert_eq!(planned(&task(spec.clone(), status.clone()), &seen).steps, expected, "{spec}");
    }
    let running = planned(&task(json!({ "suspend": true, "priority": 5 }), old), &fixture::seen(State::Processing));
    assert_eq!(running.steps, []);
}

#[test]
fn deletion_cancels_by_its_policy_and_a_finalizer_waits_for_the_stop() {
    let by_deletion = vec![Step::Cancel { reason: CANCEL_BY_DELETION }];
    let running = fixture::seen(State::Processing);
    let with = |policy: &str, finalizer| deleted(task(json!({ "deletionPolicy": policy }), json!(null)), finalizer);

    assert_eq!(planned(&with("Cancel", false), &running).steps, by_deletion);
    let waiting = planned(&with("CancelAndWait", true), &running);
    assert_eq!((waiting.steps, waiting.fate, waiting.again.is_some()), (by_deletion, Fate::Keep, true));
    let stopped = planned(&with("CancelAndWait", true), &fixture::seen(State::Cancelled));
    assert_eq!(stopped.fate, Fate::RemoveFinalizer);
    let late = with("CancelAndWait", true);
    let late = plan(&Facts { task: &late, seen: &running, retried: None, now: at(1_000 + STOP_LIMIT_SECS) });
    assert_eq!(late.fate, Fate::RemoveFinalizer);
    let mut kept = fixture::seen(State::Processing);
    kept.resource.retains = true;
    assert_eq!(planned(&with("Retain", false), &kept).steps, []);
}

#[test]
fn finalizer_comes_and_goes_with_the_policy() {
    let seen = fixture::seen(State::Pending);
    let mut waits = task(json!({ "deletionPolicy": "CancelAndWait" }), json!(null));
    assert_eq!(planned(&waits, &seen).fate, Fate::AddFinalizer);
    waits.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    assert_eq!(planned(&waits, &seen).fate, Fate::Keep);
    waits.spec.deletion_policy = None;
    assert_eq!(planned(&waits, &seen).fate, Fate::RemoveFinalizer);
}

#[test]
fn policy_is_told_to_the_row_for_when_nobody_sees_the_deletion() {
    let seen = fixture::seen(State::Pending);
    let retain = task(json!({ "deletionPolicy": "Retain" }), json!(null));
    assert_eq!(planned(&retain, &seen).steps, [Step::SetRetains(true)]);
    let shown = task(json!({ "source": { "trackId": "6e9ff3b8-2d38-4b2e-a9a2-0f4f7f3d0001" } }), json!(null));
    assert_eq!(planned(&shown, &seen).steps, [Step::SetRetains(true)]);
}

#[test]
fn ended_resource_goes_when_its_time_is_over() {
    let with_ttl = task(json!({ "ttlSecondsAfterFinished": 60 }), json!(null));
    let mut seen = fixture::seen(State::Failed);
    seen.root.as_mut().unwrap().finished_at = Some(at(990));
    let early = planned(&with_ttl, &seen);
    assert_eq!((early.fate, early.again), (Fate::Keep, Some(Duration::from_secs(50))));
    let late = plan(&Facts { task: &with_ttl, seen: &seen, retried: None, now: at(1_050) });
    assert_eq!(late.fate, Fate::Delete);
    assert_eq!(planned(&with_ttl, &fixture::seen(State::Pending)).again, None);
}

#[test]
fn task_that_is_not_kept_any_more_asks_for_nothing() {
    let mut seen = fixture::seen(State::Failed);
    seen.root = None;
    let plan = planned(&task(json!({ "cancel": true, "retries": 3 }), json!({ "observedRetries": 0 })), &seen);
    assert_eq!((plan.steps.len(), plan.fate, plan.ignored), (0, Fate::Keep, None));
}
