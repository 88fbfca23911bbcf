//! What metrics say of the queue: exact for each class, and for each of the fullest lanes.

use std::collections::BTreeMap;

use crate::operator::instrument::{Depth, Name};
use crate::store::reads::LaneCounts;

/// Tenants come and go, and each lane is six series.
const LANES_MAX: usize = 100;

/// States that no task is in twice.
fn by_state(lane: &LaneCounts) -> [(&'static str, u64); 6] {
    [
        ("running", lane.running),
        ("stopping", lane.stopping),
        ("waiting", lane.ready.saturating_sub(lane.parked)),
        ("parked", lane.parked),
        ("suspended", lane.suspended),
        ("backing_off", lane.backing_off),
    ]
}

pub fn depths(lanes: &[LaneCounts]) -> Vec<Depth<'_>> {
    let mut of_class: BTreeMap<(&'static str, &'static str), u64> = BTreeMap::new();
    for lane in lanes {
        for (state, tasks) in by_state(lane) {
            *of_class.entry((lane.class.as_str(), state)).or_default() += tasks;
        }
    }
    let all = |lane: &LaneCounts| lane.running + lane.stopping + lane.pending;
    let mut fullest: Vec<_> = lanes.iter().filter(|lane| all(lane) > 0).collect();
    fullest.sort_by_key(|lane| (std::cmp::Reverse(all(lane)), &lane.tenant, lane.class.as_str()));
    fullest.truncate(LANES_MAX);
    let of_lane = fullest.into_iter().flat_map(|lane| {
        let depth = |(state, tasks)| Depth {
            tenant: Some(lane.tenant.as_str()),
            class: Name(lane.class.as_str()),
            state: Name(state),
            tasks,
        };
        by_state(lane).map(depth)
    });
    let of_class = of_class.into_iter().map(|((class, state), tasks)| Depth {
        tenant: None,
        class: Name(class),
        state: Name(state),
        tasks,
    });
    of_class.chain(of_lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::fixture::idle_lane;
    use crate::operator::instrument::Metrics;

    fn lane(tenant: &str, running: u64, ready: u64, parked: u64) -> LaneCounts {
        LaneCounts {
            tenant: tenant.to_owned(),
            running,
            ready,
            parked,
            pending: ready,
            is_default: true,
            ..idle_lane()
        }
    }

    fn of<'d>(depths: &'d [Depth<'_>], tenant: Option<&str>, state: &str) -> Option<&'d u64> {
        let depth = depths.iter().find(|depth| depth.tenant == tenant && depth.state.0 == state);
        depth.map(|depth| &depth.tasks)
    }

    #[test]
    fn ten_thousand_tenants_are_a_bounded_number_of_series_and_the_sums_are_exact() {
        let lanes: Vec<_> = (0..10_000_u64).map(|n| lane(&format!("t{n}"), 1, n, n / 2)).collect();
        let depths = depths(&lanes);
        assert_eq!(depths.len(), 6 + LANES_MAX * 6);
        assert_eq!(of(&depths, None, "running"), Some(&10_000));
        assert_eq!(
            (of(&depths, Some("t9999"), "parked"), of(&depths, Some("t9999"), "waiting")),
            (Some(&4_999), Some(&5_000))
        );
        assert_eq!(of(&depths, Some("t1"), "running"), None);
    }

    #[test]
    fn lane_that_has_become_empty_is_not_shown_any_more() {
        let metrics = Metrics::new();
        metrics.lanes(&depths(&[lane("a\"\n", 1, 2, 0), lane("b", 1, 0, 0)]));
        let text = metrics.encode().unwrap();
        assert!(text.contains(r#"lane_tasks{tenant="a\"\n",class="ingest",state="waiting"} 2"#), "{text}");
        metrics.lanes(&depths(&[lane("a", 0, 0, 0), lane("b", 1, 0, 0)]));
        let text = metrics.encode().unwrap();
        assert!(
            !text.contains(r#"tenant="a"#) && text.contains(r#"tasks{class="ingest",state="waiting"} 0"#),
            "{text}"
        );
    }
}
