//! The worker's connections: pools by what they are for, and an answer or an error in bounded time from each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::settings::WorkerSettings;
use crate::store::{Database, PoolSettings, Role, StoreError};

/// The claim, the flush of the last one, and upkeep; heartbeat and watch.
const CLAIM_CONNECTIONS: u32 = 3;
const LEASE_CONNECTIONS: u32 = 2;
/// Ends that are written one by one, at once.
pub(super) const WRITERS: usize = 2;
/// These, what is flushed together, what is given back together, and reports.
const END_CONNECTIONS: u32 = 5;
/// Together with finding out why, less than the shortest wait for an answer: the cause is told then, and not the wait.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// None can starve another.
pub(super) struct Pools {
    pub claims: Database,
    pub leases: Database,
    pub ends: Database,
    pub handlers: Database,
}

impl Pools {
    fn new(settings: &WorkerSettings) -> Self {
        let few = PoolSettings { max_connections: LEASE_CONNECTIONS, acquire_timeout: ACQUIRE_TIMEOUT };
        let claims = PoolSettings { max_connections: CLAIM_CONNECTIONS, ..few };
        let ends = PoolSettings { max_connections: END_CONNECTIONS, ..few };
        let many = PoolSettings { max_connections: settings.handler_connections, ..PoolSettings::default() };
        let control = |pool| Database::for_retried_statements(settings.database.clone(), Role::Worker, pool);
        Self {
            claims: control(claims),
            leases: control(few),
            ends: control(ends),
            handlers: Database::new(settings.database.clone(), Role::Handler, many),
        }
    }

    pub async fn close(&self) {
        let Self { claims, leases, ends, handlers } = self;
        tokio::join!(claims.close(), leases.close(), ends.close(), handlers.close());
    }
}

/// A network that swallows everything lets no statement end, and a database's future must not be dropped: who waits too
/// long goes on with new connections, and leaves the old ones to themselves.
pub(super) struct Databases {
    settings: WorkerSettings,
    pools: Mutex<Arc<Pools>>,
    pub replaced: Notify,
}

impl Databases {
    /// Must be called on the runtime that uses them.
    pub fn new(settings: &WorkerSettings) -> Self {
        let pools = Mutex::new(Arc::new(Pools::new(settings)));
        Self { settings: settings.clone(), pools, replaced: Notify::new() }
    }

    pub fn pools(&self) -> Arc<Pools> {
        Arc::clone(&self.pools.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What `call` answers, or that it took longer than `limit`; it ends by itself then, and may still be done.
    pub async fn ask<T, F>(&self, limit: Duration, call: impl FnOnce(Arc<Pools>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let pools = self.pools();
        let answer = tokio::time::timeout(limit, tokio::spawn(call(Arc::clone(&pools)))).await;
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(transient("a statement was dropped".to_owned())),
            Err(_) => {
                self.replace(&pools);
                let server = self.settings.database.server();
                Err(transient(format!("{server} has not answered for {} s", limit.as_secs())))
            }
        }
    }

    /// Unless somebody did so before.
    pub fn replace(&self, silent: &Arc<Pools>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&pools, silent) {
            *pools = Arc::new(Pools::new(&self.settings));
            self.replaced.notify_one();
        }
    }
}

fn transient(cause: String) -> StoreError {
    StoreError::Transient { cause, driver: None }
}
