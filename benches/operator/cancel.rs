//! A patch of `spec.cancel`, twice a second, among tasks that run: how soon the row stops.

use std::time::Duration;

use anyhow::Context;
use chrono::Utc;
use serde_json::json;
use tokio::time::sleep;

use crate::common::bed::Bed;
use crate::common::report::{Report, percentile};
use crate::scale::Scale;
use crate::stand::{Stand, between, moment, sleeping};

const EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Longer than the cell.
const SLEEP_MS: u64 = 3_600_000;

/// From the moment at which the API server received the patch, by its audit log, to the first look that finds the row stopping
/// or ended.
pub async fn cancel(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let stand = Stand::new(bed, "cancel", 0).await?;
    let operator = stand.operator()?;
    let worker = stand.worker(scale.running).await?;
    // As many wait as are cancelled, so that the worker is always full.
    stand
        .create_all(0..scale.running + scale.cancels, |number| sleeping(&format!("t{number}"), None, SLEEP_MS))
        .await?;
    let mut ticks = tokio::time::interval(EVERY);
    let mut stopped = Vec::new();
    for _ in 0..scale.cancels {
        ticks.tick().await;
        let running = "select count(*) from sluice.tasks where state = 'processing'";
        stand.until("all slots to be full", running, |count| usize::try_from(count) == Ok(scale.running)).await?;
        let name = running_task(&stand).await?;
        stand.patch(&name, json!({ "cancel": true })).await?;
        while is_processing(&stand, &name).await? {
            sleep(LOOK_EVERY).await;
        }
        stopped.push((name, Utc::now()));
    }
    let patches = stand.audit()?;
    let wait = |(name, at): &(String, _)| {
        let mut of_it = patches.iter().filter(|event| event.verb == "patch" && event.subresource.is_empty());
        let received = of_it.find(|event| event.name == *name && event.resource == "ingesttasks").context("a patch")?;
        anyhow::Ok(between(moment(&received.received_at)?, *at))
    };
    let waits: Vec<f64> = stopped.iter().map(wait).collect::<anyhow::Result<_>>()?;
    report.note(format!(
        "cancel, {} running: longest {:.0} ms of {}",
        scale.running,
        percentile(&waits, 1.0),
        waits.len()
    ));
    report.set("cancel_p50_ms", percentile(&waits, 0.5));
    report.set("cancel_p99_ms", percentile(&waits, 0.99));
    worker.stop().await?;
    operator.stop().await?;
    stand.end(bed).await
}

/// The one that has run longest.
async fn running_task(stand: &Stand) -> anyhow::Result<String> {
    let oldest = "select m.name from sluice.tasks t join sluice.mirrors m using (mirror_id)
                   where t.state = 'processing' order by t.started_at, t.id limit 1";
    Ok(sqlx::query_scalar(oldest).fetch_one(&stand.database.pool).await?)
}

async fn is_processing(stand: &Stand, name: &str) -> anyhow::Result<bool> {
    let found = "select exists (select from sluice.tasks t join sluice.mirrors m using (mirror_id)
                                 where m.name = $1 and t.state = 'processing')";
    Ok(sqlx::query_scalar(found).bind(name).fetch_one(&stand.database.pool).await?)
}
