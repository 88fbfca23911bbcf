//! A Job's pod: it takes over the one attempt that was claimed for it, runs it, and ends.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sluice::domain::task::State;
use sluice::store::claim::{Attempt, Claim, ClaimRequest, claim};
use sluice::store::leases::{NewWorker, register_worker};

use crate::bed::{Bed, POOL, effects, insert};
use crate::process::{Process, Settings};
use crate::until::until;

/// The lease of a claim that nobody renews.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// As the operator claims for a Job.
async fn claimed_for_a_job(bed: &Bed, work: serde_json::Value) -> Attempt {
    let stands = NewWorker {
        pool: POOL,
        slots: 1,
        version: None,
        pod_name: None,
        pod_uid: None,
        stands_for_pool: true,
        worker_id: None,
    };
    let worker_id = register_worker(&bed.operator, &stands).await.expect("an id");
    let id = bed.enqueue(insert(work)).await;
    let request = ClaimRequest { worker_id, sequence: 1, want: 1, quantum: 1 };
    match claim(&bed.operator, request).await.expect("a claim") {
        Claim::Tasks(tasks) if tasks.len() == 1 && tasks[0].attempt.track_id == id => tasks[0].attempt,
        other => panic!("{other:?}"),
    }
}

const ADOPTED: &str =
    "select count(*) from sluice.tasks t join sluice.workers w using (worker_id) where not w.stands_for_pool";

fn job(bed: &Bed, attempt: Attempt) -> Settings {
    let Attempt { track_id, number } = attempt;
    Process::settings(bed, 1).argument(format!("--task={track_id}")).argument(format!("--attempt={number}"))
}

#[tokio::test]
async fn job_runs_the_attempt_that_it_adopts_and_nothing_else() {
    let bed = Bed::new(START_DEADLINE).await;
    let attempt = claimed_for_a_job(&bed, json!({ "handler": "count", "before_ms": 200 })).await;
    let other = bed.enqueue(insert(json!({ "handler": "noop" }))).await;

    let mut pod = Process::start(&job(&bed, attempt));
    assert_eq!(pod.end().await.code(), Some(0), "{}", pod.log());
    let task = bed.task(attempt.track_id).await;
    assert_eq!((task.state, task.attempt), (State::Completed, attempt.number));
    assert_eq!(effects(&bed).await[&attempt.track_id], [attempt.number]);
    assert_eq!(bed.state(other).await, State::Pending);
}

/// A second pod of one Job, or one that comes too late: there is nothing for it to do, and the row says what is.
#[tokio::test]
async fn second_pod_of_a_job_changes_nothing_and_ends() {
    let bed = Bed::new(START_DEADLINE).await;
    let attempt = claimed_for_a_job(&bed, json!({ "handler": "sleep", "ms": 600_000 })).await;
    let _first = Process::start(&job(&bed, attempt));
    until("it is adopted", async || bed.number(ADOPTED).await == 1).await;
    let before = bed.task(attempt.track_id).await.worker_id;

    let mut second = Process::start(&job(&bed, attempt));
    second.end().await;
    assert!(second.log().contains(&attempt.track_id.to_string()), "{}", second.log());
    let task = bed.task(attempt.track_id).await;
    assert_eq!((task.state, task.attempt, task.worker_id), (State::Processing, attempt.number, before));
}

#[tokio::test]
async fn job_that_is_told_to_end_gives_its_attempt_back() {
    let bed = Bed::new(START_DEADLINE).await;
    let attempt = claimed_for_a_job(&bed, json!({ "handler": "sleep", "ms": 600_000 })).await;
    let mut pod = Process::start(&job(&bed, attempt).set("SLUICE_DRAIN_SECS", 0));
    until("it is adopted", async || bed.number(ADOPTED).await == 1).await;

    pod.signal(Signal::SIGTERM);
    pod.end().await;
    let task = bed.task(attempt.track_id).await;
    assert_eq!((task.state, task.failures, task.lost_leases), (State::Pending, 0, 0), "{}", pod.log());
}
