//! Sluice as it is installed: its programs, a pool without caps, and a worker's process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::ensure;

use crate::common::asking::{operator, uncap};
use crate::common::bed::{Bed, Database};
use crate::common::installed;
use crate::common::process::Process;

pub const TENANT: &str = "acme";
pub const WORKSPACE: &str = "library";

/// The library alone: the example of the package `sluice-convert`, in the same profile.
pub fn library_alone() -> anyhow::Result<PathBuf> {
    built("examples/convert_alone")
}

/// Where a build leaves it beside `sluice`.
fn built(name: &str) -> anyhow::Result<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_sluice")).with_file_name(name);
    ensure!(program.exists(), "{} is not built: `make bench-pipeline` does that", program.display());
    Ok(program)
}

/// A database whose pool has no caps.
pub async fn database(bed: &Bed, lease_secs: Option<u32>) -> anyhow::Result<Database> {
    let database = bed.ours().await?;
    let store = operator(&database)?;
    uncap(&store, lease_secs).await?;
    store.close().await;
    Ok(database)
}

/// A real worker, whose log can be read.
pub async fn worker(database: &Database, slots: usize, more: &[(&str, &str)]) -> anyhow::Result<Process> {
    built("sluice-convert")?;
    installed::worker(database, slots, &[&[("SLUICE_LOG_FORMAT", "json")], more].concat()).await
}

/// Waits for a number of the database, looking so seldom that it costs what is measured nothing.
pub async fn until_none(database: &Database, count: &'static str) -> anyhow::Result<()> {
    let (limit, look_every) = (Duration::from_secs(300), Duration::from_millis(50));
    let begun = std::time::Instant::now();
    loop {
        let left = database.number(count).await?;
        if left == 0 {
            return Ok(());
        }
        ensure!(begun.elapsed() < limit, "after {limit:?}, {count} says {left}");
        tokio::time::sleep(look_every).await;
    }
}

/// Markdown that makes so many chunks, each with words of its own.
pub fn book(chunks: usize) -> String {
    let chapter = |number: usize| {
        let sentence = format!("In Bern, Ada{number} met Grace{number} and said word{number}. ");
        format!("# Chapter {number}\n\n{}", sentence.repeat(8))
    };
    (0..chunks).map(chapter).collect::<Vec<_>>().join("\n\n")
}
