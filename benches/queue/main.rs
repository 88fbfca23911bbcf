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
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-queue: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let scale = Scale::from_environment();
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    for word in &asked {
        anyhow::ensure!(CELLS.contains(&word.as_str()), "there is no cell {word}; there are {}", CELLS.join(", "));
    }
    let mut report = Report::new(&FIGURES);
    let bed = Bed::start(scale.quick).await?;
    report.progress(if scale.quick { "a quick look" } else { "the full run" });
    for cell in CELLS {
        if asked.is_empty() || asked.iter().any(|word| word == cell) {
            measure(cell, &bed, &scale, &mut report).await?;
        }
    }
    report.print(bed.version());
    Ok(())
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
