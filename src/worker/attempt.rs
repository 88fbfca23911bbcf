//! The one signal that an attempt gets: stop, and why; and the last one, its abort.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::handler::StopCause;

#[derive(Debug, Default)]
pub(super) struct Stop {
    token: CancellationToken,
    cause: OnceLock<StopCause>,
    handler: OnceLock<AbortHandle>,
    is_aborted: AtomicBool,
}

impl Stop {
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    pub fn cause(&self) -> Option<StopCause> {
        self.cause.get().copied()
    }

    /// The first cause holds; answers whether this is it.
    pub fn fire(&self, cause: StopCause) -> bool {
        let is_first = self.cause.set(cause).is_ok();
        self.token.cancel();
        is_first
    }

    /// Drops the handler's future at its next await; as soon as there is one, if it is not spawned yet.
    pub fn abort(&self) {
        // Either this sees the handler, or `set_handler` sees the mark.
        self.is_aborted.store(true, Ordering::SeqCst);
        if let Some(handler) = self.handler.get() {
            handler.abort();
        }
    }

    pub fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }

    pub fn set_handler(&self, handler: AbortHandle) {
        let handler = self.handler.get_or_init(|| handler);
        if self.is_aborted() {
            handler.abort();
        }
    }
}
