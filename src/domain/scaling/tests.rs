use proptest::prelude::*;

use super::*;

const THREADS: NonZeroU32 = NonZeroU32::new(4).unwrap();
const LIMITS: Limits = Limits { min_replicas: 0, max_replicas: 10, scale_down_delay_secs: 300 };

fn lane(running: u64, stopping: u64, ready: u64, cap: u32, policy: Policy) -> LaneDemand {
    LaneDemand { running, stopping, ready, cap: Cap::new(cap), policy }
}

#[test]
fn a_lane_wants_its_running_work_and_what_its_cap_lets_start() {
    let rows = [
        (lane(0, 0, 0, 3, Policy::None), 0),
        (lane(0, 0, 100, 3, Policy::None), 3),
        (lane(2, 0, 100, 3, Policy::None), 3),
        (lane(2, 1, 100, 3, Policy::None), 3),
        (lane(5, 0, 100, 3, Policy::None), 5),
        (lane(1, 0, 1, 3, Policy::None), 2),
        (lane(1, 1, 100, 0, Policy::None), 102),
        (lane(1, 1, 100, 3, Policy::Hold), 2),
        (lane(1, 1, 100, 0, Policy::HoldAndDrain), 2),
        (lane(u64::MAX, 1, u64::MAX, 0, Policy::None), u64::MAX),
    ];
    for (lane, slots) in rows {
        assert_eq!(lane.slots(), slots, "{lane:?}");
    }
}

#[test]
fn a_pool_wants_a_replica_for_every_begun_set_of_threads() {
    for (ready, replicas) in [(0, 0), (1, 1), (4, 1), (5, 2), (400, 100), (u64::MAX, u64::MAX / 4 + 1)] {
        assert_eq!(want([lane(0, 0, ready, 0, Policy::None)], THREADS), replicas);
    }
}

#[test]
fn a_pool_adds_up_its_lanes_before_it_rounds() {
    let lanes = [lane(1, 0, 0, 2, Policy::None), lane(0, 1, 9, 2, Policy::None), lane(1, 0, 9, 9, Policy::Hold)];
    assert_eq!(want(lanes, THREADS), 1);
    assert_eq!(want(std::iter::repeat_n(lanes, 3).flatten(), THREADS), 3);
}

#[test]
fn the_largest_lanes_do_not_overflow() {
    let lanes = [lane(u64::MAX, u64::MAX, u64::MAX, u32::MAX, Policy::None); 3];
    assert_eq!(want(lanes, NonZeroU32::MIN), u64::MAX);
}

#[test]
fn a_held_lane_alone_wants_nothing() {
    assert_eq!(want([lane(0, 0, 1_000_000, 4, Policy::Hold)], THREADS), 0);
}

#[test]
fn demand_that_rises_is_met_at_once() {
    let quiet = Some(QuietWindow { since: 0, peak: 1 });
    let decision = decide(LIMITS, 2, quiet, Some(5), 10);
    assert_eq!(decision, Decision { replicas: 5, reason: Reason::DemandRose, quiet: None });
}

#[test]
fn demand_beyond_the_maximum_is_held_there() {
    for replicas in [0, 10, 15] {
        let decision = decide(LIMITS, replicas, None, Some(u64::MAX), 0);
        assert_eq!(decision.replicas, 10);
        assert_eq!(decision.reason, Reason::AtMaximum { want: u64::MAX });
    }
}

#[test]
fn a_pool_keeps_its_minimum() {
    let limits = Limits { min_replicas: 2, ..LIMITS };
    for replicas in [0, 2] {
        let decision = decide(limits, replicas, None, Some(0), 0);
        assert_eq!((decision.replicas, decision.reason), (2, Reason::AtMinimum { want: 0 }));
    }
}

#[test]
fn the_maximum_wins_over_a_larger_minimum() {
    let limits = Limits { min_replicas: 20, ..LIMITS };
    assert_eq!(decide(limits, 0, None, Some(0), 0).replicas, 10);
}

#[test]
fn a_steady_pool_stays_as_it_is() {
    let decision = decide(LIMITS, 3, None, Some(3), 7);
    assert_eq!(decision, Decision { replicas: 3, reason: Reason::MatchesDemand, quiet: None });
}

