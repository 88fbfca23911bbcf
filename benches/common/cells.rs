//! A benchmark is a list of cells, each with figures of its own; its arguments may name some of them.

use std::process::ExitCode;

use super::bed::Bed;
use super::report::{Figure, Report};

/// Those that the program was started with, without what `cargo bench` adds.
pub fn words() -> Vec<String> {
    std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect()
}

/// Measures the cells that are asked for, or all of them, on one server, and prints the report.
pub async fn run(
    cells: &[&'static str],
    asked: &[String],
    figures: &'static [Figure],
    quick: bool,
    measure: impl AsyncFn(&str, &Bed, &mut Report) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for word in asked {
        anyhow::ensure!(cells.contains(&word.as_str()), "there is no cell {word}; there are {}", cells.join(", "));
    }
    let mut report = Report::new(figures);
    let bed = Bed::start(quick).await?;
    report.progress(if quick { "a quick look" } else { "the full run" });
    for cell in cells {
        if asked.is_empty() || asked.iter().any(|word| word == cell) {
            measure(cell, &bed, &mut report).await?;
        }
    }
    report.print(bed.version());
    Ok(())
}

/// What the process answers; an error is told.
pub fn end(bench: &str, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{bench}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
