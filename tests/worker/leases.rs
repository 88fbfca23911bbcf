//! Leases while the worker lives: held for as long as a handler runs, whatever handlers do, and not longer than renewed.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;
use sluice::domain::task::{State, TaskType};
use sluice::store::Role;
use sluice::worker::{Context, Handlers, NotDone, StopCause, WorkerSettings};
use tokio::sync::{Notify, mpsc};

use crate::bed::{Bed, LEASE, TENANT, effects, insert};
use crate::common::proxy::{Mode, Proxy};
use crate::in_process::{Running, settings};
use crate::process::Process;
use crate::until::until;

#[tokio::test]
async fn handler_ten_leases_long_runs_once() {
    let lease = Duration::from_secs(2);
    let bed = Bed::new(lease).await;
    let _worker = Process::serve(&bed, 2);
    let long = bed.enqueue(insert(json!({ "handler": "count", "before_ms": 10 * lease.as_millis() }))).await;

    let task = bed.until_ended(&[long]).await.remove(&long).expect("the task");
    assert_eq!((task.state, task.attempt, task.lost_leases), (State::Completed, 1, 0));
    assert_eq!(effects(&bed).await[&long], [1]);
}

/// For more than two leases. One handler is left without.
#[tokio::test]
async fn handlers_that_hold_every_connection_starve_neither_claim_nor_heartbeat() {
    const CONNECTIONS: usize = 4;
    let bed = Bed::new(LEASE).await;
    let _worker = Process::start(&Process::settings(&bed, 8).set("SLUICE_HANDLER_CONNECTIONS", CONNECTIONS));
    let greedy = insert(json!({ "handler": "leak", "connections": 1, "ms": 9_000 }));
    let greedy = bed.enqueue_many(&vec![greedy; CONNECTIONS]).await;
    until("all connections of handlers are taken", async || bed.number(IN_TRANSACTION).await >= 4).await;

    // Claimed, run and completed by what is left to the worker itself.
    let waiting = bed.enqueue(insert(json!({ "handler": "count" }))).await;
    let others = bed.enqueue_many(&vec![insert(json!({ "handler": "noop" })); 100]).await;
    bed.until_ended(&others).await;
    assert!(bed.number(IN_TRANSACTION).await >= 4, "the connections are taken still");
    assert_eq!(bed.state(waiting).await, State::Processing);

    for (id, task) in bed.until_ended(&[&greedy[..], &[waiting]].concat()).await {
        assert_eq!((task.state, task.attempt, task.lost_leases), (State::Completed, 1, 0), "{id}");
    }
}

const IN_TRANSACTION: &str = "
    select count(*) from pg_stat_activity
     where datname = current_database() and application_name like 'sluice worker%' and state like 'idle in transaction%'";

/// By the worker's own clock, since it hears nothing: the handler has stopped before another worker may have the task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_that_cannot_renew_stops_its_handlers_before_the_lease_is_over_and_starts_again_clean() {
    let bed = Bed::new(LEASE).await;
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    let started = Arc::new(Notify::new());
    let (fired, mut firings) = mpsc::unbounded_channel::<(DateTime<Utc>, Option<StopCause>)>();
    let start = started.clone();
    let handlers = Handlers::new().on(TaskType::Insert, move |context: Context| {
        let (fired, start) = (fired.clone(), start.clone());
        async move {
            start.notify_one();
            context.cancellation().cancelled().await;
            let _ = fired.send((Utc::now(), context.stop_cause()));
            Err(NotDone::Stopped)
        }
    });
    let url = proxy.url().parse().expect("a URL");
    let worker = Running::start(WorkerSettings { database: url, ..settings(&bed, 2) }, handlers);
    let id = bed.enqueue(insert(json!({}))).await;
    // The row says so before the worker has heard of it.
    started.notified().await;

    proxy.set(Mode::BlackHole);
    let (at, cause) = firings.recv().await.expect("the token fires");
    assert_eq!(cause, Some(StopCause::LeaseOver));
    let task = bed.task(id).await;
    assert_eq!((task.state, task.attempt), (State::Processing, 1));
    assert!(at < task.lease_until.expect("a lease"), "{at}: {task:?}");

    // Nobody took it meanwhile, and the same worker has it again.
    proxy.set(Mode::Pass);
    until("the task runs again", async || bed.task(id).await.attempt > 1).await;
    assert_eq!(bed.task(id).await.failures, 0);
    worker.stop().await;
    assert_eq!(bed.state(id).await, State::Pending);
}

#[tokio::test]
async fn worker_that_was_told_its_pools_lease_holds_tasks_for_as_long() {
    let bed = Bed::new(Duration::from_secs(45)).await;
    let worker = Process::start(&Process::settings(&bed, 1).set("SLUICE_TASK_LEASE_TTL_SECS", 45));
    let id = bed.enqueue(insert(json!({ "handler": "sleep", "ms": 600_000 }))).await;
    bed.until_state(id, State::Processing).await;
    let held = "select extract(epoch from lease_until - started_at)::bigint from sluice.tasks";
    assert_eq!(bed.number(held).await, 45);
    until("it says so", async || worker.log().contains("lease_secs=45") || worker.log().contains("lease_secs: 45"))
        .await;
}

#[tokio::test]
async fn caps_of_a_lane_hold_for_all_workers_together() {
    let bed = Bed::new(LEASE).await;
    bed.set_cap(TENANT, 3).await;
    let _workers = [Process::serve(&bed, 4), Process::serve(&bed, 4)];
    let ids = bed.enqueue_many(&vec![insert(json!({ "handler": "sleep", "ms": 50 })); 60]).await;
    let mut most = 0;
    until("all tasks end", async || {
        most = most.max(bed.number("select count(*) from sluice.tasks where leased").await);
        bed.tasks(&ids).await.values().all(|task| task.state == State::Completed)
    })
    .await;
    assert!((1..=3).contains(&most), "{most} ran at once");
}
