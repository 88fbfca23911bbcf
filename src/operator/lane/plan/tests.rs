use super::*;
use crate::operator::fixture::idle_lane;

const HERE: Scope<'static> = Scope { cluster: "here", namespaces: &[] };

fn claimant(name: &str, created_at: i64) -> Claimant {
    Claimant {
        namespace: "team".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created_at,
        lane: lane("acme"),
        right: Right::Granted,
        wanted: Wanted {
            pool: DEFAULT_POOL.to_owned(),
            cap: Some(Cap::new(5)),
            weight: Weight::new(1).unwrap(),
            policy: WantedPolicy::Unset { held_by_spec: false },
            allowed_sources: Vec::new(),
            mirror_limit: 0,
        },
    }
}

fn lane(tenant: &str) -> LaneKey {
    LaneKey { tenant: tenant.to_owned(), class: Class::Ingest }
}

/// As if this claimant had been served.
fn row(claimant: &Claimant) -> LaneCounts {
    LaneCounts {
        tenant: claimant.lane.tenant.clone(),
        class: claimant.lane.class,
        pool: DEFAULT_POOL.to_owned(),
        cap: Cap::new(5),
        effective_cap: Cap::new(5),
        cluster: Some("here".to_owned()),
        resource_uid: Some(claimant.manager()),
        ..idle_lane()
    }
}

fn planned(claimants: &[Claimant], rows: &[LaneCounts]) -> Plan {
    planned_in(claimants, rows, HERE)
}

fn planned_in(claimants: &[Claimant], rows: &[LaneCounts], scope: Scope<'_>) -> Plan {
    let pools = BTreeSet::from([DEFAULT_POOL.to_owned(), "heavy".to_owned()]);
    plan(&Observed { claimants, unreadable: &BTreeSet::new(), rows, pools: &pools }, scope)
}

fn changes(plan: &Plan) -> Vec<&Settings> {
    plan.changes.iter().map(|change| &change.settings).collect()
}

#[test]
fn lane_that_is_as_wanted_is_left_alone() {
    let claimant = claimant("a", 1);
    let plan = planned(std::slice::from_ref(&claimant), &[row(&claimant)]);
    assert_eq!(plan.changes, []);
    assert_eq!(plan.verdicts[&claimant.uid], Verdict::Speaks);
}

#[test]
fn lane_without_a_row_is_made_with_what_is_not_a_default() {
    let claimant = claimant("a", 1);
    let plan = planned(std::slice::from_ref(&claimant), &[]);
    let expected = Settings {
        max_running: Setting::To(Cap::new(5)),
        cluster: Setting::To("here".to_owned()),
        resource_uid: Setting::To(claimant.manager()),
        ..Settings::default()
    };
    assert_eq!(changes(&plan), [&expected]);
}

#[test]
fn each_field_that_differs_is_told_alone() {
    let mut claimant = claimant("a", 1);
    claimant.wanted.pool = "heavy".to_owned();
    claimant.wanted.weight = Weight::new(7).unwrap();
    claimant.wanted.allowed_sources = vec!["s3://a/".to_owned()];
    claimant.wanted.mirror_limit = 100;
    let as_wanted = LaneCounts {
        pool: "heavy".to_owned(),
        weight: 7,
        allowed_sources: vec!["s3://a/".to_owned()],
        mirror_limit: 100,
        ..row(&claimant)
    };
    let none = Settings::default();
    let rows = [
        (as_wanted.clone(), none.clone()),
        (
            LaneCounts { pool: "other".to_owned(), ..as_wanted.clone() },
            Settings { pool: Setting::To("heavy".to_owned()), ..none.clone() },
        ),
        (
            LaneCounts { cap: Cap::new(6), ..as_wanted.clone() },
            Settings { max_running: Setting::To(Cap::new(5)), ..none.clone() },
        ),
        // The same number by chance: the pool's default may change.
        (
            LaneCounts { is_default: true, ..as_wanted.clone() },
            Settings { max_running: Setting::To(Cap::new(5)), ..none.clone() },
        ),
        (
            LaneCounts { weight: 1, ..as_wanted.clone() },
            Settings { weight: Setting::To(Weight::new(7).unwrap()), ..none.clone() },
        ),
        (
            LaneCounts { allowed_sources: vec![], ..as_wanted.clone() },
            Settings { allowed_sources: Setting::To(vec!["s3://a/".to_owned()]), ..none.clone() },
        ),
        (
            LaneCounts { mirror_limit: 0, ..as_wanted.clone() },
            Settings { mirror_limit: Setting::To(100), ..none.clone() },
        ),
        // A clamp is not ours to undo.
        (LaneCounts { effective_cap: Cap::new(2), ..as_wanted.clone() }, none.clone()),
    ];
    for (row, expected) in rows {
        let plan = planned(std::slice::from_ref(&claimant), std::slice::from_ref(&row));
        let told = plan.changes.first().map_or(none.clone(), |change| change.settings.clone());
        assert_eq!(told, expected, "{row:?}");
    }
}

