//! One look at all pools: observe → plan → apply → status.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use serde_json::Value;

use super::apply::{self, Refused};
use super::jobs::Standing;
use super::observe::{Owned, Seen, owned, see};
use super::ownership::{self, Leaving};
use super::plan::{Drift, DriftState, Facts, Memory, Plan, plan};
use super::rollout::{Progress, progress};
use super::spec::PoolSpec;
use super::status::{self, Counts, Demand, Known, Scale, Template};
use super::{ByUid, uid, workload};
use crate::api::worker_pool::PoolMode;
use crate::api::{Time, WorkerPool, WorkerPoolStatus};
use crate::domain::scaling::Limits;
use crate::operator::cache::strip_metadata;
use crate::operator::controller::Fault;
use crate::operator::events::EventReason;
use crate::operator::instrument::Kind;
use crate::operator::write::{StatusWrite, write_status};
use crate::operator::{Caches, Context};
use crate::store::StoreError;
use crate::store::lanes::{PoolManager, pool_managers};
use crate::store::reads::{PoolDemand, PoolSettingsRow, PoolWorker, pool_demand, pool_settings, pool_workers};

mod by_job;

/// A template that was refused is tried again so much later, unless it changes.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// The API server does not take the status of an object that breaks a rule of its schema, as one that is older than the rule
/// may; the event says what the status cannot.
const UNWRITABLE_PAUSE: Duration = Duration::from_secs(30);
/// Between two statuses of a pool in which only counts moved.
const COUNTS_PAUSE: Duration = Duration::from_millis(900);

pub struct Controller {
    context: Arc<Context>,
    caches: Arc<Caches>,
    pools: ByUid<Pool>,
    leaving: Leaving,
    read_took: Duration,
}

/// What is remembered of one pool.
#[derive(Default)]
struct Pool {
    memory: Memory,
    /// Changes of the Deployment by others, by its generation.
    template_drift: Drift,
    template: Tried,
    jobs: Standing,
    written_at: Option<Instant>,
    unwritable_at: Option<Instant>,
    /// Why its row is not ours to write.
    conflict: Option<String>,
}

#[derive(Default)]
enum Tried {
    #[default]
    Not,
    Accepted {
        made_of: String,
    },
    Refused {
        made_of: String,
        why: Refused,
        at: Instant,
    },
}

/// What the database says of all pools.
struct Rows {
    demand: HashMap<String, PoolDemand>,
    settings: HashMap<String, PoolSettingsRow>,
    workers: Vec<PoolWorker>,
    managers: HashMap<String, PoolManager>,
}

impl Controller {
    pub fn new(context: Arc<Context>, caches: Arc<Caches>) -> Self {
        Self { context, caches, pools: HashMap::new(), leaving: Leaving::default(), read_took: Duration::ZERO }
    }

    /// What the database took for the last look.
    pub fn read_took(&self) -> Duration {
        self.read_took
    }

    /// One outcome for each pool, and one more if the database did not answer.
    pub async fn pass(&mut self) -> Vec<Result<(), Fault>> {
        let objects = self.caches.pools.objects.all();
        self.pools.retain(|known, _| objects.iter().any(|object| uid(object) == *known));
        let mut outcomes = Vec::with_capacity(objects.len() + 1);
        if let Err(fault) = self.leaving.look(&self.context, &self.caches).await {
            outcomes.push(Err(fault));
        }
        if objects.is_empty() {
            return outcomes;
        }
        // A database that does not answer is never a zero.
        let begun = Instant::now();
        let rows = match self.read().await {
            Ok(rows) => {
                self.read_took = begun.elapsed();
                Some(rows)
            }
            Err(error) => {
                outcomes.push(Err(Fault::Store(error)));
                None
            }
        };
        for object in objects {
            let pool = self.pools.entry(uid(&object)).or_default();
            let look =
                Look { context: &self.context, caches: &self.caches, object: &object, rows: rows.as_ref(), pool };
            outcomes.push(look.run().await);
        }
        outcomes
    }

