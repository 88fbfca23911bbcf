//! A document from its upload to what readers find, and what is refused.

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::enqueue::NewTask;
use uuid::Uuid;

use crate::bed::{Bed, TENANT, book, counted, on, task, upload};

const TREATY: &str = "# The treaty\n\nIn March, Paris met Rome.\0 The city of Paris signed, and so did Rome.\n";

#[tokio::test]
async fn uploaded_text_becomes_chunks_entities_relations_and_vectors() {
    let bed = Bed::new().await;
    let worker = bed.work();

    let document_id = bed.published(TENANT, TREATY).await;

    let content = bed.texts("select content from ingest.chunks").await;
    assert_eq!(content.len(), 1);
    assert!(content.iter().all(|content| content.contains("Paris met Rome. The city") && !content.contains('\0')));
    assert_eq!(bed.texts("select heading from ingest.chunks").await.into_iter().collect::<Vec<_>>(), ["The treaty"]);
    let names = bed.texts("select name from ingest.entities").await;
    assert!(names.contains("Paris") && names.contains("Rome"), "{names:?}");
    let related = "select count(*) from ingest.relations r
        join ingest.entities a on a.entity_id = r.source_id join ingest.entities b on b.entity_id = r.target_id
       where least(a.name, b.name) = 'Paris' and greatest(a.name, b.name) = 'Rome'";
    assert_eq!(bed.number(related).await, 1);
    assert_eq!(bed.number("select count(*) from ingest.embeddings where cardinality(embedding) = 256").await, 1);
    let title = "select title from ingest.document_versions";
    assert_eq!(bed.texts(title).await.into_iter().collect::<Vec<_>>(), ["The treaty"]);
    let found = "select count(*) from ingest.chunks where to_tsvector('simple', content) @@ plainto_tsquery('simple', 'paris signed')";
    assert_eq!(bed.number(found).await, 1);
    let nearest = "select count(*) from ingest.embeddings e
       where (select sum(a.x * b.x) from unnest(e.embedding) with ordinality a (x, n)
                join unnest(e.embedding) with ordinality b (x, n) using (n)) between 0.999 and 1.001";
    assert_eq!(bed.number(nearest).await, 1);
    bed.assert_graph_is_whole().await;
    let status = format!("select status from sluice.documents where document_id = '{document_id}'");
    assert_eq!(bed.texts(&status).await.into_iter().collect::<Vec<_>>(), ["completed"]);
    worker.stop().await;
}

#[tokio::test]
async fn newer_text_takes_the_place_of_the_older() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let document_id = bed.published(TENANT, "We like Lisbon, and Porto.").await;

    let again = NewTask { document_id: Some(document_id), ..upload(TENANT, "We like Madrid, and Porto.") };
    let uploaded = bed.done(again).await;
    bed.follow_on(uploaded.track_id).await;

    let names = bed.texts("select name from ingest.entities").await;
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["Madrid", "Porto"]);
    for table in ["contents", "document_versions", "chunks", "embeddings"] {
        assert_eq!(bed.rows_of(table, TENANT).await, 1, "{table}");
    }
    assert_eq!(bed.rows_of("artifacts", TENANT).await, 2, "those of the older text are gone");
    bed.assert_graph_is_whole().await;
    worker.stop().await;
}

#[tokio::test]
async fn older_text_never_takes_the_place_of_a_newer_one() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let document_id = bed.published(TENANT, "We like Lisbon.").await;
    // As if the insert of an older content came late.
    bed.arrange(
        "update ingest.document_versions set content_id = content_id + 1000;
         update ingest.contents set markdown = 'We like Madrid.'",
    )
    .await;

    let late = bed.done(on(TaskType::Insert, TENANT, document_id)).await;

    assert_eq!(late.state, State::Completed);
    assert_eq!(late.result.expect("a result")["outdated"], json!(true));
    assert_eq!(bed.texts("select name from ingest.entities").await.into_iter().collect::<Vec<_>>(), ["Lisbon"]);
    worker.stop().await;
}

#[tokio::test]
async fn reindex_makes_a_new_generation_of_what_is_paid_for() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let document_id = bed.published(TENANT, &book(40)).await;
    let version = "select version_id from ingest.document_versions";
    let before = bed.number(version).await;

    let reindexed = bed.done(on(TaskType::Reindex, TENANT, document_id)).await;

    assert_eq!(reindexed.state, State::Completed, "{:?}", reindexed.error);
    assert_ne!(bed.number(version).await, before);
    assert_eq!(counted(&reindexed, "chunks"), 40);
    assert_eq!((counted(&reindexed, "extracted"), counted(&reindexed, "embedded")), (0, 0));
    assert_eq!(bed.number("select count(*) from ingest.chunks").await, 40);
    bed.assert_graph_is_whole().await;
    worker.stop().await;
}

#[tokio::test]
async fn insert_takes_a_text_of_its_own() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let payload = json!({ "text": "We like Lisbon.", "title": "A wish\0" });
    let insert = NewTask { document_id: Some(Uuid::new_v4()), ..task(TaskType::Insert, TENANT, payload) };

    let inserted = bed.done(insert).await;

    assert_eq!(inserted.state, State::Completed, "{:?}", inserted.error);
    let title = bed.texts("select title from ingest.document_versions").await;
    assert_eq!(title.into_iter().collect::<Vec<_>>(), ["A wish"]);
    worker.stop().await;
}