#[test]
fn cap_that_is_not_asked_for_goes_back_to_the_pools() {
    let mut claimant = claimant("a", 1);
    claimant.wanted.cap = None;
    let set = planned(std::slice::from_ref(&claimant), &[row(&claimant)]);
    assert_eq!(changes(&set), [&Settings { max_running: Setting::Reset, ..Settings::default() }]);
    let default = LaneCounts { is_default: true, ..row(&claimant) };
    assert_eq!(planned(&[claimant], &[default]).changes, []);
}

#[test]
fn hold_of_the_spec_is_kept_and_one_by_others_stays_while_the_spec_says_nothing() {
    let to = |policy, reason: Option<&str>| WantedPolicy::To { policy, reason: reason.map(str::to_owned) };
    let unset = |held_by_spec| WantedPolicy::Unset { held_by_spec };
    let (keep, reset) = (Setting::Keep, Setting::Reset);
    let rows = [
        (to(Policy::Hold, None), Policy::None, None, Setting::To(Policy::Hold)),
        (to(Policy::Hold, None), Policy::Hold, None, keep),
        (to(Policy::Hold, Some("why")), Policy::Hold, None, Setting::To(Policy::Hold)),
        (to(Policy::Hold, Some("why")), Policy::Hold, Some("why"), keep),
        (to(Policy::HoldAndDrain, None), Policy::Hold, None, Setting::To(Policy::HoldAndDrain)),
        (to(Policy::None, None), Policy::Hold, None, Setting::To(Policy::None)),
        (unset(false), Policy::Hold, Some("by hand"), keep),
        (unset(true), Policy::Hold, None, reset),
        (unset(true), Policy::None, None, keep),
    ];
    for (policy, now, reason, expected) in rows {
        let mut claimant = claimant("a", 1);
        claimant.wanted.policy = policy.clone();
        let row = LaneCounts { policy: now, policy_reason: reason.map(str::to_owned), ..row(&claimant) };
        let plan = planned(&[claimant], &[row]);
        let told = plan.changes.first().map_or(Setting::Keep, |change| change.settings.policy);
        assert_eq!(told, expected, "{policy:?} {now} {reason:?}");
    }
}

#[test]
fn reason_of_a_held_pool_is_not_taken_for_the_lanes() {
    let mut claimant = claimant("a", 1);
    claimant.wanted.policy = WantedPolicy::To { policy: Policy::Hold, reason: Some("why".to_owned()) };
    let row = LaneCounts {
        policy: Policy::Hold,
        policy_reason: Some("migration".to_owned()),
        is_pool_held: true,
        ..row(&claimant)
    };
    assert_eq!(planned(&[claimant], &[row]).changes, []);
}

#[test]
fn older_resource_wins_and_the_younger_takes_over_when_it_is_gone() {
    let (old, young) = (claimant("old", 1), claimant("young", 2));
    let plan = planned(&[young.clone(), old.clone()], &[row(&old)]);
    assert_eq!(plan.verdicts[&old.uid], Verdict::Speaks);
    assert!(matches!(&plan.verdicts[&young.uid], Verdict::Conflict(why) if why.contains("team/old")));
    assert_eq!(plan.changes, []);

    let plan = planned(std::slice::from_ref(&young), &[row(&old)]);
    assert_eq!(plan.verdicts[&young.uid], Verdict::Speaks);
    let told = Settings { resource_uid: Setting::To(young.manager()), ..Settings::default() };
    assert_eq!(changes(&plan), [&told]);
}

