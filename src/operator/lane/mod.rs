//! The lane controller: rows of lanes have the limits that TenantLanes ask for, and these show what the lanes do.
//!
//! One pass looks at all lanes: a single statement counts them all, so a second pass costs the same with one lane or a
//! thousand, and no event can be missed for longer than the next pass.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cache::{self, Cache, Change, Follow, strip_metadata};
use super::controller::Fault;
use super::instrument::{Kind, Outcome};
use super::tenancy::Grants;
use super::write::{StatusWrite, write_status};
use super::{Caches, Context};
use crate::api::{TenantLane, TenantLaneStatus, Time};
use crate::domain::lane::Class;
use crate::store::reads::LaneCounts;

mod apply;
mod depth;
mod observe;
mod pace;
mod plan;
mod status;

pub use plan::{DEFAULT_POOL, manager};

/// So that a status is right within a second of a change in the database.
const PASS_INTERVAL: Duration = Duration::from_millis(500);
/// Counting takes at most this part of one connection's time, however long the queue is.
const BUSY_SHARE: u32 = 10;
/// Statuses written side by side.
const WRITES_AT_ONCE: usize = 8;
/// The database may be away for so long before statuses say so: a failover is no news.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// What is known of its kind, whether this process leads or not.
pub struct Cached {
    pub objects: Arc<Cache<TenantLane>>,
    /// Which tenants a namespace may name; the task controller asks too.
    pub grants: Grants,
    /// As the leader last counted.
    counted: watch::Sender<Arc<Counted>>,
    changed: Notify,
}

impl Cached {
    #[expect(clippy::new_without_default, reason = "made once, by the operator")]
    pub fn new() -> Self {
        Self {
            objects: Arc::new(Cache::new()),
            grants: Grants::new(),
            counted: watch::Sender::new(Arc::default()),
            changed: Notify::new(),
        }
    }

    pub fn is_synced(&self) -> bool {
        self.objects.is_synced()
    }

    pub async fn synced(&self) {
        self.objects.synced().await;
    }

    /// Changed with each pass of the leader; empty before the first.
    pub fn counted(&self) -> watch::Receiver<Arc<Counted>> {
        self.counted.subscribe()
    }
}

/// What a pass saw.
#[derive(Default)]
pub struct Counted {
    pub lanes: Vec<LaneCounts>,
    /// Pools of lanes, with no WorkerPool here and no worker anywhere.
    pub unserved: BTreeSet<String>,
}

impl Counted {
    pub fn lane(&self, tenant: &str, class: Class) -> Option<&LaneCounts> {
        self.lanes.iter().find(|lane| lane.tenant == tenant && lane.class == class)
    }
}

/// Fills the cache, in followers too, until it is dropped.
pub async fn follow(context: Arc<Context>, caches: Arc<Caches>) {
    let events = context.events.clone();
    let noticed = caches.clone();
    let how = Follow {
        client: context.watch_client.clone(),
        kind: Kind::Lane,
        namespaces: context.settings.watch_namespaces.clone(),
        strip: |lane: &mut TenantLane| strip_metadata(lane),
        notice: move |change| {
            if let Change::Unreadable(unreadable) = &change {
                events.publish_unreadable::<TenantLane>(Kind::Lane, unreadable);
            }
            noticed.lanes.changed.notify_one();
        },
        metrics: context.metrics.clone(),
    };
    cache::follow(caches.lanes.objects.clone(), how).await;
}

/// Acts until `stop`; called each time that this process begins to lead, with the caches filled.
pub async fn run(context: Arc<Context>, caches: Arc<Caches>, stop: CancellationToken) {
    let mut controller = Controller {
        context: context.clone(),
        caches: caches.clone(),
        refusals: apply::Refusals::default(),
        pace: pace::Pace::new(std::time::Instant::now()),
        away_since: None,
        read_took: Duration::ZERO,
    };
    // Those that were met before this process led: events of a follower are not written.
    for unreadable in caches.lanes.objects.unreadable() {
        context.events.publish_unreadable::<TenantLane>(Kind::Lane, &unreadable);
    }
    while !stop.is_cancelled() {
        let begun = Instant::now();
        // Never raced: a statement on its way must come to its end.
        let outcome = controller.pass().await;
        let took = begun.elapsed();
        controller.report(&outcome, took);
        let pause = match outcome {
            Ok(Pass::Again) => continue,
            Ok(Pass::Settled) | Err(_) => PASS_INTERVAL.max(controller.read_took.saturating_mul(BUSY_SHARE)),
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
            () = caches.lanes.changed.notified() => {}
        }
    }
    // Whoever leads now counts them.
    controller.context.metrics.lanes(&[]);
}

enum Pass {
    Settled,
    /// Rows were written: what they say now is to be shown.
    Again,
}

struct Controller {
    context: Arc<Context>,
    caches: Arc<Caches>,
    refusals: apply::Refusals,
    pace: pace::Pace,
    away_since: Option<Instant>,
    /// By the database.
    read_took: Duration,
}

