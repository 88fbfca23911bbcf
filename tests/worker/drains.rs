//! Ends that were asked for: what runs is finished or given back, and nothing of it counts as a failure.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use sluice::domain::lane::Policy;
use sluice::domain::task::State;
use sluice::store::Role;
use sluice::store::leases::{drain_worker, undrain_worker};
use sluice::store::status::TaskStatus;
use uuid::Uuid;

use crate::bed::{Bed, LEASE, insert};
use crate::common::proxy::{Mode, Proxy};
use crate::process::Process;
use crate::until::until;

/// Of the target of one second, on a machine that does much else.
const AT_ONCE_SECS: u64 = 10;
const ONE_SECOND: Duration = Duration::from_secs(1);

async fn sleeping(bed: &Bed, ms: u64) -> Uuid {
    bed.enqueue(insert(json!({ "handler": "sleep", "ms": ms }))).await
}

#[track_caller]
fn assert_given_back(task: &TaskStatus) {
    let counted = (task.state, task.failures, task.lost_leases, task.worker_id);
    assert_eq!(counted, (State::Pending, 0, 0, None), "{task:?}");
}

async fn worker_of(bed: &Bed) -> Uuid {
    sqlx::query_scalar("select worker_id from sluice.workers").fetch_one(bed.db.admin()).await.expect("one worker")
}

#[tokio::test]
async fn lane_that_is_drained_gets_its_tasks_back_within_a_watch_and_uncounted() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 2);
    let id = sleeping(&bed, 600_000).await;
    bed.until_state(id, State::Processing).await;

    bed.hold(Policy::HoldAndDrain).await;
    bed.until_state(id, State::Pending).await;
    assert_given_back(&bed.task(id).await);
    bed.hold(Policy::None).await;
    bed.until_state(id, State::Processing).await;
    assert_eq!(bed.task(id).await.attempt, 2);
}

#[tokio::test]
async fn drained_worker_finishes_what_it_holds_claims_nothing_more_and_turns_unready_when_idle() {
    let bed = Bed::new(LEASE).await;
    let worker = Process::serve(&bed, 2);
    let held = sleeping(&bed, 3_000).await;
    bed.until_state(held, State::Processing).await;
    let worker_id = worker_of(&bed).await;

    drain_worker(&bed.operator, worker_id).await.expect("an answer");
    let next = sleeping(&bed, 0).await;
    until("the worker has heard of it", async || worker.log().contains("drained:")).await;
    assert_eq!(worker.get("/readyz").await.expect("an answer").0, 200, "it holds a lease");
    bed.until_state(held, State::Completed).await;
    until("it is not ready", async || matches!(worker.get("/readyz").await, Ok((503, _)))).await;
    assert_eq!(worker.get("/livez").await.expect("an answer").0, 200);
    assert_given_back(&bed.task(next).await);
    assert_eq!(bed.task(next).await.attempt, 0);

    undrain_worker(&bed.operator, worker_id).await.expect("an answer");
    bed.until_state(next, State::Completed).await;
    worker.until_ready().await;
}

#[tokio::test]
async fn sigterm_ends_an_idle_worker_at_once() {
    let bed = Bed::new(LEASE).await;
    let mut worker = Process::serve(&bed, 2);
    worker.until_ready().await;

    let asked = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().await.code(), Some(0), "{}", worker.log());
    assert!(asked.elapsed().as_secs() < AT_ONCE_SECS, "{:?}", asked.elapsed());
    assert_eq!(bed.number("select count(*) from sluice.workers where alive_until > now() and not draining").await, 0);
}

#[tokio::test]
async fn sigterm_lets_running_work_finish_and_starts_nothing_new() {
    let bed = Bed::new(LEASE).await;
    let mut worker = Process::serve(&bed, 1);
    let running = sleeping(&bed, 2_000).await;
    bed.until_state(running, State::Processing).await;
    worker.until_it_holds(1).await;
    let waiting = sleeping(&bed, 0).await;

    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().await.code(), Some(0), "{}", worker.log());
    let task = bed.task(running).await;
    assert_eq!((task.state, task.attempt), (State::Completed, 1));
    assert_eq!(bed.task(waiting).await.attempt, 0);
}

#[tokio::test]
async fn sigterm_gives_back_what_does_not_finish_in_time() {
    let bed = Bed::new(LEASE).await;
    let mut worker = Process::start(&Process::settings(&bed, 2).set("SLUICE_DRAIN_SECS", 1));
    let (short, long) = (sleeping(&bed, 300).await, sleeping(&bed, 600_000).await);
    bed.until_state(long, State::Processing).await;
    until("the short one was started", async || bed.state(short).await != State::Pending).await;
    worker.until_it_holds(1).await;

    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().await.code(), Some(0), "{}", worker.log());
    assert_given_back(&bed.task(long).await);
    assert_eq!(bed.state(short).await, State::Completed);
}

/// Handlers that obey, that ignore their token, and that hold a thread.
#[tokio::test]
async fn second_sigterm_gives_everything_back_at_once_whatever_handlers_do() {
    let bed = Bed::new(LEASE).await;
    let mut worker = Process::start(&Process::settings(&bed, 4).set("SLUICE_DRAIN_SECS", 3_600));
    let works = [
        json!({ "handler": "sleep", "ms": 600_000 }),
        json!({ "handler": "ignore", "ms": 600_000 }),
        json!({ "handler": "hang" }),
        json!({ "handler": "spin", "ms": 600_000 }),
    ];
    let ids = bed.enqueue_many(&works.map(insert)).await;
    until("all of them run", async || bed.tasks(&ids).await.values().all(|task| task.state == State::Processing)).await;
    worker.until_it_holds(4).await;

    worker.signal(Signal::SIGTERM);
    until("it drains", async || bed.number("select count(*) from sluice.workers where draining").await == 1).await;
    let asked = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().await.code(), Some(0), "{}", worker.log());
    assert!(asked.elapsed().as_secs() < AT_ONCE_SECS, "{:?}", asked.elapsed());
    for task in bed.tasks(&ids).await.values() {
        assert_given_back(task);
    }
}

/// Nobody can be told any more, so nobody is waited for: the leases run out.
#[tokio::test]
async fn second_sigterm_ends_the_process_within_a_second_also_while_the_database_is_away() {
    // The machine may be slow for a while: the fastest counts.
    let mut fastest = Duration::MAX;
    for mode in [Mode::BlackHole, Mode::Refuse, Mode::BlackHole, Mode::Refuse, Mode::BlackHole, Mode::Refuse] {
        if fastest > ONE_SECOND {
            fastest = fastest.min(end_without_database(mode).await);
        }
    }
    assert!(fastest <= ONE_SECOND, "{fastest:?}");
}

/// From the second signal to the end of the process.
async fn end_without_database(mode: Mode) -> Duration {
    let bed = Bed::new(Duration::from_secs(60)).await;
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    let settings = Process::settings(&bed, 2).set("DATABASE_URL", proxy.url()).set("SLUICE_DRAIN_SECS", 3_600);
    let mut worker = Process::start(&settings);
    let works = [json!({ "handler": "sleep", "ms": 600_000 }), json!({ "handler": "hang" })];
    bed.enqueue_many(&works.map(insert)).await;
    worker.until_it_holds(2).await;

    proxy.set(mode);
    if mode == Mode::Refuse {
        proxy.cut();
    }
    worker.signal(Signal::SIGTERM);
    until("it drains", async || worker.log().contains("ending: claiming nothing more")).await;
    let asked = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.end().await.code(), Some(0), "{}", worker.log());
    asked.elapsed()
}
