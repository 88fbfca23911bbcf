//! Several operators on one database, of other namespaces or of other clusters: none touches what is another's.

use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use sluice::api::ingest_task::State;
use sluice::api::{Condition, TenantLane, WorkerPool};
use sluice::domain::lane::{Cap, Class};
use sluice::domain::task::{self, TaskType};
use sluice::store::enqueue::{NewTask, enqueue_many};
use sluice::store::reads::{lane_counts, pool_settings};

use crate::scene::Scene;

async fn make_lane(scene: &Scene, name: &str, spec: Value) {
    let lane = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane", "metadata": { "name": name }, "spec": spec,
    });
    let lane: TenantLane = serde_json::from_value(lane).expect("a lane");
    scene.lanes.create(&PostParams::default(), &lane).await.expect("it is made");
}

fn pools(scene: &Scene) -> Api<WorkerPool> {
    Api::namespaced(scene.client.clone(), &scene.namespace.name)
}

/// One that runs no worker.
async fn make_pool(scene: &Scene, name: &str, threads: u32) {
    let template = json!({ "spec": { "containers": [{ "name": "worker", "image": "none" }] } });
    let pool = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "WorkerPool", "metadata": { "name": name },
        "spec": { "maxReplicas": 0, "threads": threads, "template": template },
    });
    let pool: WorkerPool = serde_json::from_value(pool).expect("a pool");
    pools(scene).create(&PostParams::default(), &pool).await.expect("it is made");
}

fn says(conditions: &[Condition], type_: &str, reason: &str) -> bool {
    conditions.iter().any(|condition| condition.type_ == type_ && condition.reason == reason)
}

async fn lane_says(scene: &Scene, name: &str, type_: &str, reason: &str) {
    let is_so = async || {
        let lane = scene.lanes.get(name).await.expect("an answer");
        lane.status.is_some_and(|status| says(&status.conditions, type_, reason))
    };
    scene.until(&format!("lane {name} does not say {reason}"), is_so).await;
}

async fn pool_says(scene: &Scene, name: &str, type_: &str, reason: &str) {
    let is_so = async || {
        let pool = pools(scene).get(name).await.expect("an answer");
        pool.status.is_some_and(|status| says(&status.conditions, type_, reason))
    };
    scene.until(&format!("pool {name} does not say {reason}"), is_so).await;
}

async fn enqueue(scene: &Scene, count: usize) {
    let task = NewTask::new(TaskType::Insert, scene.namespace.name.clone());
    enqueue_many(&scene.worker, &vec![task; count]).await.expect("they are taken in");
}

#[tokio::test]
async fn operators_of_other_namespaces_serve_each_its_own_and_starve_none() {
    let Some(mut ours) = Scene::new("ours").await else { return };
    let mut theirs = ours.neighbour("theirs", ours.cluster_id()).await;
    let mirrored = json!({ "class": "ingest", "mirror": { "policy": "Active", "limit": 100 } });
    // Theirs is the first lane that the database finds, and wants more resources than one pass makes.
    make_lane(&theirs, "lane", mirrored.clone()).await;
    lane_says(&theirs, "lane", "Accepted", "Accepted").await;
    let kept = theirs.accepted("kept").await;
    let gone = theirs.accepted("gone").await;
    theirs.stop_operator();
    enqueue(&theirs, 120).await;
    theirs.delete("gone").await;

    // Another process, so that its sweep is one that begins after all that.
    ours.stop_operator();
    ours.start_operator();
    make_lane(&ours, "lane", mirrored).await;
    enqueue(&ours, 3).await;
    let count = async |scene: &Scene| scene.tasks.list(&ListParams::default()).await.expect("a list").items.len();
    ours.until("our tasks are not shown", async || count(&ours).await == 3).await;
    assert_eq!(count(&theirs).await, 1, "a resource was made in their namespace");
    for track_id in [kept, gone] {
        assert_eq!(ours.row(track_id).await.state, task::State::Pending);
    }

    theirs.start_operator();
    theirs.wait_row(gone, |row| row.state == task::State::Cancelled).await;
    theirs.until("their tasks are not shown", async || count(&theirs).await > 100).await;
    assert_eq!(ours.row(kept).await.state, task::State::Pending);
    let is_elsewhere = |scene: &Scene, other: &Scene| {
        scene
            .writes()
            .iter()
            .any(|event| event.namespace != scene.namespace.name && event.namespace == other.namespace.name)
    };
    assert!(!is_elsewhere(&ours, &theirs) && !is_elsewhere(&theirs, &ours));
}

#[tokio::test]
async fn clusters_on_one_database_do_not_fight_over_a_lane_or_a_pool() {
    let Some(first) = Scene::new("first").await else { return };
    let second = first.neighbour("second", "another-cluster").await;
    for scene in [&first, &second] {
        let namespace = scene.namespace.name.clone();
        scene.namespace.kubectl(&["annotate", "namespace", &namespace, r#"sluice.dev/tenants=["shared"]"#]);
    }
    let cap = async || {
        let lanes = lane_counts(&first.operator_role, Some(&["shared".to_owned()])).await.expect("the lanes");
        lanes.into_iter().find(|lane| lane.class == Class::Ingest).map(|lane| lane.cap)
    };
    make_lane(&first, "lane", json!({ "class": "ingest", "tenant": "shared", "maxRunning": 5 })).await;
    lane_says(&first, "lane", "Accepted", "Accepted").await;
    make_lane(&second, "lane", json!({ "class": "ingest", "tenant": "shared", "maxRunning": 7 })).await;
    lane_says(&second, "lane", "Accepted", "Conflict").await;
    let pool_cap = async || {
        let pools = pool_settings(&first.operator_role).await.expect("the pools");
        pools.into_iter().find(|pool| pool.pool == "shared").map(|pool| pool.ingest_cap)
    };
    make_pool(&first, "shared", 8).await;
    pool_says(&first, "shared", "Ready", "UpToDate").await;
    make_pool(&second, "shared", 4).await;
    pool_says(&second, "shared", "Stalled", "Conflict").await;
    assert_eq!((cap().await, pool_cap().await), (Some(Cap::new(5)), Some(Cap::new(6))));

    // The same names, two tasks.
    let (one, two) = (first.accepted("same").await, second.accepted("same").await);
    first.delete("same").await;
    first.wait_row(one, |row| row.state == task::State::Cancelled).await;
    second.patch("same", json!({ "priority": 3 })).await;
    second.wait_row(two, |row| row.priority == 3).await;
    second.wait_state("same", State::Pending).await;

    // Who set them so far goes: the other one's hold.
    first.lanes.delete("lane", &DeleteParams::default()).await.expect("it is deleted");
    pools(&first).delete("shared", &DeleteParams::default()).await.expect("it is deleted");
    lane_says(&second, "lane", "Accepted", "Accepted").await;
    pool_says(&second, "shared", "Ready", "UpToDate").await;
    second
        .until("the caps are not the second one's", async || {
            (cap().await, pool_cap().await) == (Some(Cap::new(7)), Some(Cap::new(3)))
        })
        .await;
    let settings = "select count(*) from sluice.task_events where kind = 'pool_set' and detail like 'shared:%'";
    let pool_sets: i64 = sqlx::query_scalar(settings).fetch_one(first.db.admin()).await.expect("a count");
    assert!(pool_sets <= 4, "the pool was set {pool_sets} times");
}
