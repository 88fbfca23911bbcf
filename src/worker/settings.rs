//! What a worker is told; everything has a default but the database.

use std::time::Duration;

use uuid::Uuid;

use crate::domain::delivery::{LeaseTtl, POLL_INTERVAL, WakeMode};
use crate::store::DatabaseUrl;
use crate::store::claim::Attempt;

/// How many connections handlers share unless it is said: they write when they publish, and seldom all at once.
const HANDLER_CONNECTIONS_MAX: u32 = 8;

#[derive(Debug, Clone)]
pub struct WorkerSettings {
    pub database: DatabaseUrl,
    /// Leads past any pooler; used if `wake_mode` listens.
    pub listen_database: DatabaseUrl,
    pub pool: String,
    /// Tasks that run at once.
    pub slots: u32,
    /// Of handlers; claims, leases and ends have their own.
    pub handler_connections: u32,
    pub wake_mode: WakeMode,
    /// What leases of the pool must be, if it is said: they are the pool's, alike for all of its workers, and a worker that
    /// was told otherwise does not start.
    pub lease: Option<LeaseTtl>,
    /// How long running work may go on after the first signal to stop.
    pub drain: Duration,
    /// Runs this attempt, which was claimed for a Job, and nothing else.
    pub adopt: Option<Attempt>,
    pub version: Option<String>,
    pub pod_name: Option<String>,
    pub pod_uid: Option<String>,
    /// Random for each process, unless a test wants to know it.
    pub worker_id: Option<Uuid>,
    pub pace: Pace,
}

impl WorkerSettings {
    pub fn new(database: DatabaseUrl, slots: u32) -> Self {
        Self {
            listen_database: database.clone(),
            database,
            pool: "default".to_owned(),
            slots,
            handler_connections: slots.clamp(1, HANDLER_CONNECTIONS_MAX),
            wake_mode: WakeMode::Local,
            lease: None,
            drain: Duration::from_secs(30),
            adopt: None,
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            pod_name: None,
            pod_uid: None,
            worker_id: None,
            pace: Pace::default(),
        }
    }
}

/// How often things are done, and how long is waited for; tests make it faster. The length of a lease is the pool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The longest time between two claims while slots are free.
    pub poll: Duration,
    /// The longest time between two looks for cancels and drains.
    pub watch: Duration,
    /// Between two rounds of `promote` and `reap`.
    pub upkeep: Duration,
    /// Between two calls of `retain`.
    pub retain: Duration,
    /// Between two reports of one attempt.
    pub report: Duration,
    /// How long a handler may take to stop before it is aborted; never more than half a lease.
    pub stop_grace: Duration,
    /// The longest pause between two tries to reach a database that is away.
    pub retry: Duration,
    /// The most that a claim is delayed after a notification, so that a fleet does not claim in the same moment.
    pub wake_spread: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: POLL_INTERVAL,
            watch: Duration::from_secs(2),
            upkeep: Duration::from_secs(2),
            retain: Duration::from_secs(60 * 60),
            report: Duration::from_millis(500),
            stop_grace: Duration::from_secs(10),
            retry: Duration::from_secs(2),
            wake_spread: Duration::from_millis(3),
        }
    }
}
