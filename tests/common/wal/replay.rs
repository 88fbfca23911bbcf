//! Replays committed row changes, in the order of their commits, and finds what must never be.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

/// What one row change says.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A row of the live table came, or changed to this.
    Live { id: Uuid, lane: i32, state: String, attempt: i32, is_new: bool },
    /// A row left the live table.
    Left { id: Uuid },
    /// A row came to the archive.
    Ended { id: Uuid, state: String, attempt: i32 },
    /// A row left the archive.
    Unended { id: Uuid },
    /// A lane's cap; 2147483647 is none.
    Cap { lane: i32, cap: i32 },
}

#[derive(Clone, Debug)]
struct Task {
    lane: i32,
    state: String,
    attempt: i32,
}

#[derive(Debug, Default)]
pub struct Replay {
    live: HashMap<Uuid, Task>,
    ended: HashMap<Uuid, (String, i32)>,
    running: HashMap<i32, i32>,
    caps: HashMap<i32, i32>,
    handed_out: HashSet<(Uuid, i32)>,
    /// All ends, those of tasks that were retried since included.
    history: HashSet<(Uuid, i32, String)>,
    pub enqueued: usize,
    pub retried: usize,
    pub ends: usize,
    /// Claims that left a lane with all its slots taken: with none, the caps were never put to the test.
    pub filled: usize,
}

impl Replay {
    /// One committed transaction.
    pub fn apply(&mut self, changes: &[Change]) -> Result<(), String> {
        let mut claimed_lanes = HashSet::new();
        let mut left: HashMap<Uuid, Task> = HashMap::new();
        let (mut came, mut unended) = (HashSet::new(), HashSet::new());
        for change in changes {
            match change {
                Change::Cap { lane, cap } => drop(self.caps.insert(*lane, *cap)),
                Change::Live { id, lane, state, attempt, is_new } => {
                    let now = Task { lane: *lane, state: state.clone(), attempt: *attempt };
                    if *is_new {
                        self.come(*id, now)?;
                        came.insert(*id);
                    } else if self.change(*id, now)? {
                        claimed_lanes.insert(*lane);
                    }
                }
                Change::Left { id } => {
                    let task =
                        self.live.remove(id).ok_or_else(|| format!("{id} left the live table without being there"))?;
                    self.count(task.lane, &task.state, -1);
                    left.insert(*id, task);
                }
                Change::Ended { id, state, attempt } => {
                    let task = left.remove(id).ok_or_else(|| format!("{id} ended without leaving the live table"))?;
                    self.end(*id, &task, state, *attempt)?;
                }
                Change::Unended { id } => {
                    let (state, _) =
                        self.ended.get(id).ok_or_else(|| format!("{id} left the archive without being there"))?;
                    if state == "completed" {
                        return Err(format!("{id} had completed, and left the archive"));
                    }
                    unended.insert(*id);
                }
            }
        }
        if let Some(id) = left.keys().next() {
            return Err(format!("{id} left the live table and did not end"));
        }
        // A retry makes the live row and takes the archived one away, in one transaction.
        if let Some(id) = unended.difference(&came).next() {
            return Err(format!("{id} left the archive and did not come back"));
        }
        unended.iter().for_each(|id| drop(self.ended.remove(id)));
        if let Some(id) = came.iter().find(|id| self.live.contains_key(*id) && self.ended.contains_key(*id)) {
            return Err(format!("{id} came back and is still archived"));
        }
        claimed_lanes.into_iter().try_for_each(|lane| self.check_cap(lane))
    }

    /// Those that live, and how each of the others ended.
    pub fn result(&self) -> (HashSet<Uuid>, HashMap<Uuid, String>) {
        let ended = self.ended.iter().map(|(id, (state, _))| (*id, state.clone())).collect();
        (self.live.keys().copied().collect(), ended)
    }

    pub fn attempts(&self) -> usize {
        self.handed_out.len()
    }

    pub fn was_handed_out(&self, id: Uuid, attempt: i32) -> bool {
        self.handed_out.contains(&(id, attempt))
    }

    pub fn has_ended(&self, id: Uuid, attempt: i32, state: &str) -> bool {
        self.history.contains(&(id, attempt, state.to_owned()))
    }

    /// A new task, or one that is retried.
    fn come(&mut self, id: Uuid, now: Task) -> Result<(), String> {
        if now.state != "pending" {
            return Err(format!("{id} came as {}", now.state));
        }
        match self.ended.get(&id) {
            Some((_, attempt)) if now.attempt != *attempt => {
                return Err(format!("{id} was at attempt {attempt} and came back at {}", now.attempt));
            }
            Some(_) => self.retried += 1,
            None => self.enqueued += 1,
        }
        match self.live.insert(id, now) {
            Some(_) => Err(format!("{id} came twice")),
            None => Ok(()),
        }
    }

    /// Whether it was claimed.
    fn change(&mut self, id: Uuid, now: Task) -> Result<bool, String> {
        let was = self.live.insert(id, now.clone()).ok_or_else(|| format!("{id} changed without being there"))?;
        self.count(was.lane, &was.state, -1);
        self.count(now.lane, &now.state, 1);
        let is_claim = was.state == "pending" && now.state == "processing";
        let step = i32::from(is_claim);
        if now.attempt != was.attempt + step {
            return Err(format!(
                "{id} went from attempt {} to {} as {} to {}",
                was.attempt, now.attempt, was.state, now.state
            ));
        }
        if is_claim && !self.handed_out.insert((id, now.attempt)) {
            return Err(format!("attempt {} of {id} was handed out twice", now.attempt));
        }
        match (was.state.as_str(), now.state.as_str()) {
            (a, b) if a == b => {}
            ("pending", "processing") | ("processing", "stopping" | "pending") => {}
            (a, b) => return Err(format!("{id} went from {a} to {b}")),
        }
        Ok(is_claim)
    }

    fn end(&mut self, id: Uuid, task: &Task, state: &str, attempt: i32) -> Result<(), String> {
        if task.state != "processing" && state != "cancelled" {
            return Err(format!("{id} was {} and ended as {state}", task.state));
        }
        if attempt != task.attempt {
            return Err(format!("{id} was at attempt {} and ended as attempt {attempt}", task.attempt));
        }
        self.ends += 1;
        self.history.insert((id, attempt, state.to_owned()));
        match self.ended.insert(id, (state.to_owned(), attempt)) {
            Some((earlier, _)) => Err(format!("{id} ended twice: {earlier}, then {state}")),
            None => Ok(()),
        }
    }

    fn check_cap(&mut self, lane: i32) -> Result<(), String> {
        let running = self.running.get(&lane).copied().unwrap_or_default();
        let cap = *self.caps.get(&lane).ok_or_else(|| format!("a claim of lane {lane}, which has no cap"))?;
        self.filled += usize::from(running == cap);
        if running > cap {
            return Err(format!("a claim left lane {lane} with {running} running and a cap of {cap}"));
        }
        Ok(())
    }

    fn count(&mut self, lane: i32, state: &str, by: i32) {
        if matches!(state, "processing" | "stopping") {
            *self.running.entry(lane).or_default() += by;
        }
    }
}
