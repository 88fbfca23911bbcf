//! The one signal that an attempt gets: stop, and why.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;

use super::handler::StopCause;

#[derive(Debug, Default)]
pub(super) struct Stop {
    token: CancellationToken,
    cause: OnceLock<StopCause>,
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
}
