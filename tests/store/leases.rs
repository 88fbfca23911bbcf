//! Leases: what heartbeat and watch answer, what a worker may still write, Jobs, and scale-down.

use sluice::domain::lane::{Class, Policy};
use sluice::domain::task::State;
use sluice::store::claim::{Attempt, Claim, ClaimRequest, claim};
use sluice::store::ends::{CompleteOutcome, CoolDown, ReleaseOutcome, complete_many, release};
use sluice::store::lanes::{Hold, hold_all, hold_lane};
use sluice::store::leases::{
    DrainOutcome, Heartbeat, LeaseAnswer, NewWorker, Report, ReportOutcome, StopReason, UndrainOutcome, WorkerState,
    adopt, drain_worker, heartbeat, register_worker, report, undrain_worker, watch,
};
use sluice::store::reads::{lane_counts, pool_demand, pool_workers};
use sluice::store::upkeep::{ReapOutcome, reap};
use uuid::Uuid;

use crate::queue::{Queue, TENANT, insert, serving};

async fn beat(queue: &Queue, attempts: &[Attempt]) -> Heartbeat {
    // The sequence of the newest claim, which has been answered.
    let sequence = queue.next_sequence();
    heartbeat(&queue.worker, queue.worker_id, sequence, attempts).await.expect("an answer")
}

fn sorted<T: Ord>(mut answers: Vec<T>) -> Vec<T> {
    answers.sort_unstable();
    answers
}

#[tokio::test]
async fn heartbeat_answers_each_attempt_by_itself() {
    let queue = Queue::new().await;
    let running = queue.running().await;
    let stopping = queue.stopping().await;
    let ended = queue.in_state(State::Completed).await;
    let nobodys = Attempt { track_id: Uuid::new_v4(), number: 1 };
    // The same task twice: an attempt that this worker lost, and the one that it has now.
    let older = Attempt { number: running.number - 1, ..running };

    let answer = beat(&queue, &[running, stopping, ended, nobodys, older]).await;

    assert_eq!(answer.worker, WorkerState::Serving);
    let expected = vec![
        (running, LeaseAnswer::Renewed),
        (stopping, LeaseAnswer::Cancel),
        (ended, LeaseAnswer::Lost),
        (nobodys, LeaseAnswer::Lost),
        (older, LeaseAnswer::Lost),
    ];
    assert_eq!(sorted(answer.leases), sorted(expected));
}

#[tokio::test]
async fn heartbeat_renews_what_runs_and_not_what_stops() {
    let queue = Queue::new().await;
    let (running, stopping) = (queue.running().await, queue.stopping().await);
    let soon = "update sluice.tasks set lease_until = now() + interval '5 s' where track_id = $1";
    queue.arrange(soon, running.track_id).await;
    queue.arrange(soon, stopping.track_id).await;
    let stopping_until = queue.task(stopping.track_id).await.lease_until;

    beat(&queue, &[running, stopping]).await;

    assert_eq!(queue.task(stopping.track_id).await.lease_until, stopping_until);
    let task = queue.task(running.track_id).await;
    let left = task.lease_until.expect("a lease") - stopping_until.expect("a lease");
    assert!((100..=120).contains(&left.num_seconds()), "{left}");
}

#[tokio::test]
async fn heartbeat_says_busy_of_a_row_that_another_session_holds() {
    let queue = Queue::new().await;
    let attempt = queue.running().await;
    let mut holder = queue.db.admin().begin().await.expect("a transaction");
    sqlx::query("select from sluice.tasks where track_id = $1 for update")
        .bind(attempt.track_id)
        .execute(&mut *holder)
        .await
        .expect("a lock");

    assert_eq!(beat(&queue, &[attempt]).await.leases, [(attempt, LeaseAnswer::Busy)]);
    holder.rollback().await.expect("a rollback");
    assert_eq!(beat(&queue, &[attempt]).await.leases, [(attempt, LeaseAnswer::Renewed)]);
}

