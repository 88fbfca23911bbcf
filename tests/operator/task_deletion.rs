//! What becomes of the work when its resource goes, whoever saw it go.

use serde_json::json;
use sluice::api::ingest_task::State;
use sluice::domain::task;
use sluice::store::ends::stopped;

use crate::scene::Scene;

#[tokio::test]
async fn deletion_cancels_waits_or_leaves_alone_by_its_policy() {
    let Some(scene) = Scene::new("policies").await else { return };
    let cancelled = scene.accepted("cancel").await;
    let waited = scene.accepted_with("wait", json!({ "deletionPolicy": "CancelAndWait" })).await;
    let retained = scene.accepted_with("retain", json!({ "deletionPolicy": "Retain" })).await;
    let changed = scene.accepted("changed").await;
    scene.patch("changed", json!({ "deletionPolicy": "Retain" })).await;
    scene.wait("changed", |_| true).await;
    let attempt = scene.run(waited).await;
    for name in ["cancel", "wait", "retain", "changed"] {
        scene.delete(name).await;
    }
    scene.wait_row(cancelled, |row| row.state == task::State::Stopping).await;
    scene.wait_row(waited, |row| row.state == task::State::Stopping).await;
    // It is there until its worker has stopped.
    scene.wait_state("wait", State::Stopping).await;
    stopped(&scene.worker, attempt).await.expect("an answer");
    scene.wait_gone("wait").await;
    assert_eq!(scene.row(waited).await.state, task::State::Cancelled);
    for name in ["cancel", "retain", "changed"] {
        scene.wait_gone(name).await;
    }
    scene.until("a resource is not forgotten", async || resources(&scene).await == 0).await;
    for track_id in [retained, changed] {
        assert_eq!(scene.row(track_id).await.cancel, None);
    }
}

async fn resources(scene: &Scene) -> i64 {
    sqlx::query_scalar("select (select count(*) from sluice.mirrors) + (select count(*) from sluice.task_keys where kind = 'resource')")
        .fetch_one(scene.db.admin())
        .await
        .expect("a count")
}

#[tokio::test]
async fn deletion_that_nobody_saw_is_found_and_a_name_used_again_is_another_resource() {
    let Some(mut scene) = Scene::new("unseen").await else { return };
    let gone = scene.accepted("gone").await;
    let replaced = scene.accepted("replaced").await;
    let retained = scene.accepted_with("retained", json!({ "deletionPolicy": "Retain" })).await;
    scene
        .until("the policy is not known", async || {
            let retains: i64 = sqlx::query_scalar("select count(*) from sluice.mirrors where retains")
                .fetch_one(scene.db.admin())
                .await
                .expect("a count");
            retains == 1
        })
        .await;
    scene.stop_operator();
    for name in ["gone", "replaced", "retained"] {
        scene.delete(name).await;
    }
    scene.create("replaced", json!({ "type": "Insert", "source": { "text": "another" } })).await;
    scene.start_operator();
    let another = scene.track("replaced").await;
    for track_id in [gone, replaced] {
        scene.wait_row(track_id, |row| row.state == task::State::Cancelled).await;
    }
    assert_ne!(another, replaced);
    assert_eq!(scene.row(another).await.state, task::State::Pending);
    assert_eq!(scene.row(retained).await.state, task::State::Pending);
    scene.until("resources are not forgotten", async || resources(&scene).await == 2).await;
}

#[tokio::test]
async fn resources_that_come_and_go_within_moments_leave_no_work() {
    let Some(scene) = Scene::new("moments").await else { return };
    let names: Vec<String> = (0..100).map(|n| format!("t{n}")).collect();
    let come_and_go = names.iter().map(|name| async {
        scene.create(name, json!({ "type": "Insert", "source": { "text": "x" } })).await;
        scene.delete(name).await;
    });
    futures::future::join_all(come_and_go).await;
    let last = scene.accepted("last").await;
    scene
        .until("work is left", async || {
            let live: i64 = sqlx::query_scalar("select count(*) from sluice.tasks")
                .fetch_one(scene.db.admin())
                .await
                .expect("a count");
            live == 1
        })
        .await;
    assert_eq!(scene.row(last).await.state, task::State::Pending);
}

#[tokio::test]
async fn ended_resource_goes_after_its_time() {
    let Some(scene) = Scene::new("ttl").await else { return };
    let track_id = scene.accepted_with("one", json!({ "ttlSecondsAfterFinished": 1 })).await;
    scene.finish(track_id).await;
    scene.wait_gone("one").await;
    assert_eq!(scene.row(track_id).await.state, task::State::Completed);
}

#[tokio::test]
async fn work_that_was_asked_for_while_the_operator_was_down_is_taken_when_it_is_back() {
    let Some(mut scene) = Scene::without_operator("down").await else { return };
    scene.create("new", json!({ "type": "Insert", "source": { "text": "x" } })).await;
    scene.start_operator();
    let track_id = scene.track("new").await;
    scene.stop_operator();
    scene.patch("new", json!({ "cancel": true })).await;
    scene.start_operator();
    scene.wait_state("new", State::Cancelled).await;
    assert_eq!(scene.row(track_id).await.state, task::State::Cancelled);
}

#[tokio::test]
async fn resource_that_is_made_again_while_its_row_runs_is_another_task() {
    let Some(scene) = Scene::new("again").await else { return };
    let mut attempts = Vec::new();
    for round in 0..5 {
        let track_id = scene.accepted("same").await;
        assert!(attempts.iter().all(|(earlier, _)| *earlier != track_id), "round {round}");
        attempts.push((track_id, scene.run(track_id).await));
        scene.delete("same").await;
    }
    let last = scene.accepted("same").await;
    for (track_id, attempt) in attempts {
        scene.wait_row(track_id, |row| row.state == task::State::Stopping).await;
        stopped(&scene.worker, attempt).await.expect("an answer");
        assert_eq!(scene.row(track_id).await.state, task::State::Cancelled);
    }
    // What became of the others is none of its business.
    scene.finish(last).await;
    let status = scene.wait_state("same", State::Completed).await;
    assert_eq!(status.track_id, Some(last.to_string()));
    scene.until("resources are not forgotten", async || resources(&scene).await == 2).await;
}
