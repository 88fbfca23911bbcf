//! Each event on each state: what the caller is told, and what the row says afterwards.

use sluice::domain::failure::FailureClass;
use sluice::domain::lane::{Cap, Class, Policy};
use sluice::domain::retry::Verdict;
use sluice::domain::task::{Event, Outcome, State, apply};
use sluice::store::claim::Attempt;
use sluice::store::control::{CancelOutcome, Request, cancel, retry, suspend};
use sluice::store::ends::{CoolDown, release, stopped};
use sluice::store::lanes::{LaneSettings, Setting, hold_lane, set_lane};
use sluice::store::upkeep::reap;
use uuid::Uuid;

use crate::queue::{ANYBODY, Queue, TENANT, insert};

/// What each event answers for pending, processing, stopping, completed, failed and cancelled tasks of the same
/// attempt; an empty answer is none. The state that follows is the domain's decision. A failure has its class: final is
/// one whose budget is spent, or a permanent one.
const TABLE: [(Event, Option<FailureClass>, [&str; 6]); 12] = [
    (Event::Claim, None, ["claimed", "", "", "", "", ""]),
    (Event::Complete, None, ["lost", "completed", "cancelled", "refused", "refused", "refused"]),
    (Event::Fail(Verdict::Again), PASSING, ["lost", "retry", "cancelled", "refused", "refused", "refused"]),
    (Event::Fail(Verdict::Final), PASSING, ["lost", "failed", "cancelled", "refused", "refused", "refused"]),
    (Event::Fail(Verdict::Final), PERMANENT, ["lost", "failed", "cancelled", "refused", "refused", "refused"]),
    (Event::Cancel, None, ["cancelled", "stopping", "stopping", "conflict_completed", "already_finished", "unchanged"]),
    (Event::AcknowledgeStop, None, ["lost", "refused", "cancelled", "refused", "refused", "refused"]),
    (Event::Release, None, ["lost", "released", "cancelled", "refused", "refused", "refused"]),
    (Event::LeaseLost(Verdict::Again), None, ["", "lost", "cancelled", "", "", ""]),
    (Event::LeaseLost(Verdict::Final), None, ["", "failed", "cancelled", "", "", ""]),
    (Event::Retry(Verdict::Again), None, ["active", "active", "active", "completed", "pending", "pending"]),
    (
        Event::Retry(Verdict::Final),
        None,
        ["active", "active", "active", "completed", "max_retries_exceeded", "max_retries_exceeded"],
    ),
];
const PASSING: Option<FailureClass> = Some(FailureClass::ProviderUnavailable);
const PERMANENT: Option<FailureClass> = Some(FailureClass::PasswordRequired);

const STATES: [State; 6] =
    [State::Pending, State::Processing, State::Stopping, State::Completed, State::Failed, State::Cancelled];

#[tokio::test]
async fn every_event_meets_every_state_as_the_picture_says() {
    let queue = Queue::new().await;
    for (event, class, answers) in TABLE {
        for (state, expected) in STATES.into_iter().zip(answers) {
            let attempt = queue.in_state(state).await;
            spend_budgets(&queue, event, class, attempt).await;
            let before = queue.task(attempt.track_id).await;
            assert_eq!(before.state, state);

            let answer = happen(&queue, event, class, attempt).await;

            let after = queue.task(attempt.track_id).await;
            assert_eq!(answer, expected, "{event:?} on {state}");
            match apply(state, event) {
                Outcome::Moved(next) => assert_eq!(after.state, next, "{event:?} on {state}"),
                Outcome::Unchanged | Outcome::Refused(_) | Outcome::NotApplicable => {
                    assert_eq!(after, before, "{event:?} on {state}");
                }
            }
        }
    }
}

/// Brings the task to where the verdict is as the event says.
async fn spend_budgets(queue: &Queue, event: Event, class: Option<FailureClass>, attempt: Attempt) {
    let sql = match event {
        Event::Fail(Verdict::Final) if class == PASSING => {
            "update sluice.tasks set failures = max_attempts - 1 where track_id = $1"
        }
        Event::LeaseLost(Verdict::Final) => "update sluice.tasks set lost_leases = 4 where track_id = $1",
        Event::Retry(Verdict::Final) => "update sluice.tasks_archive set retries = 3 where track_id = $1",
        Event::Claim
        | Event::Complete
        | Event::Fail(_)
        | Event::Cancel
        | Event::AcknowledgeStop
        | Event::Release
        | Event::LeaseLost(Verdict::Again)
        | Event::Retry(Verdict::Again) => return,
    };
    queue.arrange(sql, attempt.track_id).await;
}

