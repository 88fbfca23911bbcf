//! Rows that change, twenty a second: how soon their resources show it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use sluice::store::claim::{Claim, ClaimRequest, claim};
use sluice::store::leases::{NewWorker, register_worker};
use sluice::store::{Database as Store, PoolSettings, Role};
use sqlx::Row;
use uuid::Uuid;

use crate::common::bed::Bed;
use crate::common::report::{Report, percentile};
use crate::scale::Scale;
use crate::stand::{Stand, between, moment, sleeping};

const EVERY: Duration = Duration::from_millis(50);

/// From the call that claims a task to the API server's answer to the patch that shows it running, by the audit log.
pub async fn mirror(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let stand = Stand::new(bed, "mirror", 0).await?;
    let operator = stand.operator()?;
    stand.create_all(0..scale.changes, |number| sleeping(&format!("t{number}"), None, 0)).await?;
    stand.until_shown(scale.changes).await?;
    report.progress("all tasks are made and shown");
    let mut ticks = tokio::time::interval(EVERY);
    let mut changed = HashMap::new();
    let store = Store::new(stand.database.worker_url().parse()?, Role::Worker, PoolSettings::default());
    let worker_id = register_worker(&store, &worker(scale.changes)?).await?;
    for sequence in 1..=i64::try_from(scale.changes)? {
        ticks.tick().await;
        let now = Utc::now();
        let request = ClaimRequest { worker_id, sequence, want: 1, quantum: 1 };
        let Claim::Tasks(tasks) = claim(&store, request).await? else { anyhow::bail!("the worker is not known") };
        for task in tasks {
            changed.insert(task.attempt.track_id, now);
        }
    }
    ensure!(changed.len() == scale.changes, "{} of {} tasks were claimed", changed.len(), scale.changes);
    stand.until_shown(scale.changes).await?;
    report.progress("all changes are shown");
    let waits = waits(&stand, &changed).await?;
    report.note(format!("status, {} changes: longest {:.0} ms", waits.len(), percentile(&waits, 1.0)));
    report.set("mirror_lag_p50_ms", percentile(&waits, 0.5));
    report.set("mirror_lag_p99_ms", percentile(&waits, 0.99));
    store.close().await;
    operator.stop().await?;
    stand.end(bed).await
}

fn worker(slots: usize) -> anyhow::Result<NewWorker<'static>> {
    Ok(NewWorker {
        pool: "default",
        slots: u32::try_from(slots)?,
        version: None,
        pod_name: None,
        pod_uid: None,
        stands_for_pool: false,
        worker_id: None,
    })
}

async fn waits(stand: &Stand, changed: &HashMap<Uuid, DateTime<Utc>>) -> anyhow::Result<Vec<f64>> {
    let rows = sqlx::query("select track_id, name from sluice.mirrors").fetch_all(&stand.database.pool).await?;
    let names: HashMap<Uuid, String> = rows.iter().map(|row| (row.get("track_id"), row.get("name"))).collect();
    let mut shown: HashMap<String, Vec<DateTime<Utc>>> = HashMap::new();
    for write in stand.writes()?.into_iter().filter(|write| write.subresource == "status") {
        shown.entry(write.name).or_default().push(moment(&write.answered_at)?);
    }
    let wait = |(track_id, at): (&Uuid, &DateTime<Utc>)| {
        let name = names.get(track_id).context("a task without a resource")?;
        let later = shown.get(name).and_then(|shown| shown.iter().find(|shown| *shown > at));
        Ok(between(*at, *later.with_context(|| format!("the status of {name} was not written"))?))
    };
    changed.iter().map(wait).collect()
}
