//! Lanes, pools and single tasks under the platform's hand: limits, holds, suspension, priority, and what is counted.

use sluice::domain::failure::FailureClass;
use sluice::domain::lane::{Cap, Class, Policy, Weight};
use sluice::domain::scaling::{LaneDemand, want};
use sluice::domain::task::TaskType;
use sluice::store::control::{
    ActiveFilter, CancelOutcome, PriorityOutcome, ResumeOutcome, Scope, SuspendOutcome, cancel_active, resume,
    set_priority, suspend,
};
use sluice::store::enqueue::NewTask;
use sluice::store::lanes::{LaneSettings, Setting, WorkerPoolSettings, hold_lane, lane_sources, set_lane, set_pool};
use sluice::store::reads::{LaneCounts, lane_counts, pool_demand};
use sluice::store::upkeep::reap;
use uuid::Uuid;

use crate::queue::{ANYBODY, Queue, TENANT, UNNAMED, insert};

fn cap(max_running: u32) -> LaneSettings<'static> {
    LaneSettings { max_running: Setting::To(Cap::new(max_running)), ..LaneSettings::default() }
}

async fn lane(queue: &Queue) -> LaneCounts {
    let lanes = lane_counts(&queue.operator, Some(&[TENANT.to_owned()])).await.expect("the lanes");
    lanes.into_iter().find(|lane| lane.class == Class::Ingest).expect("the lane")
}

#[tokio::test]
async fn lane_keeps_what_is_not_named_and_goes_back_to_its_defaults() {
    let queue = Queue::new().await;
    set_pool(&queue.operator, "other", WorkerPoolSettings::default(), None).await.expect("a pool");
    let settings = LaneSettings {
        pool: Setting::To("other"),
        max_running: Setting::To(Cap::new(5)),
        weight: Setting::To(Weight::new(1_000).expect("a weight")),
        policy: Setting::To(Policy::Hold),
        policy_reason: Setting::To("invoice\0"),
        allowed_sources: Setting::To(vec!["s3://acme/".to_owned()]),
        mirror_limit: Setting::To(10),
        cluster: Setting::To("here"),
        resource_uid: Setting::To("uid"),
    };
    let limits = set_lane(&queue.operator, TENANT, Class::Ingest, &settings, Some("ann")).await.expect("limits");
    assert_eq!((limits.effective_cap, limits.reason), (Cap::new(5), None));

    set_lane(&queue.operator, TENANT, Class::Ingest, &cap(7), None).await.expect("limits");
    let set = lane(&queue).await;
    assert_eq!((set.pool.as_str(), set.cap, set.weight, set.policy), ("other", Cap::new(7), 1_000, Policy::Hold));
    assert_eq!(set.policy_reason.as_deref(), Some("invoice"));
    assert_eq!((set.cluster.as_deref(), set.resource_uid.as_deref()), (Some("here"), Some("uid")));

    let back = LaneSettings {
        pool: Setting::Reset,
        max_running: Setting::Reset,
        weight: Setting::Reset,
        policy: Setting::Reset,
        policy_reason: Setting::Reset,
        allowed_sources: Setting::Reset,
        mirror_limit: Setting::Reset,
        cluster: Setting::Reset,
        resource_uid: Setting::Reset,
    };
    set_lane(&queue.operator, TENANT, Class::Ingest, &back, None).await.expect("limits");
    let lane = lane(&queue).await;
    assert_eq!((lane.pool.as_str(), lane.cap, lane.weight, lane.policy), ("default", Cap::NONE, 1, Policy::None));
    assert_eq!((lane.policy_reason, lane.cluster, lane.resource_uid), (None, None, None));
}

#[tokio::test]
async fn worker_hears_what_a_lane_may_read() {
    let queue = Queue::new().await;
    let sources = async |tenant| lane_sources(&queue.worker, tenant, Class::Ingest).await.expect("an answer");
    assert_eq!(sources(TENANT).await, [""; 0]);
    let settings =
        LaneSettings { allowed_sources: Setting::To(vec!["s3://acme/".to_owned()]), ..LaneSettings::default() };
    set_lane(&queue.operator, TENANT, Class::Ingest, &settings, None).await.expect("limits");
    assert_eq!(sources(TENANT).await, ["s3://acme/"]);
    assert_eq!(sources("other").await, [""; 0]);
    let of_lifecycle = lane_sources(&queue.worker, TENANT, Class::Lifecycle).await.expect("an answer");
    assert_eq!(of_lifecycle, [""; 0]);
}

