//! `spec.cancel` on a task in every state, by every way to write it.

use std::time::Instant;

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sluice::api::ingest_task::{State, UiPhase};
use sluice::domain::failure::FailureClass;
use sluice::domain::lane::{Cap, Class, Policy};
use sluice::domain::task;
use sluice::store::ends::{CompletedWithNext, complete_with_next, fail, stopped};
use sluice::store::enqueue::NewTask;
use sluice::store::lanes::{LaneSettings, Setting, hold_lane, set_lane};
use uuid::Uuid;

use crate::scene::{NOTHING, Scene, condition};

async fn cancel(scene: &Scene, name: &str) {
    scene.patch(name, json!({ "cancel": true })).await;
}

async fn ends_cancelled(scene: &Scene, name: &str, track_id: Uuid) {
    let status = scene.wait_state(name, State::Cancelled).await;
    assert_eq!(status.ui_phase, Some(UiPhase::Terminal));
    assert_eq!(status.display_status.as_deref(), Some("cancelled"));
    assert_eq!(condition(&status, "Succeeded"), Some(("False".to_owned(), "Cancelled")));
    assert_eq!(condition(&status, "Ready"), Some(("True".to_owned(), "Cancelled")));
    assert_eq!(scene.row(track_id).await.state, task::State::Cancelled);
}

#[tokio::test]
async fn task_that_waits_for_whatever_reason_ends_at_once() {
    let Some(scene) = Scene::new("waiting").await else { return };
    let lane = scene.namespace.name.clone();
    let suspended = scene.accepted_with("suspended", json!({ "suspend": true })).await;
    scene.wait_condition("suspended", "LanePermitted", "False", "Suspended").await;
    let backing_off = scene.accepted("backing-off").await;
    let attempt = scene.run(backing_off).await;
    fail(&scene.worker, attempt, FailureClass::ProviderUnavailable, Some("no"), NOTHING).await.expect("an answer");
    scene.wait_condition("backing-off", "LanePermitted", "False", "BackingOff").await;
    let pending = scene.accepted("pending").await;
    cancel(&scene, "pending").await;
    ends_cancelled(&scene, "pending", pending).await;

    let one = LaneSettings { max_running: Setting::To(Cap::new(1)), ..LaneSettings::default() };
    set_lane(&scene.operator_role, &lane, Class::Ingest, &one, None).await.expect("the lane");
    let running = scene.accepted("running").await;
    scene.run(running).await;
    let parked = scene.accepted("parked").await;
    scene.wait_condition("parked", "LanePermitted", "False", "LaneAtCapacity").await;
    cancel(&scene, "parked").await;
    ends_cancelled(&scene, "parked", parked).await;

    hold_lane(&scene.operator_role, &lane, Class::Ingest, Policy::Hold, Some("maintenance"), None)
        .await
        .expect("a hold");
    let held = scene.accepted("held").await;
    scene.wait_condition("held", "LanePermitted", "False", "LaneHeld").await;
    for (name, track_id) in [("held", held), ("suspended", suspended), ("backing-off", backing_off)] {
        cancel(&scene, name).await;
        ends_cancelled(&scene, name, track_id).await;
    }
    let summary = scene.row(held).await.message;
    assert_eq!(summary.as_deref(), Some("Cancelled before execution"));
}

#[tokio::test]
async fn running_task_stops_when_its_worker_does_or_its_lease_runs_out() {
    let Some(scene) = Scene::new("running").await else { return };
    for (name, worker_answers) in [("answers", true), ("silent", false)] {
        let track_id = scene.accepted(name).await;
        let attempt = scene.run(track_id).await;
        let begun = Instant::now();
        cancel(&scene, name).await;
        scene.wait_row(track_id, |row| row.state == task::State::Stopping).await;
        eprintln!("patch to stopping: {:?}", begun.elapsed());
        let stopping = scene.wait_state(name, State::Stopping).await;
        assert_eq!(stopping.ui_phase, Some(UiPhase::Stopping));
        assert_eq!(condition(&stopping, "Stopping"), Some(("True".to_owned(), "CancelRequested")));
        match worker_answers {
            true => drop(stopped(&scene.worker, attempt).await.expect("an answer")),
            // Nobody reaps but the operator.
            false => scene.expire_lease(track_id).await,
        }
        ends_cancelled(&scene, name, track_id).await;
    }
}

