//! From the first question to the last word: start, serve, wind down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::core::{Core, Membership, Shared};
use super::databases::{Databases, Pools};
use super::decide::Answer;
use super::handler::{Handlers, StopCause};
use super::settings::WorkerSettings;
use super::shutdown::Shutdown;
use super::{Adopted, Ended, WorkerError};
use super::{claiming, ending, flushing, leasing, reporting, upkeep, wake};
use crate::store::claim::{Attempt, Claim};
use crate::store::leases;
use crate::store::startup::{StartError, about};

/// How long handlers that are told to give back have for their last words.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// How long the database has to say anything at all, counted from then; else it is away, and nobody waits for it.
const LAST_CALL: Duration = Duration::from_millis(600);
/// How long it has for the last ends if it is there: milliseconds are enough, but one that is busy must not cost a lease.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// How long loops and connections may take to end by themselves.
const CLOSE: Duration = Duration::from_millis(150);
/// The first statement of a process.
const START_LIMIT: Duration = Duration::from_secs(20);

/// All of a worker but its handlers, on a thread of its own.
pub(super) fn on_this_thread(
    settings: WorkerSettings,
    handlers: Handlers,
    shared: Arc<Shared>,
    handler_runtime: &Handle,
    shutdown: &Shutdown,
) -> Result<Ended, WorkerError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(WorkerError::Thread)?;
    let result = runtime.block_on(live(settings, handlers, shared, handler_runtime, shutdown));
    // A look-up of a host's name cannot be interrupted, and need not be waited for.
    runtime.shutdown_background();
    result
}

async fn live(
    settings: WorkerSettings,
    handlers: Handlers,
    shared: Arc<Shared>,
    handler_runtime: &Handle,
    shutdown: &Shutdown,
) -> Result<Ended, WorkerError> {
    let databases = Databases::new(&settings);
    let pool = settings.pool.clone();
    let asked = databases.ask(START_LIMIT, move |pools| async move { Ok(about(&pools.claims, &pool).await) }).await;
    let about = asked.map_err(StartError::from)??;
    agree_on_lease(&settings, about.lease_secs)?;
    let (ended, ends) = mpsc::unbounded_channel();
    let worker_id = settings.worker_id.unwrap_or_else(Uuid::new_v4);
    let membership = Membership { worker_id, lease_secs: about.lease_secs };
    let core = Core::new(settings, handlers, shared, databases, ended, handler_runtime.clone(), membership);
    let core = Arc::new(core);
    core.register().await.map_err(|error| StartError::of(error, &core.settings.database))?;
    log_what_holds(&core);

    let mut loops = start_loops(&core, ends);
    let adopted = match core.settings.adopt {
        Some(attempt) => Some(adopt(&core, attempt).await?),
        None => {
            core.is_claiming.store(true, Ordering::Relaxed);
            loops.spawn(claiming::run(Arc::clone(&core)));
            loops.spawn(upkeep::run(Arc::clone(&core)));
            None
        }
    };
    let is_crashed = match adopted {
        Some(Adopted::NotThere) => false,
        Some(Adopted::Ended) => serve(&core, shutdown, &mut loops, true).await,
        None => serve(&core, shutdown, &mut loops, false).await,
    };
    wind_down(&core, shutdown, is_crashed).await;
    core.over.cancel();
    let closing = async {
        while loops.join_next().await.is_some() {}
        core.databases.pools().close().await;
    };
    // Their sessions end with this thread.
    let _ = tokio::time::timeout(CLOSE, closing).await;
    let given_back = core.given_back.load(Ordering::Relaxed);
    tracing::info!(given_back, "the worker has ended");
    if is_crashed { Err(WorkerError::Crashed) } else { Ok(Ended { given_back, adopted }) }
}

/// The pool's length holds for all of its workers: one that was told another would trust leases that it does not have.
fn agree_on_lease(settings: &WorkerSettings, held: u32) -> Result<(), WorkerError> {
    match settings.lease {
        Some(asked) if asked.secs() != held => {
            Err(WorkerError::LeaseDiffers { pool: settings.pool.clone(), asked: asked.secs(), held })
        }
        Some(_) | None => Ok(()),
    }
}

/// The one line that says what holds.
fn log_what_holds(core: &Core) {
    let WorkerSettings { pool, slots, handler_connections, wake_mode, drain, database, .. } = &core.settings;
    let types: Vec<_> = core.handlers.task_types().iter().map(|task_type| task_type.as_str()).collect();
    tracing::info!(
        worker_id = %core.worker_id,
        pool,
        slots,
        handler_connections,
        delivery = %wake_mode,
        lease_secs = core.lease_secs(),
        drain_secs = drain.as_secs(),
        types = types.join(","),
        %database,
        "serving"
    );
}

