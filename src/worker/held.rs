//! The attempts that this process holds, and its slots. The clock is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Span;
use uuid::Uuid;

use super::attempt::Stop;
use super::decide::{self, End, lease_margin};
use super::handler::StopCause;
use super::reporter::Reporter;
use crate::domain::task::TaskType;
use crate::store::claim::Attempt;
use crate::store::leases::LeaseAnswer;

/// How long after its abort a handler is waited for: it ends at its next await, and one that has none is given up.
const ABORT_WAIT: Duration = Duration::from_millis(200);

pub(super) struct Entry {
    pub task_type: TaskType,
    pub timeout_secs: u32,
    pub stop: Arc<Stop>,
    pub reporter: Reporter,
    pub lease: Duration,
    /// By our own clock, from when the claim or the renewal was sent: never later than the database's.
    pub lease_until: Instant,
    pub deadline: Instant,
    pub started: Instant,
    /// Names the task in each line of the log.
    pub span: Span,
    pub phase: Phase,
    /// A report of it is on its way: its end waits.
    pub is_reporting: bool,
    pub end_after_report: Option<End>,
}

pub(super) enum Phase {
    Running {
        stopping_since: Option<Instant>,
        aborted_at: Option<Instant>,
    },
    /// Its end is being written.
    Ending,
}

#[derive(Default)]
pub(super) struct Held {
    entries: HashMap<Attempt, Entry>,
    /// Handlers that exist or are about to, those that are given up included.
    occupied: usize,
    ending: usize,
    /// The newest claim's number, and those whose tasks are not here yet.
    sequence: i64,
    in_flight: Vec<i64>,
}

/// What the watchdog has to do about one attempt.
pub(super) enum Due {
    Fire(Attempt, StopCause),
    Abort(Attempt),
    GiveUp(Attempt),
}

impl Held {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn occupied(&self) -> usize {
        self.occupied
    }

    pub fn ending(&self) -> usize {
        self.ending
    }

    pub fn running(&self) -> usize {
        self.entries.len() - self.ending
    }

    /// The number of the claim that is sent now.
    pub fn claim_sent(&mut self) -> i64 {
        self.sequence += 1;
        self.in_flight.push(self.sequence);
        self.sequence
    }

    /// `adopt` goes under number 0, below every claim.
    pub fn adopt_sent(&mut self) -> i64 {
        self.in_flight.push(0);
        0
    }

    /// What came back is in the table, or nothing will come back.
    pub fn claim_answered(&mut self, sequence: i64) {
        self.in_flight.retain(|sent| *sent != sequence);
    }

    /// So many tasks have come, and take their slots already; `insert_all` follows, or `handlers_gone`.
    pub fn reserve(&mut self, count: usize) {
        self.occupied += count;
    }

    pub fn insert_all(&mut self, entries: Vec<(Attempt, Entry)>) {
        self.entries.extend(entries);
    }

    pub fn get_mut(&mut self, attempt: Attempt) -> Option<&mut Entry> {
        self.entries.get_mut(&attempt)
    }

    pub fn get(&self, attempt: Attempt) -> Option<&Entry> {
        self.entries.get(&attempt)
    }

    /// Its handler has ended, or is given up: what it was, and since when it had been told to stop. `None` if that was said
    /// before.
    pub fn set_ending(&mut self, attempt: Attempt) -> Option<(&mut Entry, Option<Instant>)> {
        let entry = self.entries.get_mut(&attempt).filter(|entry| entry.is_running())?;
        let stopping_since = entry.stopping_since();
        entry.phase = Phase::Ending;
        self.ending += 1;
        Some((entry, stopping_since))
    }

    /// The futures of so many handlers are gone.
    pub fn handlers_gone(&mut self, count: usize) {
        self.occupied = self.occupied.saturating_sub(count);
    }

    pub fn remove(&mut self, attempt: Attempt) -> Option<Entry> {
        let entry = self.entries.remove(&attempt)?;
        if matches!(entry.phase, Phase::Ending) {
            self.ending -= 1;
        }
        Some(entry)
    }