#[tokio::test]
async fn cancel_that_comes_after_the_end_changes_nothing_and_is_reported() {
    let Some(scene) = Scene::new("late").await else { return };
    let completed = scene.accepted("completed").await;
    scene.finish(completed).await;
    scene.wait_state("completed", State::Completed).await;
    let just_now = scene.accepted("just-now").await;
    scene.finish(just_now).await;
    let failed = scene.accepted("failed").await;
    let attempt = scene.run(failed).await;
    fail(&scene.worker, attempt, FailureClass::InvalidDocument, Some("broken"), NOTHING).await.expect("an answer");
    for (name, track_id, state) in [
        ("completed", completed, State::Completed),
        ("just-now", just_now, State::Completed),
        ("failed", failed, State::Failed),
    ] {
        cancel(&scene, name).await;
        let status = scene.wait_condition(name, "SpecIgnored", "True", "CancelTooLate").await;
        assert_eq!(status.state, Some(state));
        assert_eq!(scene.row(track_id).await.cancel, None);
    }
    let failure = scene.wait_state("failed", State::Failed).await.failure.expect("a failure");
    assert_eq!((failure.class.as_str(), failure.recommended_action.as_str()), ("invalid_document", "fix_document"));
}

#[tokio::test]
async fn cancel_works_however_it_is_written_and_cannot_be_taken_back() {
    let Some(scene) = Scene::new("ways").await else { return };
    let mut tracks = Vec::new();
    for name in ["merge", "apply", "replace"] {
        tracks.push(scene.accepted(name).await);
    }
    cancel(&scene, "merge").await;
    let applied = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "IngestTask", "metadata": { "name": "apply" },
        "spec": { "type": "Insert", "source": { "text": "hello" }, "cancel": true },
    });
    scene.tasks.patch("apply", &PatchParams::apply("gitops").force(), &Patch::Apply(&applied)).await.expect("applied");
    let mut replaced = scene.get("replace").await.expect("it is there");
    replaced.spec.cancel = Some(true);
    // As a tool does that knows nothing of statuses.
    replaced.status = None;
    scene.tasks.replace("replace", &PostParams::default(), &replaced).await.expect("replaced");
    for (name, track_id) in ["merge", "apply", "replace"].into_iter().zip(&tracks) {
        ends_cancelled(&scene, name, *track_id).await;
    }

    for (name, track_id) in ["merge", "apply"].into_iter().zip(&tracks) {
        scene.patch(name, json!({ "cancel": false })).await;
        let status = scene.wait_condition(name, "SpecIgnored", "True", "CancelIsFinal").await;
        assert_eq!(status.state, Some(State::Cancelled));
        assert_eq!(scene.row(*track_id).await.state, task::State::Cancelled);
    }
    // Only a higher value of retries starts again.
    scene.patch("merge", json!({ "retries": 1 })).await;
    let status = scene.wait_state("merge", State::Pending).await;
    assert_eq!(condition(&status, "SpecIgnored"), None);
    scene.finish(tracks[0]).await;
    scene.wait_condition("merge", "Succeeded", "True", "Completed").await;
}

#[tokio::test]
async fn resource_that_is_born_cancelled_never_runs() {
    let Some(scene) = Scene::new("born").await else { return };
    let track_id = scene.accepted_with("one", json!({ "cancel": true })).await;
    ends_cancelled(&scene, "one", track_id).await;
    assert_eq!(scene.row(track_id).await.attempt, 0);
}

#[tokio::test]
async fn cancel_of_a_convert_cancels_the_insert_that_follows() {
    let Some(scene) = Scene::new("linked").await else { return };
    scene.create("pdf", json!({ "type": "PdfProcessing", "source": { "url": "https://docs.example/a.pdf" } })).await;
    let convert = scene.track("pdf").await;
    let attempt = scene.run(convert).await;
    let next = NewTask::new(task::TaskType::Insert, scene.namespace.name.clone());
    let answer = complete_with_next(&scene.worker, attempt, &next, None, NOTHING).await.expect("an answer");
    let CompletedWithNext::Completed { next: insert } = answer else { panic!("{answer:?}") };
    let attempt = scene.run(insert).await;
    cancel(&scene, "pdf").await;
    scene.wait("pdf", |status| status.ui_phase == Some(UiPhase::Stopping)).await;
    stopped(&scene.worker, attempt).await.expect("an answer");
    let status = scene.wait("pdf", |status| status.display_status.as_deref() == Some("cancelled")).await;
    // The convert is done, and stays so.
    assert_eq!((status.state, status.children[0].state), (Some(State::Completed), State::Cancelled));
}
