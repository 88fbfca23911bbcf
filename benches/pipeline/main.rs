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
use common::report::Report;
use figures::FIGURES;
use scale::Scale;

/// The parts of a run; naming some of them as arguments measures only those.
const CELLS: [&str; 6] = ["pages", "slots", "memory", "cancel", "resume", "publish"];

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    match run(&words).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-pipeline: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(asked: &[String]) -> anyhow::Result<()> {
    let scale = Scale::from_environment();
    for word in asked {
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
        "pages" => convert::pages(bed, scale, report).await,
        "slots" => convert::slots(bed, scale, report).await,
        "memory" => convert::memory(bed, scale, report).await,
        "cancel" => cancel::end_to_end(bed, scale, report).await,
        "resume" => resume::waste(bed, report).await,
        "publish" => publish::compare(bed, scale, report).await,
        _ => unreachable!("CELLS has no other"),
    }
}
