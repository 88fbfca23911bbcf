//! What a worker costs while it has nothing to do, and how fast it goes.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sluice::domain::delivery::WakeMode;
use sluice::store::reads;

use crate::common::asking::{enqueue, operator};
use crate::common::bed::Bed;
use crate::common::installed::sluice;
use crate::common::process::Process;
use crate::common::report::{Report, median};
use crate::embedded::{Embedded, ignoring_token};
use crate::scale::Scale;

const SLOTS: usize = 16;
/// Far more than a cell takes: whoever ends before was made to.
const DRAIN: Duration = Duration::from_secs(600);

/// `sluice worker` as it is, with nothing to do: its memory, and what it sends.
pub async fn idle(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let database = bed.ours().await?;
    database.execute(format!("alter database {} set log_statement = 'all'", database.name)).await?;
    let listener = database.listener_url();
    let settings = [
        ("SLUICE_TASK_DELIVERY", "bridged"),
        ("SLUICE_LISTEN_DATABASE_URL", listener.as_str()),
        ("SLUICE_HEALTH_LISTEN", "127.0.0.1:0"),
        ("SLUICE_TEST_HANDLERS", "all"),
    ];
    let mut worker = Process::start(sluice("worker"), &database, &settings)?;
    worker.registered(&database).await?;
    // Connections, first statements and what is done once are over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, started) = (bed.statements()?.len(), Instant::now());
    let mut memory: f64 = 0.0;
    while started.elapsed() < scale.idle {
        tokio::time::sleep(Duration::from_millis(500)).await;
        memory = memory.max(worker.memory()?);
    }
    let elapsed = started.elapsed().as_secs_f64();
    let sent = bed.statements()?.split_off(before);
    report.note(format!("an idle worker sent in {elapsed:.0} s: {}", kinds(&sent)));
    report.set("rss_idle_mb", memory);
    report.set("idle_queries_per_s", sent.len() as f64 / elapsed);
    worker.stop().await?;
    bed.drop(database).await
}

/// How often each function was called.
fn kinds(statements: &[String]) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for statement in statements {
        let text = statement.split_once("sluice.").map_or("other", |(_, rest)| rest.split('(').next().unwrap_or(rest));
        *counts.entry(text).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    counts.join(", ")
}

/// The worse of an idle worker's end and a busy one's after the second signal.
pub async fn drain(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let (mut idle, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        idle.push(end(bed, 0).await?);
        busy.push(end(bed, SLOTS).await?);
    }
    let (idle, busy) = (median(&idle), median(&busy));
    report.note(format!("SIGTERM when idle {idle:.3} s, a second one with {SLOTS} busy slots {busy:.3} s"));
    report.set("drain_s", idle.max(busy));
    Ok(())
}

/// From the last signal to the end of the process, which leaves no lease and no failure behind.
async fn end(bed: &Bed, tasks: usize) -> anyhow::Result<f64> {
    let database = bed.ours().await?;
    let mut worker = Embedded { slots: SLOTS, delivery: WakeMode::Bridged, drain: DRAIN }.start(&database)?;
    worker.registered(&database).await?;
    if tasks > 0 {
        let store = operator(&database)?;
        enqueue(&store, &(0..tasks).map(ignoring_token).collect::<Vec<_>>()).await?;
        reads::wake(&store, "default").await?;
        let running = "select count(*) from sluice.tasks where state = 'processing'";
        worker.until("all to run", &database, running, |rows| rows == tasks as i64).await?;
        worker.terminate()?;
        let draining = "select count(*) from sluice.workers where draining";
        worker.until("the drain", &database, draining, |rows| rows > 0).await?;
    }
    worker.terminate()?;
    let took = worker.ended().await?.took;
    let pending =
        "select count(*) from sluice.tasks where state = 'pending' and not leased and failures = 0 and lost_leases = 0";
    let pending = database.number(pending).await?;
    ensure!(pending == tasks as i64, "{pending} of {tasks} tasks were given back");
    bed.drop(database).await?;
    Ok(took.as_secs_f64())
}
