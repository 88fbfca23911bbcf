//! A cancel or a deletion in each stage: nothing of the attempt is visible, and what was there before stays.

use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::control::{CancelOutcome, Request, Scope, cancel};
use sluice::store::enqueue::NewTask;
use uuid::Uuid;

use crate::bed::{Bed, TENANT, book, on, upload};
use crate::gate::Gate;

/// Where a worker waits in each stage: a table, and which of its rows.
const STAGES: [(&str, &str, &str); 5] = [
    ("extracting", "artifacts", "new.kind = 'extraction'"),
    ("embedding", "artifacts", "new.kind = 'embedding'"),
    ("storing", "chunks", "true"),
    ("storing", "entities", "true"),
    ("storing", "document_versions", "true"),
];

async fn cancel_task(bed: &Bed, id: Uuid) {
    let outcome = cancel(&bed.operator, id, Request::default(), Scope::default()).await.expect("an answer");
    assert_eq!(outcome, CancelOutcome::Stopping);
}

/// The insert that runs: at the gate.
async fn running_insert(bed: &Bed) -> Uuid {
    let ids = bed.texts("select track_id::text from sluice.tasks where type = 'insert' and state = 'processing'").await;
    ids.first().expect("an insert").parse().expect("an id")
}

#[tokio::test]
async fn cancelled_insert_leaves_nothing_visible_in_any_stage() {
    for (stage, table, condition) in STAGES {
        let bed = Bed::new().await;
        let worker = bed.work();
        let gate = Gate::close(&bed, table, condition).await;
        bed.enqueue(upload(TENANT, &book(80))).await;
        gate.until_reached(&bed).await;
        let insert = running_insert(&bed).await;
        bed.until("the stage is told", async || bed.task(insert).await.stage.as_deref() == Some(stage)).await;

        cancel_task(&bed, insert).await;
        gate.open(&bed).await;
        let ended = bed.until_ended(insert).await;

        assert_eq!(ended.state, State::Cancelled, "{stage}, {table}");
        for table in ["document_versions", "chunks", "embeddings", "entities", "relations"] {
            assert_eq!(bed.rows_of(table, TENANT).await, 0, "{stage}: {table}");
        }
        assert_eq!(bed.number("select count(*) from ingest.provenance").await, 0, "{stage}");
        assert_eq!(bed.rows_of("contents", TENANT).await, 1, "what was taken in stays");
        worker.stop().await;
    }
}

#[tokio::test]
async fn cancelled_update_leaves_what_was_published() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let document_id = bed.published(TENANT, "We like Lisbon.").await;
    let gate = Gate::close(&bed, "document_versions", "true").await;
    bed.enqueue(NewTask { document_id: Some(document_id), ..upload(TENANT, "We like Madrid.") }).await;
    gate.until_reached(&bed).await;
    let insert = running_insert(&bed).await;

    cancel_task(&bed, insert).await;
    gate.open(&bed).await;

    assert_eq!(bed.until_ended(insert).await.state, State::Cancelled);
    assert_eq!(bed.texts("select name from ingest.entities").await.into_iter().collect::<Vec<_>>(), ["Lisbon"]);
    assert_eq!(
        bed.texts("select content from ingest.chunks").await.into_iter().collect::<Vec<_>>(),
        ["We like Lisbon."]
    );
    bed.assert_graph_is_whole().await;
    worker.stop().await;
}

#[tokio::test]
async fn document_deleted_while_it_is_ingested_is_not_published() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let gate = Gate::close(&bed, "chunks", "true").await;
    let uploaded = bed.done(upload(TENANT, "We like Lisbon.")).await;
    let document_id = uploaded.document.expect("a document").document_id;
    gate.until_reached(&bed).await;
    let insert = running_insert(&bed).await;

    let deleted = bed.done(on(TaskType::Deletion, TENANT, document_id)).await;
    gate.open(&bed).await;
    let ended = bed.until_ended(insert).await;

    assert_eq!(deleted.state, State::Completed, "{:?}", deleted.error);
    assert_eq!(
        (ended.state, ended.failure_class),
        (State::Failed, Some(FailureClass::DocumentDeleted)),
        "{:?}",
        ended.error
    );
    for table in ["contents", "document_versions", "chunks", "entities", "artifacts"] {
        assert_eq!(bed.rows_of(table, TENANT).await, 0, "{table}");
    }
    worker.stop().await;
}
