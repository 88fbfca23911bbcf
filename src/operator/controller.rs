//! The loop of a controller: takes keys, looks at each once at a time and at several side by side, and tries again what
//! failed, later each time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use super::cache::Key;
use super::context::Context;
use super::instrument::{self, Kind};
use super::queue::WorkQueue;
use crate::store::StoreError;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// A database or API server that comes back is used again within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How a look at an object ended. Waiting is an outcome, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to be done until something changes.
    Done,
    /// It waits for what no watch tells of.
    Again(Duration),
}

/// What kept a look from its end. It is tried again, later each time.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Store(#[from] StoreError),
    /// Of a statement that several looks had a part in.
    #[error("{0}")]
    Shared(Arc<StoreError>),
    /// The object was changed while it was looked at, or this process leads no more.
    #[error("it changed meanwhile")]
    Stale,
}

impl Fault {
    /// The database is away or takes no writes: nothing is wrong with the object.
    pub fn is_database_away(&self) -> bool {
        let error = match self {
            Self::Store(error) => error,
            Self::Shared(error) => error,
            Self::Api(_) | Self::Stale => return false,
        };
        matches!(error, StoreError::Transient { .. } | StoreError::ReadOnly { .. })
    }
}

/// Runs until `stop`, and then waits for what has begun: a database future must not be dropped.
pub async fn run<F, Fut>(
    context: &Context,
    kind: Kind,
    queue: Arc<WorkQueue<Key>>,
    concurrency: usize,
    stop: CancellationToken,
    reconcile: F,
) where
    F: Fn(Key) -> Fut,
    Fut: Future<Output = Result<Outcome, Fault>> + Send + 'static,
{
    let mut looks = Looks { kind, queue, failures: HashMap::new(), begun: HashMap::new(), running: JoinSet::new() };
    looks.queue.open();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = looks.running.join_next_with_id(), if !looks.running.is_empty() => looks.ended(context, ended),
            key = looks.queue.next(), if looks.running.len() < concurrency => {
                let handle = looks.running.spawn(reconcile(key.clone()));
                looks.begun.insert(handle.id(), (key, Instant::now()));
            }
        }
    }
    looks.queue.close();
    while let Some(ended) = looks.running.join_next_with_id().await {
        looks.ended(context, ended);
    }
}

struct Looks {
    kind: Kind,
    queue: Arc<WorkQueue<Key>>,
    /// In a row, of what failed last time.
    failures: HashMap<Key, u32>,
    begun: HashMap<Id, (Key, Instant)>,
    running: JoinSet<Result<Outcome, Fault>>,
}

type Ended = Result<(Id, Result<Outcome, Fault>), tokio::task::JoinError>;

impl Looks {
    fn ended(&mut self, context: &Context, ended: Ended) {
        let (id, result) = match ended {
            Ok((id, result)) => (id, Ok(result)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some((key, begun)) = self.begun.remove(&id) else { return };
        let (outcome, again) = match result {
            Ok(Ok(Outcome::Done)) => (instrument::Outcome::Done, None),
            Ok(Ok(Outcome::Again(after))) => (instrument::Outcome::Waiting, Some(after)),
            Ok(Err(fault)) => (instrument::Outcome::Error, Some(self.pause(&key, &fault))),
            // A bug in one object's look must not end all others.
            Err(error) => (instrument::Outcome::Error, Some(self.pause(&key, &error))),
        };
        if outcome != instrument::Outcome::Error {
            self.failures.remove(&key);
        }
        context.metrics.reconciled(self.kind, outcome, begun.elapsed());
        self.queue.done(&key, again);
        context.metrics.queue_length(self.kind, self.queue.len());
    }

    /// The first failure in a row is told; the others only wait longer.
    fn pause(&mut self, key: &Key, fault: &dyn std::fmt::Display) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        if *failures == 2 {
            tracing::warn!(kind = self.kind.as_str(), %key, %fault, "a look failed twice and is tried again");
        } else {
            tracing::debug!(kind = self.kind.as_str(), %key, %fault, failures, "a look failed and is tried again");
        }
        pause_after(*failures)
    }
}

fn pause_after(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_seconds() {
        let millis = [1, 2, 3, 6, 7, 40, u32::MAX].map(|failures| pause_after(failures).as_millis());
        assert_eq!(millis, [200, 400, 800, 6_400, 10_000, 10_000, 10_000]);
    }
}