impl Controller {
    async fn pass(&mut self) -> Result<Pass, Fault> {
        let observed = match observe::observe(&self.context, &self.caches).await {
            Ok(observed) => observed,
            Err(error) => {
                self.say_away().await;
                return Err(Fault::Store(error));
            }
        };
        self.away_since = None;
        self.read_took = observed.read_took;
        let counted = observed.counted.clone();
        self.caches.lanes.counted.send_replace(counted.clone());
        let rows = &counted.lanes;
        self.context.metrics.lanes(&depth::depths(rows));
        let claimants: Vec<_> = observed.lanes.iter().filter_map(|lane| lane.claimant.clone().ok()).collect();
        let facts =
            plan::Observed { claimants: &claimants, unreadable: &observed.unreadable, rows, pools: &observed.pools };
        let scope = plan::Scope { cluster: &self.context.cluster, namespaces: &self.context.settings.watch_namespaces };
        let plan = plan::plan(&facts, scope);
        if apply::apply(&self.context, &plan.changes, &mut self.refusals).await? > 0 {
            return Ok(Pass::Again);
        }
        let wanted = self.statuses(&observed, &plan);
        self.write(wanted).await;
        Ok(Pass::Settled)
    }

    /// What each resource should show.
    fn statuses(&self, observed: &observe::Observation, plan: &plan::Plan) -> Vec<(Arc<TenantLane>, TenantLaneStatus)> {
        let now = Time::from(chrono::Utc::now());
        let rows = observed.counted.lanes.iter();
        let rows: HashMap<_, _> = rows.map(|row| ((row.tenant.as_str(), row.class), row)).collect();
        let of_one = |lane: &observe::Lane| {
            let object = &lane.object;
            let claimant = match &lane.claimant {
                Ok(claimant) => claimant,
                Err(problem) => {
                    let (before, generation) = (object.status.as_ref(), object.metadata.generation);
                    return (object.clone(), status::invalid(before, generation, problem, now));
                }
            };
            let missing = plan.without_pool.contains(&claimant.uid);
            let pool_missing = missing.then(|| status::Obstacle::PoolMissing(claimant.wanted.pool.clone()));
            let row = rows.get(&(claimant.lane.tenant.as_str(), claimant.lane.class)).copied();
            let unwritten = row.is_none().then_some(status::Obstacle::NotYet);
            let obstacle = self.refusals.obstacle(&claimant.uid).or(pool_missing.as_ref()).or(unwritten.as_ref());
            let known = status::Known {
                claimant,
                generation: object.metadata.generation,
                verdict: plan.verdicts.get(&claimant.uid).unwrap_or(&plan::Verdict::Unknown),
                row,
                obstacle,
                before: object.status.as_ref(),
            };
            (object.clone(), status::status(&known, now))
        };
        observed.lanes.iter().map(of_one).collect()
    }

    /// Writes what differs, at the pace that the API server is spared at.
    async fn write(&mut self, wanted: Vec<(Arc<TenantLane>, TenantLaneStatus)>) {
        let due = self.pace.due(wanted, std::time::Instant::now());
        let context = &self.context;
        let cache = &self.caches.lanes.objects;
        let writes = due.into_iter().map(|(object, wanted)| async move {
            match write_status(context, Kind::Lane, &*object, &object.status, &wanted).await {
                Ok(StatusWrite::Unchanged) => {}
                Ok(StatusWrite::Written(mut written)) => {
                    strip_metadata(&mut *written);
                    cache.put(*written);
                    if let Some((reason, note)) = status::news(object.status.as_ref(), &wanted) {
                        context.events.publish(Kind::Lane, &*object, reason, &note);
                    }
                }
                // What changed it will be seen.
                Err(Fault::Stale) => {}
                Err(fault) => tracing::debug!(lane = object.name_any(), %fault, "a lane's status was not written"),
            }
        });
        futures::stream::iter(writes).buffer_unordered(WRITES_AT_ONCE).collect::<Vec<_>>().await;
    }

    async fn say_away(&mut self) {
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if since.elapsed() < AWAY_AFTER {
            return;
        }
        let now = Time::from(chrono::Utc::now());
        let away = |object: Arc<TenantLane>| {
            let status = status::without_database(object.status.as_ref(), object.metadata.generation, now);
            (object, status)
        };
        let wanted = self.caches.lanes.objects.all().into_iter().map(away).collect();
        self.write(wanted).await;
    }

    fn report(&self, outcome: &Result<Pass, Fault>, took: Duration) {
        let outcome = match outcome {
            Ok(_) => Outcome::Done,
            Err(Fault::Stale) => Outcome::Waiting,
            Err(fault) => {
                tracing::debug!(%fault, "a look at the lanes failed and is tried again");
                Outcome::Error
            }
        };
        self.context.metrics.reconciled(Kind::Lane, outcome, took);
    }
}
