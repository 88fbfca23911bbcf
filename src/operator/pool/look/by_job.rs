//! A look at a pool of mode Job.

use serde_json::Value;

use super::{Look, REFUSED_PAUSE, Tried};
use crate::api::Time;
use crate::domain::scaling::{Decision, Limits, Reason};
use crate::operator::controller::Fault;
use crate::operator::pool::observe::{Owned, owned};
use crate::operator::pool::plan::{DriftState, Plan, Wait};
use crate::operator::pool::rollout::Progress;
use crate::operator::pool::spec::PoolSpec;
use crate::operator::pool::status::{Counts, Scale};
use crate::operator::pool::{apply, uid, workload};

impl Look<'_> {
    /// Mode Job: first the workers of an earlier mode go, then Jobs start.
    pub(super) async fn jobs(&mut self, spec: &PoolSpec, now: Time) -> Result<(), Fault> {
        let seen = self.see(now);
        let owner = workload::owner(&spec.name, &uid(self.object));
        if let Some(held) = seen.deployment.as_deref().filter(|held| owned(held, self.object) == Owned::Ours) {
            let none = Limits { min_replicas: 0, max_replicas: 0, scale_down_delay_secs: 0 };
            let plan = self.plan(spec, &seen, none, now);
            self.scale(&plan, &seen).await?;
            if seen.facts.as_ref().is_some_and(|facts| facts.replicas == 0 && facts.pods == 0) && seen.pods.is_empty() {
                apply::delete_deployment(self.context, held).await?;
            }
            return self.show_workers(spec, &plan, now).await;
        }
        let wanted = workload::deployment(spec, &owner, 0);
        self.try_template(&wanted).await?;
        let max = spec.limits.max_replicas;
        let demand = self.rows.and_then(|rows| rows.demand.get(&spec.name));
        // Attempts that no Job stands for any more count too, until their lease is over.
        let held = demand.map_or(u64::from(max), |demand| demand.running + demand.stopping);
        let active = u32::try_from(held).unwrap_or(u32::MAX).max(seen.jobs);
        let startable = demand.map_or(0, |demand| demand.startable);
        let free = max.saturating_sub(active).min(u32::try_from(startable).unwrap_or(u32::MAX));
        if matches!(self.pool.template, Tried::Accepted { .. }) {
            self.pool.jobs.start(self.context, spec, &owner, free).await?;
        }
        if let Some(why) = self.pool.jobs.refused().cloned() {
            self.refuse(workload::made_of(&wanted), why);
        }
        let wants = demand.map_or(u64::from(active), |demand| demand.demand);
        let counts = Counts {
            replicas: seen.jobs,
            ready: seen.jobs,
            desired: u32::try_from(wants).unwrap_or(u32::MAX).min(max),
            draining: 0,
        };
        let unknown = Plan {
            decision: Decision { replicas: counts.desired, reason: Reason::DemandUnknown, quiet: None },
            replicas: None,
            drain: Vec::new(),
            undrain: Vec::new(),
            release: Vec::new(),
            draining: 0,
            wait: Wait::Nothing,
            drift: DriftState::None,
        };
        let scale = match self.rows {
            Some(_) => Scale::Jobs { is_full: wants > u64::from(max) },
            None => Scale::Workers(&unknown),
        };
        self.show_counts(spec, counts, (scale, Progress::Done), seen.problem.as_deref(), now).await
    }

    async fn try_template(&mut self, wanted: &Value) -> Result<(), Fault> {
        let made_of = workload::made_of(wanted);
        match &self.pool.template {
            Tried::Accepted { made_of: tried } if tried == made_of => return Ok(()),
            Tried::Refused { made_of: tried, at, .. } if tried == made_of && at.elapsed() < REFUSED_PAUSE => {
                return Ok(());
            }
            Tried::Not | Tried::Accepted { .. } | Tried::Refused { .. } => {}
        }
        match apply::dry_run(self.context, wanted).await? {
            Ok(_) => self.pool.template = Tried::Accepted { made_of: made_of.to_owned() },
            Err(why) => drop(self.refuse(made_of, why)),
        }
        Ok(())
    }
}
