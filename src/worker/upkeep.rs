//! A worker's share of the upkeep: what is due becomes ready, what others lost is taken back, old rows go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::core::{Core, share};
use super::databases::Pools;
use super::decide;
use crate::store::upkeep::{Retention, retain, round};

/// Tasks that one round promotes, and reaps, at most.
const LIMIT: u32 = 1_000;
/// The server's own limit is shorter.
const RETAIN_LIMIT: Duration = Duration::from_secs(40);

pub(super) async fn run(core: Arc<Core>) {
    let retain_every = core.settings.pace.retain;
    // The first one comes at a random moment, so that workers that start together do not all do it.
    let mut next_retain = Instant::now() + retain_every.mul_f64(share());
    loop {
        let pause = decide::jittered(core.settings.pace.upkeep, share());
        if core.closing.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        let worker_id = core.worker_id;
        match core.ask(move |pools| async move { round(&pools.claims, worker_id, LIMIT).await }).await {
            Ok(done) => {
                core.complaints.succeeded("upkeep");
                core.set_draining(done.is_draining);
                if done.promoted > 0 || done.reaped > 0 {
                    tracing::debug!(promoted = done.promoted, reaped = done.reaped, "upkeep");
                    core.shared.claim_wake.notify_one();
                }
            }
            Err(error) => core.complaints.failed("upkeep", &error),
        }
        if Instant::now() >= next_retain && !core.shared.is_closing.load(Ordering::Relaxed) {
            next_retain = Instant::now() + retain_every;
            let call = |pools: Arc<Pools>| async move { retain(&pools.claims, Retention::default()).await };
            match core.databases.ask(RETAIN_LIMIT, call).await {
                Ok(done) => tracing::debug!(things = done.len(), "retention"),
                Err(error) => core.complaints.failed("retention", &error),
            }
        }
    }
}
