//! Documents that share entities, and tenants that share names: what one loses, the other keeps.

use std::collections::BTreeSet;

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::enqueue::NewTask;
use uuid::Uuid;

use crate::bed::{Bed, TENANT, counted, on, task, upload};

const OTHER: &str = "globex";
const FIRST: &str = "In Lisbon, Ada Lovelace met Charles Babbage.";
const SECOND: &str = "In Porto, Ada Lovelace left.";

async fn names(bed: &Bed, tenant: &str) -> BTreeSet<String> {
    bed.texts(&format!("select name from ingest.entities where tenant = '{tenant}'")).await
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn deletion_leaves_what_another_document_supports() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let first = bed.published(TENANT, FIRST).await;
    bed.published(TENANT, SECOND).await;

    let deleted = bed.done(on(TaskType::Deletion, TENANT, first)).await;

    assert_eq!(deleted.state, State::Completed, "{:?}", deleted.error);
    assert_eq!((counted(&deleted, "chunks"), counted(&deleted, "entities"), counted(&deleted, "artifacts")), (1, 2, 2));
    assert_eq!(names(&bed, TENANT).await, set(&["Ada Lovelace", "Porto"]));
    bed.assert_graph_is_whole().await;
    assert_eq!(bed.number(&format!("select count(*) from sluice.documents where document_id = '{first}'")).await, 0);
    // Once more changes nothing.
    let again = bed.done(on(TaskType::Deletion, TENANT, first)).await;
    assert_eq!((again.state, counted(&again, "chunks")), (State::Completed, 0));
    worker.stop().await;
}

#[tokio::test]
async fn tenants_with_one_name_never_meet() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let ours = bed.published(TENANT, FIRST).await;
    let theirs = bed.published(OTHER, FIRST).await;
    let all = set(&["Ada Lovelace", "Charles Babbage", "Lisbon"]);
    assert_eq!((names(&bed, TENANT).await, names(&bed, OTHER).await), (all.clone(), all.clone()));

    // Another's document is not there, whatever the payload says.
    for task_type in [TaskType::Reindex, TaskType::Insert] {
        let reaching = bed.done(task(task_type, OTHER, json!({ "documentId": ours }))).await;
        assert_eq!(reaching.failure_class, Some(FailureClass::DocumentDeleted), "{task_type}");
    }
    let reaching = bed.done(task(TaskType::Deletion, OTHER, json!({ "documentId": ours }))).await;
    assert_eq!((reaching.state, counted(&reaching, "contents")), (State::Completed, 0));
    let elsewhere = NewTask {
        workspace: Some("elsewhere".to_owned()),
        ..task(TaskType::Deletion, TENANT, json!({ "documentId": ours }))
    };
    assert_eq!(counted(&bed.done(elsewhere).await, "contents"), 0);
    assert_eq!(names(&bed, TENANT).await, all);

    bed.done(on(TaskType::Deletion, OTHER, theirs)).await;

    assert_eq!((names(&bed, TENANT).await, names(&bed, OTHER).await), (all, BTreeSet::new()));
    bed.assert_graph_is_whole().await;
    worker.stop().await;
}

#[tokio::test]
async fn wipe_takes_its_workspace_and_nothing_else() {
    let bed = Bed::new().await;
    let worker = bed.work();
    for _ in 0..3 {
        bed.published(TENANT, FIRST).await;
    }
    bed.published(OTHER, FIRST).await;
    let elsewhere = NewTask { workspace: Some("elsewhere".to_owned()), ..upload(TENANT, SECOND) };
    let elsewhere = bed.done(elsewhere).await;
    bed.follow_on(elsewhere.track_id).await;

    // One that never had a content, and one that something is under way for.
    let refused = bed.done(upload(TENANT, " \n ")).await;
    assert_eq!(refused.state, State::Failed);
    let suspended =
        bed.enqueue(NewTask { suspended: true, document_id: Some(Uuid::new_v4()), ..upload(TENANT, SECOND) }).await;

    let wiped = bed.done(task(TaskType::WorkspaceWipe, TENANT, json!({}))).await;

    assert_eq!((wiped.state, counted(&wiped, "documents")), (State::Completed, 3), "{:?}", wiped.error);
    assert_eq!(names(&bed, TENANT).await, set(&["Ada Lovelace", "Porto"]));
    assert_eq!(names(&bed, OTHER).await.len(), 3);
    for table in ["contents", "document_versions", "chunks", "embeddings"] {
        assert_eq!((bed.rows_of(table, TENANT).await, bed.rows_of(table, OTHER).await), (1, 1), "{table}");
    }
    let left = bed.texts("select tenant || ' ' || workspace || ' ' || status from sluice.documents").await;
    let expected = ["acme elsewhere completed", "acme library pending", "globex library completed"];
    assert_eq!(left.into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(bed.task(suspended).await.state, State::Pending);
    bed.assert_graph_is_whole().await;
    worker.stop().await;
}

#[tokio::test]
async fn documents_that_come_and_go_at_once_leave_a_whole_graph() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let mut documents = Vec::new();
    for number in 0..6 {
        documents.push(bed.published(TENANT, &format!("In Lisbon, Ada Lovelace met Guest{number} Miller.")).await);
    }

    let mut tasks = Vec::new();
    for (number, document_id) in documents.into_iter().enumerate() {
        let task_type = if number % 2 == 0 { TaskType::Deletion } else { TaskType::Reindex };
        tasks.push(bed.enqueue(on(task_type, TENANT, document_id)).await);
        tasks.push(bed.enqueue(upload(TENANT, &format!("In Lisbon, Ada Lovelace met Newcomer{number} Smith."))).await);
    }
    for id in tasks {
        let ended = bed.until_ended(id).await;
        assert_eq!(ended.state, State::Completed, "{:?}", ended.error);
        if ended.task_type == TaskType::Upload {
            assert_eq!(bed.follow_on(id).await.state, State::Completed);
        }
    }

    bed.assert_graph_is_whole().await;
    assert_eq!(bed.rows_of("document_versions", TENANT).await, 9);
    assert_eq!(names(&bed, TENANT).await.len(), 2 + 9);
    worker.stop().await;
}