#[tokio::test]
async fn claim_whose_reply_never_came_is_given_back_by_the_next_heartbeat() {
    let queue = Queue::new().await;
    let kept = queue.running().await;
    let unheard = queue.enqueue(&insert()).await;
    let sequence = queue.next_sequence();
    let request = ClaimRequest { worker_id: queue.worker_id, sequence, want: 1, quantum: 1 };
    claim(&queue.worker, request).await.expect("a claim");

    // While its reply may be on its way, it is left alone.
    heartbeat(&queue.worker, queue.worker_id, sequence, &[kept]).await.expect("an answer");
    assert_eq!(queue.state(unheard).await, State::Processing);
    heartbeat(&queue.worker, queue.worker_id, sequence + 1, &[kept]).await.expect("an answer");

    let task = queue.task(unheard).await;
    assert_eq!((task.state, task.failures, task.lost_leases), (State::Pending, 0, 0));
    assert_eq!(queue.state(kept.track_id).await, State::Processing);
}

#[tokio::test]
async fn drained_lane_asks_for_its_tasks_back() {
    let queue = Queue::new().await;
    let attempt = queue.running().await;
    let hold = async |policy| {
        hold_lane(&queue.operator, TENANT, Class::Ingest, policy, None, None).await.expect("an answer");
        let watch = watch(&queue.worker, queue.worker_id, &[attempt.track_id]).await.expect("an answer");
        (beat(&queue, &[attempt]).await.leases[0].1, watch.stops)
    };

    assert_eq!(hold(Policy::Hold).await, (LeaseAnswer::Renewed, vec![]));
    let asked = vec![(attempt.track_id, StopReason::Release)];
    assert_eq!(hold(Policy::HoldAndDrain).await, (LeaseAnswer::Release, asked));
    let answers = release(&queue.worker, &[attempt], Some("drained"), CoolDown::No).await.expect("an answer");
    assert_eq!(answers, [(attempt, ReleaseOutcome::Released)]);
    assert_eq!(queue.claim_this(attempt.track_id).await, None);
    hold_lane(&queue.operator, TENANT, Class::Ingest, Policy::None, None, None).await.expect("an answer");
    assert!(queue.claim_this(attempt.track_id).await.is_some());
}

#[tokio::test]
async fn watch_names_only_what_is_to_stop() {
    let queue = Queue::new().await;
    let (running, stopping) = (queue.running().await, queue.stopping().await);
    let lost = queue.running().await;
    queue.expire_lease(lost.track_id).await;
    reap(&queue.worker, 10).await.expect("an answer");
    let ids = [running, stopping, lost].map(|attempt| attempt.track_id);

    let seen = watch(&queue.worker, queue.worker_id, &ids).await.expect("an answer");
    assert!(!seen.is_draining);
    let expected = vec![(stopping.track_id, StopReason::Cancel), (lost.track_id, StopReason::Lost)];
    assert_eq!(sorted(seen.stops), sorted(expected));

    drain_worker(&queue.operator, queue.worker_id).await.expect("an answer");
    let seen = watch(&queue.worker, queue.worker_id, &[running.track_id]).await.expect("an answer");
    assert!(seen.is_draining && seen.stops.is_empty());
}

#[tokio::test]
async fn report_of_a_stopping_lost_or_ended_attempt_says_so() {
    let queue = Queue::new().await;
    let said = async |attempt: Attempt| {
        let stage = Report { stage: Some("late"), ..Report::default() };
        report(&queue.worker, attempt, &stage).await.expect("an answer")
    };

    assert_eq!(said(queue.in_state(State::Processing).await).await, ReportOutcome::Ok);
    assert_eq!(said(queue.in_state(State::Stopping).await).await, ReportOutcome::Cancel);
    for (state, expected) in [
        (State::Pending, ReportOutcome::Lost),
        (State::Completed, ReportOutcome::Refused),
        (State::Failed, ReportOutcome::Refused),
        (State::Cancelled, ReportOutcome::Refused),
    ] {
        let attempt = queue.in_state(state).await;
        assert_eq!(said(attempt).await, expected, "{state}");
        assert_eq!(queue.task(attempt.track_id).await.stage, None, "{state}");
    }
    let nobodys = Attempt { track_id: Uuid::new_v4(), number: 1 };
    assert_eq!(said(nobodys).await, ReportOutcome::NotFound);
}

