//! The pipeline's own little upkeep: once in a while, one of the handlers sweeps what late attempts left.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::Database;
use crate::store::ingest::removal::{Swept, sweep};

/// Leftovers are rare and harmless; all workers share the work.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
const DOCUMENTS_MAX: u32 = 100;

#[derive(Debug, Default)]
pub struct Sweeper {
    last: Mutex<Option<Instant>>,
}

impl Sweeper {
    /// What goes wrong is no failure of the task that came by.
    pub async fn sweep_if_due(&self, database: &Database) {
        if !self.is_due(Instant::now()) {
            return;
        }
        match sweep(database, DOCUMENTS_MAX).await {
            Ok(Swept { swept: 0, quarantined: 0 }) => {}
            Ok(Swept { swept, quarantined: 0 }) => tracing::info!(swept, "leftovers of deleted documents are gone"),
            Ok(Swept { swept, quarantined }) => {
                tracing::warn!(swept, quarantined, "leftovers resist: see ingest.compensation_quarantine");
            }
            Err(error) => tracing::warn!(%error, "leftovers were not swept"),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.duration_since(last) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_due_once_an_interval() {
        let sweeper = Sweeper::default();
        let start = Instant::now();
        assert!(sweeper.is_due(start));
        assert!(!sweeper.is_due(start + INTERVAL / 2));
        assert!(sweeper.is_due(start + INTERVAL));
        assert!(!sweeper.is_due(start + INTERVAL));
    }
}
