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
use common::report::Report;
use figures::FIGURES;
use scale::Scale;

/// The parts of a run; naming some of them as arguments measures only those.
const CELLS: [&str; 5] = ["cancel", "mirror", "pools", "standing", "intake"];

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    match run(&words).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-operator: {error:#}");
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
        "cancel" => cancel::cancel(bed, scale, report).await,
        "mirror" => mirror::mirror(bed, scale, report).await,
        "pools" => pools::pools(bed, scale, report).await,
        "standing" => standing::standing(bed, scale, report).await,
        "intake" => intake::intake(bed, scale, report).await,
        _ => unreachable!("CELLS has no other"),
    }
}