#[tokio::test]
async fn worker_whose_row_is_gone_is_told_and_comes_back_under_its_id() {
    let queue = Queue::new().await;
    let attempt = queue.running().await;
    queue.arrange("delete from sluice.workers where worker_id = $1", queue.worker_id).await;

    let answer = beat(&queue, &[attempt]).await;
    assert_eq!((answer.worker, answer.leases), (WorkerState::Unregistered, vec![(attempt, LeaseAnswer::Renewed)]));
    let request = ClaimRequest { worker_id: queue.worker_id, sequence: 9, want: 1, quantum: 1 };
    assert_eq!(claim(&queue.worker, request).await.expect("an answer"), Claim::Unregistered);

    let again = NewWorker { worker_id: Some(queue.worker_id), ..serving("default") };
    assert_eq!(register_worker(&queue.worker, &again).await.expect("an id"), queue.worker_id);
    assert_eq!(beat(&queue, &[attempt]).await.worker, WorkerState::Serving);
    assert_eq!(queue.complete(attempt).await, CompleteOutcome::Completed);
}

#[tokio::test]
async fn draining_worker_claims_nothing_until_it_is_undrained() {
    let queue = Queue::new().await;
    let attempt = queue.running().await;
    let pending = queue.enqueue(&insert()).await;

    let drained = drain_worker(&queue.operator, queue.worker_id).await.expect("an answer");
    assert_eq!(drained, DrainOutcome::Draining);
    assert_eq!(queue.claim(10).await, []);
    let answer = beat(&queue, &[attempt]).await;
    assert_eq!((answer.worker, answer.leases), (WorkerState::Draining, vec![(attempt, LeaseAnswer::Renewed)]));
    let [worker] = &pool_workers(&queue.operator, Some("default")).await.expect("the workers")[..] else {
        panic!("one worker")
    };
    assert_eq!(
        (worker.worker_id, worker.is_draining, worker.is_alive, worker.leases),
        (queue.worker_id, true, true, 1)
    );
    assert_eq!(queue.complete(attempt).await, CompleteOutcome::Completed, "what it has, it finishes");

    let serves = undrain_worker(&queue.operator, queue.worker_id).await.expect("an answer");
    assert_eq!(serves, UndrainOutcome::Serving);
    assert!(queue.claim_this(pending).await.is_some());
    assert_eq!(drain_worker(&queue.operator, Uuid::new_v4()).await.expect("an answer"), DrainOutcome::NotFound);
    assert_eq!(undrain_worker(&queue.operator, Uuid::new_v4()).await.expect("an answer"), UndrainOutcome::NotFound);
}

#[tokio::test]
async fn held_pool_starts_nothing_and_says_why() {
    let queue = Queue::new().await;
    let pending = queue.enqueue(&insert()).await;
    let hold =
        async |hold, reason| hold_all(&queue.operator, hold, None, reason, Some("ann")).await.expect("an answer");

    assert_eq!((hold(Hold::Held, Some("migration")).await, hold(Hold::Held, None).await), (1, 0));
    assert_eq!(queue.claim(10).await, []);
    let lanes = lane_counts(&queue.operator, None).await.expect("the lanes");
    assert_eq!((lanes[0].policy_reason.as_deref(), lanes[0].parked), (Some("migration"), 1));
    let pools = pool_demand(&queue.operator).await.expect("the pools");
    assert_eq!((pools[0].is_held, pools[0].demand), (true, 0));

    assert_eq!(hold(Hold::Open, None).await, 1);
    assert!(queue.claim_this(pending).await.is_some());
}

