//! Many live resources of 4 KiB with which nothing happens: memory, silence, and a restart among them.

use std::time::Instant;

use serde_json::{Value, json};

use crate::common::bed::Bed;
use crate::common::report::Report;
use crate::scale::Scale;
use crate::stand::{Stand, sleeping};

/// With names, managed fields and status, an object has about 4 KiB then.
const TEXT_BYTES: usize = 2_600;

pub async fn standing(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let stand = Stand::new(bed, "standing", 0).await?;
    let operator = stand.operator()?;
    stand.create_all(0..scale.live, live).await?;
    stand.until_shown(scale.live).await?;
    let mut sizes = Vec::new();
    for number in [0, scale.live / 2] {
        sizes.push(serde_json::to_string(&stand.tasks.get(&format!("t{number}")).await?)?.len());
    }
    let memory = operator.memory()?;
    report.note(format!(
        "{} live resources of {} bytes, managed fields with them: {memory:.0} MiB, {:.0} MiB at most",
        scale.live,
        sizes[0],
        operator.peak_memory()?
    ));
    report.set("rss_mb_10k", memory);

    let before = stand.writes()?.len();
    tokio::time::sleep(scale.idle).await;
    report.set("idle_writes_60s", (stand.writes()?.len() - before) as f64);
    operator.stop().await?;

    let begun = Instant::now();
    let operator = stand.operator()?;
    stand.create_all(scale.live..scale.live + 1, |number| sleeping(&format!("t{number}"), None, 0)).await?;
    let rows = "select count(*) from sluice.mirrors";
    stand.until("the new one", rows, |count| usize::try_from(count).is_ok_and(|count| count > scale.live)).await?;
    report.set("restart_10k_s", begun.elapsed().as_secs_f64());
    report.note(format!("memory after the restart: {:.0} MiB", operator.memory()?));
    operator.stop().await?;
    stand.end(bed).await
}

fn live(number: usize) -> Value {
    json!({
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "IngestTask",
        "metadata": { "name": format!("t{number}") },
        "spec": { "type": "Insert", "source": { "text": "quay ".repeat(TEXT_BYTES / 5) } },
    })
}