#[tokio::test]
async fn clamp_shows_its_reason_and_leaves_lanes_without_a_cap_alone() {
    let queue = Queue::new().await;
    set_lane(&queue.operator, TENANT, Class::Ingest, &cap(5), None).await.expect("limits");
    set_lane(&queue.operator, "uncapped", Class::Ingest, &cap(0), None).await.expect("limits");
    let clamp = WorkerPoolSettings {
        ingest_clamp: Setting::To(2),
        clamp_reason: Setting::To("local provider"),
        ..WorkerPoolSettings::default()
    };

    set_pool(&queue.operator, "default", clamp, None).await.expect("settings");
    let lanes = lane_counts(&queue.operator, None).await.expect("the lanes");
    let effective = |tenant: &str| {
        let lane = lanes.iter().find(|lane| lane.tenant == tenant).expect("the lane");
        (lane.cap, lane.effective_cap, lane.effective_reason.clone())
    };
    assert_eq!(effective(TENANT), (Cap::new(5), Cap::new(2), Some("local provider".to_owned())));
    assert_eq!(effective("uncapped"), (Cap::NONE, Cap::NONE, None));

    let lifted = WorkerPoolSettings { ingest_clamp: Setting::Reset, ..WorkerPoolSettings::default() };
    set_pool(&queue.operator, "default", lifted, None).await.expect("settings");
    assert_eq!((lane(&queue).await.effective_cap, lane(&queue).await.effective_reason), (Cap::new(5), None));
}

#[tokio::test]
async fn lowered_cap_kills_nothing_and_a_raised_one_lets_more_start() {
    let queue = Queue::new().await;
    for _ in 0..6 {
        queue.enqueue(&insert()).await;
    }
    set_lane(&queue.operator, TENANT, Class::Ingest, &cap(4), None).await.expect("limits");
    let claimed = queue.claim(10).await;
    assert_eq!(claimed.len(), 4);
    let counts = lane(&queue).await;
    assert_eq!((counts.running, counts.ready, counts.parked), (4, 2, 2));

    set_lane(&queue.operator, TENANT, Class::Ingest, &cap(1), None).await.expect("limits");
    assert_eq!(lane(&queue).await.running, 4);
    queue.complete(claimed[0].attempt).await;
    assert_eq!(queue.claim(10).await, [], "three run, one may");
    set_lane(&queue.operator, TENANT, Class::Ingest, &cap(5), None).await.expect("limits");
    assert_eq!(queue.claim(10).await.len(), 2);
}

#[tokio::test]
async fn classes_of_a_tenant_never_block_each_other() {
    let queue = Queue::new().await;
    for class in [Class::Ingest, Class::Lifecycle] {
        set_lane(&queue.operator, TENANT, class, &cap(1), None).await.expect("limits");
    }
    for task_type in [TaskType::Insert, TaskType::Deletion, TaskType::Insert, TaskType::Deletion] {
        queue.enqueue(&NewTask::new(task_type, TENANT)).await;
    }

    let claimed = queue.claim(10).await;

    let mut classes: Vec<_> = claimed.iter().map(|task| task.task_type.clone().expect("a type").class()).collect();
    classes.sort_unstable();
    assert_eq!(classes, [Class::Ingest, Class::Lifecycle]);
}

#[tokio::test]
async fn held_lane_starts_nothing_shows_its_reason_and_lets_others_go_on() {
    let queue = Queue::new().await;
    let running = queue.running().await;
    let parked = queue.enqueue(&insert()).await;
    let other = queue.enqueue(&NewTask::new(TaskType::Insert, "another")).await;
    let hold = async |policy| {
        hold_lane(&queue.operator, TENANT, Class::Ingest, policy, Some("invoice"), None).await.expect("an answer")
    };

    assert_eq!((hold(Policy::Hold).await, hold(Policy::Hold).await), (Policy::Hold, Policy::Hold));
    let claimed: Vec<_> = queue.claim(10).await.iter().map(|task| task.attempt.track_id).collect();
    assert_eq!(claimed, [other]);
    let counts = lane(&queue).await;
    assert_eq!((counts.policy, counts.policy_reason.as_deref(), counts.parked), (Policy::Hold, Some("invoice"), 1));
    assert_eq!(counts.running, 1, "{running:?} goes on");

    hold(Policy::None).await;
    assert!(queue.claim_this(parked).await.is_some());
}

