//! The one claim loop: asks for as many tasks as slots are free, at once while there are more, else when woken or by the
//! poll.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::core::{Core, share};
use super::decide;
use super::handler::StopCause;
use super::running;
use crate::store::claim::{Claim, ClaimRequest, ClaimedTask, claim};

/// While many slots are about to come free, waiting this long makes one claim of what would be several.
const GATHER: Duration = Duration::from_millis(1);

/// What to do after a claim.
enum Next {
    /// There may be more.
    AtOnce,
    /// Something must happen first, or time must pass.
    Wait,
    Retry,
}

pub(super) async fn run(core: Arc<Core>) {
    let mut next = Next::AtOnce;
    let mut failures = 0;
    while !core.closing.is_cancelled() {
        match next {
            Next::AtOnce => {}
            Next::Wait => wait(&core).await,
            Next::Retry => {
                failures += 1;
                core.closing.run_until_cancelled(core.pause(failures)).await;
            }
        }
        let want = free_slots(&core).await;
        if core.closing.is_cancelled() {
            break;
        }
        next = match want {
            0 => Next::Wait,
            want => claim_once(&core, want).await,
        };
        if !matches!(next, Next::Retry) {
            failures = 0;
        }
    }
    core.is_claiming.store(false, Ordering::Relaxed);
    core.changed.notify_one();
}

/// A wake, or the poll. Who is woken by a notification is one of many: they spread a little.
async fn wait(core: &Core) {
    let poll = decide::jittered(core.settings.pace.poll, share());
    tokio::select! {
        () = core.shared.claim_wake.notified() => {}
        () = core.pool_wake.notified() => tokio::time::sleep(core.settings.pace.wake_spread.mul_f64(share())).await,
        () = tokio::time::sleep(poll) => {}
        () = core.closing.cancelled() => {}
    }
}

/// How many slots are free. If handlers are ending in a row, it waits a moment for more of them.
async fn free_slots(core: &Core) -> u32 {
    let slots = core.settings.slots;
    let count = || {
        let held = core.held();
        (decide::want(slots, held.occupied(), held.ending()), held.ending())
    };
    if core.shared.is_draining.load(Ordering::Relaxed) {
        return 0;
    }
    let (want, ending) = count();
    if want > 0 && ending > 0 && want < slots / 2 {
        tokio::time::sleep(GATHER).await;
        return count().0;
    }
    want
}

async fn claim_once(core: &Arc<Core>, want: u32) -> Next {
    let sequence = core.held().claim_sent();
    let request = ClaimRequest { worker_id: core.worker_id, sequence, want, quantum: decide::quantum(want) };
    let sent = Instant::now();
    let answer = core.ask(move |pools| async move { claim(&pools.claims, request).await }).await;
    let metrics = &core.shared.metrics;
    match answer {
        Ok(Claim::Tasks(tasks)) => {
            core.complaints.succeeded("claiming");
            let outcome = match tasks.len() {
                0 => "empty",
                _ => "tasks",
            };
            metrics.claim_done(outcome, tasks.len(), sent.elapsed());
            let is_empty = tasks.is_empty();
            take(core, tasks, sent);
            core.held().claim_answered();
            if is_empty { Next::Wait } else { Next::AtOnce }
        }
        Ok(Claim::Unregistered) => {
            core.held().claim_answered();
            metrics.claim_done("unregistered", 0, sent.elapsed());
            match core.register().await {
                Ok(()) => {
                    tracing::info!(worker_id = %core.worker_id, "registered again: the row was gone");
                    Next::AtOnce
                }
                Err(error) => {
                    core.complaints.failed("registering", &error);
                    Next::Retry
                }
            }
        }
        Err(error) => {
            // What it took all the same is not in the table, so the next heartbeat gives it back.
            core.held().claim_answered();
            metrics.claim_done("error", 0, sent.elapsed());
            core.complaints.failed("claiming", &error);
            Next::Retry
        }
    }
}

/// All of them enter the table before the next claim is sent: heartbeats count on it.
pub(super) fn take(core: &Arc<Core>, tasks: Vec<ClaimedTask>, sent: Instant) {
    if tasks.is_empty() {
        return;
    }
    let attempts: Vec<_> = tasks.iter().map(|task| task.attempt).collect();
    running::start(core, tasks, sent);
    // The worker was told to end while the claim was on its way.
    if core.closing.is_cancelled() {
        attempts.into_iter().for_each(|attempt| core.fire(attempt, StopCause::Shutdown));
    }
    core.publish_counts();
    core.watchdog_wake.notify_one();
}
