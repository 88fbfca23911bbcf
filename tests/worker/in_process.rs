//! A worker in the test's own process, for handlers that tell the test where they are.

use sluice::domain::delivery::WakeMode;
use sluice::store::Role;
use sluice::worker::{Ended, Handlers, Pace, Shutdown, WorkerError, WorkerSettings, run};
use tokio::task::JoinHandle;

use crate::bed::Bed;
use crate::until::until;

pub struct Running {
    shutdown: Shutdown,
    ended: JoinHandle<Result<Ended, WorkerError>>,
}

/// The settings of a worker of the bed; it does not listen.
pub fn settings(bed: &Bed, slots: u32) -> WorkerSettings {
    let url = bed.db.url(Role::Worker).parse().expect("a URL");
    let pace = Pace { poll: PACE, watch: PACE, upkeep: PACE, ..Pace::default() };
    WorkerSettings { wake_mode: WakeMode::Local, pace, ..WorkerSettings::new(url, slots) }
}

/// A tenth of the usual one, so that tests need not wait.
const PACE: std::time::Duration = std::time::Duration::from_millis(200);

impl Running {
    pub fn start(settings: WorkerSettings, handlers: Handlers) -> Self {
        let shutdown = Shutdown::new();
        let ended = tokio::spawn(run(settings, handlers, shutdown.clone()));
        Self { shutdown, ended }
    }

    /// Gives everything back, and ends.
    pub async fn stop(self) -> Ended {
        self.shutdown.give_back();
        self.end().await
    }

    /// It was told to end, or ends by itself.
    pub async fn end(self) -> Ended {
        until("the worker ends", async || self.ended.is_finished()).await;
        self.ended.await.expect("it does not panic").expect("it ends well")
    }
}