#[tokio::test]
async fn suspended_task_waits_until_it_is_resumed_and_running_work_is_not_touched() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;
    let suspended = async |id| suspend(&queue.operator, id, None, ANYBODY).await.expect("an answer");
    let resumed = async |id| resume(&queue.operator, id, None, ANYBODY).await.expect("an answer");

    assert_eq!(resumed(track_id).await, ResumeOutcome::Unchanged);
    assert_eq!(suspended(track_id).await, SuspendOutcome::Suspended);
    assert_eq!(suspended(track_id).await, SuspendOutcome::Unchanged);
    assert_eq!(queue.claim_this(track_id).await, None);
    assert_eq!((lane(&queue).await.suspended, lane(&queue).await.parked), (1, 0));
    assert_eq!(resumed(track_id).await, ResumeOutcome::Resumed);
    let attempt = queue.run(track_id).await;
    assert_eq!(suspended(track_id).await, SuspendOutcome::Refused);
    assert_eq!(resumed(track_id).await, ResumeOutcome::Refused);
    queue.complete(attempt).await;
    assert_eq!(suspended(track_id).await, SuspendOutcome::Refused);
    assert_eq!(suspended(Uuid::new_v4()).await, SuspendOutcome::NotFound);
    assert_eq!(resumed(Uuid::new_v4()).await, ResumeOutcome::NotFound);
}

#[tokio::test]
async fn task_resumed_before_it_is_due_still_waits() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&NewTask { delay_secs: 60.0, suspended: true, ..insert() }).await;

    assert_eq!(resume(&queue.operator, track_id, None, ANYBODY).await.expect("an answer"), ResumeOutcome::Resumed);

    assert_eq!(queue.claim_this(track_id).await, None);
    assert_eq!(lane(&queue).await.backing_off, 1);
}

#[tokio::test]
async fn higher_priority_goes_first_in_its_lane() {
    let queue = Queue::new().await;
    let mut ids = Vec::new();
    for priority in [0, 0, 5, -5] {
        ids.push(queue.enqueue(&NewTask { priority, ..insert() }).await);
    }
    let set = async |id, priority| set_priority(&queue.operator, id, priority, ANYBODY).await.expect("an answer");
    assert_eq!(set(ids[1], 1_000).await, PriorityOutcome::Changed);
    assert_eq!(set(ids[1], 1_000).await, PriorityOutcome::Unchanged);

    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(queue.claim(1).await[0].attempt.track_id);
    }

    assert_eq!(order, [ids[1], ids[2], ids[0], ids[3]]);
    assert_eq!(set(ids[1], 0).await, PriorityOutcome::Refused);
    assert_eq!(set(Uuid::new_v4(), 0).await, PriorityOutcome::NotFound);
}

