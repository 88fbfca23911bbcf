//! The worker's runtime: claims tasks, runs handlers, holds leases, hears cancels, drains. Never sees Kubernetes.
//!
//! A program that does work, whole:
//!
//! ```no_run
//! use sluice::domain::task::TaskType;
//! use sluice::worker::{Context, Done, Handlers, Shutdown, WorkerSettings, run};
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     let settings = WorkerSettings::new(std::env::var("DATABASE_URL")?.parse()?, 8);
//!     let handlers = Handlers::new().on(TaskType::Insert, async |context: Context| {
//!         let text: String = context.payload()?;
//!         Ok(Done::new().with_result(text.len()))
//!     });
//!     run(settings, handlers, Shutdown::on_signals()?).await?;
//!     Ok(())
//! }
//! ```
//!
//! Claims, leases and ends live on a thread of their own with connections of their own, so nothing that a handler does
//! can starve them; handlers run on the runtime that called [`run`].

mod attempt;
mod claiming;
mod complaints;
mod core;
mod databases;
mod decide;
mod ending;
mod flushing;
mod handler;
mod held;
mod leasing;
mod life;
mod metrics;
mod publishing;
mod reporter;
mod reporting;
mod running;
mod settings;
mod shutdown;
pub mod test_handlers;
mod text;
mod upkeep;
mod wake;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::store::StoreError;
use crate::store::startup::StartError;

pub use decide::Unready;
pub use handler::{Context, Done, Handled, Handler, Handlers, NotDone, StopCause, Task};
pub use reporter::{DocumentUpdate, Reporter};
pub use settings::{Pace, WorkerSettings};
pub use shutdown::Shutdown;

/// Serves a pool until `shutdown` says to end, and gives back what has not ended by then.
pub async fn run(settings: WorkerSettings, handlers: Handlers, shutdown: Shutdown) -> Result<Ended, WorkerError> {
    Worker::new(settings, handlers).run(shutdown).await
}

/// A worker that is not running yet, for who wants its metrics, its health or its waker first.
pub struct Worker {
    settings: WorkerSettings,
    handlers: Handlers,
    shared: Arc<core::Shared>,
}

impl Worker {
    pub fn new(settings: WorkerSettings, handlers: Handlers) -> Self {
        let shared = Arc::new(core::Shared::new(settings.slots));
        Self { settings, handlers, shared }
    }

    /// Outlives the worker, and may be asked from any thread.
    pub fn health(&self) -> Health {
        Health { shared: Arc::clone(&self.shared) }
    }

    /// Under the prefix `sluice_worker`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.shared.metrics.register(registry);
    }

    /// For who enqueues in this process: saves its tasks the wait for the next poll.
    pub fn waker(&self) -> Waker {
        Waker { claim: Arc::clone(&self.shared.claim_wake) }
    }

    /// As [`run`]. Handlers run on the runtime of the caller; if this future is dropped, all is given back.
    pub async fn run(self, shutdown: Shutdown) -> Result<Ended, WorkerError> {
        let Self { settings, handlers, shared } = self;
        if handlers.is_empty() {
            return Err(WorkerError::NoHandlers);
        }
        let handler_runtime = Handle::current();
        let told = shutdown.clone();
        let mut guard = GiveBackOnDrop(Some(shutdown));
        let (answer, answered) = oneshot::channel();
        let thread = std::thread::Builder::new().name("sluice-worker".to_owned());
        let body = move || {
            // Nobody waits any more: it was dropped.
            let _ = answer.send(life::on_this_thread(settings, handlers, shared, &handler_runtime, &told));
        };
        thread.spawn(body).map_err(WorkerError::Thread)?;
        let ended = answered.await.unwrap_or(Err(WorkerError::Crashed));
        guard.0 = None;
        ended
    }
}

struct GiveBackOnDrop(Option<Shutdown>);

impl Drop for GiveBackOnDrop {
    fn drop(&mut self) {
        if let Some(shutdown) = &self.0 {
            shutdown.give_back();
        }
    }
}

/// What probes ask.
#[derive(Clone)]
pub struct Health {
    shared: Arc<core::Shared>,
}

impl Health {
    /// Its loops turn.
    pub fn is_live(&self) -> bool {
        self.shared.is_live()
    }

    /// Whether it is able to work: never about load. Who holds leases is always ready.
    pub fn readiness(&self) -> Result<(), Unready> {
        let core::Shared { is_registered, is_draining, is_closing, held, .. } = &*self.shared;
        decide::readiness(
            is_registered.load(Ordering::Relaxed),
            is_draining.load(Ordering::Relaxed),
            is_closing.load(Ordering::Relaxed),
            held.load(Ordering::Relaxed),
        )
    }

    /// Brings up to date what grows by itself; before metrics are read.
    pub fn refresh_metrics(&self) {
        self.shared.metrics.refresh();
    }
}

/// Wakes the worker of this process.
#[derive(Clone)]
pub struct Waker {
    claim: Arc<Notify>,
}

impl Waker {
    /// After the commit that made work.
    pub fn wake(&self) {
        self.claim.notify_one();
    }
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Tasks that were running still and are pending again.
    pub given_back: usize,
    /// What became of the attempt of [`WorkerSettings::adopt`].
    pub adopted: Option<Adopted>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adopted {
    /// It was ours, and its row says how it ended.
    Ended,
    /// The attempt is not there to be taken: adopted before, over, or past its start deadline.
    NotThere,
}

/// Why a worker does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("no handler is registered: every task of the pool would fail")]
    NoHandlers,
    #[error("the worker cannot start")]
    Start(#[from] StartError),
    #[error(
        "the worker's lease is set to {asked} s, and those of pool {pool:?} are {held} s: leave SLUICE_TASK_LEASE_TTL_SECS unset, \
         or change the pool's lease_secs with set_pool"
    )]
    LeaseDiffers { pool: String, asked: u32, held: u32 },
    #[error("the attempt cannot be adopted")]
    Adopt(#[source] StoreError),
    #[error("no thread for the worker")]
    Thread(#[source] std::io::Error),
    #[error("the worker's own loops ended: this is a mistake in the program, see the log")]
    Crashed,
}

impl WorkerError {
    /// Starting again does not help until somebody changes a setting, a right or a version.
    pub fn is_setting(&self) -> bool {
        match self {
            Self::Start(error) => error.is_setting(),
            Self::LeaseDiffers { .. } => true,
            Self::NoHandlers | Self::Adopt(_) | Self::Thread(_) | Self::Crashed => false,
        }
    }
}
