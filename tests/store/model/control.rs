//! The model's rules of what people ask: enqueue, cancel, retry, suspend, priority, lanes and pools.

use sluice::domain::lane::{Class, Policy};
use sluice::domain::task::{Event, Outcome, State, TaskType, apply};
use uuid::Uuid;

use super::call::{Item, LaneChange, PoolChange};
use super::state::{Document, Key, LONG, Lane, LaneKey, Model, RETRIES_MAX, Task, Tick};

/// What the database decides at random: the ids that it gave to an item.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub track_id: Uuid,
    /// Grows with each task that comes, or comes again.
    pub arrival: i64,
    pub document: Option<Uuid>,
}

impl Model {
    /// The lane of an item, made if there is none.
    pub fn lane(&mut self, key: LaneKey) -> LaneKey {
        let pool = &self.pools["default"];
        let cap = if key.1 == Class::Ingest { pool.ingest_cap } else { pool.lifecycle_cap };
        self.lanes.entry(key.clone()).or_insert_with(|| Lane {
            pool: "default".to_owned(),
            max_running: cap,
            is_default: true,
            weight: 1,
            policy: Policy::None,
            is_held: false,
            cooled_until: None,
            cool_forgotten: 0,
            cool_downs: 0,
        });
        key
    }

    /// One item; the answer, and the task that it names.
    pub fn enqueue(&mut self, now: Tick, item: &Item, given: Given) -> (&'static str, Option<Uuid>) {
        if item.is_bad {
            return ("invalid", None);
        }
        let lane = self.lane((item.tenant_name(), item.task_type.class()));
        let asked = item.document;
        let is_theirs =
            |document: &Document| (&document.tenant, &document.workspace) == (&lane.0, &item.workspace_name());
        if asked.and_then(|id| self.documents.get(&id)).is_some_and(|document| !is_theirs(document)) {
            return ("invalid", None);
        }
        let resource = item.resource.map(|n| ("cluster".to_owned(), "resource".to_owned(), format!("uid-{n}")));
        if let Some(key) = resource.as_ref().and_then(|key| self.keys.get(key)) {
            return ("existing", Some(key.track_id));
        }
        let idempotency = item.idempotency.map(|n| (lane.0.clone(), "idempotency".to_owned(), format!("key-{n}")));
        if let Some(key) = idempotency.as_ref().and_then(|key| self.keys.get(key)) {
            let is_same = key.content.as_deref() == Some(&item.content());
            return (if is_same { "existing" } else { "conflict_idempotency" }, Some(key.track_id));
        }
        if let Some(id) = item.exclusive.and_then(|key| self.holder_of(&lane.0, key)) {
            return ("conflict_active", Some(id));
        }
        let Given { track_id, arrival, document } = given;
        for (key, content) in [(resource, None), (idempotency, Some(item.content()))] {
            if let Some(key) = key {
                self.keys.insert(key, Key { track_id, content, is_old: false });
            }
        }
        if let Some(id) = document {
            let is_pdf = item.task_type == TaskType::PdfProcessing;
            let row = self.documents.entry(id).or_insert_with(|| Document {
                tenant: lane.0.clone(),
                workspace: item.workspace_name(),
                status: String::new(),
                stage: None,
                pdf_status: None,
                failure_class: None,
                published_status: None,
                task: track_id,
            });
            row.status = "pending".to_owned();
            (row.stage, row.failure_class, row.task) = (None, None, track_id);
            if is_pdf {
                row.pdf_status = Some("pending".to_owned());
            }
        }
        self.tasks.insert(track_id, new_task(now, arrival, lane, item, document));
        ("created", Some(track_id))
    }

    fn holder_of(&self, tenant: &str, exclusive: u8) -> Option<Uuid> {
        let mut live = self.tasks.iter().filter(|(_, task)| task.is_live() && task.tenant() == tenant);
        live.find(|(_, task)| task.exclusive == Some(exclusive)).map(|(id, _)| *id)
    }

    /// The follow-on of a task that has just completed: of its tree, and its document's newest.
    pub fn adopt_follow_on(&mut self, parent: Uuid, next: Uuid) {
        let root = self.root_of(parent);
        let is_documented = self.tasks[&parent].document.is_some();
        let task = self.tasks.get_mut(&next).expect("it was created");
        (task.parent, task.root) = (Some(parent), Some(root));
        if let Some(document) = task.document.filter(|_| is_documented) {
            let document = self.documents.get_mut(&document).expect("its document");
            (document.status, document.stage) = ("processing".to_owned(), Some("preprocessing".to_owned()));
        }
    }