#[tokio::test]
async fn cancel_of_all_that_is_active_respects_its_filter_and_limit() {
    let queue = Queue::new().await;
    let running = queue.running().await.track_id;
    let mine = queue.enqueue(&NewTask { workspace: Some("w".to_owned()), ..insert() }).await;
    let deletion = queue.enqueue(&NewTask::new(TaskType::Deletion, TENANT)).await;
    let another = queue.enqueue(&NewTask::new(TaskType::Scan, "another")).await;
    let cancelled = async |filter: ActiveFilter<'_>, limit| {
        cancel_active(&queue.operator, filter, UNNAMED, limit).await.expect("answers")
    };
    let of = |tenant, workspace| ActiveFilter { scope: Scope { tenant, workspace }, ..ActiveFilter::default() };

    assert_eq!(cancelled(of(Some("nobody"), None), 10).await, []);
    assert_eq!(cancelled(of(Some("another"), Some("w")), 10).await, []);
    assert_eq!(cancelled(of(Some(TENANT), Some("w")), 10).await, [(mine, CancelOutcome::Cancelled)]);
    let scans = ActiveFilter { task_type: Some(TaskType::Scan), ..ActiveFilter::default() };
    assert_eq!(cancelled(scans, 10).await, [(another, CancelOutcome::Cancelled)]);
    let elsewhere = ActiveFilter { pool: Some("elsewhere"), ..ActiveFilter::default() };
    assert_eq!(cancelled(elsewhere, 10).await, []);
    let lifecycle = ActiveFilter { class: Some(Class::Lifecycle), ..ActiveFilter::default() };
    assert_eq!(cancelled(lifecycle, 10).await, [(deletion, CancelOutcome::Cancelled)]);

    let (second, third) = (queue.enqueue(&insert()).await, queue.enqueue(&insert()).await);
    let mut all = Vec::new();
    loop {
        let some = cancelled(ActiveFilter::default(), 2).await;
        if some.is_empty() {
            break;
        }
        assert!(some.len() <= 2);
        all.extend(some);
    }
    all.sort_unstable();
    let mut expected =
        vec![(running, CancelOutcome::Stopping), (second, CancelOutcome::Cancelled), (third, CancelOutcome::Cancelled)];
    expected.sort_unstable();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn demand_of_a_pool_is_what_the_domain_decides_of_its_lanes() {
    let queue = Queue::new().await;
    let many = async |tenant: &str, count| {
        for _ in 0..count {
            queue.enqueue(&NewTask::new(TaskType::Insert, tenant)).await;
        }
    };
    for (tenant, lane_cap, first, more) in [("full", 2, 2, 3), ("open", 0, 1, 4), ("half", 3, 1, 1)] {
        set_lane(&queue.operator, tenant, Class::Ingest, &cap(lane_cap), None).await.expect("limits");
        many(tenant, first).await;
        queue.claim(10).await;
        many(tenant, more).await;
    }
    many("held", 5).await;
    hold_lane(&queue.operator, "held", Class::Ingest, Policy::Hold, None, None).await.expect("an answer");
    let stopping = queue.stopping().await;
    let suspended = queue.enqueue(&NewTask { suspended: true, ..insert() }).await;

    let pools = pool_demand(&queue.operator).await.expect("the pools");
    let lanes = lane_counts(&queue.operator, None).await.expect("the lanes");

    let demands = lanes.iter().map(|lane| LaneDemand {
        running: lane.running,
        stopping: lane.stopping,
        ready: lane.ready,
        cap: lane.effective_cap,
        policy: lane.policy,
    });
    let one = std::num::NonZeroU32::new(1).expect("not zero");
    assert_eq!(pools[0].demand, want(demands, one), "{lanes:?}");
    assert!(pools[0].stopping == 1 && pools[0].workers == 1 && pools[0].draining == 0, "{:?}", pools[0]);
    assert_eq!(pools[0].demand, pools[0].running + pools[0].stopping + pools[0].startable);
    assert_ne!(stopping.track_id, suspended);
}

#[tokio::test]
#[ignore = "known fault: a lane whose last running task was given back counts as idle"]
async fn lane_counts_what_completed_until_it_was_idle() {
    let queue = Queue::new().await;
    let counted = async || lane(&queue).await.completed_since_idle;
    let [done, failed, lost, cancelled] =
        [queue.running().await, queue.running().await, queue.running().await, queue.running().await];
    assert_eq!(counted().await, 0);

    queue.complete(done).await;
    queue.fail(failed, FailureClass::InvalidDocument).await;
    queue.cancel(cancelled.track_id).await;
    queue.complete(cancelled).await;
    queue.expire_lease(lost.track_id).await;
    reap(&queue.operator, 10).await.expect("an answer");
    assert_eq!(counted().await, 1, "what did not complete does not count");

    let again = queue.run(lost.track_id).await;
    let another = queue.running().await;
    queue.complete(another).await;
    assert_eq!(counted().await, 2);
    queue.complete(again).await;
    assert_eq!((queue.claim(1).await, counted().await), (vec![], 0), "the lane is idle");

    let next = queue.enqueue(&insert()).await;
    assert_eq!(counted().await, 0, "work has come, and a new count begins");
    let (attempt, beside) = (queue.run(next).await, queue.running().await);
    queue.complete(attempt).await;
    assert_eq!(counted().await, 1);
    queue.complete(beside).await;
}

#[tokio::test]
async fn work_in_a_lane_that_no_claim_has_woken_is_demand() {
    let queue = Queue::new().await;
    let attempt = queue.running().await;
    queue.complete(attempt).await;
    assert_eq!(queue.claim(1).await, [], "the lane is marked as empty");

    queue.enqueue(&insert()).await;
    let pools = pool_demand(&queue.operator).await.expect("the pools");
    assert_eq!((pools[0].demand, pools[0].startable), (1, 1));
}
