//! How a worker is told to end: once to drain, twice to give everything back.

use tokio_util::sync::CancellationToken;

/// Cheap to clone; all clones speak of the same end.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    give_back: CancellationToken,
}

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// Claim nothing more, let running work finish for as long as the settings say, give back the rest.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Stop all handlers now and give everything back.
    pub fn give_back(&self) {
        self.drain.cancel();
        self.give_back.cancel();
    }

    /// The first SIGTERM or SIGINT drains, the second gives back. Heard on a thread of its own: handlers may block theirs.
    #[cfg(unix)]
    pub fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let shutdown = Self::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        // From here on, no signal ends the process before the worker has.
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let told = shutdown.clone();
        let thread = std::thread::Builder::new().name("sluice-signals".to_owned());
        thread.spawn(move || {
            runtime.block_on(async move {
                for tell in [Self::drain, Self::give_back] {
                    tokio::select! {
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                    tell(&told);
                }
            });
        })?;
        Ok(shutdown)
    }

    pub(super) fn drain_token(&self) -> &CancellationToken {
        &self.drain
    }

    pub(super) fn give_back_token(&self) -> &CancellationToken {
        &self.give_back
    }
}
