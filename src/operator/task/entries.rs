//! What the leader remembers of each resource between two looks, so that a look that would change nothing costs nothing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::ResourceExt;

use crate::api::{IngestTask, IngestTaskStatus};
use crate::operator::instrument::Metrics;

/// Between two statuses of a task in which only progress moved.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);

/// By uid; as many as there are resources, and none of those that are gone.
#[derive(Default)]
pub struct Entries {
    entries: Mutex<HashMap<String, Entry>>,
}

#[derive(Default)]
struct Entry {
    behind: Option<Behind>,
    settled: Option<Settled>,
    /// The newest revision that was acknowledged.
    acked: i64,
    cancel_seen_at: Option<Instant>,
    written_at: Option<Instant>,
}

/// The row has changed since the status was written.
#[derive(Clone, Copy, Debug)]
struct Behind {
    rev: i64,
    since: Instant,
}

/// A look found nothing left to do, with this resource.
struct Settled {
    generation: Option<i64>,
    is_being_deleted: bool,
    /// Of its status: the cache has the whole.
    status: u64,
    again_at: Option<Instant>,
}

/// What is known of a revision of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    News,
    /// It is being looked at.
    Known,
    /// The status has it. The database was told, and has not heard, or not yet.
    Shown,
}

/// Whether a look is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Look,
    /// Nothing to do, until then.
    Rest(Option<Duration>),
}

impl Entries {
    /// A new leader knows nothing.
    pub fn clear(&self) {
        self.lock().clear();
    }

    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// The database says that the row is ahead of the status.
    pub fn note_behind(&self, uid: &str, rev: i64) -> Revision {
        let mut entries = self.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        if rev <= entry.acked {
            return Revision::Shown;
        }
        if entry.behind.is_some_and(|behind| behind.rev >= rev) {
            return Revision::Known;
        }
        let since = entry.behind.map_or_else(Instant::now, |behind| behind.since);
        entry.behind = Some(Behind { rev, since });
        Revision::News
    }

    /// Its status says what the row was at this revision, or later.
    pub fn acknowledged(&self, uid: &str, rev: i64, metrics: &Metrics) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(uid) else { return };
        entry.acked = entry.acked.max(rev);
        if let Some(behind) = entry.behind.filter(|behind| behind.rev <= rev) {
            metrics.mirrored(behind.since.elapsed());
            entry.behind = None;
        }
    }

    pub fn need(&self, task: &IngestTask) -> Need {
        let entries = self.lock();
        let Some(entry) = task.metadata.uid.as_ref().and_then(|uid| entries.get(uid)) else { return Need::Look };
        let Some(settled) = entry.settled.as_ref().filter(|_| entry.behind.is_none()) else { return Need::Look };
        let left = settled.again_at.map(|at| at.saturating_duration_since(Instant::now()));
        let is_same = settled.generation == task.metadata.generation
            && settled.is_being_deleted == task.metadata.deletion_timestamp.is_some()
            // Also when somebody else wrote the status, or an old etcd came back.
            && settled.status == digest(task.status.as_ref());
        match left {
            Some(Duration::ZERO) => Need::Look,
            left if is_same => Need::Rest(left),
            Some(_) | None => Need::Look,
        }
    }

    pub fn settle(&self, task: &IngestTask, again: Option<Duration>) {
        let settled = Settled {
            generation: task.metadata.generation,
            is_being_deleted: task.metadata.deletion_timestamp.is_some(),
            status: digest(task.status.as_ref()),
            again_at: again.map(|again| Instant::now() + again),
        };
        self.lock().entry(task.uid().unwrap_or_default()).or_default().settled = Some(settled);
    }

    /// What it waits for has changed.
    pub fn unsettle(&self, uid: &str) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.settled = None;
        }
    }

    /// How long a status in which only progress moved has to wait.
    pub fn progress_pause(&self, uid: &str) -> Option<Duration> {
        let written_at = self.lock().get(uid)?.written_at?;
        PROGRESS_PAUSE.checked_sub(written_at.elapsed()).filter(|left| !left.is_zero())
    }

    pub fn wrote(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().written_at = Some(Instant::now());
    }

    pub fn cancel_seen(&self, uid: &str) {
        self.lock().entry(uid.to_owned()).or_default().cancel_seen_at.get_or_insert_with(Instant::now);
    }

    /// The row was told.
    pub fn cancelled(&self, uid: &str, metrics: &Metrics) {
        if let Some(seen_at) = self.lock().get_mut(uid).and_then(|entry| entry.cancel_seen_at.take()) {
            metrics.cancelled(seen_at.elapsed());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(status: Option<&IngestTaskStatus>) -> u64 {
    let mut hasher = DefaultHasher::new();
    // What cannot be written as JSON was never read from it.
    serde_json::to_vec(&status).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task() -> IngestTask {
        serde_json::from_value(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "IngestTask",
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "generation": 1 },
            "spec": { "type": "Insert" }, "status": { "observedRev": 3 },
        }))
        .unwrap()
    }

    #[test]
    fn settled_resource_rests_until_something_of_it_changes() {
        let entries = Entries::default();
        let task = task();
        assert_eq!(entries.need(&task), Need::Look);
        entries.settle(&task, None);
        assert_eq!(entries.need(&task), Need::Rest(None));

        let mut edited = task.clone();
        edited.metadata.generation = Some(2);
        let mut overwritten = task.clone();
        overwritten.status = Some(IngestTaskStatus { observed_rev: Some(2), ..IngestTaskStatus::default() });
        for changed in [edited, overwritten] {
            assert_eq!(entries.need(&changed), Need::Look);
        }
        entries.settle(&task, Some(Duration::ZERO));
        assert_eq!(entries.need(&task), Need::Look);
    }

    #[test]
    fn revision_is_news_once_and_shown_when_it_was_acknowledged() {
        let (entries, metrics) = (Entries::default(), Metrics::new());
        assert_eq!(entries.note_behind("u", 2), Revision::News);
        assert_eq!(entries.note_behind("u", 2), Revision::Known);
        assert_eq!(entries.note_behind("u", 3), Revision::News);
        entries.acknowledged("u", 2, &metrics);
        assert_eq!(entries.note_behind("u", 3), Revision::Known);
        entries.acknowledged("u", 3, &metrics);
        assert_eq!(entries.note_behind("u", 3), Revision::Shown);
        assert_eq!(entries.note_behind("u", 4), Revision::News);
    }
}
