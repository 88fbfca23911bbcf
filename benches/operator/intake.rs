//! Resources as fast as they come: made claimable, run, shown, and how many writes each of them cost.

use std::time::Instant;

use crate::common::bed::Bed;
use crate::common::report::Report;
use crate::scale::Scale;
use crate::stand::{Stand, sleeping, tenant};

/// Enough that the worker is never what is waited for.
const SLOTS: usize = 64;
const SLEEP_MS: u64 = 5;

/// The rate is that of all of them, from the first request to the last row. Beside it, what the API server takes with nobody to
/// serve it.
pub async fn intake(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let stand = Stand::new(bed, "intake", scale.tenants).await?;
    let task = |number: usize| sleeping(&format!("t{number}"), Some(tenant(number % scale.tenants)), SLEEP_MS);
    let begun = Instant::now();
    stand.create_all(scale.tasks..scale.tasks + scale.bare, task).await?;
    let bare = scale.bare as f64 / begun.elapsed().as_secs_f64();
    report.note(format!("creates with no operator, {} of them: {bare:.0}/s", scale.bare));

    let operator = stand.operator()?;
    let worker = stand.worker(SLOTS).await?;
    stand.until_shown(scale.bare).await?;
    let already = stand.writes()?.len();

    let begun = Instant::now();
    let all = scale.bare + scale.tasks;
    let created = async {
        stand.create_all(0..scale.tasks, task).await?;
        anyhow::Ok(begun.elapsed().as_secs_f64())
    };
    let claimable = async {
        let rows = "select count(*) from sluice.mirrors";
        stand.until("all rows", rows, |count| usize::try_from(count).is_ok_and(|count| count >= all)).await?;
        anyhow::Ok(begun.elapsed().as_secs_f64())
    };
    let (created, claimable) = tokio::try_join!(created, claimable)?;
    let ended = "select count(*) from sluice.tasks_archive where state = 'completed'";
    stand.until("all to end", ended, |count| usize::try_from(count).is_ok_and(|count| count >= all)).await?;
    stand.until_shown(all).await?;
    let (shown, writes) = (begun.elapsed().as_secs_f64(), stand.writes()?.len() - already);
    report.note(format!(
        "{} resources: created in {created:.0} s, claimable in {claimable:.0} s, run and shown in {shown:.0} s",
        scale.tasks
    ));
    report.set("tasks_per_s", scale.tasks as f64 / claimable);
    report.set("api_writes_per_task", writes as f64 / scale.tasks as f64);
    worker.stop().await?;
    operator.stop().await?;
    stand.end(bed).await
}
