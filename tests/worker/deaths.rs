//! Workers that die, or come back late from the dead: what they held is done by others, once.

use nix::sys::signal::Signal;
use serde_json::json;
use sluice::domain::task::State;
use sluice::store::upkeep::reap;

use crate::bed::{Bed, SHORT_LEASE, effects, insert};
use crate::process::Process;
use crate::until::until;

#[tokio::test]
async fn work_of_a_killed_worker_is_done_by_another_and_counts_as_lost_not_failed() {
    let bed = Bed::new(SHORT_LEASE).await;
    let first = Process::serve(&bed, 4);
    let ids = bed.enqueue_many(&vec![insert(json!({ "handler": "count", "before_ms": 1_500 })); 4]).await;
    until("all of them run", async || bed.tasks(&ids).await.values().all(|task| task.state == State::Processing)).await;

    first.signal(Signal::SIGKILL);
    let _second = Process::serve(&bed, 4);

    let tasks = bed.until_ended(&ids).await;
    let effects = effects(&bed).await;
    for (id, task) in tasks {
        assert_eq!((task.state, task.failures), (State::Completed, 0), "{task:?}");
        assert!(task.lost_leases >= 1, "{task:?}");
        assert_eq!(effects[&id], [task.attempt]);
    }
}

/// It thaws with a handler that wants to go on, before its transaction.
#[tokio::test]
async fn worker_frozen_for_three_leases_before_it_writes_changes_nothing_and_works_on() {
    freeze_and_thaw(json!({ "handler": "count", "before_ms": 1_500 }), "true").await;
}

/// It thaws in the transaction that publishes, with what it wrote in it.
#[tokio::test]
async fn worker_frozen_for_three_leases_while_it_writes_changes_nothing_and_works_on() {
    let in_transaction = "exists (select from pg_stat_activity where datname = current_database()
                                    and application_name like 'sluice worker%' and state like 'idle in transaction%')";
    freeze_and_thaw(json!({ "handler": "count", "inside_ms": 1_500 }), in_transaction).await;
}

async fn freeze_and_thaw(work: serde_json::Value, when: &str) {
    let bed = Bed::new(SHORT_LEASE).await;
    let frozen = Process::serve(&bed, 2);
    let id = bed.enqueue(insert(work)).await;
    bed.until_state(id, State::Processing).await;
    let first = bed.task(id).await;
    until("the moment has come", async || bed.number(&format!("select ({when})::int::bigint")).await == 1).await;

    frozen.signal(Signal::SIGSTOP);
    let mut other = Process::serve(&bed, 2);
    // Longer than three leases, if it takes another worker that long.
    tokio::time::sleep(3 * SHORT_LEASE).await;
    let done = bed.until_ended(&[id]).await.remove(&id).expect("the task");
    assert_eq!((done.state, done.failures), (State::Completed, 0), "{done:?}");
    assert!(done.attempt > first.attempt && done.worker_id != first.worker_id, "{done:?}");
    other.signal(Signal::SIGTERM);
    assert_eq!(other.end().await.code(), Some(0));

    frozen.signal(Signal::SIGCONT);
    // It is the only one now: that it works says that it noticed.
    let next = bed.enqueue(insert(json!({ "handler": "count" }))).await;
    let tasks = bed.until_ended(&[next]).await;
    assert_eq!((tasks[&next].state, tasks[&next].worker_id), (State::Completed, first.worker_id));
    assert_eq!(bed.task(id).await, done);
    assert_eq!(effects(&bed).await[&id], [done.attempt]);
}

#[tokio::test]
async fn task_that_takes_five_workers_down_with_it_ends_as_worker_lost() {
    let bed = Bed::new(SHORT_LEASE).await;
    let id = bed.enqueue(insert(json!({ "handler": "sleep", "ms": 600_000 }))).await;
    for _ in 0..5 {
        let attempts = bed.task(id).await.attempt;
        let victim = Process::serve(&bed, 1);
        until("it is claimed", async || {
            // As everybody does, so that nobody waits for the next round of the only worker.
            reap(&bed.operator, 10).await.expect("an answer");
            let task = bed.task(id).await;
            task.state == State::Processing && task.attempt > attempts
        })
        .await;
        victim.signal(Signal::SIGKILL);
    }
    let _witness = Process::serve(&bed, 1);
    let task = bed.until_ended(&[id]).await.remove(&id).expect("the task");
    assert_eq!(task.failure_class.map(|class| class.as_str()), Some("worker_lost"), "{task:?}");
    assert_eq!((task.lost_leases, task.failures), (5, 0));
}
