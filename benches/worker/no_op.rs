//! No-op tasks a second: a real worker's process, the same functions driven bare, and graphile_worker's worker.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use sluice::domain::delivery::WakeMode;

use crate::bare;
use crate::common::bed::{Bed, Database};
use crate::common::graphile::Graphile;
use crate::common::load::{self, NO_CAP, Shape};
use crate::common::report::{Report, median};
use crate::embedded::Embedded;
use crate::scale::Scale;

/// Lanes without a cap: graphile_worker knows none.
const LANES: i32 = 1_000;
/// A claim takes a half of many slots, while the other one runs: so it is as large as the bare one's.
const SLOTS: usize = 2_000;
/// Of one bare claim; what came out best.
const BARE_WANT: i32 = 1_000;
/// Of one lane in one turn: the worker's own choice for claims of this size.
const QUANTUM: i32 = 32;

/// All three take turns, so that a slow minute of the machine meets all of them.
pub async fn compare(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let graphile = Graphile::build()?;
    let (mut to_bare, mut to_graphile) = (Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        let bare = bare(bed, scale).await?;
        let (ours, claimed) = worker(bed, scale).await?;
        let theirs = theirs(bed, scale, &graphile).await?;
        report.note(format!(
            "no-ops/s: worker {ours:.0} ({claimed:.0} a claim), bare {bare:.0}, graphile_worker {theirs:.0}"
        ));
        to_bare.push(ours / bare);
        to_graphile.push(ours / theirs);
    }
    report.set("noop_ratio", median(&to_bare));
    report.set("graphile_ratio", median(&to_graphile));
    Ok(())
}

/// The worker is up and polls a pool that is held; time runs from the moment that it is let go. Answers tasks a second, and
/// tasks a claim.
async fn worker(bed: &Bed, scale: &Scale) -> anyhow::Result<(f64, f64)> {
    let database = loaded(bed, scale).await?;
    database.execute("select sluice.hold_all(true)").await?;
    let settings = Embedded { slots: SLOTS, delivery: WakeMode::Bridged, drain: Duration::ZERO };
    let mut worker = settings.start(&database)?;
    worker.registered(&database).await?;
    database.execute("select sluice.hold_all(false)").await?;
    database.execute("select sluice.wake()").await?;
    let started = Instant::now();
    tokio::time::sleep(scale.no_op).await;
    let rate = completed(&database, started, scale).await?;
    drop(worker);
    let ended = database.number("select count(*) from sluice.tasks_archive").await?;
    let claims = database.number("select count(distinct claim_sequence) from sluice.tasks_archive").await?;
    bed.drop(database).await?;
    Ok((rate, ended as f64 / claims as f64))
}

async fn bare(bed: &Bed, scale: &Scale) -> anyhow::Result<f64> {
    let database = loaded(bed, scale).await?;
    let started = Instant::now();
    bare::drain(&database, BARE_WANT, QUANTUM, started + scale.no_op).await?;
    let rate = completed(&database, started, scale).await?;
    bed.drop(database).await?;
    Ok(rate)
}

async fn theirs(bed: &Bed, scale: &Scale, graphile: &Graphile) -> anyhow::Result<f64> {
    let database = bed.empty().await?;
    graphile.run(&database, &["add", &scale.no_op_rows.to_string(), "4"])?;
    database.settle().await?;
    let drained = graphile.run(&database, &["drain", &scale.no_op.as_secs().to_string()])?;
    ensure!(drained["jobs"].as_i64() < Some(scale.no_op_rows), "graphile_worker ran out of jobs");
    bed.drop(database).await?;
    drained["jobs_per_s"].as_f64().context("jobs_per_s")
}

async fn loaded(bed: &Bed, scale: &Scale) -> anyhow::Result<Database> {
    let database = bed.ours().await?;
    load::shape(&database, Shape { lanes: LANES, cap: NO_CAP, rows: scale.no_op_rows }).await?;
    database.settle().await?;
    Ok(database)
}

/// Rows that have ended, a second. The count's snapshot is of the moment that it is asked for.
async fn completed(database: &Database, started: Instant, scale: &Scale) -> anyhow::Result<f64> {
    let elapsed = started.elapsed().as_secs_f64();
    let rows = database.number("select count(*) from sluice.tasks_archive where state = 'completed'").await?;
    ensure!(rows > 0, "no task was done");
    ensure!(rows < scale.no_op_rows, "all tasks were done before the time was over");
    Ok(rows as f64 / elapsed)
}