/// The answer in words.
async fn happen(queue: &Queue, event: Event, class: Option<FailureClass>, attempt: Attempt) -> &'static str {
    let Queue { worker, operator, .. } = queue;
    match event {
        Event::Claim => match queue.claim_this(attempt.track_id).await {
            Some(next) => {
                assert_eq!(next.number, attempt.number + 1);
                "claimed"
            }
            None => "",
        },
        Event::Complete => queue.complete(attempt).await.as_str(),
        Event::Fail(_) => queue.fail(attempt, class.expect("a failure has a class")).await.as_str(),
        Event::Cancel => queue.cancel(attempt.track_id).await.as_str(),
        Event::AcknowledgeStop => stopped(worker, attempt).await.expect("an answer").as_str(),
        Event::Release => {
            let answers = release(worker, &[attempt], None, CoolDown::No).await.expect("an answer");
            assert_eq!(answers.len(), 1);
            answers[0].1.as_str()
        }
        Event::LeaseLost(_) => {
            queue.expire_lease(attempt.track_id).await;
            let reaped = reap(worker, 1_000).await.expect("an answer");
            reaped
                .iter()
                .find(|(track_id, _)| *track_id == attempt.track_id)
                .map_or("", |(_, outcome)| outcome.as_str())
        }
        Event::Retry(_) => {
            let (track_id, outcome) = retry(operator, attempt.track_id, None, ANYBODY).await.expect("an answer");
            assert_eq!(track_id, attempt.track_id);
            outcome.as_str()
        }
    }
}

const OF_WORKERS: [Event; 4] = [Event::Complete, Event::Fail(Verdict::Final), Event::AcknowledgeStop, Event::Release];

#[tokio::test]
async fn attempt_that_is_not_the_newest_changes_nothing() {
    let queue = Queue::new().await;
    for state in STATES {
        let newest = queue.in_state(state).await;
        let before = queue.task(newest.track_id).await;
        for number in [newest.number - 1, newest.number + 1, i32::MAX, i32::MIN] {
            let other = Attempt { number, ..newest };
            for event in OF_WORKERS {
                assert_eq!(happen(&queue, event, PERMANENT, other).await, "lost", "{event:?} on {state}");
            }
        }
        assert_eq!(queue.task(newest.track_id).await, before, "{state}");
    }
}

#[tokio::test]
async fn task_that_never_was_is_not_found() {
    let queue = Queue::new().await;
    let nobodys = Attempt { track_id: Uuid::new_v4(), number: 1 };

    for event in OF_WORKERS.into_iter().chain([Event::Cancel, Event::Retry(Verdict::Again)]) {
        assert_eq!(happen(&queue, event, PASSING, nobodys).await, "not_found", "{event:?}");
    }
}

#[tokio::test]
async fn cancelled_pending_task_says_that_it_never_ran_and_who_asked() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;

    let request = Request { by: Some("ann"), reason: Some("not needed\0") };
    cancel(&queue.operator, track_id, request, ANYBODY).await.expect("an answer");

    let task = queue.task(track_id).await;
    let asked = task.cancel.expect("a cancel");
    assert_eq!(task.message.as_deref(), Some("Cancelled before execution"));
    assert_eq!((asked.by.as_deref(), asked.reason.as_deref()), (Some("ann"), Some("not needed")));
    assert_eq!(task.failure_class, Some(FailureClass::Cancelled));
    assert!(task.finished_at.is_some() && task.worker_id.is_none());
}

#[tokio::test]
async fn cancel_beats_hold_suspension_back_off_and_full_lanes() {
    let queue = Queue::new().await;
    let backing_off = queue.running().await;
    queue.fail(backing_off, FailureClass::Unknown).await;
    let running = queue.running().await;
    let suspended = queue.enqueue(&insert()).await;
    suspend(&queue.operator, suspended, None, ANYBODY).await.expect("an answer");
    let parked = queue.enqueue(&insert()).await;
    let full = LaneSettings { max_running: Setting::To(Cap::new(1)), ..LaneSettings::default() };
    set_lane(&queue.operator, TENANT, Class::Ingest, &full, None).await.expect("a cap");
    hold_lane(&queue.operator, TENANT, Class::Ingest, Policy::Hold, None, None).await.expect("a hold");

    for track_id in [backing_off.track_id, suspended, parked] {
        assert_eq!(queue.cancel(track_id).await, CancelOutcome::Cancelled);
        assert_eq!(queue.state(track_id).await, State::Cancelled);
    }
    assert_eq!(queue.cancel(running.track_id).await, CancelOutcome::Stopping);
}
