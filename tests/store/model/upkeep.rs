//! The model's rules of upkeep, and of time that passes.

use std::collections::BTreeSet;

use sluice::domain::lane::Policy;
use sluice::domain::task::State;
use uuid::Uuid;

use super::ends::TIMEOUT;
use super::state::{LONG, LOST_LEASES_MAX, LaneKey, Model, Tick};

impl Model {
    /// Attempts whose lease ran out, or that are over their deadline by a lease.
    pub fn overdue(&self, now: Tick) -> Vec<Uuid> {
        let is_over = |lease: Tick, deadline: Tick| lease < now || deadline < now - LONG;
        let overdue =
            self.tasks.iter().filter(|(_, task)| task.is_leased() && is_over(task.lease_until, task.deadline));
        overdue.map(|(id, _)| *id).collect()
    }

    pub fn reap(&mut self, now: Tick, id: Uuid) -> &'static str {
        let task = self.tasks.get_mut(&id).expect("it is overdue");
        let attempt = task.attempt;
        if task.state == State::Stopping {
            self.move_to(id, State::Cancelled, None);
            return "cancelled";
        }
        if task.lease_until >= now {
            let class = if task.task_type.as_str() == "pdf_processing" { "timeout_phase_convert" } else { TIMEOUT };
            return self.fail(now, id, attempt, class);
        }
        if task.worker.and_then(|worker| self.workers.get(&worker)).is_some_and(|worker| worker.stands_for_pool) {
            return self.release(id, attempt);
        }
        task.lost_leases += 1;
        let is_last = task.lost_leases >= LOST_LEASES_MAX;
        let resumes = self.pools[&self.lanes[&task.lane].pool].auto_resume;
        if is_last || !resumes {
            self.move_to(id, State::Failed, Some(if is_last { "worker_lost" } else { "interrupted" }));
            return "failed";
        }
        self.move_to(id, State::Pending, None);
        "lost"
    }

    /// Pending work that is due and was not made ready yet.
    pub fn due(&self, now: Tick) -> BTreeSet<Uuid> {
        let is_due = |id: &&Uuid| {
            let task = &self.tasks[*id];
            task.state == State::Pending && !task.ready && !task.suspended && task.available_at <= now
        };
        self.tasks.keys().filter(is_due).copied().collect()
    }

    pub fn promote(&mut self, id: Uuid) {
        self.tasks.get_mut(&id).expect("it is due").ready = true;
    }

    /// Lanes whose rest is over.
    pub fn rested(&self, now: Tick) -> Vec<LaneKey> {
        let rested = self.lanes.iter().filter(|(_, lane)| {
            lane.is_held && lane.policy == Policy::None && lane.cooled_until.is_some_and(|until| until <= now)
        });
        rested.map(|(key, _)| key.clone()).collect()
    }

    /// Keys and workers that went; what `retain` answers.
    pub fn retain(&mut self) -> Vec<String> {
        let live = |id: &Uuid| self.tasks.get(id).is_some_and(|task| task.is_live());
        let old =
            self.keys.iter().filter(|((_, kind, _), key)| kind == "idempotency" && key.is_old && !live(&key.track_id));
        let old: Vec<_> = old.map(|(name, _)| name.clone()).collect();
        old.iter().for_each(|name| drop(self.keys.remove(name)));
        let holds = |worker: &Uuid| self.tasks.values().any(|task| task.is_leased() && task.worker == Some(*worker));
        let gone: Vec<Uuid> =
            self.workers.iter().filter(|(id, worker)| worker.forgotten && !holds(id)).map(|(id, _)| *id).collect();
        gone.iter().for_each(|id| drop(self.workers.remove(id)));
        let line = |what: &str, count: usize| (count > 0).then(|| format!("{what} {count}"));
        line("keys", old.len()).into_iter().chain(line("workers", gone.len())).collect()
    }
}
