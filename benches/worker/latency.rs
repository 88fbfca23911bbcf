//! How soon a worker hears: of new work, and of a cancel; with LISTEN, and without.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sluice::domain::delivery::WakeMode;
use sluice::store::control::{self, CancelOutcome, Request, Scope};
use sluice::store::reads;
use uuid::Uuid;

use crate::common::asking::{enqueue, operator};
use crate::common::bed::{Bed, Database};
use crate::common::graphile::Graphile;
use crate::common::process::{Process, Times, now_us, times};
use crate::common::report::{Report, median, percentile};
use crate::embedded::{Embedded, FIRED, STARTED, noting_start, waiting_for_token};
use crate::scale::Scale;

/// Enough that some are always idle.
const SLOTS: usize = 64;
const RATE: usize = 1_000;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    Alive,
    Dead,
}

impl Listen {
    fn words(self) -> &'static str {
        match self {
            Self::Alive => "LISTEN alive",
            Self::Dead => "LISTEN dead",
        }
    }
}

/// From the answer of the enqueue, which comes right after its commit, to the first line of the handler.
pub async fn pickup(bed: &Bed, scale: &Scale, report: &mut Report, listen: Listen) -> anyhow::Result<()> {
    // Without LISTEN, pauses that are long enough for the worker to fall asleep: else each claim would find the next ones.
    let (key, every) = match listen {
        Listen::Alive => ("pickup_p99_ms", Duration::from_millis(5)),
        Listen::Dead => ("pickup_poll_p99_ms", Duration::from_millis(100)),
    };
    let database = bed.ours().await?;
    let store = operator(&database)?;
    let mut worker = start(&database, listen).await?;
    let mut ticks = tokio::time::interval(every);
    let each = RATE * usize::try_from(every.as_millis())? / 1_000;
    let began = Instant::now();
    let calls = usize::try_from(scale.stream.as_millis() / every.as_millis())?;
    let mut enqueued = Times::new();
    for call in 0..calls {
        ticks.tick().await;
        let tasks: Vec<_> = (0..each).map(|n| noting_start(call * each + n)).collect();
        let track_ids = enqueue(&store, &tasks).await?;
        let now = now_us();
        reads::wake(&store, "default").await?;
        enqueued.extend(track_ids.into_iter().map(|track_id| (track_id, now)));
    }
    let rate = enqueued.len() as f64 / began.elapsed().as_secs_f64();
    worker.until("the last task to end", &database, "select count(*) from sluice.tasks", |rows| rows == 0).await?;
    let started = times(&worker.stop().await?.output, STARTED);
    let waits = between(&enqueued, &started)?;
    note(report, &format!("pickup at {rate:.0} tasks/s"), listen, &waits);
    report.set(key, percentile(&waits, 0.99));
    store.close().await;
    bed.drop(database).await?;
    if listen == Listen::Alive { theirs(bed, scale, report).await } else { Ok(()) }
}

/// graphile_worker's worker at the same rate, to compare with; no figure of ours.
async fn theirs(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let database = bed.empty().await?;
    let answer = Graphile::build()?.run(&database, &["pickup", &scale.stream.as_secs().to_string()])?;
    let number = |key: &str| answer[key].as_f64().with_context(|| format!("graphile-bench says no {key}"));
    let (rate, p50, p99, longest) =
        (number("jobs_per_s")?, number("p50_ms")?, number("p99_ms")?, number("longest_ms")?);
    report.note(format!(
        "graphile_worker at {rate:.0} jobs/s, LISTEN alive: p50 {p50:.1} ms, p99 {p99:.1} ms, longest {longest:.1} ms"
    ));
    bed.drop(database).await
}

/// From the answer of the cancel to the token, in handlers that wait for it.
pub async fn cancel(bed: &Bed, scale: &Scale, report: &mut Report, listen: Listen) -> anyhow::Result<()> {
    // Without LISTEN, a round is longer than two polls, so that cancels meet every moment between them.
    let (key, every) = match listen {
        Listen::Alive => ("cancel_notified_p99_ms", Duration::from_millis(20)),
        Listen::Dead => ("cancel_poll_p99_ms", Duration::from_millis(77)),
    };
    let database = bed.ours().await?;
    let store = operator(&database)?;
    let mut worker = start(&database, listen).await?;
    let mut cancelled = Times::new();
    for _ in 0..scale.cancel_rounds {
        let tasks: Vec<_> = (0..SLOTS).map(waiting_for_token).collect();
        let track_ids = enqueue(&store, &tasks).await?;
        reads::wake(&store, "default").await?;
        let running = "select count(*) from sluice.tasks where state = 'processing'";
        worker.until("all to run", &database, running, |rows| rows == SLOTS as i64).await?;
        // The row is there before the handler is.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut ticks = tokio::time::interval(every);
        for track_id in track_ids {
            ticks.tick().await;
            let outcome = control::cancel(&store, track_id, Request::default(), Scope::default()).await?;
            ensure!(outcome == CancelOutcome::Stopping, "a running task was cancelled, and the answer was {outcome}");
            cancelled.insert(track_id, now_us());
        }
        worker.until("all to stop", &database, "select count(*) from sluice.tasks", |rows| rows == 0).await?;
    }
    let ended = database.number("select count(*) from sluice.tasks_archive where state <> 'cancelled'").await?;
    ensure!(ended == 0, "{ended} cancelled tasks ended otherwise");
    let fired = times(&worker.stop().await?.output, FIRED);
    let waits = between(&cancelled, &fired)?;
    note(report, "cancel", listen, &waits);
    report.set(key, percentile(&waits, 0.99));
    store.close().await;
    bed.drop(database).await
}

async fn start(database: &Database, listen: Listen) -> anyhow::Result<Process> {
    let settings = Embedded { slots: SLOTS, delivery: WakeMode::Bridged, drain: Duration::from_secs(10) };
    database.let_listeners_in().await?;
    let mut worker = settings.start(database)?;
    worker.registered(database).await?;
    let listening =
        "select count(*) from pg_stat_activity where usename = 'bench_listener' and datname = current_database()";
    worker.until("LISTEN", database, listening, |sessions| sessions > 0).await?;
    if listen == Listen::Dead {
        database.shut_listeners_out().await?;
    }
    Ok(worker)
}

/// In milliseconds. A handler may be first, since an answer takes a moment.
fn between(from: &Times, to: &Times) -> anyhow::Result<Vec<f64>> {
    let wait = |(track_id, at): (&Uuid, &u64)| {
        let end = to.get(track_id).with_context(|| format!("the worker said nothing of task {track_id}"))?;
        Ok(end.saturating_sub(*at) as f64 / 1_000.0)
    };
    from.iter().map(wait).collect()
}

fn note(report: &mut Report, what: &str, listen: Listen, waits: &[f64]) {
    report.note(format!(
        "{what}, {}: p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms of {}",
        listen.words(),
        median(waits),
        percentile(waits, 0.99),
        percentile(waits, 1.0),
        waits.len()
    ));
}
