//! Tasks that were born elsewhere get resources where their lane asks for it.

use kube::ResourceExt;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use sluice::api::IngestTask;
use sluice::api::ingest_task::State;
use sluice::domain::task::{self, TaskType};
use sluice::store::enqueue::{Enqueued, NewTask, enqueue};
use uuid::Uuid;

use crate::scene::Scene;

async fn born(scene: &Scene) -> Uuid {
    let task = NewTask::new(TaskType::Insert, scene.namespace.name.clone());
    match enqueue(&scene.worker, &task).await.expect("an answer") {
        Enqueued::Created { track_id } => track_id,
        other => panic!("{other:?}"),
    }
}

async fn resources(scene: &Scene) -> Vec<IngestTask> {
    scene.tasks.list(&ListParams::default()).await.expect("a list").items
}

#[tokio::test]
async fn lane_shows_its_active_tasks_up_to_its_limit_and_their_resources_decide_nothing() {
    let Some(scene) = Scene::new("mirror").await else { return };
    let tracks = [born(&scene).await, born(&scene).await, born(&scene).await];
    let lane = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane", "metadata": { "name": "lane" },
        "spec": { "class": "ingest", "mirror": { "policy": "Active", "limit": 2 } },
    });
    let lane = serde_json::from_value(lane).expect("a lane");
    scene.lanes.create(&PostParams::default(), &lane).await.expect("a lane");

    let name = |track_id: Uuid| format!("insert-{track_id}");
    for track_id in &tracks[..2] {
        scene.until("a task is not shown", async || scene.get(&name(*track_id)).await.is_some()).await;
        let status = scene.wait_state(&name(*track_id), State::Pending).await;
        assert_eq!(status.track_id, Some(track_id.to_string()));
    }
    assert_eq!(resources(&scene).await.len(), 2);
    // Its going cancels nothing; its cancel does.
    scene.delete(&name(tracks[0])).await;
    scene.patch(&name(tracks[1]), json!({ "cancel": true })).await;
    scene.wait_state(&name(tracks[1]), State::Cancelled).await;
    scene.until("the third is not shown", async || scene.get(&name(tracks[2])).await.is_some()).await;
    assert_eq!(scene.row(tracks[0]).await.state, task::State::Pending);
    let names: Vec<String> = resources(&scene).await.iter().map(ResourceExt::name_any).collect();
    assert!(!names.contains(&name(tracks[0])), "{names:?}");
}

#[tokio::test]
async fn resource_may_show_a_task_of_its_tenant_and_of_no_other() {
    let Some(scene) = Scene::new("show").await else { return };
    let own = born(&scene).await;
    let foreign = match enqueue(&scene.worker, &NewTask::new(TaskType::Insert, "foreign")).await.expect("an answer") {
        Enqueued::Created { track_id } => track_id,
        other => panic!("{other:?}"),
    };
    scene.create("own", json!({ "type": "Insert", "source": { "trackId": own } })).await;
    scene.create("foreign", json!({ "type": "Insert", "source": { "trackId": foreign }, "cancel": true })).await;
    assert_eq!(scene.track("own").await, own);
    scene.wait_condition("foreign", "Accepted", "False", "TaskNotFound").await;
    scene.create("again", json!({ "type": "Insert", "source": { "trackId": own } })).await;
    scene.wait_condition("again", "Accepted", "False", "ResourceRecreated").await;
    assert_eq!(scene.row(foreign).await.cancel, None);
    scene.finish(own).await;
    scene.wait_condition("own", "Succeeded", "True", "Completed").await;
}
