//! Ours beside graphile_worker, Rust beside Rust: bulk enqueue, and two shapes of the drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::common::bed::Bed;
use crate::common::client::Client;
use crate::common::graphile::Graphile;
use crate::common::load::{self, Shape};
use crate::common::report::{Report, median};
use crate::scale::Scale;

const CLIENTS: usize = 4;
const WANT: i32 = 512;
/// What both take in one call.
const BATCH: i32 = 1_000;

pub async fn compare(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let graphile = Graphile::build()?;
    let (mut adds, mut many, mut thousand) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        let theirs = bed.empty().await?;
        let add = graphile.run(&theirs, &["add", &scale.graphile_rows.to_string(), &CLIENTS.to_string()])?;
        let add = add["rows_per_s"].as_f64().context("rows_per_s")?;
        theirs.settle().await?;
        let drained = graphile.run(&theirs, &["drain", &scale.cell_secs.to_string()])?;
        ensure!(drained["jobs"].as_i64() < Some(scale.graphile_rows), "graphile_worker ran out of jobs");
        let drained = drained["jobs_per_s"].as_f64().context("jobs_per_s")?;
        bed.drop(theirs).await?;

        let ours = enqueue(bed, scale).await?;
        let first = drain(bed, scale, Shape { lanes: 10_000, cap: 2, rows: scale.graphile_rows }, 2).await?;
        let second = drain(bed, scale, Shape { lanes: 1_000, cap: 8, rows: scale.graphile_rows }, 8).await?;
        report.progress(format!("graphile_worker: {add:.0} rows/s added, {drained:.0} jobs/s"));
        report.progress(format!("ours: {ours:.0} rows/s, {first:.0} tasks/s, 1,000 lanes {second:.0} tasks/s"));
        adds.push(ours / add);
        many.push(first / drained);
        thousand.push(second / drained);
    }
    report.set("enqueue_ratio_graphile", median(&adds));
    report.set("drain_ratio_graphile", median(&many));
    report.set("drain_ratio_graphile_1000", median(&thousand));
    Ok(())
}

/// Rows a second of `enqueue_many`, over tenants that have a lane.
async fn enqueue(bed: &Bed, scale: &Scale) -> anyhow::Result<f64> {
    let database = bed.ours().await?;
    load::lanes(&database, 1, scale.lanes, 2).await?;
    database.settle().await?;
    let calls = scale.graphile_rows / i64::from(BATCH);
    let next = Arc::new(AtomicI64::new(0));
    let lanes = scale.lanes;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::register(&database, "default").await?;
        client.enqueue([1]).await?;
        clients.push(client);
    }
    let started = Instant::now();
    let mut producers = tokio::task::JoinSet::new();
    for mut client in clients {
        let next = Arc::clone(&next);
        producers.spawn(async move {
            loop {
                let call = next.fetch_add(1, Ordering::Relaxed);
                if call >= calls {
                    return anyhow::Ok(());
                }
                let first = i32::try_from(call * i64::from(BATCH) % i64::from(lanes))?;
                client.enqueue((first..first + BATCH).map(|n| 1 + n % lanes)).await?;
            }
        });
    }
    while let Some(producer) = producers.join_next().await {
        producer??;
    }
    let rate = (calls * i64::from(BATCH)) as f64 / started.elapsed().as_secs_f64();
    bed.drop(database).await?;
    Ok(rate)
}

/// Tasks a second of four clients that claim 512 and complete them.
async fn drain(bed: &Bed, scale: &Scale, shape: Shape, quantum: i32) -> anyhow::Result<f64> {
    let database = bed.ours().await?;
    load::shape(&database, shape).await?;
    database.settle().await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::register(&database, "default").await?);
    }
    let started = Instant::now();
    let until = started + Duration::from_secs(u64::from(scale.cell_secs));
    let mut drains = tokio::task::JoinSet::new();
    for mut client in clients {
        drains.spawn(async move {
            let mut done = 0;
            while Instant::now() < until {
                let claimed = client.claim(WANT, quantum).await?;
                done += client.complete(&claimed).await?;
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(drained) = drains.join_next().await {
        done += drained??;
    }
    let rate = done as f64 / started.elapsed().as_secs_f64();
    ensure!(done < shape.rows, "all tasks were done before the time was over");
    bed.drop(database).await?;
    Ok(rate)
}
