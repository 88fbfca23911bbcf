//! Resources that show tasks, and what is left when they go.

use sluice::domain::lane::Class;
use sluice::domain::task::{State, TaskType};
use sluice::store::ends::{CompletedWithNext, complete_with_next};
use sluice::store::enqueue::{Enqueued, NewTask, Resource, enqueue};
use sluice::store::lanes::{LaneSettings, PoolManager, Setting, leave_pool, manage_pool, pool_managers, set_lane};
use sluice::store::reads::{mirror_changes, mirror_changes_after};
use sluice::store::resources::{
    DocumentOwner, MirrorOutcome, document_owner, follow_ons, forget_resources, mirror_task, resources,
    resources_after, set_retains, unmirrored,
};
use sluice::store::status::{task_status, task_statuses_without_content};
use uuid::Uuid;

use crate::queue::{NOTHING, Queue, TENANT, insert};

const CLUSTER: &str = "here";

fn resource(uid: &str) -> Resource {
    Resource {
        cluster: CLUSTER.to_owned(),
        namespace: "docs".to_owned(),
        name: format!("task-{uid}"),
        uid: uid.to_owned(),
    }
}

fn of_resource(task_type: TaskType, uid: &str) -> NewTask {
    NewTask { resource: Some(resource(uid)), ..NewTask::new(task_type, TENANT) }
}

fn uids(uids: &[&str]) -> Vec<String> {
    uids.iter().map(|uid| (*uid).to_owned()).collect()
}

#[tokio::test]
async fn resource_is_found_by_its_uid_with_the_newest_of_its_tree() {
    let queue = Queue::new().await;
    let convert = queue.enqueue(&of_resource(TaskType::PdfProcessing, "u")).await;
    let attempt = queue.run(convert).await;
    let next = NewTask::new(TaskType::Insert, TENANT);
    let answer = complete_with_next(&queue.worker, attempt, &next, None, NOTHING).await.expect("an answer");
    let CompletedWithNext::Completed { next: insert } = answer else { panic!("{answer:?}") };

    let found = resources(&queue.operator, CLUSTER, &uids(&["u", "unknown"])).await.expect("the resources");

    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.track_id, found.newest_track_id, found.retains), (convert, insert, false));
    let followed = follow_ons(&queue.operator, &[convert, insert], 16).await.expect("the follow-ons");
    let followed: Vec<_> = followed.iter().map(|f| (f.root_id, f.track_id, f.task_type, f.state)).collect();
    assert_eq!(followed, [(convert, insert, TaskType::Insert, State::Pending)]);
}

#[tokio::test]
async fn forgotten_resource_leaves_its_task_and_frees_its_uid() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&of_resource(TaskType::Insert, "u")).await;

    assert_eq!(forget_resources(&queue.operator, CLUSTER, &uids(&["u", "unknown"])).await.expect("an answer"), 1);

    assert_eq!(resources(&queue.operator, CLUSTER, &uids(&["u"])).await.expect("the resources"), []);
    assert_eq!(mirror_changes(&queue.operator, CLUSTER, 10).await.expect("the changes"), []);
    assert!(task_status(&queue.operator, track_id).await.expect("an answer").is_some());
    // Its later changes go nowhere, and hurt nobody.
    queue.cancel(track_id).await;
    assert_eq!(mirror_changes(&queue.operator, CLUSTER, 10).await.expect("the changes"), []);
    let again = enqueue(&queue.operator, &of_resource(TaskType::Insert, "u")).await.expect("an answer");
    assert!(matches!(again, Enqueued::Created { .. }), "{again:?}");
}

