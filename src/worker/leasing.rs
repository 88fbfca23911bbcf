//! Holds the leases: heartbeats, the probe for what is to stop, and the watchdog that trusts neither.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Span;

use super::core::{Core, share};
use super::databases::Pools;
use super::decide::{self, Answer};
use super::ending;
use super::handler::StopCause;
use super::held::Due;
use super::metrics::{Name, Outcome};
use crate::store::StoreError;
use crate::store::claim::Attempt;
use crate::store::enqueue::BATCH_MAX;
use crate::store::leases::{self, Heartbeat, LeaseAnswer, StopReason, WorkerState};

/// A row that another session held is asked for again after this long, at most.
const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// The watchdog looks at least this often while something is held.
const WATCHDOG_TICK: Duration = Duration::from_millis(200);
/// And this often for the liveness probe while nothing is.
const IDLE_TICK: Duration = Duration::from_secs(5);

pub(super) async fn beat(core: Arc<Core>) {
    let mut last = Instant::now();
    let (mut failures, mut is_busy) = (0, false);
    while !core.over.is_cancelled() {
        let interval = interval(&core);
        let pause = if failures > 0 {
            decide::retry_pause(failures, core.settings.pace.retry, share()).min(interval / 4)
        } else if is_busy {
            BUSY_PAUSE.min(interval / 4)
        } else {
            (last + interval).saturating_duration_since(Instant::now())
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = core.over.cancelled() => break,
            // A shorter lease, or the first: the interval is another.
            () = core.heartbeat_wake.notified() => continue,
        }
        last = Instant::now();
        match beat_once(&core).await {
            Ok(busy) => {
                core.complaints.succeeded("renewing leases");
                (failures, is_busy) = (0, busy);
            }
            Err(error) => {
                core.shared.metrics.heartbeats.get_or_create(&Outcome { outcome: Name("error") }).inc();
                core.complaints.failed("renewing leases", &error);
                failures += 1;
            }
        }
    }
}

fn interval(core: &Core) -> Duration {
    let pool = decide::heartbeat_interval(core.lease_secs());
    let shortest = core.held().shortest_lease().and_then(|lease| u32::try_from(lease.as_secs()).ok());
    shortest.map_or(pool, |secs| decide::heartbeat_interval(secs).min(pool))
}

/// True if another session held one of the rows.
async fn beat_once(core: &Core) -> Result<bool, StoreError> {
    let (sequence, attempts) = core.held().to_renew();
    // A call gives back what it does not name, so only one that names all may say what it knows.
    let sequence = if attempts.len() > BATCH_MAX { 0 } else { sequence };
    let mut is_busy = false;
    for batch in batches(&attempts) {
        let sent = Instant::now();
        let (worker_id, batch) = (core.worker_id, batch.to_vec());
        let call =
            move |pools: Arc<Pools>| async move { leases::heartbeat(&pools.leases, worker_id, sequence, &batch).await };
        let Heartbeat { worker, leases } = core.ask(call).await?;
        core.shared.metrics.heartbeats.get_or_create(&Outcome { outcome: Name(worker.as_str()) }).inc();
        for (attempt, answer) in leases {
            is_busy |= answer == LeaseAnswer::Busy;
            let cause = core.held().renewed(attempt, answer, sent);
            if let Some(cause) = cause {
                core.fire(attempt, cause);
            }
        }
        match worker {
            WorkerState::Serving => core.set_draining(false),
            WorkerState::Draining => core.set_draining(true),
            WorkerState::Unregistered => core.register().await?,
        }
    }
    Ok(is_busy)
}

/// One empty one if there is nothing: it says that the worker is alive.
fn batches(attempts: &[Attempt]) -> impl Iterator<Item = &[Attempt]> {
    let none = attempts.is_empty().then_some(attempts);
    none.into_iter().chain(attempts.chunks(BATCH_MAX))
}

/// Between heartbeats, and at once when a cancel is notified.
pub(super) async fn watch(core: Arc<Core>) {
    let mut failures = 0;
    while !core.over.is_cancelled() {
        let pause = match failures {
            0 => decide::jittered(core.settings.pace.watch, share()),
            failures => decide::retry_pause(failures, core.settings.pace.retry, share()),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = core.watch_wake.notified() => {}
            () = core.over.cancelled() => break,
        }
        match watch_once(&core).await {
            Ok(()) => {
                core.complaints.succeeded("looking for cancels");
                failures = 0;
            }
            Err(error) => {
                core.complaints.failed("looking for cancels", &error);
                failures += 1;
            }
        }
    }
}

async fn watch_once(core: &Core) -> Result<(), StoreError> {
    let track_ids = core.held().to_watch();
    for batch in track_ids.chunks(BATCH_MAX) {
        let (worker_id, batch) = (core.worker_id, batch.to_vec());
        let call = move |pools: Arc<Pools>| async move { leases::watch(&pools.leases, worker_id, &batch).await };
        let answer = core.ask(call).await?;
        core.set_draining(answer.is_draining);
        for (track_id, reason) in answer.stops {
            let attempt = core.held().newest_of(track_id);
            if let Some(attempt) = attempt {
                core.fire(attempt, cause_of(reason));
            }
        }
    }
    Ok(())
}

fn cause_of(reason: StopReason) -> StopCause {
    match reason {
        StopReason::Cancel => StopCause::Cancel,
        StopReason::Release => StopCause::Drain,
        StopReason::Lost => StopCause::Lost,
    }
}

/// Deadlines, leases that end, handlers that ignore their token: by our own clock, whatever the database does.
pub(super) async fn watchdog(core: Arc<Core>) {
    loop {
        core.shared.beat();
        let now = Instant::now();
        let (due, next, is_idle) = {
            let held = core.held();
            let (due, next) = held.due(now, core.settings.pace.stop_grace);
            (due, next, held.running() == 0)
        };
        for due in due {
            act(&core, due);
        }
        let pause = match next {
            _ if is_idle => IDLE_TICK,
            Some(next) => next.saturating_duration_since(now).clamp(Duration::from_millis(1), WATCHDOG_TICK),
            None => Duration::from_millis(1),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = core.watchdog_wake.notified() => {}
            () = core.over.cancelled() => break,
        }
    }
}

fn act(core: &Arc<Core>, due: Due) {
    match due {
        Due::Fire(attempt, cause) => core.fire(attempt, cause),
        Due::Abort(attempt) => core.held().abort(attempt, Instant::now()),
        Due::GiveUp(attempt) => {
            let span = core.held().get(attempt).map_or_else(Span::none, |entry| entry.span.clone());
            span.in_scope(|| {
                tracing::error!(
                    "the handler ignores that it is to stop: its task goes on without it, and it keeps its slot until it ends"
                );
            });
            core.shared.metrics.given_up.inc();
            ending::end(core, attempt, Answer::Aborted);
        }
    }
}
