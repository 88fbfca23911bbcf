//! Transactions that stay open: a producer's, and one that pins the horizon.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use sqlx::{Connection, PgConnection};

use crate::common::bed::Bed;
use crate::common::client::{Client, tasks_of};
use crate::common::load;
use crate::common::report::{Report, median, percentile};
use crate::pgbench::{self, Length, Load};
use crate::scale::Scale;

/// Claims of one beside a producer whose transaction is open on the lane with the lowest turn.
pub async fn producer(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    const LANES: i32 = 20;
    const CAP: i32 = 50;
    const CLIENTS: u32 = 4;
    let mut empty = Vec::new();
    for _ in 0..scale.repeats {
        let database = bed.ours().await?;
        load::lanes(&database, 1, LANES, CAP).await?;
        load::workers(&database).await?;
        let rows = 10_000 * i64::from(scale.cell_secs);
        load::tasks(&database, 2, LANES, rows).await?;
        // The others are a year of turns ahead.
        database.execute("update sluice.lane_turns set vtime = 1000000000000000 where lane_id <> 1").await?;
        database.settle().await?;
        let mut producer = PgConnection::connect(&database.url).await?;
        let mut open = producer.begin().await?;
        sqlx::query("select item from sluice.enqueue_many($1::jsonb)")
            .bind(tasks_of([1]))
            .fetch_all(&mut *open)
            .await?;
        let script = pgbench::ours(1, 1, 0);
        let load = Load { script: &script, clients: CLIENTS, length: Length::Seconds(scale.cell_secs) };
        let outcome = load.run(bed, &database)?;
        open.rollback().await?;
        producer.close().await?;
        let tasks = database.number("select count(*) from sluice.tasks_archive").await?;
        ensure!(tasks < rows, "all tasks were done before the time was over");
        report.progress(format!("beside an open producer: {} claims, {tasks} found a task", outcome.transactions));
        empty.push((outcome.transactions.cast_signed() - tasks) as f64);
        bed.drop(database).await?;
    }
    report.set("open_producer_empty", median(&empty));
    Ok(())
}

const PINNED_LANES: i32 = 100;
const PINNED_CAP: i32 = 8;
const RATE: i64 = 2_000;
const BROUGHT_EVERY: Duration = Duration::from_millis(20);
const CLAIMERS: u32 = 4;
/// Each claims 16 of one lane every 16 ms: twice what comes, so that they can catch up. The quantum is the lever here: every
/// visit of a lane reads past the heads that were taken since the horizon was pinned.
const PINNED_WANT: i32 = 16;
const CLAIM_EVERY: Duration = Duration::from_millis(16);
/// What came so shortly before the end need not be completed by then.
const ON_ITS_WAY: Duration = Duration::from_millis(500);

/// 2,000 tasks a second come, are claimed and are completed while a snapshot is held. One run: its length is its point.
pub async fn pinned(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let database = bed.ours().await?;
    load::lanes(&database, 1, PINNED_LANES, PINNED_CAP).await?;
    database.settle().await?;
    let mut holder = PgConnection::connect(&database.url).await?;
    let mut held = holder.begin_with("begin isolation level repeatable read").await?;
    // Both horizons: that of its snapshot, and that of its own transaction id.
    sqlx::query("select pg_current_xact_id()::text, count(*) from sluice.tenant_lanes").fetch_all(&mut *held).await?;

    let started = Instant::now();
    let until = started + Duration::from_secs(scale.pinned_secs);
    let completed = Arc::new(AtomicI64::new(0));
    let mut claimers = tokio::task::JoinSet::new();
    for nth in 0..CLAIMERS {
        let mut client = Client::register(&database, "default").await?;
        let completed = Arc::clone(&completed);
        claimers.spawn(async move {
            let mut times = Vec::new();
            // Each in its turn.
            let first = tokio::time::Instant::from_std(started) + CLAIM_EVERY * nth / CLAIMERS;
            let mut ticks = tokio::time::interval_at(first, CLAIM_EVERY);
            while Instant::now() < until {
                ticks.tick().await;
                let asked = Instant::now();
                let claimed = client.claim(PINNED_WANT, PINNED_WANT).await?;
                times.push((started.elapsed().as_secs_f64(), asked.elapsed().as_secs_f64() * 1_000.0));
                completed.fetch_add(client.complete(&claimed).await?, Ordering::Relaxed);
            }
            anyhow::Ok(times)
        });
    }
    let mut producer = Client::register(&database, "default").await?;
    let mut ticks = tokio::time::interval(BROUGHT_EVERY);
    let each = i32::try_from(RATE)? * i32::try_from(BROUGHT_EVERY.as_millis())? / 1_000;
    let mut next = 0;
    let mut due = 0;
    while Instant::now() < until {
        ticks.tick().await;
        if Instant::now() + ON_ITS_WAY < until {
            due = next + each;
        }
        producer.enqueue((next..next + each).map(|n| 1 + n % PINNED_LANES)).await?;
        next += each;
    }
    let mut times = Vec::new();
    while let Some(claimer) = claimers.join_next().await {
        times.extend(claimer??);
    }
    held.rollback().await?;
    holder.close().await?;
    drop(producer);

    let last = scale.pinned_secs as f64 * 0.9;
    let at_the_end: Vec<f64> = times.iter().filter(|(at, _)| *at > last).map(|(_, time)| *time).collect();
    let times: Vec<f64> = times.into_iter().map(|(_, time)| time).collect();
    report.note(format!(
        "pinned for {} s: claim p50 {:.2} ms, p99 {:.2} ms, p99 of the last tenth {:.2} ms",
        scale.pinned_secs,
        median(&times),
        percentile(&times, 0.99),
        percentile(&at_the_end, 0.99)
    ));
    let brought = f64::from(next) / (RATE as f64 * scale.pinned_secs as f64);
    let done = completed.load(Ordering::Relaxed) as f64 / f64::from(due);
    report.set("pinned_rate", brought.min(done).min(1.0));
    report.set("pinned_claim_p99_ms", percentile(&times, 0.99));
    bed.drop(database).await
}
