//! What the loops of one worker share, and the moves that more than one of them makes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use uuid::Uuid;

use super::complaints::Complaints;
use super::databases::{Databases, Pools, WRITERS};
use super::decide::{self, Answer};
use super::flushing::Flushing;
use super::handler::{Handlers, StopCause};
use super::held::Held;
use super::metrics::{Cause, Metrics, Name};
use super::settings::WorkerSettings;
use crate::store::StoreError;
use crate::store::claim::Attempt;
use crate::store::leases::{NewWorker, register_worker};

/// A loop that says nothing for so long hangs: the thread is stuck, and a restart helps.
const PULSE_MAX: Duration = Duration::from_secs(30);
/// Seen from other threads: probes, metrics, wakes.
pub(super) struct Shared {
    pub metrics: Metrics,
    pub claim_wake: Arc<Notify>,
    pub is_registered: AtomicBool,
    pub is_draining: AtomicBool,
    pub is_closing: AtomicBool,
    pub held: AtomicU64,
    started: Instant,
    /// Milliseconds from `started` to the last sign of life.
    pulse: AtomicU64,
}

impl Shared {
    pub fn new(slots: u32) -> Self {
        Self {
            metrics: Metrics::new(slots),
            claim_wake: Arc::default(),
            is_registered: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            held: AtomicU64::new(0),
            started: Instant::now(),
            pulse: AtomicU64::new(0),
        }
    }

    pub fn beat(&self) {
        self.pulse.store(self.millis(), Ordering::Relaxed);
    }