#[tokio::test]
async fn pod_of_a_job_adopts_its_attempt_once() {
    let queue = Queue::new().await;
    let stands = NewWorker { stands_for_pool: true, ..serving("default") };
    let pool = register_worker(&queue.operator, &stands).await.expect("an id");
    let track_id = queue.enqueue(&insert()).await;
    let claim_for_pool = async || {
        let request = ClaimRequest { worker_id: pool, sequence: 1, want: 1, quantum: 1 };
        match claim(&queue.operator, request).await.expect("a claim") {
            Claim::Tasks(tasks) => tasks[0].attempt,
            Claim::Unregistered => panic!("it is registered"),
        }
    };
    let attempt = claim_for_pool().await;

    let Claim::Tasks(adopted) = adopt(&queue.worker, queue.worker_id, attempt).await.expect("an answer") else {
        panic!("it is registered")
    };
    assert_eq!((adopted[0].attempt, adopted[0].tenant.as_str()), (attempt, TENANT));
    let again = adopt(&queue.worker, queue.worker_id, attempt).await.expect("an answer");
    assert_eq!(again, Claim::Tasks(vec![]));
    assert_eq!(adopt(&queue.worker, Uuid::new_v4(), attempt).await.expect("an answer"), Claim::Unregistered);
    assert_eq!(beat(&queue, &[attempt]).await.leases, [(attempt, LeaseAnswer::Renewed)]);
    assert_eq!(queue.complete(attempt).await, CompleteOutcome::Completed);

    // A Job that did not start in time is a release; its pod comes too late.
    let late = queue.enqueue(&insert()).await;
    let attempt = claim_for_pool().await;
    queue.expire_lease(late).await;
    assert_eq!(adopt(&queue.worker, queue.worker_id, attempt).await.expect("an answer"), Claim::Tasks(vec![]));
    assert_eq!(reap(&queue.operator, 10).await.expect("an answer"), [(late, ReapOutcome::Released)]);
    let task = queue.task(late).await;
    assert_eq!((task.state, task.lost_leases, task.failures), (State::Pending, 0, 0));
    assert_ne!(queue.task(track_id).await.state, State::Pending);
}

#[tokio::test]
async fn batch_of_ends_tells_good_from_bad_and_ends_a_duplicate_once() {
    let queue = Queue::new().await;
    let (good, stopping) = (queue.running().await, queue.stopping().await);
    let ended = queue.in_state(State::Completed).await;
    let pending = queue.in_state(State::Pending).await;
    let nobodys = Attempt { track_id: Uuid::new_v4(), number: 1 };
    let older = Attempt { number: 0, ..good };
    let batch = [good, stopping, ended, older, nobodys, pending, good];

    let completed: Vec<_> = batch.iter().map(|attempt| (*attempt, Some(serde_json::json!({ "n": 1 })))).collect();
    let answers = complete_many(&queue.worker, &completed).await.expect("answers");

    let expected = vec![
        (good, CompleteOutcome::Completed),
        (stopping, CompleteOutcome::Cancelled),
        (ended, CompleteOutcome::Refused),
        (older, CompleteOutcome::Lost),
        (nobodys, CompleteOutcome::NotFound),
        (pending, CompleteOutcome::Lost),
        (good, CompleteOutcome::Refused),
    ];
    assert_eq!(sorted(answers), sorted(expected));
    assert_eq!(queue.task(good.track_id).await.result, Some(serde_json::json!({ "n": 1 })));
}

#[tokio::test]
async fn batch_of_releases_tells_good_from_bad_and_releases_a_duplicate_once() {
    let queue = Queue::new().await;
    let (good, stopping) = (queue.running().await, queue.stopping().await);
    let ended = queue.in_state(State::Failed).await;
    let nobodys = Attempt { track_id: Uuid::new_v4(), number: 1 };

    let answers = release(&queue.worker, &[good, stopping, ended, nobodys, good], None, CoolDown::No).await;

    let expected = vec![
        (good, ReleaseOutcome::Released),
        (stopping, ReleaseOutcome::Cancelled),
        (ended, ReleaseOutcome::Refused),
        (nobodys, ReleaseOutcome::NotFound),
        (good, ReleaseOutcome::Lost),
    ];
    assert_eq!(sorted(answers.expect("answers")), sorted(expected));
    assert_eq!(
        (queue.state(good.track_id).await, queue.state(stopping.track_id).await),
        (State::Pending, State::Cancelled)
    );
}
