//! Caps and ends, proved from the write-ahead log: a logical decoding slot records every row change of a run in the order
//! of the commits, and the replay of it shows that no claim was above its cap, that every task ended once, that no
//! attempt was handed out twice, and that nothing was lost. `SLUICE_WAL_ATTEMPTS` says how long the run is.

mod decode;
mod load;
mod replay;

use std::collections::HashSet;
use std::time::Duration;

use private_postgres::Options;
use uuid::Uuid;

use crate::common::postgres::TestDb;
use crate::common::wal::Witness;
use crate::common::wal::replay::Replay;

const ATTEMPTS: usize = 5_000;
const SOAK_ATTEMPTS: usize = 200_000;
const READ_PACE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_shows_exact_caps_single_ends_and_no_loss() {
    prove(ATTEMPTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make soak"]
async fn log_shows_exact_caps_single_ends_and_no_loss_in_a_long_run() {
    prove(SOAK_ATTEMPTS).await;
}

async fn prove(attempts: usize) {
    if std::env::var("SLUICE_TEST_PGBOUNCER").is_ok_and(|value| value == "1") {
        eprintln!("skipped the proof from the log: its sessions are killed one by one, and a pooler shares them");
        return;
    }
    let attempts =
        std::env::var("SLUICE_WAL_ATTEMPTS").ok().map_or(attempts, |n| n.parse().expect("a number of attempts"));
    let db = TestDb::private(Options::fast()).await;
    let Some(mut witness) = Witness::new(db.admin(), "the proof from the log").await else { return };

    let url = db.admin_url();
    let running = tokio::spawn(async move { load::run(&url, attempts).await });
    while !running.is_finished() {
        witness.read().await;
        // Each call decodes anew from where the oldest transaction began: few large ones are cheaper.
        tokio::time::sleep(READ_PACE).await;
    }
    let told = running.await.expect("the load found nothing");
    let replay = witness.finish().await;

    assert_eq!(told.twice, [], "ends that were accepted twice");
    check_against_what_sessions_heard(&replay, &told);
    assert!(replay.filled > 0 && replay.retried > 0 && told.killed > 0, "a run that puts the caps to the test");
    println!(
        "{} attempts, {} tasks, {} ends, {} retries, {} claims that filled their lane, {} sessions killed",
        replay.attempts(),
        replay.enqueued,
        replay.ends,
        replay.retried,
        replay.filled,
        told.killed
    );
}

/// What a worker or a producer was told is what the log says.
fn check_against_what_sessions_heard(replay: &Replay, told: &load::Told) {
    let (live, ended) = replay.result();
    for id in &told.enqueued {
        assert!(live.contains(id) || ended.contains_key(id), "{id} was accepted and is nowhere in the log");
    }
    let handed_out: HashSet<&(Uuid, i32)> = told.handed_out.iter().collect();
    assert_eq!(handed_out.len(), told.handed_out.len(), "an attempt was handed out twice");
    for (id, attempt) in told.handed_out.iter().chain(told.ends.keys()) {
        assert!(replay.was_handed_out(*id, *attempt), "attempt {attempt} of {id} is not in the log");
    }
    for ((id, attempt), outcome) in &told.ends {
        assert!(replay.has_ended(*id, *attempt, outcome), "attempt {attempt} of {id} was told {outcome}");
    }
}
