//! The model's rules of what a worker says: claim, heartbeat, watch, report, the ends, adopt.

use sluice::domain::lane::Policy;
use sluice::domain::retry::Verdict;
use sluice::domain::task::{Event, Outcome, State, TaskType, apply};
use uuid::Uuid;

use super::state::{LONG, Model, TIMEOUTS_MAX, Task, Tick};

pub const PERMANENT: &str = "invalid_document";
pub const TRANSIENT: &str = "provider_unavailable";
pub const TIMEOUT: &str = "timeout_phase_extract";

impl Model {
    pub fn claim(&mut self, now: Tick, worker: Uuid, sequence: i64, id: Uuid) {
        let task = self.tasks.get_mut(&id).expect("a task that was claimable");
        assert_eq!(apply(task.state, Event::Claim), Outcome::Moved(State::Processing));
        *task = Task {
            state: State::Processing,
            ready: false,
            attempt: task.attempt + 1,
            worker: Some(worker),
            sequence: Some(sequence),
            lease_until: now + LONG,
            deadline: now + 2 * LONG,
            progressed: false,
            ..task.clone()
        };
    }

    /// The task as it stands under this attempt, or why a write with it changes nothing.
    fn attempt(&self, id: Uuid, attempt: i32) -> Result<&Task, &'static str> {
        match self.tasks.get(&id) {
            None => Err("not_found"),
            Some(task) if task.attempt != attempt || task.state == State::Pending => Err("lost"),
            Some(task) if task.state.is_terminal() => Err("refused"),
            Some(task) => Ok(task),
        }
    }

    pub fn complete(&mut self, id: Uuid, attempt: i32) -> &'static str {
        self.worker_event(id, attempt, Event::Complete)
    }

    pub fn stopped(&mut self, id: Uuid, attempt: i32) -> &'static str {
        self.worker_event(id, attempt, Event::AcknowledgeStop)
    }

    pub fn release(&mut self, id: Uuid, attempt: i32) -> &'static str {
        match self.worker_event(id, attempt, Event::Release) {
            "pending" => "released",
            other => other,
        }
    }

    fn worker_event(&mut self, id: Uuid, attempt: i32, event: Event) -> &'static str {
        let state = match self.attempt(id, attempt) {
            Ok(task) => task.state,
            Err(reason) => return reason,
        };
        match apply(state, event) {
            Outcome::Moved(to) => {
                self.move_to(id, to, None);
                to.as_str()
            }
            // Running, but nobody asked it to stop.
            Outcome::NotApplicable | Outcome::Unchanged | Outcome::Refused(_) => "refused",
        }
    }

    pub fn fail(&mut self, now: Tick, id: Uuid, attempt: i32, class: &str) -> &'static str {
        let task = match self.attempt(id, attempt) {
            Ok(task) => task,
            Err(reason) => return reason,
        };
        let is_timeout = class.starts_with("timeout");
        let timeouts = if is_timeout && !task.progressed { task.timeouts + 1 } else { 0 };
        let class = if is_timeout && timeouts >= TIMEOUTS_MAX { "circuit_breaker" } else { class };
        let is_final = class == PERMANENT || class == "circuit_breaker" || task.failures + 1 >= task.max_attempts;
        let verdict = if is_final { Verdict::Final } else { Verdict::Again };
        match apply(task.state, Event::Fail(verdict)) {
            Outcome::Moved(State::Cancelled) => {
                self.move_to(id, State::Cancelled, None);
                "cancelled"
            }
            Outcome::Moved(to) => {
                let task = self.tasks.get_mut(&id).expect("it is there");
                task.failures += 1;
                task.timeouts = timeouts;
                self.move_to(id, to, Some(class));
                if to == State::Pending {
                    let task = self.tasks.get_mut(&id).expect("it is there");
                    task.ready = false;
                    task.available_at = now + LONG;
                    task.failure_class = Some(class.to_owned());
                    "retry"
                } else {
                    "failed"
                }
            }
            other => unreachable!("a failing attempt met {other:?}"),
        }
    }

    /// The task goes back to pending, or ends; its document hears of it.
    pub fn move_to(&mut self, id: Uuid, to: State, class: Option<&str>) {
        let task = self.tasks.get_mut(&id).expect("it is there");
        task.state = to;
        task.ready = to == State::Pending && !task.suspended;
        if to == State::Pending {
            (task.worker, task.sequence, task.stage) = (None, None, None);
            self.requeue_document(id);
        } else {
            task.failure_class = match to {
                State::Failed => class.map(str::to_owned),
                State::Cancelled => Some("cancelled".to_owned()),
                _ => None,
            };
            self.end_document(id);
        }
    }

    pub fn requeue_document(&mut self, id: Uuid) {
        let task = &self.tasks[&id];
        let Some(document) = task.document.and_then(|document| self.documents.get_mut(&document)) else { return };
        if document.task == id {
            document.status = "pending".to_owned();
            (document.stage, document.failure_class) = (None, None);
            if task.task_type == TaskType::PdfProcessing {
                document.pdf_status = Some("pending".to_owned());
            }
        }
    }

    fn end_document(&mut self, id: Uuid) {
        let task = &self.tasks[&id];
        let Some(key) = task.document else { return };
        let Some(document) = self.documents.get_mut(&key).filter(|document| document.task == id) else { return };
        if task.task_type == TaskType::Deletion && task.state == State::Completed {
            self.documents.remove(&key);
            return;
        }
        let was_converted = document.pdf_status.as_deref() == Some("completed");
        if task.task_type == TaskType::PdfProcessing && !(task.state == State::Cancelled && was_converted) {
            document.pdf_status = Some(task.state.to_string());
        }
        document.stage = None;
        match task.state {
            State::Completed => {
                document.status = "completed".to_owned();
                document.failure_class = None;
                // A convert or an upload leaves nothing that a reader sees; what follows it does.
                if !matches!(task.task_type, TaskType::PdfProcessing | TaskType::Upload) {
                    document.published_status = Some("completed".to_owned());
                }
            }
            State::Failed => {
                document.status = "failed".to_owned();
                document.failure_class = task.failure_class.clone();
            }
            _ => {
                document.failure_class = document.published_status.is_none().then(|| "cancelled".to_owned());
                document.status = document.published_status.clone().unwrap_or_else(|| "cancelled".to_owned());
            }
        }
    }

    /// The stage that a running attempt reports, of the task and of its document.
    pub fn report(&mut self, id: Uuid, attempt: i32, stage: Option<&str>) -> &'static str {
        if let Err(reason) = self.attempt(id, attempt) {
            return reason;
        }
        let task = self.tasks.get_mut(&id).expect("it is there");
        if let Some(stage) = stage {
            task.stage = Some(stage.to_owned());
            task.progressed = true;
        }
        let answer = if task.state == State::Stopping { "cancel" } else { "ok" };
        let document = task.document;
        if let Some(document) = document.and_then(|document| self.documents.get_mut(&document))
            && document.task == id
        {
            document.status = "processing".to_owned();
            if let Some(stage) = stage {
                document.stage = Some(stage.to_owned());
            }
        }
        answer
    }

    /// What a heartbeat answers of one attempt, if no other session holds its row.
    pub fn heartbeat_answer(&self, worker: Uuid, id: Uuid, attempt: i32) -> &'static str {
        match self.attempt(id, attempt) {
            Ok(task) if task.worker == Some(worker) => match task.state {
                State::Stopping => "cancel",
                _ if self.lanes[&task.lane].policy == Policy::HoldAndDrain => "release",
                _ => "renewed",
            },
            Ok(_) | Err(_) => "lost",
        }
    }

    pub fn renew(&mut self, now: Tick, id: Uuid) {
        self.tasks.get_mut(&id).expect("it is there").lease_until = now + LONG;
    }

    /// What a worker holds by claims older than `sequence`, and did not name.
    pub fn unnamed(&self, worker: Uuid, sequence: i64, named: &[Uuid]) -> Vec<Uuid> {
        let held = self.tasks.iter().filter(|(_, task)| task.is_leased() && task.worker == Some(worker));
        let unnamed = held.filter(|(id, task)| task.sequence < Some(sequence) && !named.contains(id));
        unnamed.map(|(id, _)| *id).collect()
    }

    pub fn watch_answer(&self, worker: Uuid, id: Uuid) -> Option<&'static str> {
        match self.tasks.get(&id).filter(|task| task.is_leased() && task.worker == Some(worker)) {
            None => Some("lost"),
            Some(task) if task.state == State::Stopping => Some("cancel"),
            Some(task) if self.lanes[&task.lane].policy == Policy::HoldAndDrain => Some("release"),
            Some(_) => None,
        }
    }

    pub fn adopt(&mut self, now: Tick, worker: Uuid, id: Uuid, attempt: i32) -> bool {
        let Ok(task) = self.attempt(id, attempt) else { return false };
        let stands = task.worker.and_then(|holder| self.workers.get(&holder)).is_some_and(|w| w.stands_for_pool);
        if task.state != State::Processing || task.lease_until <= now || !stands {
            return false;
        }
        let task = self.tasks.get_mut(&id).expect("it is there");
        (task.worker, task.sequence) = (Some(worker), Some(0));
        (task.lease_until, task.deadline) = (now + LONG, now + 2 * LONG);
        true
    }
}
