//! Who acts: one process holds the Lease, the others follow with warm caches.
//!
//! The lease manager tells of changes only, and goes on quietly when a renewal fails. So its client has a short time
//! limit, a failure that is not made good in time ends the leadership before the Lease runs out, and a process that stood
//! still (SIGSTOP, a paused machine) does not believe what it knew before. A leader that the database does not answer gives
//! the Lease to a follower that may be better off; if none is, it leads again, and says in statuses what is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError, LeaseParams};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::instrument::Metrics;
use crate::store::Database;

/// After it, a follower takes over.
const LEASE_SECS: u64 = 10;
/// Renewed so long before it ends: every 3 s.
const GRACE_SECS: u64 = 7;
/// Of each request about the Lease, and of a connection on which nothing comes. Shorter than the time between two renewals: the
/// next one then finds it closed, and not about to be.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(2);
/// What is left of the grace after a request that hung, with a second to spare.
const FAILURE_LIMIT: Duration = Duration::from_millis(2_500);
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const TICK: Duration = Duration::from_millis(500);
/// The database may not answer for so long before the Lease is given away; a failover is longer, and moves nothing.
const DATABASE_LIMIT: Duration = Duration::from_secs(4);
const DATABASE_PROBE: Duration = Duration::from_secs(1);
/// Above the time after which a follower asks for the Lease again.
const STAND_BACK: Duration = Duration::from_secs(11);
/// Between two times of standing back: a database that is away for all moves the Lease no more often.
const STAND_BACK_PAUSE: Duration = Duration::from_secs(60);
/// A process whose clock jumped by this much stood still, and may have lost the Lease meanwhile.
const STANDSTILL: Duration = Duration::from_secs(3);

/// Whether this process leads. Cheap to clone.
#[derive(Clone)]
pub struct Leadership {
    state: Arc<watch::Sender<bool>>,
    begun: Instant,
    /// Milliseconds since `begun` at which this process was last seen alive.
    ticked: Arc<AtomicU64>,
}

impl Leadership {
    pub fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(false)), begun: Instant::now(), ticked: Arc::default() }
    }

    /// To be asked before every write.
    pub fn is_held(&self) -> bool {
        *self.state.borrow() && self.since_tick() < STANDSTILL
    }

    pub async fn gained(&self) {
        // Fails only without a sender, and that is ours.
        let _ = self.state.subscribe().wait_for(|leads| *leads).await;
    }

    pub async fn lost(&self) {
        let _ = self.state.subscribe().wait_for(|leads| !*leads).await;
    }

    fn set(&self, leads: bool) {
        self.state.send_if_modified(|state| std::mem::replace(state, leads) != leads);
    }

    fn tick(&self) {
        let millis = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ticked.store(millis, Ordering::Release);
    }

    fn since_tick(&self) -> Duration {
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.ticked.load(Ordering::Acquire)))
    }
}

impl Default for Leadership {
    fn default() -> Self {
        Self::new()
    }
}

/// When the database last answered this process. Cheap to clone.
#[derive(Clone)]
pub struct Reach {
    answered_at: Arc<watch::Sender<Instant>>,
}

impl Reach {
    pub fn new() -> Self {
        Self { answered_at: Arc::new(watch::Sender::new(Instant::now())) }
    }

    /// Asks again and again until `shutdown`; never raced, since a statement must come to its end.
    pub async fn follow(self, database: Database, shutdown: CancellationToken) {
        while !shutdown.is_cancelled() {
            if database.ping().await.is_ok() {
                self.answered_at.send_replace(Instant::now());
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(DATABASE_PROBE) => {}
            }
        }
    }

    fn is_away(&self) -> bool {
        self.answered_at.borrow().elapsed() >= DATABASE_LIMIT
    }

    async fn answered(&self) {
        let mut answers = self.answered_at.subscribe();
        answers.mark_unchanged();
        // Fails only without a sender, and that is ours.
        let _ = answers.changed().await;
    }
}

impl Default for Reach {
    fn default() -> Self {
        Self::new()
    }
}

pub struct Election {
    /// With [`REQUEST_LIMIT`] as its limit.
    pub client: Client,
    pub namespace: String,
    pub lease: String,
    /// Of this process alone.
    pub identity: String,
    pub leadership: Leadership,
    pub metrics: Metrics,
    pub reach: Reach,
}

