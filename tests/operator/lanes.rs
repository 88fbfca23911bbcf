//! TenantLanes: what they ask for holds in the database, and they show what the lane does.

use std::time::Instant;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice::api::{TenantLane, TenantLaneStatus};
use sluice::domain::lane::{Cap, Class, Policy};
use sluice::domain::task::TaskType;
use sluice::store::claim::{Attempt, Claim, ClaimRequest, claim};
use sluice::store::ends::{CoolDown, complete, release};
use sluice::store::enqueue::{NewTask, enqueue_many};
use sluice::store::lanes::{WorkerPoolSettings, hold_lane, set_pool};
use sluice::store::reads::{LaneCounts, lane_counts};

use crate::scene::{NOTHING, SOON, Scene};

async fn make(scene: &Scene, name: &str, spec: Value) -> TenantLane {
    let object = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane", "metadata": { "name": name }, "spec": spec,
    });
    let lane = serde_json::from_value(object).expect("a lane");
    scene.lanes.create(&PostParams::default(), &lane).await.expect("it is made")
}

async fn change(scene: &Scene, name: &str, spec: Value) {
    let patch = json!({ "spec": spec });
    scene.lanes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("the patch is taken");
}

/// Waits until the status is as it should be, and of the newest spec.
async fn shown(scene: &Scene, name: &str, is_so: impl Fn(&TenantLaneStatus) -> bool) -> TenantLaneStatus {
    let begun = Instant::now();
    loop {
        let lane = scene.lanes.get(name).await.expect("an answer");
        let status = lane.status.unwrap_or_default();
        if status.observed_generation == lane.metadata.generation && is_so(&status) {
            return status;
        }
        assert!(begun.elapsed() < SOON, "{name} is not as it should be: {status:#?}\n{}", scene.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn says(status: &TenantLaneStatus, type_: &str, value: &str, reason: &str) -> bool {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_);
    found.is_some_and(|found| format!("{:?}", found.status) == value && found.reason == reason)
}

async fn row(scene: &Scene, tenant: &str) -> Option<LaneCounts> {
    let lanes = lane_counts(&scene.operator_role, Some(&[tenant.to_owned()])).await.expect("the lanes");
    lanes.into_iter().find(|lane| lane.class == Class::Ingest)
}

async fn enqueue(scene: &Scene, count: usize) {
    let task = NewTask::new(TaskType::Insert, scene.namespace.name.clone());
    enqueue_many(&scene.worker, &vec![task; count]).await.expect("they are taken in");
}

/// Claims until nothing is given any more.
async fn claim_all(scene: &Scene, sequence: &mut i64) -> Vec<Attempt> {
    let mut all = Vec::new();
    loop {
        *sequence += 1;
        let request = ClaimRequest { worker_id: scene.worker_id, sequence: *sequence, want: 500, quantum: 500 };
        let Claim::Tasks(tasks) = claim(&scene.worker, request).await.expect("a claim") else { panic!("registered") };
        if tasks.is_empty() {
            return all;
        }
        all.extend(tasks.into_iter().map(|task| task.attempt));
    }
}

#[tokio::test]
async fn caps_and_holds_of_the_spec_hold_and_counts_are_right_within_a_second() {
    let Some(scene) = Scene::new("lane").await else { return };
    let tenant = scene.namespace.name.clone();
    make(&scene, "ingest", json!({ "class": "ingest", "maxRunning": 200, "weight": 3 })).await;
    shown(&scene, "ingest", |status| says(status, "Ready", "True", "UpToDate")).await;
    let set = row(&scene, &tenant).await.expect("a row");
    assert_eq!((set.cap, set.weight, set.is_default), (Cap::new(200), 3, false));

    enqueue(&scene, 250).await;
    let mut sequence = 1_000_000;
    let running = claim_all(&scene, &mut sequence).await;
    assert_eq!(running.len(), 200);
    let changed = Instant::now();
    let busy = shown(&scene, "ingest", |status| (status.running, status.parked) == (Some(200), Some(50))).await;
    println!("counts shown after {:?}", changed.elapsed());
    assert_eq!((busy.pending, busy.effective_max_running), (Some(50), Some(200)));

    // Lowered: nothing is stopped, nothing starts.
    change(&scene, "ingest", json!({ "maxRunning": 100 })).await;
    shown(&scene, "ingest", |status| status.effective_max_running == Some(100)).await;
    for attempt in &running[..20] {
        complete(&scene.worker, *attempt, None, NOTHING).await.expect("an answer");
    }
    assert_eq!(claim_all(&scene, &mut sequence).await, []);
    let lowered = shown(&scene, "ingest", |status| status.running == Some(180)).await;
    assert_eq!((lowered.parked, lowered.completed_since_idle), (Some(50), Some(20)));

    // Raised, and no cap at all.
    change(&scene, "ingest", json!({ "maxRunning": 190 })).await;
    shown(&scene, "ingest", |status| status.effective_max_running == Some(190)).await;
    assert_eq!(claim_all(&scene, &mut sequence).await.len(), 10);
    change(&scene, "ingest", json!({ "maxRunning": 0 })).await;
    shown(&scene, "ingest", |status| status.effective_max_running == Some(0)).await;
    assert_eq!(claim_all(&scene, &mut sequence).await.len(), 40);
    shown(&scene, "ingest", |status| (status.running, status.pending) == (Some(230), Some(0))).await;

    // Held by the spec, then by somebody else while the spec says nothing.
    change(&scene, "ingest", json!({ "policy": "Hold", "policyReason": "invoice" })).await;
    let held = shown(&scene, "ingest", |status| says(status, "Held", "True", "HeldByPolicy")).await;
    assert!(held.summary.is_some_and(|summary| summary.contains("invoice")));
    change(&scene, "ingest", json!({ "policy": "HoldAndDrain" })).await;
    scene
        .until("the lane does not drain", async || {
            row(&scene, &tenant).await.is_some_and(|row| row.policy == Policy::HoldAndDrain)
        })
        .await;
    change(&scene, "ingest", json!({ "policy": null, "policyReason": null })).await;
    shown(&scene, "ingest", |status| says(status, "Held", "False", "NotHeld")).await;
    let (ingest, by) = (Class::Ingest, Some("ann"));
    hold_lane(&scene.operator_role, &tenant, ingest, Policy::Hold, Some("by hand"), by).await.expect("an answer");
    shown(&scene, "ingest", |status| says(status, "Held", "True", "LaneHeld")).await;
    assert_eq!(row(&scene, &tenant).await.map(|row| row.policy), Some(Policy::Hold));
    change(&scene, "ingest", json!({ "policy": "None" })).await;
    shown(&scene, "ingest", |status| says(status, "Held", "False", "NotHeld")).await;

    // A local provider clamps, and the resource says so.
    let clamp = WorkerPoolSettings {
        ingest_clamp: sluice::store::lanes::Setting::To(2),
        clamp_reason: sluice::store::lanes::Setting::To("a local provider"),
        ..WorkerPoolSettings::default()
    };
    change(&scene, "ingest", json!({ "maxRunning": 9 })).await;
    set_pool(&scene.operator_role, "default", clamp, None).await.expect("settings");
    let clamped = shown(&scene, "ingest", |status| status.effective_max_running == Some(2)).await;
    assert_eq!(clamped.effective_reason.as_deref(), Some("a local provider"));
    assert!(says(&clamped, "Ready", "True", "Clamped"));
}

#[tokio::test]
async fn older_resource_wins_and_a_deleted_one_leaves_the_lane_to_the_next_or_to_its_defaults() {
    let Some(mut scene) = Scene::new("conflict").await else { return };
    let tenant = scene.namespace.name.clone();
    let cap_is = async |scene: &Scene, cap: Option<u32>| {
        let cap = cap.map(Cap::new);
        scene
            .until("the row has another cap", async || {
                row(scene, &tenant).await.map(|row| (!row.is_default).then_some(row.cap)) == Some(cap)
            })
            .await;
    };
    make(&scene, "old", json!({ "class": "ingest", "maxRunning": 5 })).await;
    cap_is(&scene, Some(5)).await;
    // In a later second, since that is how fine ages are.
    let second = scene.lanes.get("old").await.expect("it is there").metadata.creation_timestamp.expect("a time");
    scene.until("the clock stands still", async || chrono::Utc::now().timestamp() > second.0.as_second()).await;
    make(&scene, "young", json!({ "class": "ingest", "maxRunning": 7 })).await;
    let conflict = shown(&scene, "young", |status| says(status, "Accepted", "False", "Conflict")).await;
    assert!(conflict.summary.is_some_and(|summary| summary.contains("/old")));
    assert_eq!((conflict.running, row(&scene, &tenant).await.map(|row| row.cap)), (None, Some(Cap::new(5))));

    scene.lanes.delete("old", &DeleteParams::default()).await.expect("it is deleted");
    cap_is(&scene, Some(7)).await;
    shown(&scene, "young", |status| says(status, "Accepted", "True", "Accepted")).await;

    // The last one goes while no operator is there.
    scene.stop_operator();
    scene.lanes.delete("young", &DeleteParams::default()).await.expect("it is deleted");
    assert_eq!(row(&scene, &tenant).await.map(|row| row.cap), Some(Cap::new(7)));
    scene.start_operator();
    cap_is(&scene, None).await;
    let row = row(&scene, &tenant).await.expect("the row stays");
    assert_eq!((row.cluster, row.resource_uid, row.policy), (None, None, Policy::None));
}

#[tokio::test]
async fn lane_that_is_duplicated_drained_or_deleted_while_tasks_run_kills_none_and_counts_right() {
    let Some(scene) = Scene::new("moving").await else { return };
    let tenant = scene.namespace.name.clone();
    make(&scene, "first", json!({ "class": "ingest", "maxRunning": 150 })).await;
    shown(&scene, "first", |status| says(status, "Ready", "True", "UpToDate")).await;
    enqueue(&scene, 200).await;
    let mut sequence = 1_000_000;
    let running = claim_all(&scene, &mut sequence).await;
    assert_eq!(running.len(), 150);
    let counts = |status: &TenantLaneStatus| (status.running, status.pending, status.parked);
    shown(&scene, "first", |status| counts(status) == (Some(150), Some(50), Some(50))).await;

    // In a later second, so that it is the younger one.
    let second = scene.lanes.get("first").await.expect("it is there").metadata.creation_timestamp.expect("a time");
    scene.until("the clock stands still", async || chrono::Utc::now().timestamp() > second.0.as_second()).await;
    make(&scene, "second", json!({ "class": "ingest", "maxRunning": 180 })).await;
    shown(&scene, "second", |status| says(status, "Accepted", "False", "Conflict")).await;
    assert_eq!(claim_all(&scene, &mut sequence).await, [], "the younger one's cap does not hold");

    // Held and drained: workers are told to give back, and the lane starts nothing.
    change(&scene, "first", json!({ "policy": "HoldAndDrain" })).await;
    shown(&scene, "first", |status| says(status, "Held", "True", "HeldByPolicy")).await;
    release(&scene.worker, &running[..100], Some("drained"), CoolDown::No).await.expect("an answer");
    shown(&scene, "first", |status| counts(status) == (Some(50), Some(150), Some(150))).await;
    assert_eq!(claim_all(&scene, &mut sequence).await, []);

    // Deleted: the younger one's cap holds from now on, and its lane is open.
    scene.lanes.delete("first", &DeleteParams::default()).await.expect("it is deleted");
    shown(&scene, "second", |status| status.effective_max_running == Some(180)).await;
    scene
        .until("the lane is held still", async || {
            row(&scene, &tenant).await.is_some_and(|row| row.policy == Policy::None)
        })
        .await;
    assert_eq!(claim_all(&scene, &mut sequence).await.len(), 130);
    shown(&scene, "second", |status| counts(status) == (Some(180), Some(20), Some(20))).await;
    scene.lanes.delete("second", &DeleteParams::default()).await.expect("it is deleted");
    scene.until("the lane keeps its cap", async || row(&scene, &tenant).await.is_some_and(|row| row.is_default)).await;
    assert_eq!(claim_all(&scene, &mut sequence).await.len(), 20);
    for attempt in &running[100..] {
        complete(&scene.worker, *attempt, None, NOTHING).await.expect("an answer");
    }
    let lane = row(&scene, &tenant).await.expect("a row");
    assert_eq!((lane.running, lane.pending, lane.completed_since_idle), (150, 0, 50));
}

#[tokio::test]
async fn what_cannot_be_is_told_and_a_second_look_writes_nothing() {
    let Some(mut scene) = Scene::without_operator("lanes").await else { return };
    make(&scene, "foreign", json!({ "class": "ingest", "tenant": "another" })).await;
    make(&scene, "lost", json!({ "class": "ingest", "pool": "nowhere", "maxRunning": 4 })).await;
    make(&scene, "good", json!({ "class": "lifecycle", "maxRunning": 3, "allowedSources": ["s3://bucket/"] })).await;
    scene.start_operator();
    shown(&scene, "foreign", |status| says(status, "Accepted", "False", "TenantNotAllowed")).await;
    assert!(row(&scene, "another").await.is_none());
    let lost = shown(&scene, "lost", |status| says(status, "Accepted", "False", "PoolMissing")).await;
    assert_eq!(lost.effective_max_running, Some(4), "all but the pool holds");
    shown(&scene, "good", |status| says(status, "Ready", "True", "UpToDate")).await;

    // Another process looks at everything anew; only what is new makes it write.
    scene.stop_operator();
    let before = scene.writes().len();
    scene.start_operator();
    set_pool(&scene.operator_role, "nowhere", WorkerPoolSettings::default(), None).await.expect("a pool");
    shown(&scene, "lost", |status| says(status, "Accepted", "True", "Accepted")).await;
    let later: Vec<_> = scene.writes().into_iter().skip(before).map(|event| event.name).collect();
    assert_eq!(later, ["lost"]);

    // The platform grants the tenant.
    let annotation = r#"sluice.dev/tenants=["another"]"#;
    let namespace = scene.namespace.name.clone();
    scene.namespace.kubectl(&["annotate", "namespace", &namespace, annotation]);
    shown(&scene, "foreign", |status| says(status, "Accepted", "True", "Accepted")).await;
    assert!(row(&scene, "another").await.is_some_and(|row| row.cluster.is_some()));
}
