//! What is seen of the resources, and the lines that show it. Pure: an event goes in, and what changed comes out.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sluice::api::ingest_task::{State, UiPhase};
use sluice::api::{ConditionStatus, IngestTask, TenantLane, WorkerPool};

use crate::summary::cut;

const BAR_WIDTH: u32 = 20;
/// Of a bar: what making text of a document takes; the rest is what is made of the text.
const FIRST_PART: u32 = 30;
/// Without a terminal, a line is only printed again if so much more is done.
const STEP_PERCENT: u32 = 25;
const NOTE_MAX: usize = 44;

/// Tenant and name.
pub type Key = (String, String);

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum Seen {
    Task(Box<IngestTask>),
    Lane(Box<TenantLane>),
    Pool(Box<WorkerPool>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskView {
    pub word: String,
    pub percent: u32,
    pub end: Option<End>,
    pub is_running: bool,
    pub is_cancel_asked: bool,
    note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Completed,
    Cancelled,
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LaneView {
    running: u64,
    cap: u64,
    waiting: u64,
}

impl LaneView {
    /// Some wait, because of the cap alone.
    fn is_full(&self) -> bool {
        self.cap > 0 && self.running >= self.cap && self.waiting > 0
    }
}

#[derive(Clone, Debug, Default)]
pub struct View {
    pub tasks: BTreeMap<Key, TaskView>,
    lanes: BTreeMap<String, LaneView>,
    /// Of ready workers, each number that differs from the one before.
    pub workers: Vec<u32>,
}

/// What to print where lines cannot be drawn anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Nothing,
    Task(Key),
    Lanes,
}

impl View {
    pub fn take(&mut self, seen: &Seen) -> Change {
        match seen {
            Seen::Task(task) => self.take_task(task),
            Seen::Lane(lane) => self.take_lane(lane),
            Seen::Pool(pool) => self.take_pool(pool),
        }
    }

    fn take_task(&mut self, task: &IngestTask) -> Change {
        let key = (task.namespace().unwrap_or_default(), task.name_any());
        let before = self.tasks.get(&key);
        let now = TaskView::of(task, before);
        let is_news = before.is_none_or(|before| {
            (&before.word, before.end) != (&now.word, now.end) || now.percent >= before.percent + STEP_PERCENT
        });
        // What is not printed is not kept either, so that small steps add up.
        let percent = match before {
            Some(before) if !is_news => before.percent,
            Some(_) | None => now.percent,
        };
        self.tasks.insert(key.clone(), if is_news { now } else { TaskView { percent, ..now } });
        if is_news { Change::Task(key) } else { Change::Nothing }
    }

    fn take_lane(&mut self, lane: &TenantLane) -> Change {
        let Some(status) = &lane.status else { return Change::Nothing };
        let number = |value: Option<u64>| value.unwrap_or_default();
        let view = LaneView {
            running: number(status.running) + number(status.stopping),
            cap: status.effective_max_running.unwrap_or_default().into(),
            waiting: number(status.pending),
        };
        let is_full = view.is_full();
        let before = self.lanes.insert(lane.namespace().unwrap_or_default(), view);
        if is_full == before.is_some_and(|before| before.is_full()) { Change::Nothing } else { Change::Lanes }
    }

    fn take_pool(&mut self, pool: &WorkerPool) -> Change {
        let Some(status) = &pool.status else { return Change::Nothing };
        let ready = status.ready_replicas.unwrap_or_default();
        if self.workers.last() == Some(&ready) {
            return Change::Nothing;
        }
        self.workers.push(ready);
        Change::Lanes
    }

    pub fn line(&self, key: &Key) -> String {
        let (tenant, name) = key;
        let view = self.tasks.get(key).cloned().unwrap_or_default();
        format!("{tenant:<7} {:<24} {}", cut(name, 24), view.line())
    }

    pub fn lanes_line(&self) -> String {
        let lanes = self.lanes.iter().map(|(tenant, LaneView { running, cap, waiting })| {
            format!("{tenant}: {running} of at most {cap} running, {waiting} waiting")
        });
        let workers = format!("workers: {}", self.workers.last().unwrap_or(&0));
        lanes.chain([workers]).collect::<Vec<_>>().join(" · ")
    }

    pub fn caps(&self) -> BTreeMap<String, u64> {
        self.lanes.iter().map(|(tenant, lane)| (tenant.clone(), lane.cap)).collect()
    }

    pub fn has_no_workers(&self) -> bool {
        self.workers.last() == Some(&0)
    }

    pub fn not_ended(&self) -> Vec<String> {
        let rest = self.tasks.iter().filter(|(_, task)| task.end.is_none());
        rest.map(|((tenant, name), task)| format!("{tenant}/{name} ({})", task.word)).collect()
    }

    pub fn count(&self, end: End) -> usize {
        self.tasks.values().filter(|task| task.end == Some(end)).count()
    }

    /// Each that ended in another way than was meant.
    pub fn surprises(&self, cancelled: (&str, &str)) -> Vec<String> {
        let mut surprises = Vec::new();
        for ((tenant, name), task) in &self.tasks {
            let is_target = (tenant.as_str(), name.as_str()) == cancelled;
            let wanted = if is_target { End::Cancelled } else { End::Completed };
            if task.end != Some(wanted) {
                surprises.push(format!("{tenant}/{name} is {} and not {wanted:?}: {}", task.word, task.note));
            }
        }
        surprises
    }
}

impl TaskView {
    fn of(task: &IngestTask, before: Option<&TaskView>) -> Self {
        let is_cancel_asked = task.spec.cancel == Some(true);
        let Some(status) = &task.status else {
            return Self { word: "submitted".to_owned(), is_cancel_asked, ..Self::default() };
        };
        let note = cut(status.summary.as_deref().unwrap_or_default(), NOTE_MAX);
        let is_stalled =
            status.conditions.iter().any(|one| one.type_ == "Stalled" && one.status == ConditionStatus::True);
        let shown = status.display_status.clone().unwrap_or_default();
        let end = match status.ui_phase {
            Some(UiPhase::Terminal) => Some(match shown.as_str() {
                "completed" => End::Completed,
                "cancelled" => End::Cancelled,
                _ => End::Failed,
            }),
            // Refused: nobody will ever run it.
            None if is_stalled => Some(End::Failed),
            Some(UiPhase::Idle | UiPhase::Running | UiPhase::Stopping) | None => None,
        };
        let is_stopping = end.is_none() && (is_cancel_asked || status.ui_phase == Some(UiPhase::Stopping));
        let word = match (is_stopping, end) {
            (true, _) => "Stopping…".to_owned(),
            (false, Some(End::Failed)) if shown.is_empty() => "refused".to_owned(),
            (false, _) if shown.is_empty() => "submitted".to_owned(),
            (false, _) if status.ui_phase == Some(UiPhase::Idle) => "waiting".to_owned(),
            (false, _) => shown,
        };
        let is_running = matches!(status.ui_phase, Some(UiPhase::Running | UiPhase::Stopping)) && end.is_none();
        let percent = match end {
            Some(End::Completed) => 100,
            Some(End::Cancelled | End::Failed) | None => {
                let done = part_done(status.state, status.progress.unwrap_or_default());
                done.max(before.map_or(0, |before| before.percent))
            }
        };
        Self { word, percent, end, is_running, is_cancel_asked, note }
    }

    fn line(&self) -> String {
        let Self { word, percent, end, is_running, is_cancel_asked: _, note } = self;
        let filled = (percent * BAR_WIDTH / 100).min(BAR_WIDTH);
        let bar: String = (0..BAR_WIDTH).map(|place| if place < filled { '█' } else { '░' }).collect();
        let note = if *is_running || matches!(end, Some(End::Completed | End::Cancelled)) { "" } else { note };
        format!("{bar} {percent:>3} %  {word:<12} {note}").trim_end().to_owned()
    }
}

/// Of the whole way, when so many percent of its present task are done.
fn part_done(state: Option<State>, progress: u32) -> u32 {
    match state {
        // What follows is on its way.
        Some(State::Completed) => FIRST_PART + progress * (100 - FIRST_PART) / 100,
        Some(State::Pending | State::Processing | State::Stopping | State::Failed | State::Cancelled) | None => {
            progress * FIRST_PART / 100
        }
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