    async fn read(&self) -> Result<Rows, StoreError> {
        let database = &self.context.database;
        let demand = pool_demand(database).await?;
        let settings = pool_settings(database).await?;
        let workers = pool_workers(database, None).await?;
        let managers = pool_managers(database).await?;
        Ok(Rows {
            demand: demand.into_iter().map(|demand| (demand.pool.clone(), demand)).collect(),
            settings: settings.into_iter().map(|row| (row.pool.clone(), row)).collect(),
            workers,
            managers: managers.into_iter().map(|manager| (manager.pool.clone(), manager)).collect(),
        })
    }
}

struct Look<'a> {
    context: &'a Context,
    caches: &'a Caches,
    object: &'a WorkerPool,
    rows: Option<&'a Rows>,
    pool: &'a mut Pool,
}

impl Look<'_> {
    async fn run(mut self) -> Result<(), Fault> {
        let home = &self.context.settings.namespace;
        let now = Time::from(chrono::Utc::now());
        let generation = self.object.metadata.generation;
        if self.object.namespace().as_deref() != Some(home) {
            let wanted = status::misplaced(self.object.status.as_ref(), generation, home, now);
            return self.show(wanted).await;
        }
        if self.object.metadata.deletion_timestamp.is_some() {
            // Its owner reference takes the workers along; they drain when they are told to end.
            return Ok(());
        }
        let spec = PoolSpec::of(self.object);
        if let Some(rows) = self.rows {
            let (row, manager) = (rows.settings.get(&spec.name), rows.managers.get(&spec.name));
            let other = ownership::settle(self.context, &spec, row, manager).await?;
            self.pool.conflict = other.as_ref().map(ownership::conflict);
        }
        match spec.mode {
            PoolMode::Deployment => self.workers(&spec, now).await,
            PoolMode::Job => self.jobs(&spec, now).await,
        }
    }

    async fn workers(&mut self, spec: &PoolSpec, now: Time) -> Result<(), Fault> {
        let seen = self.see(now);
        let plan = self.plan(spec, &seen, spec.limits, now);
        // A new template never lowers the replicas: that is for a look at pods that do not change meanwhile.
        let current = seen.facts.as_ref().map_or(0, |facts| facts.replicas);
        let replicas = plan.replicas.unwrap_or(current).max(current);
        let wanted = workload::deployment(spec, &workload::owner(&spec.name, &uid(self.object)), replicas);
        let is_written = self.settle_template(&wanted, &seen, now).await?;
        let is_ours = seen.deployment.as_deref().is_some_and(|held| owned(held, self.object) == Owned::Ours);
        if is_ours && !is_written {
            self.scale(&plan, &seen).await?;
        }
        self.show_workers(spec, &plan, now).await
    }

    fn see(&self, now: Time) -> Seen {
        see(self.object, &self.caches.pools, now.get().timestamp())
    }

    fn plan(&mut self, spec: &PoolSpec, seen: &Seen, limits: Limits, now: Time) -> Plan {
        let of_pool = self.workers_of(spec);
        let slots = of_pool.iter().flatten().filter(|worker| worker.is_alive && worker.pod_uid.is_some());
        let threads = spec.threads_or(slots.map(|worker| worker.slots));
        // A pool whose row is not there yet has no work.
        let demand = self.rows.map(|rows| rows.demand.get(&spec.name).map_or(0, |demand| demand.demand));
        let facts = Facts {
            limits,
            want: demand.map(|slots| slots.div_ceil(u64::from(threads.get()))),
            shown: self.object.status.as_ref().and_then(|status| status.desired_replicas),
            deployment: seen.facts.as_ref(),
            pods: &seen.pods,
            workers: of_pool.as_deref(),
            now: now.get().timestamp(),
        };
        plan(&facts, &mut self.pool.memory)
    }

    /// `None` if the database did not answer.
    fn workers_of(&self, spec: &PoolSpec) -> Option<Vec<PoolWorker>> {
        self.rows.map(|rows| rows.workers.iter().filter(|worker| worker.pool == spec.name).cloned().collect())
    }

    /// Makes the Deployment what the template says. Answers whether it was written.
    async fn settle_template(&mut self, wanted: &Value, seen: &Seen, now: Time) -> Result<bool, Fault> {
        let made_of = workload::made_of(wanted);
        let held = seen.deployment.as_deref();
        if let Some(foreign) = held.filter(|held| owned(held, self.object) == Owned::Foreign) {
            let why = format!(
                "there is a Deployment {} that does not belong to this pool: delete it, or wait until it is gone",
                foreign.name_any()
            );
            self.pool.template = Tried::Refused { made_of: made_of.to_owned(), why: Refused(why), at: Instant::now() };
            return Ok(false);
        }
        let is_made_of = |held: &k8s_openapi::api::apps::v1::Deployment| {
            held.annotations().get(workload::MADE_OF_ANNOTATION).is_some_and(|by| by == made_of)
        };
        let is_known = self.pool.template_drift.is_known();
        let generation = held.and_then(|held| held.metadata.generation).unwrap_or(0);
        let drift = match held {
            Some(_) => self.pool.template_drift.look(generation, now.get().timestamp()),
            None => DriftState::None,
        };
        let is_as_wanted = held.is_some_and(|held| is_made_of(held) && owned(held, self.object) == Owned::Ours);
        let is_settled = held.is_some_and(|held| workload::holds(held, wanted))
            || match drift {
                // What was looked at is known to be as the API server writes it.
                DriftState::None => is_known,
                DriftState::Corrected => false,
                DriftState::Tolerated => true,
            };
        if is_as_wanted && is_settled {
            self.pool.template = Tried::Accepted { made_of: made_of.to_owned() };
            return Ok(false);
        }
        if let Tried::Refused { made_of: refused, at, .. } = &self.pool.template
            && refused == made_of
            && at.elapsed() < REFUSED_PAUSE
        {
            return Ok(false);
        }
        let tried = match apply::dry_run(self.context, wanted).await? {
            Ok(deployment) => deployment,
            Err(why) => return Ok(self.refuse(made_of, why)),
        };
        self.pool.template = Tried::Accepted { made_of: made_of.to_owned() };
        if is_as_wanted && held.is_some_and(|held| held.spec == tried.spec) {
            return Ok(false);
        }
        match apply::apply_deployment(self.context, self.caches, wanted.clone(), held).await? {
            Ok(deployment) => {
                tracing::info!(pool = self.object.name_any(), "the Deployment was written");
                self.wrote(&deployment);
                if is_as_wanted {
                    let note = "somebody changed the Deployment; it was set back to the pool's template";
                    self.context.events.publish(Kind::Pool, self.object, EventReason::DriftCorrected, note);
                }
                Ok(true)
            }
            Err(why) => Ok(self.refuse(made_of, why)),
        }
    }

    fn refuse(&mut self, made_of: &str, why: Refused) -> bool {
        self.pool.template = Tried::Refused { made_of: made_of.to_owned(), why, at: Instant::now() };
        false
    }

    fn wrote(&mut self, deployment: &k8s_openapi::api::apps::v1::Deployment) {
        if let Some(replicas) = deployment.spec.as_ref().and_then(|spec| spec.replicas) {
            self.pool.memory.drift.wrote(i64::from(replicas));
        }
        self.pool.template_drift.wrote(deployment.metadata.generation.unwrap_or(0));
    }

    /// Demand that rose undoes drains first; the replicas come last, on the version that was looked at.
    async fn scale(&mut self, plan: &Plan, seen: &Seen) -> Result<(), Fault> {
        apply::undrain(self.context, self.caches, &plan.undrain).await?;
        apply::drain(self.context, self.caches, &plan.drain).await?;
        if plan.replicas != Some(0) {
            apply::release(self.context, self.caches, &plan.release).await?;
        }
        let (Some(held), Some(facts)) = (seen.deployment.as_deref(), &seen.facts) else { return Ok(()) };
        let Some(replicas) = plan.replicas.filter(|replicas| *replicas != facts.replicas) else { return Ok(()) };
        let deployment = apply::set_replicas(self.context, self.caches, held, replicas).await?;
        self.wrote(&deployment);
        tracing::info!(
            pool = self.object.name_any(), from = facts.replicas, to = replicas, why = %plan.decision.reason,
            "the pool was scaled"
        );
        let note = format!("from {} to {replicas} workers: {}", facts.replicas, plan.decision.reason);
        if plan.drift == DriftState::Corrected {
            let note = format!("somebody set the replicas to {}; they were set back to {replicas}", facts.replicas);
            self.context.events.publish(Kind::Pool, self.object, EventReason::DriftCorrected, &note);
        } else {
            self.context.events.publish(Kind::Pool, self.object, EventReason::Scaled, &note);
        }
        Ok(())
    }

    async fn show_workers(&mut self, spec: &PoolSpec, plan: &Plan, now: Time) -> Result<(), Fault> {
        let seen = self.see(now);
        let ready = seen.pods.iter().filter(|pod| pod.is_ready).count();
        let counts = Counts {
            replicas: u32::try_from(seen.pods.len()).unwrap_or(u32::MAX),
            ready: u32::try_from(ready).unwrap_or(u32::MAX),
            desired: plan.decision.replicas,
            draining: plan.draining,
        };
        let workers = self.workers_of(spec);
        let progress = progress(seen.facts.as_ref(), &seen.pods, &seen.leaving, workers.as_deref());
        self.show_counts(spec, counts, (Scale::Workers(plan), progress), seen.problem.as_deref(), now).await
    }

    async fn show_counts(
        &mut self,
        spec: &PoolSpec,
        counts: Counts,
        (scale, progress): (Scale<'_>, Progress),
        problem: Option<&str>,
        now: Time,
    ) -> Result<(), Fault> {
        let template = match &self.pool.template {
            Tried::Not => Template::Untried,
            Tried::Accepted { .. } => Template::Accepted,
            Tried::Refused { why, .. } => Template::Refused(&why.0),
        };
        let known = Known {
            spec,
            generation: self.object.metadata.generation,
            before: self.object.status.as_ref(),
            counts,
            demand: self.rows.map(|rows| {
                let demand = rows.demand.get(&spec.name);
                Demand {
                    slots: demand.map_or(0, |demand| demand.demand),
                    running: demand.map_or(0, |demand| demand.running + demand.stopping),
                }
            }),
            template,
            scale,
            progress,
            conflict: self.pool.conflict.as_deref(),
            problem,
        };
        let wanted = status::status(&known, now);
        self.show(wanted).await
    }

    /// Writes the status if it differs; what moves all the time no more often than people look.
    async fn show(&mut self, wanted: WorkerPoolStatus) -> Result<(), Fault> {
        let held = self.object.status.as_ref();
        let only_counts = held.is_some_and(|held| without_counts(held) == without_counts(&wanted));
        if only_counts && self.pool.written_at.is_some_and(|at| at.elapsed() < COUNTS_PAUSE) {
            return Ok(());
        }
        if self.pool.unwritable_at.is_some_and(|at| at.elapsed() < UNWRITABLE_PAUSE) {
            return Ok(());
        }
        let written = write_status(self.context, Kind::Pool, self.object, &self.object.status, &wanted).await;
        if let Err(Fault::Api(kube::Error::Api(refused))) = &written
            && refused.code == 422
        {
            self.pool.unwritable_at = Some(Instant::now());
            if let Some((reason, note)) = status::news(held, &wanted) {
                self.context.events.publish(Kind::Pool, self.object, reason, &note);
            }
        }
        let written = written?;
        if let StatusWrite::Written(mut written) = written {
            strip_metadata(&mut *written);
            self.pool.written_at = Some(Instant::now());
            if let Some((reason, note)) = status::news(held, &wanted) {
                self.context.events.publish(Kind::Pool, self.object, reason, &note);
            }
            self.caches.pools.objects.put(*written);
        }
        Ok(())
    }
}

fn without_counts(status: &WorkerPoolStatus) -> WorkerPoolStatus {
    WorkerPoolStatus { demand: None, running: None, summary: None, ..status.clone() }
}
