//! `make bench-operator`: what the operator takes, shows and costs, with a real API server, Postgres and worker.

mod cancel;
#[path = "../common/mod.rs"]
mod common;
mod figures;
mod intake;
mod mirror;
mod pools;
mod scale;
mod stand;
mod standing;

use std::process::ExitCode;

use common::bed::Bed;
use common::cells;
use common::report::Report;
use figures::FIGURES;
use scale::Scale;

/// The parts of a run; naming some of them as arguments measures only those.
const CELLS: [&str; 5] = ["cancel", "mirror", "pools", "standing", "intake"];

#[tokio::main]
async fn main() -> ExitCode {
    let scale = Scale::from_environment();
    let result = cells::run(&CELLS, &cells::words(), &FIGURES, scale.quick, async |cell, bed, report| {
        measure(cell, bed, &scale, report).await
    })
    .await;
    cells::end("bench-operator", result)
}

async fn measure(cell: &str, bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    match cell {
        "cancel" => cancel::cancel(bed, scale, report).await,
        "mirror" => mirror::mirror(bed, scale, report).await,
        "pools" => pools::pools(bed, scale, report).await,
        "standing" => standing::standing(bed, scale, report).await,
        "intake" => intake::intake(bed, scale, report).await,
        _ => unreachable!("CELLS has no other"),
    }
}
