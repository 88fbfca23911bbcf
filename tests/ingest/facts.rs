//! Given facts join the graph, and go with their document alone.

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::enqueue::NewTask;
use uuid::Uuid;

use crate::bed::{Bed, TENANT, on, task};

#[tokio::test]
async fn facts_describe_what_documents_name_and_go_without_it() {
    let bed = Bed::new().await;
    let worker = bed.work();
    bed.published(TENANT, "In Lisbon, Ada Lovelace met nobody.").await;
    let document_id = Uuid::new_v4();
    let facts = json!({
        "title": "What we know",
        "entities": [{ "name": "ada lovelace", "kind": "person", "description": "wrote the first\u{0} program" }],
        "relations": [{ "source": "Ada Lovelace", "target": "Byron", "kind": "child_of" }],
    });
    let injection = NewTask { document_id: Some(document_id), ..task(TaskType::KnowledgeInjection, TENANT, facts) };

    let injected = bed.done(injection).await;

    assert_eq!(injected.state, State::Completed, "{:?}", injected.error);
    let described = bed.texts("select name || ' is a ' || kind || ' who ' || description from ingest.entities where description is not null").await;
    assert_eq!(described.into_iter().collect::<Vec<_>>(), ["Ada Lovelace is a person who wrote the first program"]);
    assert_eq!(bed.number("select count(*) from ingest.relations where kind = 'child_of'").await, 1);
    bed.assert_graph_is_whole().await;

    bed.done(on(TaskType::Deletion, TENANT, document_id)).await;

    let names = bed.texts("select name from ingest.entities").await;
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["Ada Lovelace", "Lisbon"]);
    assert_eq!(bed.number("select count(*) from ingest.relations where kind = 'child_of'").await, 0);
    bed.assert_graph_is_whole().await;
    worker.stop().await;
}

#[tokio::test]
async fn facts_may_come_as_a_text_as_a_resource_gives_them() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let text = "entities:\n- {name: Byron, kind: person}\nrelations:\n- {source: Ada, target: Byron, kind: child_of}\n";

    let injected = bed.done(task(TaskType::KnowledgeInjection, TENANT, json!({ "text": text }))).await;
    let wrong = bed.done(task(TaskType::KnowledgeInjection, TENANT, json!({ "text": "Byron was a poet." }))).await;

    assert_eq!(injected.state, State::Completed, "{:?}", injected.error);
    assert_eq!(bed.texts("select name from ingest.entities").await.into_iter().collect::<Vec<_>>(), ["Ada", "Byron"]);
    assert_eq!((wrong.state, wrong.failure_class), (State::Failed, Some(FailureClass::InvalidDocument)));
    assert!(wrong.error.is_some_and(|error| error.contains("YAML of entities and relations")));
    worker.stop().await;
}
