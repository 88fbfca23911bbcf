use chrono::DateTime;

use super::*;
use crate::domain::lane::{Class, Weight};
use crate::operator::fixture::idle_lane;
use crate::operator::lane::plan::{LaneKey, Right, Wanted};

fn claimant(policy: WantedPolicy) -> Claimant {
    Claimant {
        namespace: "team".to_owned(),
        name: "lane".to_owned(),
        uid: "uid".to_owned(),
        created_at: 0,
        lane: LaneKey { tenant: "acme".to_owned(), class: Class::Ingest },
        right: Right::Granted,
        wanted: Wanted {
            pool: "default".to_owned(),
            cap: None,
            weight: Weight::new(1).unwrap(),
            policy,
            allowed_sources: Vec::new(),
            mirror_limit: 0,
        },
    }
}

fn unset() -> WantedPolicy {
    WantedPolicy::Unset { held_by_spec: false }
}

fn row() -> LaneCounts {
    LaneCounts { cap: Cap::new(2), effective_cap: Cap::new(2), ..idle_lane() }
}

fn at(secs: i64) -> Time {
    Time::from(DateTime::from_timestamp(secs, 0).unwrap())
}

fn shown(
    claimant: &Claimant,
    verdict: &Verdict,
    row: Option<&LaneCounts>,
    obstacle: Option<&Obstacle>,
) -> TenantLaneStatus {
    status(&Known { claimant, generation: Some(3), verdict, row, obstacle, before: None }, at(1))
}

fn condition(status: &TenantLaneStatus, type_: ConditionType) -> (ConditionStatus, String) {
    let condition = status.conditions.iter().find(|condition| condition.is(type_)).unwrap();
    (condition.status, condition.reason.clone())
}

#[test]
fn summary_says_what_the_lane_waits_for() {
    let rows = [
        (row(), "no work"),
        (LaneCounts { running: 1, ..row() }, "working"),
        (LaneCounts { ready: 1, pending: 1, ..row() }, "work waits for a worker"),
        (LaneCounts { running: 1, stopping: 1, ..row() }, "at its cap, and nothing is parked"),
        (LaneCounts { running: 2, ready: 4, parked: 4, pending: 4, ..row() }, "at its cap of 2: the rest is parked"),
        (LaneCounts { backing_off: 1, pending: 1, ..row() }, "what is pending is suspended or backing off"),
        (LaneCounts { running: 9, effective_cap: Cap::NONE, ..row() }, "working"),
        (LaneCounts { policy: Policy::Hold, ..row() }, "nothing new starts, what runs goes on"),
        (
            LaneCounts { policy: Policy::HoldAndDrain, policy_reason: Some("invoice".to_owned()), ..row() },
            "nothing new starts, what runs is given back: invoice",
        ),
        (
            LaneCounts { is_pool_held: true, policy_reason: Some("migration".to_owned()), ..row() },
            "pool default is held: migration",
        ),
    ];
    for (row, summary) in rows {
        let status = shown(&claimant(unset()), &Verdict::Speaks, Some(&row), None);
        assert_eq!(status.summary.as_deref(), Some(summary), "{row:?}");
        assert_eq!(condition(&status, ConditionType::Ready), (ConditionStatus::True, "UpToDate".to_owned()));
    }
}

#[test]
fn hold_of_the_spec_is_told_from_one_by_others() {
    let held = LaneCounts { policy: Policy::Hold, ..row() };
    let by_spec = claimant(WantedPolicy::To { policy: Policy::Hold, reason: None });
    let shows = |claimant: &Claimant, row: &LaneCounts| {
        condition(&shown(claimant, &Verdict::Speaks, Some(row), None), ConditionType::Held)
    };
    assert_eq!(shows(&by_spec, &held), (ConditionStatus::True, "HeldByPolicy".to_owned()));
    assert_eq!(shows(&claimant(unset()), &held), (ConditionStatus::True, "LaneHeld".to_owned()));
    assert_eq!(shows(&claimant(unset()), &row()), (ConditionStatus::False, "NotHeld".to_owned()));
    let resting = LaneCounts { is_cooling: true, ..row() };
    assert_eq!(shows(&claimant(unset()), &resting), (ConditionStatus::True, "LaneResting".to_owned()));
}

#[test]
fn what_does_not_speak_for_the_lane_shows_none_of_its_counts() {
    let busy = LaneCounts { running: 7, ..row() };
    let verdicts = [
        (Verdict::NotAllowed("why".to_owned()), "TenantNotAllowed"),
        (Verdict::Conflict("why".to_owned()), "Conflict"),
    ];
    for (verdict, reason) in verdicts {
        let status = shown(&claimant(unset()), &verdict, Some(&busy), None);
        assert_eq!((status.running, status.effective_max_running), (None, None));
        assert_eq!(condition(&status, ConditionType::Accepted), (ConditionStatus::False, reason.to_owned()));
        assert_eq!(condition(&status, ConditionType::Stalled), (ConditionStatus::True, reason.to_owned()));
        assert_eq!(status.summary.as_deref(), Some("why"));
    }
}

#[test]
fn clamp_shows_in_the_effective_cap_and_its_reason() {
    let clamped = LaneCounts { cap: Cap::new(9), effective_reason: Some("a local provider".to_owned()), ..row() };
    let status = shown(&claimant(unset()), &Verdict::Speaks, Some(&clamped), None);
    assert_eq!(status.effective_max_running, Some(2));
    assert_eq!(status.effective_reason.as_deref(), Some("a local provider"));
    assert_eq!(condition(&status, ConditionType::Ready), (ConditionStatus::True, "Clamped".to_owned()));
    assert_eq!(news(None, &status), Some((EventReason::Clamped, "a local provider".to_owned())));
    assert_eq!(news(Some(&status), &status), None);
}

#[test]
fn second_look_finds_nothing_to_write() {
    let claimant = claimant(unset());
    let row = LaneCounts { running: 1, ..row() };
    let first = shown(&claimant, &Verdict::Speaks, Some(&row), None);
    let known = Known {
        claimant: &claimant,
        generation: Some(3),
        verdict: &Verdict::Speaks,
        row: Some(&row),
        obstacle: None,
        before: Some(&first),
    };
    assert_eq!(status(&known, at(1_000)), first);
    let away = without_database(Some(&first), Some(3), at(1_000));
    assert_eq!(without_database(Some(&away), Some(3), at(2_000)), away);
    assert_eq!(away.running, Some(1), "what was last seen stays");
    assert_eq!(condition(&away, ConditionType::Accepted), (ConditionStatus::True, "Accepted".to_owned()));
}

#[test]
fn missing_pool_says_what_to_make() {
    let missing = Obstacle::PoolMissing("heavy".to_owned());
    let status = shown(&claimant(unset()), &Verdict::Speaks, Some(&row()), Some(&missing));
    assert_eq!(condition(&status, ConditionType::Accepted), (ConditionStatus::False, "PoolMissing".to_owned()));
    assert!(status.summary.is_some_and(|summary| summary.contains("pool heavy") && summary.contains("default")));
}
