//! Mode Job: claims for the pool under the caps, and starts one Job for each attempt.
//!
//! The claims are a worker's that stands for the pool. Nobody renews their leases: they are the time that a pod has to
//! take its attempt over. A Job that cannot be made gives its attempt back at once.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::PostParams;
use uuid::Uuid;

use super::apply::{Refused, lead, refusable};
use super::spec::PoolSpec;
use super::workload;
use crate::operator::Context;
use crate::operator::context::FIELD_MANAGER;
use crate::operator::controller::Fault;
use crate::operator::instrument::{ApiWrite, Kind};
use crate::store::claim::{Attempt, Claim, ClaimRequest, claim};
use crate::store::ends::{CoolDown, release};
use crate::store::leases::{NewWorker, heartbeat, register_worker};

/// Jobs that one look makes, so that it ends in time.
const JOBS_PER_LOOK: u32 = 20;
/// Tasks of one lane in a turn while others wait.
const QUANTUM: u32 = 1;
/// After a Job was refused, nothing is claimed for so long.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// The worker that stands for the pool says so often that it is there; well within the shortest lease.
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The worker that stands for one pool.
#[derive(Default)]
pub struct Standing {
    worker_id: Option<Uuid>,
    sequence: i64,
    alive_at: Option<Instant>,
    refused: Option<(Instant, Refused)>,
}

impl Standing {
    /// Why the last Job was not made, as long as that holds claims back.
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref().filter(|(at, _)| at.elapsed() < REFUSED_PAUSE).map(|(_, refused)| refused)
    }

    /// Starts Jobs for what may start, at most `free`. Answers how many.
    pub async fn start(
        &mut self,
        context: &Context,
        spec: &PoolSpec,
        owner: &OwnerReference,
        free: u32,
    ) -> Result<u32, Fault> {
        if free == 0 || self.refused().is_some() {
            return Ok(0);
        }
        lead(context)?;
        let worker_id = self.register(context, spec).await?;
        self.sequence += 1;
        let request =
            ClaimRequest { worker_id, sequence: self.sequence, want: free.min(JOBS_PER_LOOK), quantum: QUANTUM };
        let tasks = match claim(&context.database, request).await? {
            Claim::Tasks(tasks) => tasks,
            Claim::Unregistered => {
                self.worker_id = None;
                return Ok(0);
            }
        };
        let mut started = 0;
        let mut unstarted = Vec::new();
        for task in tasks {
            if self.refused().is_some() {
                unstarted.push(task.attempt);
                continue;
            }
            match create(context, spec, owner, task.attempt).await {
                Ok(Ok(())) => started += 1,
                Ok(Err(refused)) => {
                    tracing::warn!(pool = spec.name, why = refused.0, "a Job was refused");
                    self.refused = Some((Instant::now(), refused));
                    unstarted.push(task.attempt);
                }
                Err(fault) => {
                    // Whether it was made is not known: if not, the start deadline gives the attempt back.
                    tracing::warn!(pool = spec.name, %fault, "it is not known whether a Job was made");
                }
            }
        }
        if !unstarted.is_empty() {
            release(&context.database, &unstarted, Some("no Job could be made for it"), CoolDown::No).await?;
        }
        Ok(started)
    }

    async fn register(&mut self, context: &Context, spec: &PoolSpec) -> Result<Uuid, Fault> {
        if let (Some(worker_id), Some(at)) = (self.worker_id, self.alive_at) {
            if at.elapsed() >= ALIVE_INTERVAL {
                // At sequence 0, so that no claim counts as one whose reply never came.
                heartbeat(&context.database, worker_id, 0, &[]).await?;
                self.alive_at = Some(Instant::now());
            }
            return Ok(worker_id);
        }
        let worker = NewWorker {
            pool: &spec.name,
            slots: spec.limits.max_replicas.max(1),
            version: Some(env!("CARGO_PKG_VERSION")),
            pod_name: None,
            pod_uid: None,
            stands_for_pool: true,
            worker_id: None,
        };
        let worker_id = register_worker(&context.database, &worker).await?;
        self.worker_id = Some(worker_id);
        self.alive_at = Some(Instant::now());
        Ok(worker_id)
    }
}

async fn create(
    context: &Context,
    spec: &PoolSpec,
    owner: &OwnerReference,
    attempt: Attempt,
) -> Result<Result<(), Refused>, Fault> {
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let job = match serde_json::from_value(workload::job(spec, owner, attempt)) {
        Ok(job) => job,
        Err(error) => return Ok(Err(Refused(format!("the template is not one of a pod: {error}")))),
    };
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match refusable(jobs.create(&params, &job).await) {
        Ok(answer) => {
            context.metrics.wrote(Kind::Pool, ApiWrite::Create);
            Ok(answer.map(drop))
        }
        // Its name is its attempt: it is there already.
        Err(Fault::Stale) => Ok(Ok(())),
        Err(fault) => Err(fault),
    }
}