#[test]
fn resources_of_the_same_second_have_one_winner() {
    let (a, b) = (claimant("a", 1), claimant("b", 1));
    for order in [[a.clone(), b.clone()], [b.clone(), a.clone()]] {
        let plan = planned(&order, &[]);
        assert_eq!(plan.verdicts[&a.uid], Verdict::Speaks);
        assert!(matches!(plan.verdicts[&b.uid], Verdict::Conflict(_)));
    }
}

#[test]
fn lane_of_a_deleted_resource_goes_back_to_its_defaults() {
    let gone = claimant("gone", 1);
    let plan = planned(&[], &[row(&gone)]);
    assert_eq!(changes(&plan), [&Settings::defaults()]);
    let orphan = ChangeKind::Orphan { namespace: "team".to_owned(), uid: gone.uid.clone() };
    assert_eq!(plan.changes[0].kind, orphan);

    let unreadable = BTreeSet::from([gone.uid.clone()]);
    let rows = [row(&gone)];
    let observed = Observed { claimants: &[], unreadable: &unreadable, rows: &rows, pools: &BTreeSet::new() };
    assert_eq!(plan_of(&observed).changes, [], "what cannot be read is not gone");
}

fn plan_of(observed: &Observed<'_>) -> Plan {
    plan(observed, HERE)
}

#[test]
fn right_that_was_taken_back_ends_at_once_and_one_that_is_unknown_changes_nothing() {
    let mut claimant = claimant("a", 1);
    claimant.right = Right::Refused("why".to_owned());
    let plan = planned(std::slice::from_ref(&claimant), &[row(&claimant)]);
    assert_eq!(plan.verdicts[&claimant.uid], Verdict::NotAllowed("why".to_owned()));
    assert!(matches!(plan.changes[..], [Change { kind: ChangeKind::Revoked { .. }, .. }]));
    assert_eq!(planned(std::slice::from_ref(&claimant), &[]).changes, [], "it never had the lane");

    claimant.right = Right::Unknown;
    let plan = planned(std::slice::from_ref(&claimant), &[row(&claimant)]);
    assert_eq!((plan.changes.len(), &plan.verdicts[&claimant.uid]), (0, &Verdict::Unknown));
}

#[test]
fn rows_of_others_are_never_touched() {
    let claimant = claimant("a", 1);
    let watched = ["team".to_owned()];
    let (all, some) = (HERE, Scope { namespaces: &watched, ..HERE });
    let by = |cluster: Option<&str>, uid: &str| LaneCounts {
        cluster: cluster.map(str::to_owned),
        resource_uid: Some(uid.to_owned()),
        ..row(&claimant)
    };
    let rows = [
        (by(Some("there"), "team/x"), all, true),
        (by(None, "team/x"), all, true),
        (by(Some("here"), "written by hand"), all, true),
        (by(Some("here"), "elsewhere/x"), some, true),
        (by(Some("here"), "elsewhere/x"), all, false),
        (by(Some("here"), "team/x"), some, false),
    ];
    for (row, scope, foreign) in rows {
        let plan = planned_in(std::slice::from_ref(&claimant), std::slice::from_ref(&row), scope);
        assert_eq!(plan.changes.is_empty(), foreign, "{row:?}");
        assert_eq!(matches!(plan.verdicts[&claimant.uid], Verdict::Conflict(_)), foreign, "{row:?}");
        let alone = planned_in(&[], std::slice::from_ref(&row), scope);
        assert_eq!(alone.changes.is_empty(), foreign, "{row:?}");
    }
}

#[test]
fn lane_of_nobody_is_not_swept() {
    let unmanaged = LaneCounts { cluster: None, resource_uid: None, ..row(&claimant("a", 1)) };
    assert_eq!(planned(&[], &[unmanaged]).changes, []);
}

#[test]
fn pool_that_is_not_there_keeps_nothing_else_from_being_set() {
    let mut claimant = claimant("a", 1);
    claimant.wanted.pool = "nowhere".to_owned();
    claimant.wanted.cap = Some(Cap::new(1));
    let plan = planned(std::slice::from_ref(&claimant), &[row(&claimant)]);
    assert_eq!(changes(&plan), [&Settings { max_running: Setting::To(Cap::new(1)), ..Settings::default() }]);
    assert_eq!(plan.without_pool, BTreeSet::from([claimant.uid]));
}