#[test]
fn a_pool_scales_down_only_after_the_delay() {
    let start = decide(LIMITS, 5, None, Some(0), 1_000);
    assert_eq!((start.replicas, start.reason), (5, Reason::WaitsToScaleDown { remaining_secs: 300 }));
    let almost = decide(LIMITS, 5, start.quiet, Some(0), 1_299);
    assert_eq!((almost.replicas, almost.reason), (5, Reason::WaitsToScaleDown { remaining_secs: 1 }));
    let done = decide(LIMITS, 5, almost.quiet, Some(0), 1_300);
    assert_eq!(done, Decision { replicas: 0, reason: Reason::NothingToDo, quiet: None });
}

#[test]
fn a_pool_scales_down_to_the_peak_of_the_quiet_time() {
    let mut quiet = None;
    for (now, want) in [(0, 2), (100, 4), (200, 1)] {
        quiet = decide(LIMITS, 5, quiet, Some(want), now).quiet;
    }
    let decision = decide(LIMITS, 5, quiet, Some(1), 300);
    assert_eq!((decision.replicas, decision.reason), (4, Reason::DemandFell));
    assert_eq!(decision.quiet, Some(QuietWindow { since: 300, peak: 1 }));
}

#[test]
fn demand_that_comes_back_starts_the_wait_again() {
    let quiet = decide(LIMITS, 5, None, Some(1), 0).quiet;
    let back = decide(LIMITS, 5, quiet, Some(5), 299);
    assert_eq!((back.reason, back.quiet), (Reason::MatchesDemand, None));
    let again = decide(LIMITS, 5, back.quiet, Some(1), 301);
    assert_eq!(again.reason, Reason::WaitsToScaleDown { remaining_secs: 300 });
}

#[test]
fn without_a_delay_a_pool_scales_down_at_once() {
    let limits = Limits { scale_down_delay_secs: 0, ..LIMITS };
    let decision = decide(limits, 5, None, Some(1), 0);
    assert_eq!(decision, Decision { replicas: 1, reason: Reason::DemandFell, quiet: None });
}

#[test]
fn unknown_demand_keeps_the_last_decision() {
    let quiet = Some(QuietWindow { since: 0, peak: 1 });
    let decision = decide(LIMITS, 5, quiet, None, 10_000);
    assert_eq!(decision, Decision { replicas: 5, reason: Reason::DemandUnknown, quiet });
}

#[test]
fn a_lowered_maximum_takes_effect_without_the_delay() {
    let decision = decide(LIMITS, 15, None, Some(3), 0);
    assert_eq!(decision.replicas, 10);
    assert_eq!(decision.reason, Reason::WaitsToScaleDown { remaining_secs: 300 });
}

#[test]
fn a_clock_that_goes_back_starts_the_wait_again() {
    let quiet = Some(QuietWindow { since: 5_000, peak: 1 });
    let decision = decide(LIMITS, 5, quiet, Some(1), 4_000);
    assert_eq!(decision.reason, Reason::WaitsToScaleDown { remaining_secs: 300 });
}

#[test]
fn each_reason_is_a_sentence_of_its_own() {
    let reasons = [
        Reason::MatchesDemand,
        Reason::DemandRose,
        Reason::DemandFell,
        Reason::NothingToDo,
        Reason::WaitsToScaleDown { remaining_secs: 7 },
        Reason::AtMaximum { want: 7 },
        Reason::AtMinimum { want: 7 },
        Reason::DemandUnknown,
    ];
    let sentences: std::collections::BTreeSet<_> = reasons.iter().map(Reason::to_string).collect();
    assert_eq!(sentences.len(), reasons.len());
}

proptest! {
    #[test]
    fn a_decision_stays_within_its_limits(
        min_replicas: u32, max_replicas: u32, scale_down_delay_secs: u64, replicas: u32,
        quiet: Option<(i64, u32)>, want: u64, now: i64,
    ) {
        let limits = Limits { min_replicas, max_replicas, scale_down_delay_secs };
        let quiet = quiet.map(|(since, peak)| QuietWindow { since, peak });
        let decision = decide(limits, replicas, quiet, Some(want), now);
        prop_assert!(decision.replicas <= max_replicas);
        prop_assert!(decision.replicas >= min_replicas.min(max_replicas));
        prop_assert!(u64::from(decision.replicas) >= want.min(u64::from(max_replicas)));
    }

    #[test]
    fn a_second_decision_on_the_same_facts_changes_nothing(replicas in 0_u32..20, want in 0_u64..20, now: i64) {
        let first = decide(LIMITS, replicas, None, Some(want), now);
        let second = decide(LIMITS, first.replicas, first.quiet, Some(want), now);
        prop_assert_eq!(second.replicas, first.replicas);
        prop_assert_eq!(second.quiet, first.quiet);
    }
}
