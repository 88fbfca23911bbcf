//! Retries, suspension and priority by the spec.

use serde_json::json;
use sluice::api::ingest_task::State;
use sluice::domain::failure::FailureClass;
use sluice::store::ends::fail;
use uuid::Uuid;

use crate::scene::{NOTHING, Scene, condition};

async fn fails(scene: &Scene, name: &str, track_id: Uuid) {
    let attempt = scene.run(track_id).await;
    fail(&scene.worker, attempt, FailureClass::InvalidDocument, Some("broken"), NOTHING).await.expect("an answer");
    scene.wait_state(name, State::Failed).await;
}

#[tokio::test]
async fn only_a_higher_value_of_retries_starts_again_and_never_more_often_than_it_may() {
    let Some(scene) = Scene::new("retries").await else { return };
    // The first value that is seen starts nothing.
    let track_id = scene.accepted_with("one", json!({ "retries": 5 })).await;
    fails(&scene, "one", track_id).await;
    scene.patch("one", json!({ "priority": 1 })).await;
    let status = scene.wait("one", |_| true).await;
    assert_eq!((status.state, status.observed_retries), (Some(State::Failed), Some(5)));

    for retries in 6..=8 {
        scene.patch("one", json!({ "retries": retries })).await;
        let status = scene.wait("one", |status| status.observed_retries == Some(retries)).await;
        assert_eq!(status.state, Some(State::Pending));
        fails(&scene, "one", track_id).await;
    }
    scene.patch("one", json!({ "retries": 9 })).await;
    let status = scene.wait_condition("one", "SpecIgnored", "True", "MaxRetriesExceeded").await;
    assert_eq!((status.state, status.retries), (Some(State::Failed), Some(3)));
    // A lower value asks for nothing.
    scene.patch("one", json!({ "retries": 0 })).await;
    let status = scene.wait("one", |status| condition(status, "SpecIgnored").is_none()).await;
    assert_eq!(status.state, Some(State::Failed));
}

#[tokio::test]
async fn retry_is_blocked_by_a_cancel_and_waits_for_what_runs() {
    let Some(scene) = Scene::new("blocked").await else { return };
    let track_id = scene.accepted("one").await;
    scene.patch("one", json!({ "cancel": true, "retries": 1 })).await;
    scene.wait_condition("one", "SpecIgnored", "True", "RetryBlockedByCancel").await;
    scene.patch("one", json!({ "cancel": false })).await;
    let status = scene.wait_state("one", State::Pending).await;
    assert_eq!((status.observed_retries, condition(&status, "SpecIgnored")), (Some(1), None));

    scene.patch("one", json!({ "retries": 2 })).await;
    scene.wait_condition("one", "SpecIgnored", "True", "RetryWhileActive").await;
    scene.finish(track_id).await;
    scene.wait_condition("one", "SpecIgnored", "True", "RetryOfCompleted").await;
    // The one that was granted.
    assert_eq!(scene.row(track_id).await.retries, 1);
}

#[tokio::test]
async fn suspension_and_priority_change_while_it_waits() {
    let Some(scene) = Scene::new("suspend").await else { return };
    let track_id = scene.accepted("one").await;
    scene.patch("one", json!({ "suspend": true, "priority": 9 })).await;
    scene.wait_condition("one", "LanePermitted", "False", "Suspended").await;
    let row = scene.row(track_id).await;
    assert_eq!((row.is_suspended, row.priority), (true, 9));
    // Taken away is as if it were false.
    scene.patch("one", json!({ "suspend": null, "priority": null })).await;
    scene.wait_condition("one", "LanePermitted", "True", "LaneOpen").await;
    let row = scene.row(track_id).await;
    assert_eq!((row.is_suspended, row.priority), (false, 0));
}
