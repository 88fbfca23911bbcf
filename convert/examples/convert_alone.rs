//! The library alone: what `make bench-pipeline` compares the converter with. Converts the files that it is given, one after
//! the other and as often as it is told, and prints for each round the pages and the seconds that it took.

#[path = "../../src/ingest/convert/frames.rs"]
#[allow(dead_code, reason = "it says nothing to a worker")]
mod frames;
#[path = "../src/pdf.rs"]
#[allow(dead_code, reason = "its first file warms it up")]
mod pdf;

use std::path::PathBuf;
use std::time::Instant;
use std::{fs, io};

use clap::Parser;

/// Converts PDFs with the library alone, and prints pages and seconds of each round
#[derive(Debug, Parser)]
struct Args {
    /// How often all files are converted
    #[arg(long, default_value_t = 1)]
    rounds: u32,

    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> io::Result<()> {
    let Args { rounds, files } = Args::parse();
    for _ in 0..rounds {
        let started = Instant::now();
        let mut pages = 0;
        for file in &files {
            pages += convert(fs::read(file)?);
        }
        println!("{pages} {:.6}", started.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Answers the pages that became markdown; a file that cannot be read gives none, as in a worker.
fn convert(bytes: Vec<u8>) -> u32 {
    let Ok(pages) = pdf::pages(bytes) else { return 0 };
    let number = pages.len();
    for page in pages {
        if std::hint::black_box(page).is_err() {
            return 0;
        }
    }
    number
}

/// Why a file cannot be converted, for people.
type Failure = (frames::Problem, String);
