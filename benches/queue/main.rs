//! `make bench-queue`: every figure of the delivery core, measured in one run on one private Postgres.

#[path = "../common/mod.rs"]
mod common;
mod cost;
mod drain;
mod fairness;
mod figures;
mod graphile;
mod latency;
mod open;
mod pgbench;
mod scale;

use std::process::ExitCode;

use common::bed::Bed;
use common::cells;
use common::report::Report;
use figures::FIGURES;
use scale::Scale;

/// The parts of a run; naming some of them as arguments measures only those.
const CELLS: [&str; 13] = [
    "growth",
    "delayed",
    "terminal",
    "sketch",
    "hot_lane",
    "bounds",
    "graphile",
    "producer",
    "pinned",
    "jain",
    "small_wait",
    "woken",
    "buffers",
];

#[tokio::main]
async fn main() -> ExitCode {
    let scale = Scale::from_environment();
    let result = cells::run(&CELLS, &cells::words(), &FIGURES, scale.quick, async |cell, bed, report| {
        measure(cell, bed, &scale, report).await
    })
    .await;
    cells::end("bench-queue", result)
}

async fn measure(cell: &str, bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    match cell {
        "growth" => latency::growth(bed, scale, report).await,
        "delayed" => latency::delayed_head(bed, scale, report).await,
        "terminal" => latency::terminal(bed, scale, report).await,
        "sketch" => drain::sketch_ratio(bed, scale, report).await,
        "hot_lane" => drain::hot_lane(bed, scale, report).await,
        "bounds" => drain::bounds(bed, scale, report).await,
        "graphile" => graphile::compare(bed, scale, report).await,
        "producer" => open::producer(bed, scale, report).await,
        "pinned" => {
            // The idle claimer is counted, not timed, so it may idle beside another cell.
            let (idle, ()) = tokio::try_join!(cost::idle(bed, scale), open::pinned(bed, scale, report))?;
            report.set("idle_statements_per_s", idle);
            Ok(())
        }
        "jain" => fairness::jain(bed, scale, report).await,
        "small_wait" => fairness::small_wait(bed, scale, report).await,
        "woken" => fairness::woken(bed, scale, report).await,
        "buffers" => cost::buffers(bed, scale, report).await,
        _ => unreachable!("CELLS has no other"),
    }
}