    /// What a heartbeat names: the sequence below which nothing is unknown to us, and all that we hold.
    pub fn to_renew(&self) -> (i64, Vec<Attempt>) {
        let named: Vec<_> =
            self.entries.iter().filter(|(_, entry)| !entry.is_lost()).map(|(attempt, _)| *attempt).collect();
        (self.in_flight.iter().min().copied().unwrap_or(self.sequence + 1), named)
    }

    /// Tasks whose handler still runs.
    pub fn to_watch(&self) -> Vec<Uuid> {
        let running = self.entries.iter().filter(|(_, entry)| entry.is_running() && entry.stop.cause().is_none());
        running.map(|(attempt, _)| attempt.track_id).collect()
    }

    pub fn running_attempts(&self) -> Vec<Attempt> {
        self.entries.iter().filter(|(_, entry)| entry.is_running()).map(|(attempt, _)| *attempt).collect()
    }

    /// The newest attempt of a task that we hold.
    pub fn newest_of(&self, track_id: Uuid) -> Option<Attempt> {
        self.entries.keys().filter(|attempt| attempt.track_id == track_id).max_by_key(|attempt| attempt.number).copied()
    }

    /// The shortest lease that is held.
    pub fn shortest_lease(&self) -> Option<Duration> {
        self.entries.values().map(|entry| entry.lease).min()
    }

    /// What a heartbeat that was sent at `sent` says; why the handler is to stop, if it is.
    pub fn renewed(&mut self, attempt: Attempt, answer: LeaseAnswer, sent: Instant) -> Option<StopCause> {
        let entry = self.entries.get_mut(&attempt)?;
        match answer {
            LeaseAnswer::Renewed => {
                entry.lease_until = sent + entry.lease;
                None
            }
            LeaseAnswer::Release => {
                entry.lease_until = sent + entry.lease;
                Some(StopCause::Drain)
            }
            LeaseAnswer::Busy => None,
            LeaseAnswer::Cancel => Some(StopCause::Cancel),
            LeaseAnswer::Lost => Some(StopCause::Lost),
        }
    }

    /// Tells a handler to stop; true if it runs and had not been told.
    pub fn fire(&mut self, attempt: Attempt, cause: StopCause, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&attempt) else { return false };
        let Phase::Running { stopping_since, .. } = &mut entry.phase else { return false };
        if !entry.stop.fire(cause) {
            return false;
        }
        *stopping_since = Some(now);
        true
    }

    /// Drops a handler's future at its next await.
    pub fn abort(&mut self, attempt: Attempt, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&attempt)
            && let Phase::Running { aborted_at, .. } = &mut entry.phase
        {
            *aborted_at = Some(now);
            entry.stop.abort();
        }
    }

    /// What is due by now, and when to look again; `None` if nothing runs.
    pub fn due(&self, now: Instant, grace: Duration) -> (Vec<Due>, Option<Instant>) {
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        for (attempt, entry) in &self.entries {
            let Some((at, what)) = entry.next_due(*attempt, grace) else { continue };
            if at <= now {
                due.push(what);
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        (due, next)
    }
}

impl Entry {
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    pub fn stopping_since(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running { stopping_since, .. } => stopping_since,
            Phase::Ending => None,
        }
    }

    fn is_lost(&self) -> bool {
        self.stop.cause() == Some(StopCause::Lost)
    }

    fn next_due(&self, attempt: Attempt, grace: Duration) -> Option<(Instant, Due)> {
        let Phase::Running { stopping_since, aborted_at } = &self.phase else { return None };
        if let Some(at) = aborted_at {
            return Some((*at + ABORT_WAIT, Due::GiveUp(attempt)));
        }
        if let (Some(since), Some(cause)) = (stopping_since, self.stop.cause()) {
            return Some((*since + decide::stop_grace(cause, self.lease, grace), Due::Abort(attempt)));
        }
        let lease_over = self.lease_until.checked_sub(lease_margin(self.lease)).unwrap_or(self.lease_until);
        Some(if self.deadline < lease_over {
            (self.deadline, Due::Fire(attempt, StopCause::Timeout))
        } else {
            (lease_over, Due::Fire(attempt, StopCause::LeaseOver))
        })
    }
}

#[cfg(test)]
mod tests;
