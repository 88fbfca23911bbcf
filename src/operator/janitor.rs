//! The upkeep that every worker does too, so that it is done where no worker runs: leases that ran out, what is due, what
//! is past its retention, lanes whose marks are wrong.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::store::StoreError;
use crate::store::upkeep::{Retention, promote, reap, retain, settle};

const INTERVAL: Duration = Duration::from_secs(2);
const SETTLE_INTERVAL: Duration = Duration::from_secs(60);
const RETAIN_INTERVAL: Duration = Duration::from_secs(3_600);
/// Of one call; a full one is followed by another at once.
const BATCH: u32 = 1_000;

pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let mut settled_at = Instant::now();
    let mut retained_at: Option<Instant> = None;
    while !stop.is_cancelled() {
        // Never raced: a statement on its way must come to its end.
        let result = keep_up(&context, &mut settled_at, &mut retained_at).await;
        let has_more = result.unwrap_or_else(|error| {
            tracing::debug!(%error, "upkeep is tried again");
            false
        });
        if has_more {
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Whether a call did as much as it may.
async fn keep_up(
    context: &Context,
    settled_at: &mut Instant,
    retained_at: &mut Option<Instant>,
) -> Result<bool, StoreError> {
    let database = &context.database;
    let reaped = reap(database, BATCH).await?;
    let promoted = promote(database, BATCH).await?;
    if settled_at.elapsed() >= SETTLE_INTERVAL {
        *settled_at = Instant::now();
        let mended = settle(database).await?;
        if mended > 0 {
            tracing::error!(mended, "lanes had a wrong mark and were mended: please report this");
        }
    }
    if retained_at.is_none_or(|at| at.elapsed() >= RETAIN_INTERVAL) {
        for done in retain(database, Retention::default()).await? {
            tracing::debug!(what = done.what, rows = done.rows, "retention");
        }
        *retained_at = Some(Instant::now());
    }
    Ok(promoted >= BATCH || u32::try_from(reaped.len()).unwrap_or(BATCH) >= BATCH)
}
