//! The control plane goes: for a while, and with what it had taken in since an older state of its store.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use sluice::api::ingest_task::State;
use sluice::domain::task;
use tokio::sync::Mutex;

use crate::scene::Scene;

/// They share a control plane.
static ONE_AFTER_THE_OTHER: Mutex<()> = Mutex::const_new(());

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
    assert!(copied.success());
}

async fn is_away_for(scene: &Scene, time: Duration) {
    let finished = scene.accepted("finished").await;
    let attempt = scene.run(finished).await;
    scene.own().run(&["kill", "kube-apiserver"]);
    sluice::store::ends::complete(&scene.worker, attempt, None, crate::scene::NOTHING).await.expect("an answer");
    tokio::time::sleep(time).await;
    scene.own().run(&["restart", "kube-apiserver"]);
    scene.wait_state("finished", State::Completed).await;
    let after = scene.accepted("after").await;
    scene.patch("after", json!({ "cancel": true })).await;
    scene.wait_state("after", State::Cancelled).await;
    assert_eq!(scene.row(after).await.state, task::State::Cancelled);
}

#[tokio::test]
#[ignore = "takes minutes: make soak"]
async fn api_server_that_is_away_for_two_minutes_is_served_again() {
    let _turn = ONE_AFTER_THE_OTHER.lock().await;
    let Some(mut scene) = Scene::of_outages("away").await else { return };
    scene.expect_refusals();
    is_away_for(&scene, Duration::from_secs(120)).await;
}

#[tokio::test]
async fn api_server_that_is_away_for_longer_than_a_lease_is_served_again() {
    let _turn = ONE_AFTER_THE_OTHER.lock().await;
    let Some(mut scene) = Scene::of_outages("away-short").await else { return };
    scene.expect_refusals();
    is_away_for(&scene, Duration::from_secs(11)).await;
}

#[tokio::test]
async fn store_that_was_restored_to_an_older_state_heals() {
    let _turn = ONE_AFTER_THE_OTHER.lock().await;
    let Some(mut scene) = Scene::of_outages("restored").await else { return };
    scene.expect_refusals();
    let cancelled = scene.accepted("cancelled").await;
    let completed = scene.accepted("completed").await;
    scene.own().run(&["kill", "etcd"]);
    let (store, copied) = (scene.own().directory().join("etcd"), scene.own().directory().join("etcd-copy"));
    copy(&store, &copied);
    scene.own().run(&["restart", "etcd"]);

    scene.patch("cancelled", json!({ "cancel": true })).await;
    scene.wait_state("cancelled", State::Cancelled).await;
    scene.finish(completed).await;
    scene.wait_state("completed", State::Completed).await;
    let forgotten = scene.accepted("forgotten").await;
    let rows = scene.count_rows().await;

    scene.own().run(&["kill", "etcd"]);
    fs::remove_dir_all(&store).expect("the store goes");
    fs::rename(&copied, &store).expect("the copy takes its place");
    // Each waits until the API server answers; that one knows too much of what was.
    for process in ["etcd", "kube-apiserver"] {
        scene.own().run(&["restart", process]);
    }
    // What the rows say is shown, whatever the store remembers; nothing runs again.
    scene.wait_state("cancelled", State::Cancelled).await;
    scene.wait_state("completed", State::Completed).await;
    assert!(scene.get("forgotten").await.is_none());
    scene.wait_row(forgotten, |row| row.state == task::State::Cancelled).await;
    assert_eq!(scene.row(cancelled).await.state, task::State::Cancelled);
    assert_eq!(scene.count_rows().await, rows);
    scene.accepted("new").await;
}