    fn is_visible(&self, id: Uuid, tenant: Option<&str>) -> bool {
        self.tasks.get(&id).is_some_and(|task| tenant.is_none_or(|tenant| task.tenant() == tenant))
    }

    pub fn cancel(&mut self, id: Uuid, tenant: Option<&str>) -> &'static str {
        if !self.is_visible(id, tenant) {
            return "not_found";
        }
        let state = self.tasks[&id].state;
        match apply(state, Event::Cancel) {
            Outcome::Moved(to) => {
                let task = self.tasks.get_mut(&id).expect("it is there");
                task.cancel_asked = true;
                task.state = to;
                if to == State::Cancelled {
                    self.move_to(id, to, None);
                }
                to.as_str()
            }
            Outcome::Unchanged if state == State::Stopping => "stopping",
            Outcome::Unchanged => "unchanged",
            Outcome::Refused(_) | Outcome::NotApplicable if state == State::Completed => "conflict_completed",
            Outcome::Refused(_) | Outcome::NotApplicable => "already_finished",
        }
    }

    pub fn cancel_linked(&mut self, id: Uuid, tenant: Option<&str>) -> Vec<(Uuid, &'static str)> {
        if !self.is_visible(id, tenant) {
            return vec![(id, "not_found")];
        }
        let alive = self.live_in_tree(self.root_of(id));
        if alive.is_empty() {
            return vec![(id, self.cancel(id, None))];
        }
        alive.into_iter().map(|id| (id, self.cancel(id, None))).collect()
    }

    fn live_in_tree(&self, root: Uuid) -> Vec<Uuid> {
        let in_tree = self.tasks.iter().filter(|(id, task)| task.is_live() && task.root.unwrap_or(**id) == root);
        in_tree.map(|(id, _)| *id).collect()
    }

    pub fn cancel_active(&mut self, tenant: Option<&str>, class: Option<Class>) -> Vec<(Uuid, &'static str)> {
        let is_meant = |task: &Task| {
            matches!(task.state, State::Pending | State::Processing)
                && tenant.is_none_or(|tenant| task.tenant() == tenant)
                && class.is_none_or(|class| task.lane.1 == class)
        };
        let ids: Vec<Uuid> = self.tasks.iter().filter(|(_, task)| is_meant(task)).map(|(id, _)| *id).collect();
        ids.into_iter().map(|id| (id, self.cancel(id, None))).collect()
    }

    pub fn retry(&mut self, now: Tick, arrival: i64, id: Uuid, tenant: Option<&str>) -> (&'static str, Uuid) {
        if !self.is_visible(id, tenant) {
            return ("not_found", id);
        }
        let can_retry = |(candidate, task): &(&Uuid, &Task)| {
            matches!(task.state, State::Failed | State::Cancelled) && (**candidate == id || task.root == Some(id))
        };
        let newest = self.tasks.iter().filter(can_retry).max_by_key(|(_, task)| task.arrival).map(|(id, _)| *id);
        let live = self.live_in_tree(self.root_of(id));
        let Some(candidate) = newest else {
            let is_done = self.tasks[&id].state == State::Completed && live.is_empty();
            return (if is_done { "completed" } else { "active" }, id);
        };
        if !live.is_empty() {
            return ("active", id);
        }
        let task = &self.tasks[&candidate];
        if task.retries >= RETRIES_MAX {
            return ("max_retries_exceeded", candidate);
        }
        if task.exclusive.and_then(|key| self.holder_of(task.tenant(), key)).is_some() {
            return ("conflict_active", candidate);
        }
        let task = self.tasks.get_mut(&candidate).expect("it is there");
        *task = Task {
            state: State::Pending,
            arrival,
            ready: true,
            suspended: false,
            failures: 0,
            retries: task.retries + 1,
            lost_leases: 0,
            timeouts: 0,
            worker: None,
            sequence: None,
            available_at: now,
            cancel_asked: false,
            progressed: false,
            stage: None,
            failure_class: None,
            ..task.clone()
        };
        if let Some(document) = task.document.and_then(|document| self.documents.get_mut(&document)) {
            document.task = candidate;
        }
        self.requeue_document(candidate);
        ("pending", candidate)
    }

    /// What suspend, resume and set_priority answer of a task that is not pending.
    fn pending(&mut self, id: Uuid, tenant: Option<&str>) -> Result<&mut Task, &'static str> {
        if !self.is_visible(id, tenant) {
            return Err("not_found");
        }
        self.tasks.get_mut(&id).filter(|task| task.state == State::Pending).ok_or("refused")
    }

    pub fn suspend(&mut self, id: Uuid, tenant: Option<&str>) -> &'static str {
        match self.pending(id, tenant) {
            Err(reason) => reason,
            Ok(task) if task.suspended => "unchanged",
            Ok(task) => {
                (task.suspended, task.ready) = (true, false);
                "suspended"
            }
        }
    }

    pub fn resume(&mut self, now: Tick, id: Uuid, tenant: Option<&str>) -> &'static str {
        match self.pending(id, tenant) {
            Err(reason) => reason,
            Ok(task) if !task.suspended => "unchanged",
            Ok(task) => {
                (task.suspended, task.ready) = (false, task.available_at <= now);
                "resumed"
            }
        }
    }

    pub fn set_priority(&mut self, id: Uuid, priority: i32, tenant: Option<&str>) -> &'static str {
        match self.pending(id, tenant) {
            Err(reason) => reason,
            Ok(task) if task.priority == priority => "unchanged",
            Ok(task) => {
                task.priority = priority;
                "changed"
            }
        }
    }

    /// Answers the cap that holds.
    pub fn set_lane(&mut self, now: Tick, key: LaneKey, change: &LaneChange) -> i32 {
        let key = self.lane(key);
        let lane = self.lanes.get_mut(&key).expect("it was made");
        if let Some(pool) = change.pool_name() {
            lane.pool = pool;
        }
        match change.cap {
            None => {}
            Some(None) => {
                let pool = &self.pools[&lane.pool];
                lane.max_running = if key.1 == Class::Ingest { pool.ingest_cap } else { pool.lifecycle_cap };
                lane.is_default = true;
            }
            Some(Some(cap)) => (lane.max_running, lane.is_default) = (cap, false),
        }
        lane.weight = change.weight.unwrap_or(lane.weight);
        lane.policy = change.policy.unwrap_or(lane.policy);
        self.apply_lane(now, &key);
        self.effective_cap(&key)
    }

    pub fn apply_lane(&mut self, now: Tick, key: &LaneKey) {
        let lane = self.lanes.get_mut(key).expect("it is there");
        lane.is_held = lane.policy != Policy::None || lane.cooled_until.is_some_and(|until| until > now);
    }

    /// A provider said 429 of a task of this lane.
    pub fn cool(&mut self, now: Tick, key: &LaneKey) {
        let lane = self.lanes.get_mut(key).expect("it is there");
        if lane.cooled_until.is_none_or(|until| until <= now) {
            lane.cool_downs =
                if lane.cooled_until.is_some() && lane.cool_forgotten > now { lane.cool_downs + 1 } else { 1 };
            (lane.cooled_until, lane.cool_forgotten) = (Some(now + LONG), now + 2 * LONG);
        }
        self.apply_lane(now, key);
    }

    pub fn set_pool(&mut self, now: Tick, pool: &str, change: &PoolChange) {
        let before = self.clone();
        let row = self.pools.get_mut(pool).expect("the pools are there from the start");
        row.ingest_cap = change.ingest_cap.unwrap_or(row.ingest_cap);
        row.ingest_clamp = change.ingest_clamp.unwrap_or(row.ingest_clamp);
        row.auto_resume = change.auto_resume.unwrap_or(row.auto_resume);
        let row = row.clone();
        for key in self.lanes_of(pool) {
            let lane = self.lanes.get_mut(&key).expect("it is there");
            if lane.is_default {
                lane.max_running = if key.1 == Class::Ingest { row.ingest_cap } else { row.lifecycle_cap };
            }
            // A lane whose cap it changed is written anew, its rest included.
            if self.effective_cap(&key) != before.effective_cap(&key) {
                self.apply_lane(now, &key);
            }
        }
    }

    pub fn hold_all(&mut self, held: bool, pool: Option<&str>) -> usize {
        let asked = self.pools.iter_mut().filter(|(name, _)| pool.is_none_or(|pool| *name == pool));
        asked.filter(|(_, row)| row.held != held).map(|(_, row)| row.held = held).count()
    }
}

fn new_task(now: Tick, arrival: i64, lane: LaneKey, item: &Item, document: Option<Uuid>) -> Task {
    Task {
        lane,
        task_type: item.task_type,
        state: State::Pending,
        priority: item.priority,
        arrival,
        ready: !item.suspended && !item.delayed,
        suspended: item.suspended,
        max_attempts: item.max_attempts,
        failures: 0,
        retries: 0,
        lost_leases: 0,
        timeouts: 0,
        attempt: 0,
        worker: None,
        sequence: None,
        available_at: if item.delayed { now + LONG } else { now },
        lease_until: 0,
        deadline: 0,
        cancel_asked: false,
        progressed: false,
        stage: None,
        workspace: item.workspace_name(),
        document,
        parent: None,
        root: None,
        exclusive: item.exclusive,
        failure_class: None,
    }
}
