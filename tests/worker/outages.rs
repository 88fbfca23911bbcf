//! The database goes away, refuses everybody, or is behind a bad network: the worker waits, says so, and works on.

use std::time::Duration;

use private_postgres::Options;
use serde_json::json;
use sluice::domain::task::State;
use sluice::store::Role;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::bed::{Bed, SHORT_LEASE, effects, insert};
use crate::common::proxy::{Mode, Proxy};
use crate::process::Process;
use crate::until::{until, until_within};

/// A statement may take 30 s by itself.
const PATIENCE: Duration = Duration::from_secs(75);

/// Each task was completed by one attempt, and only that one's write is seen.
async fn assert_all_are_done_once(bed: &Bed, ids: &[Uuid]) {
    let tasks = bed.until_ended(ids).await;
    let effects = effects(bed).await;
    for (id, task) in tasks {
        assert_eq!((task.state, task.failures), (State::Completed, 0), "{task:?}");
        assert_eq!(effects[&id], [task.attempt], "{task:?}");
    }
}

async fn enqueue_counts(bed: &Bed, number: usize, before_ms: u64) -> Vec<Uuid> {
    let task = insert(json!({ "handler": "count", "before_ms": before_ms, "inside_ms": 20 }));
    bed.enqueue_many(&vec![task; number]).await
}

async fn until_some_are_done(bed: &Bed, ids: &[Uuid], at_least: usize) {
    until("some are done", async || {
        bed.tasks(ids).await.values().filter(|task| task.state == State::Completed).count() >= at_least
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_and_crash_of_the_server_are_survived_and_no_task_is_lost() {
    let mut bed = Bed::private(SHORT_LEASE, Options::fast()).await;
    let mut worker = Process::serve(&bed, 4);
    let ids = enqueue_counts(&bed, 120, 100).await;
    until_some_are_done(&bed, &ids, 10).await;
    tokio::task::block_in_place(|| bed.db.server().restart().expect("a restart"));
    until_some_are_done(&bed, &ids, 50).await;
    tokio::task::block_in_place(|| {
        bed.db.server().kill().expect("a crash");
        bed.db.server().start_again().expect("a recovery");
    });
    assert_all_are_done_once(&bed, &ids).await;
    assert!(worker.is_running());
}

#[tokio::test]
async fn slow_network_delays_work_and_breaks_nothing() {
    let bed = Bed::new(SHORT_LEASE).await;
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    proxy.set(Mode::Delay(Duration::from_millis(30)));
    let _worker = Process::start(&Process::settings(&bed, 4).set("DATABASE_URL", proxy.url()));
    let ids = enqueue_counts(&bed, 20, 10).await;
    assert_all_are_done_once(&bed, &ids).await;
}

#[tokio::test]
async fn cut_connections_are_made_again_and_no_task_is_lost() {
    let bed = Bed::new(SHORT_LEASE).await;
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    let _worker = Process::start(&Process::settings(&bed, 4).set("DATABASE_URL", proxy.url()));
    let ids = enqueue_counts(&bed, 120, 50).await;
    for done in (10..100).step_by(10) {
        until_some_are_done(&bed, &ids, done).await;
        proxy.cut();
    }
    assert_all_are_done_once(&bed, &ids).await;
}

/// What the worker sent before the network went silent arrives leases later.
#[tokio::test]
async fn network_that_swallows_everything_for_three_leases_brings_no_late_write() {
    let bed = Bed::new(SHORT_LEASE).await;
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    let lonely = Process::start(&Process::settings(&bed, 4).set("DATABASE_URL", proxy.url()));
    let ids = enqueue_counts(&bed, 60, 50).await;
    until_some_are_done(&bed, &ids, 10).await;
    proxy.set(Mode::BlackHole);
    let other = Process::serve(&bed, 4);
    tokio::time::sleep(3 * SHORT_LEASE).await;
    assert_all_are_done_once(&bed, &ids).await;
    let ended = bed.tasks(&ids).await;
    drop(other);

    proxy.set(Mode::Pass);
    let next = enqueue_counts(&bed, 5, 0).await;
    assert_all_are_done_once(&bed, &next).await;
    assert_eq!(bed.tasks(&ids).await, ended);
    assert_all_are_done_once(&bed, &ids).await;
    drop(lonely);
}

/// Between `complete` and COMMIT the task is locked, and nobody else can have it: the server must end that session soon.
#[tokio::test]
async fn network_that_goes_silent_before_a_commit_delays_its_task_by_seconds() {
    let bed = Bed::new(SHORT_LEASE).await;
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    let lonely = Process::start(&Process::settings(&bed, 4).set("DATABASE_URL", proxy.url()));
    let ids = enqueue_counts(&bed, 20, 50).await;
    until_some_are_done(&bed, &ids, 4).await;
    proxy.set(Mode::HoldCommits);
    until("a commit is held", async || proxy.held_commits() > 0).await;
    proxy.set(Mode::BlackHole);
    let _other = Process::serve(&bed, 4);
    assert_all_are_done_once(&bed, &ids).await;
    drop(lonely);
}

/// Nothing ends those connections, and nobody answers on them; a worker that waits for that waits for ever.
#[tokio::test]
async fn connections_that_the_network_forgot_are_given_up_and_made_anew() {
    let bed = Bed::new(SHORT_LEASE).await;
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    let mut worker = Process::start(&Process::settings(&bed, 4).set("DATABASE_URL", proxy.url()));
    let ids = enqueue_counts(&bed, 60, 50).await;
    until_some_are_done(&bed, &ids, 10).await;
    proxy.forget();
    until_within(PATIENCE, "all are done", async || {
        bed.tasks(&ids).await.values().all(|task| task.state == State::Completed)
    })
    .await;
    assert_all_are_done_once(&bed, &ids).await;
    assert!(worker.is_running());
}

#[tokio::test]
async fn server_without_a_connection_left_is_waited_for() {
    let bed = Bed::private(SHORT_LEASE, Options::fast().setting("max_connections", "30")).await;
    let mut worker = Process::serve(&bed, 4);
    let ids = enqueue_counts(&bed, 40, 50).await;
    until_some_are_done(&bed, &ids, 5).await;

    // All that there are, and the worker's own as well once they are ended.
    let mut others = Vec::new();
    let url = bed.db.url(Role::Reader);
    for _ in 0..3 {
        while let Ok(connection) = PgConnection::connect(&url).await {
            others.push(connection);
        }
        const KILL: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                             where application_name like 'sluice worker%'";
        bed.number(KILL).await;
    }
    assert!(others.len() > 5);
    tokio::time::sleep(2 * SHORT_LEASE).await;
    assert!(worker.is_running(), "{}", worker.log());

    for connection in others {
        connection.close().await.expect("it closes");
    }
    assert_all_are_done_once(&bed, &ids).await;
}
