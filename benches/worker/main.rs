//! `make bench-worker`: what the worker's runtime costs and how fast it hears, with real processes and a real Postgres.

mod bare;
#[path = "../common/mod.rs"]
mod common;
mod embedded;
mod ends;
mod figures;
mod latency;
mod no_op;
mod scale;

use std::process::ExitCode;

use common::bed::Bed;
use common::cells;
use common::report::Report;
use figures::FIGURES;
use latency::Listen;
use scale::Scale;

/// The parts of a run; naming some of them as arguments measures only those.
const CELLS: [&str; 7] = ["no_op", "pickup", "pickup_poll", "cancel", "cancel_poll", "drain", "idle"];

#[tokio::main]
async fn main() -> ExitCode {
    let words = cells::words();
    let result = match words.split_first() {
        Some((first, rest)) if first == embedded::MODE => embedded::serve(rest).await,
        Some(_) | None => run(&words).await,
    };
    cells::end("bench-worker", result)
}

async fn run(asked: &[String]) -> anyhow::Result<()> {
    let scale = Scale::from_environment();
    cells::run(&CELLS, asked, &FIGURES, scale.quick, async |cell, bed, report| measure(cell, bed, &scale, report).await)
        .await
}

async fn measure(cell: &str, bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    match cell {
        "no_op" => no_op::compare(bed, scale, report).await,
        "pickup" => latency::pickup(bed, scale, report, Listen::Alive).await,
        "pickup_poll" => latency::pickup(bed, scale, report, Listen::Dead).await,
        "cancel" => latency::cancel(bed, scale, report, Listen::Alive).await,
        "cancel_poll" => latency::cancel(bed, scale, report, Listen::Dead).await,
        "drain" => ends::drain(bed, scale, report).await,
        "idle" => ends::idle(bed, scale, report).await,
        _ => unreachable!("CELLS has no other"),
    }
}
