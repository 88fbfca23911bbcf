//! The one claim loop: asks for as many tasks as slots are free, at once while there are more, else when woken or by the
//! poll.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::core::{Core, share};
use super::decide;
use super::handler::StopCause;
use super::running;
use crate::store::claim::{Claim, ClaimRequest, ClaimedTask, claim_unflushed, flush};

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
    let mut claimer = Claimer { core: Arc::clone(&core), starting: None };
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
            want => claimer.claim(want).await,
        };
        if !matches!(next, Next::Retry) {
            failures = 0;
        }
    }
    claimer.started().await;
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
    if want > 0 && ending > 0 && want < decide::claim_size(slots) / 2 {
        tokio::time::sleep(GATHER).await;
        return count().0;
    }
    want
}

struct Claimer {
    core: Arc<Core>,
    /// The last claim's tasks are on their way to disk and to their handlers, while the next claim is sent.
    starting: Option<JoinHandle<()>>,
}

impl Claimer {
    async fn claim(&mut self, want: u32) -> Next {
        let core = Arc::clone(&self.core);
        let sequence = core.held().claim_sent();
        let request = ClaimRequest { worker_id: core.worker_id, sequence, want, quantum: decide::quantum(want) };
        let sent = Instant::now();
        let answer = core.ask(move |pools| async move { claim_unflushed(&pools.claims, request).await }).await;
        let (outcome, tasks, next) = match answer {
            Ok(Claim::Tasks(tasks)) => {
                core.complaints.succeeded("claiming");
                if tasks.is_empty() { ("empty", tasks, Next::Wait) } else { ("tasks", tasks, Next::AtOnce) }
            }
            Ok(Claim::Unregistered) => ("unregistered", Vec::new(), register(&core).await),
            Err(error) => {
                // What it took all the same is not in the table, so the next heartbeat gives it back.
                core.complaints.failed("claiming", &error);
                ("error", Vec::new(), Next::Retry)
            }
        };
        core.shared.metrics.claim_done(outcome, tasks.len(), sent.elapsed());
        if tasks.is_empty() {
            core.held().claim_answered(sequence);
            return next;
        }
        core.held().reserve(tasks.len());
        self.started().await;
        self.starting = Some(tokio::spawn(flush_and_take(core, sequence, tasks, sent)));
        next
    }

    async fn started(&mut self) {
        if let Some(starting) = self.starting.take()
            && let Err(error) = starting.await
        {
            tracing::error!(%error, "what was claimed could not be started: its leases run out");
        }
    }
}

async fn register(core: &Core) -> Next {
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

async fn flush_and_take(core: Arc<Core>, sequence: i64, tasks: Vec<ClaimedTask>, sent: Instant) {
    match core.ask(|pools| async move { flush(&pools.claims).await }).await {
        Ok(()) => take(&core, tasks, sent),
        Err(error) => {
            // As if the claim had not been answered.
            core.complaints.failed("claiming", &error);
            core.held().handlers_gone(tasks.len());
        }
    }
    core.held().claim_answered(sequence);
}

/// All of them enter the table before their claim counts as answered: heartbeats count on it. Their slots are reserved.
pub(super) fn take(core: &Arc<Core>, tasks: Vec<ClaimedTask>, sent: Instant) {
    let attempts: Vec<_> = tasks.iter().map(|task| task.attempt).collect();
    running::start(core, tasks, sent);
    // The worker was told to end while the claim was on its way.
    if core.closing.is_cancelled() {
        attempts.into_iter().for_each(|attempt| core.fire(attempt, StopCause::Shutdown));
    }
    core.publish_counts();
    core.watchdog_wake.notify_one();
}
