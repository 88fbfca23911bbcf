//! Sends what handlers report: each attempt's newest words, a few times a second at most.

use std::sync::Arc;

use super::core::Core;
use super::databases::Pools;
use super::ending;
use super::handler::StopCause;
use super::reporter::Unsent;
use crate::store::StoreError;
use crate::store::claim::Attempt;
use crate::store::leases::{self, ReportOutcome};

pub(super) async fn run(core: Arc<Core>) {
    loop {
        if core.over.run_until_cancelled(core.reports_wake.notified()).await.is_none() {
            return;
        }
        let running = core.held().running_attempts();
        for attempt in running {
            let Some(unsent) = take(&core, attempt) else { continue };
            let call =
                move |pools: Arc<Pools>| async move { leases::report(&pools.ends, attempt, &unsent.as_report()).await };
            let answer = core.ask(call).await;
            heed(&core, attempt, answer);
        }
        // What is said meanwhile goes with the next round.
        tokio::time::sleep(core.settings.pace.report).await;
    }
}

/// From here to `heed`, the attempt's end waits: it must not come before the report.
fn take(core: &Core, attempt: Attempt) -> Option<Unsent> {
    let mut held = core.held();
    let entry = held.get_mut(attempt).filter(|entry| entry.is_running())?;
    let unsent = entry.reporter.take()?;
    entry.is_reporting = true;
    Some(unsent)
}

fn heed(core: &Arc<Core>, attempt: Attempt, answer: Result<ReportOutcome, StoreError>) {
    match answer {
        Ok(ReportOutcome::Ok) => core.complaints.succeeded("reporting"),
        Ok(ReportOutcome::Cancel) => core.fire(attempt, StopCause::Cancel),
        Ok(ReportOutcome::Lost | ReportOutcome::Refused | ReportOutcome::NotFound) => {
            core.fire(attempt, StopCause::Lost);
        }
        // What it said is out of date before it could be said again.
        Err(error) => core.complaints.failed("reporting", &error),
    }
    let end = {
        let mut held = core.held();
        let Some(entry) = held.get_mut(attempt) else { return };
        entry.is_reporting = false;
        entry.end_after_report.take()
    };
    if let Some(end) = end {
        ending::dispatch(core, attempt, end);
    }
}