/// Takes part until `shutdown`, and then gives the Lease back, so that a follower need not wait for its end.
pub async fn run(election: Election, shutdown: CancellationToken) {
    let mut failing_since: Option<Instant> = None;
    let mut stood_back_at: Option<Instant> = None;
    loop {
        let error = match build(&election).await {
            Ok(manager) => match hold(&election, &manager, &mut failing_since, stood_back_at, &shutdown).await {
                Ended::Shutdown => return,
                Ended::NoDatabase => {
                    stand_back(&election, &shutdown).await;
                    stood_back_at = Some(Instant::now());
                    continue;
                }
                Ended::Failed(error) => error,
                Ended::Standstill => {
                    say(&election, false, "this process stood still");
                    continue;
                }
            },
            Err(error) => error,
        };
        let since = *failing_since.get_or_insert_with(|| {
            tracing::warn!(%error, "the Lease cannot be read or renewed");
            Instant::now()
        });
        if since.elapsed() >= FAILURE_LIMIT {
            say(&election, false, "the Lease could not be renewed in time");
        }
        tokio::select! {
            () = shutdown.cancelled() => return say(&election, false, "shutting down"),
            () = tokio::time::sleep(RETRY_PAUSE) => election.leadership.tick(),
        }
    }
}

enum Ended {
    Shutdown,
    Standstill,
    NoDatabase,
    Failed(LeaseManagerError),
}

async fn hold(
    election: &Election,
    manager: &LeaseManager,
    failing_since: &mut Option<Instant>,
    stood_back_at: Option<Instant>,
    shutdown: &CancellationToken,
) -> Ended {
    let may_stand_back = || stood_back_at.is_none_or(|at| at.elapsed() >= STAND_BACK_PAUSE);
    loop {
        let (mut is_away, mut led) = (false, true);
        // Dropped before anything else is asked of the manager, since it may hold its lock; it will read the Lease again.
        let changed = {
            let changed = manager.changed();
            tokio::pin!(changed);
            loop {
                tokio::select! {
                    changed = &mut changed => break changed,
                    () = tokio::time::sleep(TICK) => {
                        if election.leadership.since_tick() >= STANDSTILL {
                            return Ended::Standstill;
                        }
                        election.leadership.tick();
                        if election.reach.is_away() && may_stand_back() {
                            led = *election.leadership.state.borrow();
                            say(election, false, "the database does not answer this process");
                            is_away = true;
                            break Ok(false);
                        }
                        // A request that hangs counts as one that failed.
                        if failing_since.is_some_and(|since| since.elapsed() >= FAILURE_LIMIT) {
                            say(election, false, "the Lease could not be renewed in time");
                        }
                    }
                    () = shutdown.cancelled() => {
                        say(election, false, "shutting down");
                        break Ok(false);
                    }
                }
            }
        };
        if is_away || shutdown.is_cancelled() {
            if led && let Err(error) = manager.release().await {
                tracing::warn!(%error, "the Lease was not given back, and runs out by itself");
            }
            return if shutdown.is_cancelled() { Ended::Shutdown } else { Ended::NoDatabase };
        }
        match changed {
            Ok(leads) => {
                *failing_since = None;
                election.leadership.tick();
                say(election, leads, if leads { "the Lease is ours" } else { "the Lease is another's" });
            }
            Err(error) => return Ended::Failed(error),
        }
    }
}

/// Leaves the Lease to others, until the database answers or nobody took it.
async fn stand_back(election: &Election, shutdown: &CancellationToken) {
    let over = tokio::time::sleep(STAND_BACK);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = &mut over => return,
            () = election.reach.answered() => return,
            () = tokio::time::sleep(TICK) => election.leadership.tick(),
        }
    }
}

/// A new manager reads the Lease, and tells at once that it is ours if it still is.
async fn build(election: &Election) -> Result<LeaseManager, LeaseManagerError> {
    LeaseManagerBuilder::new(election.client.clone(), &election.lease)
        .with_namespace(&election.namespace)
        .with_parameters(LeaseParams::new(&election.identity, LEASE_SECS, GRACE_SECS))
        .build()
        .await
}

fn say(election: &Election, leads: bool, why: &str) {
    if *election.leadership.state.borrow() != leads {
        tracing::info!(identity = election.identity, leads, why, "leadership changed");
    }
    election.metrics.leads(leads);
    election.leadership.set(leads);
}
