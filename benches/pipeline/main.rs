//! `make bench-pipeline`: the pipeline with real workers, converters, Postgres and Kubernetes, each figure beside what it is
//! compared with.

mod cancel;
#[path = "../common/mod.rs"]
mod common;
mod convert;
mod corpus;
#[allow(dead_code, reason = "tests use more of it")]
#[path = "../../tests/ingest/endpoint.rs"]
mod endpoint;
mod figures;
mod installation;
#[path = "../../tests/common/pdf.rs"]
mod pdf;
mod publish;
mod resume;
mod scale;

use std::process::ExitCode;

use common::bed::Bed;
use common::cells;
use common::report::Report;
use figures::FIGURES;
use scale::Scale;

/// The parts of a run; naming some of them as arguments measures only those.
const CELLS: [&str; 6] = ["pages", "slots", "memory", "cancel", "resume", "publish"];

#[tokio::main]
async fn main() -> ExitCode {
    let scale = Scale::from_environment();
    let result = cells::run(&CELLS, &cells::words(), &FIGURES, scale.quick, async |cell, bed, report| {
        measure(cell, bed, &scale, report).await
    })
    .await;
    cells::end("bench-pipeline", result)
}

async fn measure(cell: &str, bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    match cell {
        "pages" => convert::pages(bed, scale, report).await,
        "slots" => convert::slots(bed, scale, report).await,
        "memory" => convert::memory(bed, scale, report).await,
        "cancel" => cancel::end_to_end(bed, scale, report).await,
        "resume" => resume::waste(bed, report).await,
        "publish" => publish::compare(bed, scale, report).await,
        _ => unreachable!("CELLS has no other"),
    }
}