    pub fn is_live(&self) -> bool {
        let silent = self.millis().saturating_sub(self.pulse.load(Ordering::Relaxed));
        Duration::from_millis(silent) < PULSE_MAX
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Of a pool.
pub(super) struct Membership {
    pub worker_id: Uuid,
    pub lease_secs: u32,
}

/// A handler has ended.
pub(super) struct Ended {
    pub attempt: Attempt,
    pub answer: Answer,
}

pub(super) struct Core {
    pub settings: WorkerSettings,
    pub handlers: Handlers,
    pub worker_id: Uuid,
    pub databases: Databases,
    pub shared: Arc<Shared>,
    pub complaints: Complaints,
    /// Of claims and leases; handlers borrow it to begin transactions.
    pub control: Handle,
    pub handler_runtime: Handle,
    pub ended: mpsc::UnboundedSender<Ended>,
    /// A notification says that there is work.
    pub pool_wake: Notify,
    /// Somebody cancelled something of ours.
    pub watch_wake: Notify,
    pub heartbeat_wake: Notify,
    /// Something is held that was not.
    pub watchdog_wake: Notify,
    /// Something ended.
    pub changed: Notify,
    pub flushing: Flushing,
    /// Of ends that are written one by one.
    pub writers: Semaphore,
    pub reports_wake: Arc<Notify>,
    /// A claim may be on its way.
    pub is_claiming: AtomicBool,
    pub given_back: AtomicUsize,
    /// The worker's row says that it drains, or could not be reached.
    pub is_farewell_said: AtomicBool,
    /// Nothing more is claimed.
    pub closing: CancellationToken,
    /// All is written: loops end.
    pub over: CancellationToken,
    pool_lease_secs: AtomicU64,
    held: Mutex<Held>,
}

impl Core {
    pub fn new(
        settings: WorkerSettings,
        handlers: Handlers,
        shared: Arc<Shared>,
        databases: Databases,
        ended: mpsc::UnboundedSender<Ended>,
        handler_runtime: Handle,
        membership: Membership,
    ) -> Self {
        let Membership { worker_id, lease_secs } = membership;
        Self {
            settings,
            handlers,
            worker_id,
            databases,
            shared,
            complaints: Complaints::default(),
            control: Handle::current(),
            handler_runtime,
            ended,
            pool_wake: Notify::new(),
            watch_wake: Notify::new(),
            heartbeat_wake: Notify::new(),
            watchdog_wake: Notify::new(),
            changed: Notify::new(),
            flushing: Flushing::default(),
            writers: Semaphore::new(WRITERS),
            reports_wake: Arc::default(),
            is_claiming: AtomicBool::new(false),
            given_back: AtomicUsize::new(0),
            is_farewell_said: AtomicBool::new(false),
            closing: CancellationToken::new(),
            over: CancellationToken::new(),
            pool_lease_secs: AtomicU64::new(u64::from(lease_secs)),
            held: Mutex::default(),
        }
    }

    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the pool, as far as we know.
    pub fn lease_secs(&self) -> u32 {
        u32::try_from(self.pool_lease_secs.load(Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    pub fn learn_lease(&self, lease_secs: u32) {
        if self.pool_lease_secs.swap(u64::from(lease_secs), Ordering::Relaxed) != u64::from(lease_secs) {
            self.heartbeat_wake.notify_one();
        }
    }

    /// Tells what counts of the table to those who look from outside.
    pub fn publish_counts(&self) {
        let (held, occupied) = {
            let table = self.held();
            (table.len(), table.occupied())
        };
        self.shared.held.store(u64::try_from(held).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.shared.metrics.leases.set(i64::try_from(held).unwrap_or(i64::MAX));
        self.shared.metrics.slots_busy.set(i64::try_from(occupied).unwrap_or(i64::MAX));
    }

    pub fn fire(&self, attempt: Attempt, cause: StopCause) {
        let fired = {
            let mut held = self.held();
            held.fire(attempt, cause, Instant::now()).then(|| held.get(attempt).map(|entry| entry.span.clone()))
        };
        if let Some(span) = fired {
            self.shared.metrics.stops.get_or_create(&Cause { cause: Name(cause_name(cause)) }).inc();
            span.unwrap_or_else(Span::none)
                .in_scope(|| tracing::info!(cause = cause_name(cause), "the handler is told to stop"));
            self.watchdog_wake.notify_one();
        }
    }

    pub fn set_draining(&self, is_draining: bool) {
        if self.shared.is_draining.swap(is_draining, Ordering::Relaxed) != is_draining {
            tracing::info!("{}", if is_draining { "drained: claiming nothing more" } else { "serving again" });
            self.shared.claim_wake.notify_one();
        }
    }

    /// The answer to one statement, in bounded time.
    pub async fn ask<T, F>(&self, call: impl FnOnce(Arc<Pools>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.databases.ask(self.answer_limit(), call).await
    }

    pub fn answer_limit(&self) -> Duration {
        decide::answer_limit(self.lease_secs())
    }

    /// Under the id that this process has; again, if its row is gone.
    pub async fn register(&self) -> Result<(), StoreError> {
        let (settings, worker_id) = (self.settings.clone(), self.worker_id);
        self.ask(move |pools| async move {
            let WorkerSettings { pool, slots, version, pod_name, pod_uid, .. } = &settings;
            let worker = NewWorker {
                pool,
                slots: *slots,
                version: version.as_deref(),
                pod_name: pod_name.as_deref(),
                pod_uid: pod_uid.as_deref(),
                stands_for_pool: false,
                worker_id: Some(worker_id),
            };
            register_worker(&pools.leases, &worker).await
        })
        .await?;
        self.shared.is_registered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits before the next try; false if the worker is over meanwhile.
    pub async fn pause(&self, failures: u32) -> bool {
        let pause = decide::retry_pause(failures, self.settings.pace.retry, share());
        self.over.run_until_cancelled(tokio::time::sleep(pause)).await.is_some()
    }
}

pub(super) fn cause_name(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Cancel => "cancel",
        StopCause::Drain => "drain",
        StopCause::Shutdown => "shutdown",
        StopCause::Timeout => "timeout",
        StopCause::Lost => "lost",
        StopCause::LeaseOver => "lease_over",
    }
}

/// A random number from 0 to 1.
pub(super) fn share() -> f64 {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    // Of a random UUID, the first 32 bits are random.
    f64::from(u32::try_from(high >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