#[tokio::test]
async fn task_born_elsewhere_is_shown_by_one_resource_and_outlives_it() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;
    let show = async |uid: &str, track_id: Uuid, tenant: &str| {
        mirror_task(&queue.operator, &resource(uid), track_id, tenant).await.expect("an answer")
    };

    assert_eq!(show("u", track_id, "another").await, MirrorOutcome::NotFound);
    assert_eq!(show("u", Uuid::nil(), TENANT).await, MirrorOutcome::NotFound);
    assert_eq!(show("u", track_id, TENANT).await, MirrorOutcome::Mirrored);
    assert_eq!(show("u", track_id, TENANT).await, MirrorOutcome::Existing);
    assert_eq!(show("v", track_id, TENANT).await, MirrorOutcome::Taken);

    let found = resources(&queue.operator, CLUSTER, &uids(&["u", "v"])).await.expect("the resources");
    let [found] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found.track_id, found.retains), (track_id, true));
    let rev = found.rev;
    queue.cancel(track_id).await;
    let changes = mirror_changes(&queue.operator, CLUSTER, 10).await.expect("the changes");
    assert!(matches!(&changes[..], [change] if change.rev > rev), "{changes:?}");
}

#[tokio::test]
async fn resources_are_listed_in_pages_and_by_namespace() {
    let queue = Queue::new().await;
    for uid in ["a", "b", "c"] {
        queue.enqueue(&of_resource(TaskType::Insert, uid)).await;
    }
    let page = async |after, limit| {
        resources_after(&queue.operator, CLUSTER, &[], after, limit)
            .await
            .expect("a page")
            .into_iter()
            .map(|r| (r.mirror_id, r.uid))
            .collect::<Vec<_>>()
    };
    let first = page(0, 2).await;
    assert_eq!(first.iter().map(|(_, uid)| uid.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let rest = page(first[1].0, 2).await;
    assert_eq!(rest.iter().map(|(_, uid)| uid.as_str()).collect::<Vec<_>>(), ["c"]);

    let elsewhere = ["other".to_owned()];
    assert_eq!(resources_after(&queue.operator, CLUSTER, &elsewhere, 0, 10).await.expect("a page"), []);
    assert_eq!(mirror_changes_after(&queue.operator, CLUSTER, &elsewhere, 0, 10).await.expect("a page"), []);
    let here = ["docs".to_owned()];
    assert_eq!(mirror_changes_after(&queue.operator, CLUSTER, &here, first[0].0, 10).await.expect("a page").len(), 2);
}

#[tokio::test]
async fn policy_of_a_resource_is_kept_with_it() {
    let queue = Queue::new().await;
    queue.enqueue(&of_resource(TaskType::Insert, "u")).await;

    assert!(set_retains(&queue.operator, CLUSTER, "u", true).await.expect("an answer"));
    assert!(set_retains(&queue.operator, CLUSTER, "u", true).await.expect("an answer"));
    assert!(!set_retains(&queue.operator, CLUSTER, "unknown", true).await.expect("an answer"));

    let found = resources(&queue.operator, CLUSTER, &uids(&["u"])).await.expect("the resources");
    assert!(found[0].retains);
}

#[tokio::test]
async fn lane_that_asks_gets_resources_for_its_active_tasks_up_to_its_limit() {
    let queue = Queue::new().await;
    let mut tracks = Vec::new();
    for _ in 0..4 {
        tracks.push(queue.enqueue(&insert()).await);
    }
    let wanted = async || unmirrored(&queue.operator, CLUSTER, &uids(&["lane"]), 100).await.expect("the tasks");
    assert_eq!(wanted().await, []);
    let settings = LaneSettings {
        mirror_limit: Setting::To(3),
        cluster: Setting::To(CLUSTER),
        resource_uid: Setting::To("lane"),
        ..LaneSettings::default()
    };
    set_lane(&queue.operator, TENANT, Class::Ingest, &settings, None).await.expect("the lane");

    let first = wanted().await;
    assert_eq!(first.iter().map(|task| task.track_id).collect::<Vec<_>>(), tracks[..3]);
    assert!(first.iter().all(|task| task.lane_uid == "lane" && task.tenant == TENANT && task.class == Class::Ingest));
    for (task, uid) in first.iter().zip(["a", "b"]) {
        mirror_task(&queue.operator, &resource(uid), task.track_id, TENANT).await.expect("an answer");
    }
    assert_eq!(wanted().await.iter().map(|task| task.track_id).collect::<Vec<_>>(), [tracks[2]]);
    // What runs goes first.
    let pending = queue.enqueue(&insert()).await;
    queue.cancel(tracks[2]).await;
    queue.run(tracks[3]).await;
    let first = wanted().await.remove(0).track_id;
    assert!(first == tracks[3] || first == pending);
}

#[tokio::test]
async fn lanes_take_turns_and_those_of_others_take_none() {
    let queue = Queue::new().await;
    for (tenant, tasks) in [("busy", 5), ("quiet", 1), ("elsewhere", 5)] {
        for _ in 0..tasks {
            queue.enqueue(&NewTask::new(TaskType::Insert, tenant)).await;
        }
        let uid = format!("of-{tenant}");
        let settings = LaneSettings {
            mirror_limit: Setting::To(4),
            cluster: Setting::To(CLUSTER),
            resource_uid: Setting::To(&uid),
            ..LaneSettings::default()
        };
        set_lane(&queue.operator, tenant, Class::Ingest, &settings, None).await.expect("the lane");
    }
    let managers = uids(&["of-busy", "of-quiet"]);
    let of = async |limit| {
        let tasks = unmirrored(&queue.operator, CLUSTER, &managers, limit).await.expect("the tasks");
        tasks.into_iter().map(|task| task.tenant).collect::<Vec<_>>()
    };
    assert_eq!(of(100).await, ["busy", "quiet", "busy", "busy", "busy"]);
    assert_eq!(of(2).await, ["busy", "quiet"]);
    let foreign = unmirrored(&queue.operator, "another", &managers, 100).await.expect("the tasks");
    assert_eq!(foreign, []);
}

#[tokio::test]
async fn pool_is_set_by_the_first_that_asks_until_it_leaves() {
    let queue = Queue::new().await;
    let manage = async |cluster, namespace| {
        manage_pool(&queue.operator, "shared", cluster, namespace, None).await.expect("an answer")
    };
    assert!(manage("a", "sluice").await);
    assert!(manage("a", "sluice").await, "again");
    assert!(!manage("b", "sluice").await && !manage("a", "other").await);
    let holder = PoolManager { pool: "shared".to_owned(), cluster: "a".to_owned(), namespace: "sluice".to_owned() };
    assert_eq!(pool_managers(&queue.operator).await.expect("an answer"), [holder]);
    assert!(!leave_pool(&queue.operator, "shared", "b", "sluice").await.expect("an answer"));
    assert!(leave_pool(&queue.operator, "shared", "a", "sluice").await.expect("an answer"));
    assert!(manage("b", "sluice").await);
}

#[tokio::test]
async fn owner_of_a_document_is_told_and_a_status_needs_no_payload() {
    let queue = Queue::new().await;
    let document_id = Uuid::new_v4();
    let payload = serde_json::json!({ "text": "long" });
    let task = NewTask {
        document_id: Some(document_id),
        workspace: Some("w".to_owned()),
        payload: payload.clone(),
        ..insert()
    };
    let track_id = queue.enqueue(&task).await;

    let owner = document_owner(&queue.operator, document_id).await.expect("an answer");
    assert_eq!(owner, Some(DocumentOwner { tenant: TENANT.to_owned(), workspace: Some("w".to_owned()) }));
    assert_eq!(document_owner(&queue.operator, Uuid::nil()).await.expect("an answer"), None);

    let whole = task_status(&queue.operator, track_id).await.expect("an answer").expect("the task");
    let slim = task_statuses_without_content(&queue.operator, &[track_id]).await.expect("an answer").remove(0);
    assert_eq!(whole.payload, payload);
    assert_eq!(slim, sluice::store::status::TaskStatus { payload: serde_json::json!({}), ..whole });
}