fn start_loops(core: &Arc<Core>, ends: mpsc::UnboundedReceiver<super::core::Ended>) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    loops.spawn(receive(Arc::clone(core), ends));
    loops.spawn(leasing::beat(Arc::clone(core)));
    loops.spawn(leasing::watch(Arc::clone(core)));
    loops.spawn(leasing::watchdog(Arc::clone(core)));
    loops.spawn(flushing::complete(Arc::clone(core)));
    loops.spawn(flushing::release(Arc::clone(core)));
    loops.spawn(reporting::run(Arc::clone(core)));
    if core.settings.wake_mode.listens() {
        // Not one of the loops: it waits for the server, and ends with the thread.
        tokio::spawn(wake::listen(Arc::clone(core)));
    }
    loops
}

async fn receive(core: Arc<Core>, ends: mpsc::UnboundedReceiver<super::core::Ended>) {
    let over = core.over.clone();
    over.run_until_cancelled(ending::receive(core, ends)).await;
}

async fn adopt(core: &Arc<Core>, attempt: Attempt) -> Result<Adopted, WorkerError> {
    let sequence = core.held().adopt_sent();
    let sent = Instant::now();
    let worker_id = core.worker_id;
    let answer = core.ask(move |pools| async move { leases::adopt(&pools.claims, worker_id, attempt).await }).await;
    let adopted = match answer {
        Ok(Claim::Tasks(tasks)) if !tasks.is_empty() => {
            core.held().reserve(tasks.len());
            claiming::take(core, tasks, sent);
            Ok(Adopted::Ended)
        }
        Ok(Claim::Tasks(_) | Claim::Unregistered) => Ok(Adopted::NotThere),
        Err(error) => Err(WorkerError::Adopt(error)),
    };
    core.held().claim_answered(sequence);
    adopted
}

/// Until it is told to end, or (with `until_idle`) nothing is held any more. True if a loop has crashed.
async fn serve(core: &Core, shutdown: &Shutdown, loops: &mut JoinSet<()>, until_idle: bool) -> bool {
    loop {
        if until_idle && core.held().len() == 0 {
            return false;
        }
        tokio::select! {
            () = shutdown.drain_token().cancelled() => return false,
            ended = loops.join_next() => {
                // Loops end when the worker is over, or by a panic.
                tracing::error!(?ended, "a loop of the worker ended");
                return true;
            }
            () = core.changed.notified() => {}
        }
    }
}

/// Claims nothing more, lets running work finish while there is time, and gives back the rest.
async fn wind_down(core: &Arc<Core>, shutdown: &Shutdown, is_crashed: bool) {
    core.closing.cancel();
    core.shared.is_closing.store(true, Ordering::Relaxed);
    core.shared.claim_wake.notify_one();
    tracing::info!(
        held = core.held().len(),
        drain_secs = core.settings.drain.as_secs(),
        "ending: claiming nothing more"
    );
    let told = Arc::clone(core);
    // Whoever counts workers need not wait for the lease of this one.
    tokio::spawn(async move {
        let worker_id = told.worker_id;
        let call = move |pools: Arc<Pools>| async move { leases::drain_worker(&pools.leases, worker_id).await };
        if let Err(error) = told.ask(call).await {
            tracing::debug!(%error, "the worker's row does not say that it drains");
        }
        told.is_farewell_said.store(true, Ordering::Relaxed);
        told.changed.notify_one();
    });
    let is_over = || !core.is_claiming.load(Ordering::Relaxed) && core.held().len() == 0;
    let is_written = || is_over() && core.is_farewell_said.load(Ordering::Relaxed);
    let drain = if is_crashed { Duration::ZERO } else { core.settings.drain };
    until(core, drain, shutdown.give_back_token(), is_over).await;
    if is_written() {
        return;
    }
    let (never, told) = (CancellationToken::new(), tokio::time::Instant::now());
    let is_there = call(core);
    if !is_over() {
        ending::stop_all(core, StopCause::Shutdown);
        until(core, LAST_WORDS, &never, || core.held().running() == 0).await;
        let silent = core.held().running_attempts();
        for attempt in silent {
            core.held().abort(attempt, Instant::now());
            ending::end(core, attempt, Answer::Aborted);
        }
    }
    let is_there = || is_there.load(Ordering::Relaxed);
    until(core, LAST_CALL.saturating_sub(told.elapsed()), &never, || is_written() || is_there()).await;
    if is_there() {
        until(core, LAST_WRITES, &never, is_written).await;
    }
    let left = core.held().len();
    if left > 0 {
        tracing::warn!(left, "the database did not answer in time: the leases of what is left run out");
    }
}

/// Becomes true when the database has answered.
fn call(core: &Arc<Core>) -> Arc<AtomicBool> {
    let answered = Arc::<AtomicBool>::default();
    let (core, answer) = (Arc::clone(core), Arc::clone(&answered));
    tokio::spawn(async move {
        let asked = core.ask(|pools| async move { pools.leases.ping().await }).await;
        answer.store(asked.is_ok(), Ordering::Relaxed);
        core.changed.notify_one();
    });
    answered
}

/// Until it is so, time is up, or `hurry`.
async fn until(core: &Core, time: Duration, hurry: &CancellationToken, is_so: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + time;
    while !is_so() {
        tokio::select! {
            () = core.changed.notified() => {}
            () = hurry.cancelled() => return,
            () = tokio::time::sleep_until(deadline) => return,
        }
    }
}
