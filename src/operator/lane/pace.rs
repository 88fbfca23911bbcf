//! Which statuses are written now: what people wait for at once, counts that only move on at a bounded rate.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt;

use crate::api::{TenantLane, TenantLaneStatus};

/// Of statuses in which only counts moved. With 1,000 lanes at work each counts every second, and etcd would take
/// more writes for lanes than for tasks.
const COUNTS_PER_SECOND: f64 = 40.0;
/// So many lanes are exact with every pass.
const COUNTS_BURST: f64 = 40.0;
/// Of all others in one pass, so that a pass ends in time; the rest comes with the next ones.
const OTHERS_PER_PASS: usize = 100;

pub struct Pace {
    tokens: f64,
    filled_at: Instant,
    /// By uid.
    written_at: HashMap<String, Instant>,
}

type Write = (Arc<TenantLane>, TenantLaneStatus);

impl Pace {
    pub fn new(now: Instant) -> Self {
        Self { tokens: COUNTS_BURST, filled_at: now, written_at: HashMap::new() }
    }

    /// Those that differ and may be written now, the ones that waited longest first.
    pub fn due(&mut self, mut wanted: Vec<Write>, now: Instant) -> Vec<Write> {
        let since = now.saturating_duration_since(self.filled_at);
        self.tokens = (self.tokens + since.as_secs_f64() * COUNTS_PER_SECOND).min(COUNTS_BURST);
        self.filled_at = now;
        self.written_at.retain(|_, at| now.saturating_duration_since(*at) < Duration::from_secs(3_600));
        wanted.retain(|(object, status)| object.status.as_ref() != Some(status));
        wanted.sort_by_cached_key(|(object, _)| self.written_at.get(&uid(object)).copied());

        let (counts, mut due): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(object, status)| {
            object.status.as_ref().is_some_and(|held| without_counts(held) == without_counts(status))
        });
        due.truncate(OTHERS_PER_PASS);
        for write in counts {
            if self.tokens < 1.0 {
                break;
            }
            self.tokens -= 1.0;
            due.push(write);
        }
        for (object, _) in &due {
            self.written_at.insert(uid(object), now);
        }
        due
    }
}

fn uid(object: &TenantLane) -> String {
    object.uid().unwrap_or_default()
}

fn without_counts(status: &TenantLaneStatus) -> TenantLaneStatus {
    TenantLaneStatus {
        running: None,
        stopping: None,
        pending: None,
        parked: None,
        suspended: None,
        backing_off: None,
        failed: None,
        completed_since_idle: None,
        summary: None,
        ..status.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(uid: &str, held: TenantLaneStatus) -> Arc<TenantLane> {
        let spec = serde_json::from_str(r#"{"class": "ingest"}"#).unwrap();
        let mut lane = TenantLane::new("lane", spec);
        lane.metadata.uid = Some(uid.to_owned());
        lane.status = Some(held);
        Arc::new(lane)
    }

    fn running(count: u64) -> TenantLaneStatus {
        TenantLaneStatus { running: Some(count), ..TenantLaneStatus::default() }
    }

    #[test]
    fn what_did_not_change_is_not_written() {
        let now = Instant::now();
        assert!(Pace::new(now).due(vec![(lane("a", running(1)), running(1))], now).is_empty());
    }

    #[test]
    fn counts_wait_for_their_turn_and_everybody_has_one() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut seen = std::collections::HashSet::new();
        for second in 0..5_u32 {
            let wanted = (0..100).map(|n| (lane(&n.to_string(), running(1)), running(2))).collect();
            let due = pace.due(wanted, start + Duration::from_secs(1) * second);
            assert_eq!(due.len(), 40);
            seen.extend(due.iter().map(|(object, _)| uid(object)));
        }
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn what_is_more_than_a_count_does_not_wait() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        pace.tokens = 0.0;
        let capped = TenantLaneStatus { effective_max_running: Some(3), ..running(1) };
        let due = pace.due(vec![(lane("a", running(1)), running(2)), (lane("b", running(1)), capped)], now);
        assert_eq!(due.iter().map(|(object, _)| uid(object)).collect::<Vec<_>>(), ["b"]);
    }
}
