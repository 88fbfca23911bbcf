//! PDF to markdown in a worker, beside the library that it calls: pages a second, and the worker's memory.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, ensure};
use serde_json::json;
use sluice::domain::task::TaskType;
use sluice::store::enqueue::NewTask;
use sluice::store::{Database as Store, reads};
use uuid::Uuid;

use crate::common::asking::{enqueue, operator};
use crate::common::bed::{Bed, Database};
use crate::common::process::{Command, Process};
use crate::common::report::{Report, median};
use crate::corpus::Corpus;
use crate::installation::{self, TENANT, WORKSPACE, library_alone, until_none};
use crate::scale::Scale;

/// The inserts that follow a conversion wait, so that nothing else runs while conversions are measured.
const SUSPEND_INSERTS: &str = "
    create function public.suspend() returns trigger language plpgsql as
    $$ begin new.suspended := true; new.ready := false; return new; end $$;
    create trigger suspend before insert on sluice.tasks for each row when (new.type = 'insert') execute function public.suspend()";
const CONVERTS_LEFT: &str = "select count(*) from sluice.tasks where type = 'pdf_processing'";

/// One slot ÷ one process.
pub async fn pages(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let corpus = Corpus::find(report)?;
    let ratio = compare(bed, scale, report, &corpus, 1, 1).await?;
    report.set("pages_ratio", ratio);
    Ok(())
}

/// Eight slots ÷ two processes.
pub async fn slots(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let corpus = Corpus::find(report)?;
    let ratio = compare(bed, scale, report, &corpus, 8, 2).await?;
    report.set("slots_ratio", ratio);
    Ok(())
}

/// They take turns, so that a slow minute of the machine meets both.
async fn compare(
    bed: &Bed,
    scale: &Scale,
    report: &mut Report,
    corpus: &Corpus,
    slots: usize,
    processes: usize,
) -> anyhow::Result<f64> {
    let mut ratios = Vec::new();
    for _ in 0..scale.repeats {
        let alone = alone(corpus, processes, scale.corpus_rounds)?;
        let ours = worker(bed, corpus, slots, processes * scale.corpus_rounds).await?;
        report.note(format!(
            "pages/s: worker with {slots} slots {ours:.0}, the library alone in {processes} processes {alone:.0}"
        ));
        ratios.push(ours / alone);
    }
    Ok(median(&ratios))
}

/// Pages a second of so many processes side by side, each with the whole corpus.
fn alone(corpus: &Corpus, processes: usize, rounds: usize) -> anyhow::Result<f64> {
    let program = library_alone()?;
    let start = || {
        let mut command = Command::new(&program);
        command.args(["--rounds", &rounds.to_string()]).args(&corpus.files).stdout(Stdio::piped());
        command.stderr(Stdio::null()).spawn().context("start the library alone")
    };
    let children: Vec<Child> = (0..processes).map(|_| start()).collect::<anyhow::Result<_>>()?;
    let mut rate = 0.0;
    for child in children {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "the library alone ended with {}", output.status);
        let (mut pages, mut secs) = (0.0, 0.0);
        for line in String::from_utf8(output.stdout)?.lines() {
            let (round_pages, round_secs) = line.split_once(' ').context("pages and seconds")?;
            pages += round_pages.parse::<f64>()?;
            secs += round_secs.parse::<f64>()?;
        }
        rate += pages / secs;
    }
    Ok(rate)
}

/// Pages a second from the moment that the held pool is let go to the last conversion's end.
async fn worker(bed: &Bed, corpus: &Corpus, slots: usize, rounds: usize) -> anyhow::Result<f64> {
    // As the library alone counts: scans have pages too, though no text.
    const PAGES: &str = "select coalesce(sum(pages), 0)::bigint from sluice.documents";
    let database = installation::database(bed, None).await?;
    database.execute(SUSPEND_INSERTS).await?;
    let worker = start(&database, corpus, slots).await?;
    // A worker lives for days: what its sessions do for the first time is not measured.
    let store = operator(&database)?;
    enqueue_all(&store, corpus, 1).await?;
    until_none(&database, CONVERTS_LEFT).await?;
    let before = database.number(PAGES).await?;

    database.execute("select sluice.hold_all(true)").await?;
    enqueue_all(&store, corpus, rounds).await?;
    database.settle().await?;
    database.execute("select sluice.hold_all(false)").await?;
    let started = Instant::now();
    reads::wake(&store, "default").await?;
    until_none(&database, CONVERTS_LEFT).await?;
    let secs = started.elapsed().as_secs_f64();
    let pages = database.number(PAGES).await? - before;
    store.close().await;
    drop(worker);
    bed.drop(database).await?;
    Ok(pages as f64 / secs)
}

async fn start(database: &Database, corpus: &Corpus, slots: usize) -> anyhow::Result<Process> {
    installation::worker(database, slots, &[("SLUICE_FILE_ROOT", &corpus.folder.to_string_lossy())]).await
}

/// The whole corpus so many times, each file as a document of its own.
async fn enqueue_all(store: &Store, corpus: &Corpus, rounds: usize) -> anyhow::Result<()> {
    let task = |file: &PathBuf| NewTask {
        payload: json!({ "url": format!("file://{}", file.display()) }),
        workspace: Some(WORKSPACE.to_owned()),
        document_id: Some(Uuid::new_v4()),
        ..NewTask::new(TaskType::PdfProcessing, TENANT)
    };
    for _ in 0..rounds {
        enqueue(store, &corpus.files.iter().map(task).collect::<Vec<_>>()).await?;
    }
    reads::wake(store, "default").await?;
    Ok(())
}

/// The most that the worker ever had, through conversions and all that follows.
pub async fn memory(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    const SLOTS: usize = 4;
    let corpus = Corpus::find(report)?;
    let database = installation::database(bed, None).await?;
    let worker = start(&database, &corpus, SLOTS).await?;
    let store = operator(&database)?;
    enqueue_all(&store, &corpus, scale.corpus_rounds).await?;
    until_none(&database, CONVERTS_LEFT).await?;
    let converting = worker.peak_memory()?;
    until_none(&database, "select count(*) from sluice.tasks").await?;
    report.note(format!(
        "memory of a worker with {SLOTS} slots, at most: {converting:.1} MiB while it converts, {:.1} MiB with the inserts that follow",
        worker.peak_memory()?
    ));
    report.set("rss_convert_mb", converting);
    worker.stop().await?;
    store.close().await;
    bed.drop(database).await
}