#[tokio::test]
async fn insert_of_a_text_makes_a_document_of_its_own() {
    let bed = Bed::new().await;
    let worker = bed.work();

    let inserted = bed.done(task(TaskType::Insert, TENANT, json!({ "text": "We like Lisbon." }))).await;

    assert_eq!(inserted.state, State::Completed, "{:?}", inserted.error);
    assert_eq!(
        bed.number("select count(*) from ingest.document_versions v join sluice.documents d using (document_id)").await,
        1
    );
    worker.stop().await;
}

#[tokio::test]
async fn files_below_the_root_are_read_and_no_others() {
    let mut bed = Bed::new().await;
    let directory = std::env::temp_dir().join(format!("sluice-ingest-{}", Uuid::new_v4().simple()));
    let root = directory.join("root");
    std::fs::create_dir_all(&root).expect("a directory");
    std::fs::write(root.join("wish.md"), b"# A wish\n\nWe like Lisbon.\xff\0").expect("a file");
    std::fs::write(root.join("wish.pdf"), "%PDF-1.7").expect("a file");
    std::fs::write(directory.join("secret.md"), "We like Madrid.").expect("a file");
    std::os::unix::fs::symlink(directory.join("secret.md"), root.join("link.md")).expect("a link");
    bed.sources.file_root = Some(root.clone());
    let worker = bed.work();
    let from =
        |path: &str| task(TaskType::Upload, TENANT, json!({ "url": format!("file://{}/{path}", root.display()) }));

    let rows = [
        ("../secret.md", FailureClass::SourceForbidden),
        ("link.md", FailureClass::SourceForbidden),
        ("none.md", FailureClass::SourceNotFound),
        ("wish.pdf", FailureClass::InvalidDocument),
        // No system has a file of this name, and none of what precedes it is meant.
        ("wish.md%00.pdf", FailureClass::SourceNotFound),
        ("%00", FailureClass::SourceNotFound),
    ];
    for (path, class) in rows {
        let ended = bed.done(from(path)).await;
        assert_eq!((ended.state, ended.failure_class), (State::Failed, Some(class)), "{path}: {:?}", ended.error);
        assert_eq!(ended.attempt, 1, "{path}");
    }
    let elsewhere = bed.done(task(TaskType::Upload, TENANT, json!({ "url": "s3://bucket/b.md" }))).await;
    assert_eq!(elsewhere.failure_class, Some(FailureClass::SourceForbidden));
    let uploaded = bed.done(from("wish.md")).await;
    assert_eq!(uploaded.state, State::Completed, "{:?}", uploaded.error);
    bed.follow_on(uploaded.track_id).await;

    let content = bed.texts("select content from ingest.chunks").await;
    assert_eq!(content.into_iter().collect::<Vec<_>>(), ["# A wish\n\nWe like Lisbon.\u{fffd}"]);
    worker.stop().await;
    std::fs::remove_dir_all(directory).expect("the directory goes");
}

#[tokio::test]
async fn what_cannot_be_ingested_fails_once_with_its_class() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let nobody = Uuid::new_v4();
    let rows = [
        (upload(TENANT, ""), FailureClass::EmptyDocument),
        (upload(TENANT, " \u{0}\n---\n"), FailureClass::EmptyDocument),
        (task(TaskType::Upload, TENANT, json!({})), FailureClass::InvalidDocument),
        (task(TaskType::Upload, TENANT, json!({ "txt": "a" })), FailureClass::InvalidDocument),
        (task(TaskType::Upload, TENANT, json!({ "text": 7 })), FailureClass::InvalidDocument),
        (task(TaskType::Insert, TENANT, json!({})), FailureClass::InvalidDocument),
        (on(TaskType::Insert, TENANT, nobody), FailureClass::DocumentDeleted),
        (on(TaskType::Reindex, TENANT, nobody), FailureClass::DocumentDeleted),
        (task(TaskType::Reindex, TENANT, json!({ "text": "a" })), FailureClass::InvalidDocument),
        (task(TaskType::KnowledgeInjection, TENANT, json!({})), FailureClass::InvalidDocument),
        (
            NewTask { workspace: None, ..task(TaskType::WorkspaceWipe, TENANT, json!({})) },
            FailureClass::InvalidDocument,
        ),
        (task(TaskType::Scan, TENANT, json!({})), FailureClass::InvalidDocument),
    ];
    for (task, class) in rows {
        let said = format!("{} {}", task.task_type, task.payload);
        let ended = bed.done(task).await;
        assert_eq!((ended.state, ended.failure_class), (State::Failed, Some(class)), "{said}: {:?}", ended.error);
        assert_eq!(ended.attempt, 1, "{said}");
    }
    for table in ["contents", "document_versions", "entities", "artifacts"] {
        assert_eq!(bed.rows_of(table, TENANT).await, 0, "{table}");
    }
    worker.stop().await;
}
