//! An endpoint that extracts and embeds: what it gives is published, and what it costs is paid once.

use std::fs;
use std::time::Instant;

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::control::{CancelOutcome, Request, Scope, cancel};
use sluice::store::enqueue::NewTask;

use crate::bed::{Bed, Process, TENANT, book, counted, task};
use crate::endpoint::{Call, DIMENSIONS, Endpoint, KEY, Reply, good, people_of, says, shortest, vectors_for};
use crate::folder::Folder;

/// A worker whose chunks and vectors come from there.
pub fn work(bed: &Bed, url: &str, more: &[(&str, &str)]) -> Process {
    let dimensions = DIMENSIONS.to_string();
    let settings = [
        ("SLUICE_EXTRACT_PROVIDER", "openai"),
        ("SLUICE_PROVIDER_URL", url),
        ("SLUICE_EXTRACT_MODEL", "small"),
        ("SLUICE_EMBEDDING_MODEL", "tiny"),
        ("SLUICE_EMBEDDING_DIMENSIONS", &dimensions),
    ];
    bed.work_with(&[&settings, more].concat())
}

/// An insert of this text that gets one attempt.
pub fn insert(text: &str) -> NewTask {
    NewTask { max_attempts: Some(1), ..task(TaskType::Insert, TENANT, json!({ "text": text })) }
}

#[tokio::test]
async fn what_an_endpoint_finds_is_published_with_what_it_cost() {
    // As models answer: thoughts, prose, fences, a comma too many, and what Postgres cannot store.
    let endpoint = Endpoint::start(|call| {
        if !call.is_chat() {
            return vectors_for(call);
        }
        let answer = people_of(&call.text()).to_string().replace("was met", "was\\u0000 met").replace("}]}", "},]}");
        let Reply::Says(mut events) = says(&format!("<think>{{Bern?}}</think>Here it is:\n```json\n{answer}\n``` Bye"))
        else {
            panic!("it says something")
        };
        // A byte that is no UTF-8, in a comment and in a text.
        events.splice(0..0, *b": \xff\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n");
        Reply::Says(events)
    })
    .await;
    let (bed, folder) = (Bed::new().await, Folder::new());
    fs::write(folder.path("key"), format!("{KEY}\n")).expect("a file");
    let key_file = folder.path("key").to_string_lossy().into_owned();
    let prices = [
        ("SLUICE_PROVIDER_API_KEY_FILE", key_file.as_str()),
        ("SLUICE_PROVIDER_PROMPT_PRICE", "1000"),
        ("SLUICE_PROVIDER_ANSWER_PRICE", "10000"),
        ("SLUICE_PROVIDER_EMBEDDING_PRICE", "100"),
    ];
    let _worker = work(&bed, &endpoint.url(), &prices);

    let ended = bed.done(insert(&book(3))).await;

    assert_eq!(ended.state, State::Completed, "{:?}", ended.error);
    assert_eq!((counted(&ended, "extracted"), counted(&ended, "embedded")), (3, 3));
    let entities = bed.texts("select concat_ws(': ', name, kind, description) from ingest.entities").await;
    assert_eq!(entities.len(), 6, "{entities:?}");
    assert!(entities.contains("Ada1: person: met somebody in Bern") && entities.contains("Grace2: person: was met"));
    assert_eq!(
        bed.number("select count(*) from ingest.relations where kind = 'met' and description = 'in Bern'").await,
        3
    );
    let models = bed.texts("select concat_ws(' ', extractor, embedder) from ingest.document_versions").await;
    assert_eq!(models.into_iter().collect::<Vec<_>>(), ["openai/small/extract-1 openai/tiny/4"]);
    assert_eq!(
        bed.texts("select embedding::text from ingest.embeddings").await.into_iter().collect::<Vec<_>>(),
        ["{0.2,0.4,0.4,0.8}"]
    );
    bed.assert_graph_is_whole().await;

    // 3 · (100 + 10) and 3 · 50 tokens.
    assert_eq!(ended.tokens, 480);
    assert!((ended.cost - (0.3 + 0.3 + 0.015)).abs() < 1e-9, "{}", ended.cost);
    let calls = endpoint.calls();
    assert_eq!((endpoint.chats(), calls.len()), (3, 4));
    let bearer = format!("Bearer {KEY}");
    assert!(calls.iter().all(|call| call.authorization.as_deref() == Some(bearer.as_str())));
    let chat = calls.iter().find(|call| call.is_chat()).expect("a chat");
    assert_eq!((&chat.body["model"], &chat.body["stream"]), (&json!("small"), &json!(true)));
}

#[tokio::test]
async fn either_part_may_be_left_to_builtin() {
    let endpoint = Endpoint::start(good).await;
    let bed = Bed::new().await;
    let _worker = work(&bed, &endpoint.url(), &[("SLUICE_EXTRACT_MODEL", "")]);

    let ended = bed.done(insert("We like Lisbon.")).await;

    assert_eq!(ended.state, State::Completed, "{:?}", ended.error);
    assert_eq!(bed.texts("select name from ingest.entities").await.into_iter().collect::<Vec<_>>(), ["Lisbon"]);
    assert_eq!((endpoint.chats(), endpoint.calls().len()), (0, 1));
}

#[tokio::test]
async fn failed_calls_are_repeated_and_paid_ones_are_not() {
    // One of the calls that are under way together fails, and a request for vectors.
    let endpoint = Endpoint::start(|call| match (call.is_chat(), call.number) {
        (true, 5) => Reply::Status(500, String::new(), "out of luck".to_owned()),
        (false, 1) => Reply::Cut,
        _ => good(call),
    })
    .await;
    let bed = Bed::new().await;
    let _worker = work(&bed, &endpoint.url(), &[("SLUICE_EMBEDDING_BATCH", "4")]);

    let ended = bed.done(task(TaskType::Insert, TENANT, json!({ "text": book(10) }))).await;

    assert_eq!((ended.state, ended.failures), (State::Completed, 2), "{:?}", ended.error);
    // Ten chunks, of which one was asked for twice; and three batches, of which one was.
    assert_eq!((endpoint.chats(), endpoint.calls().len()), (10 + 1, 10 + 1 + 3 + 1));
    assert_eq!(bed.rows_of("chunks", TENANT).await, 10);
    // What both attempts have spent.
    assert_eq!(ended.tokens, 10 * 110 + 10 * 50);

    let again = bed.done(NewTask {
        document_id: ended.document.map(|document| document.document_id),
        ..task(TaskType::Reindex, TENANT, json!({}))
    });
    assert_eq!(counted(&again.await, "extracted"), 0);
    assert_eq!(endpoint.calls().len(), 15, "a reindex finds all of it");
}

#[tokio::test]
async fn what_is_too_long_is_asked_for_in_parts() {
    let too_long = |call: &Call| call.texts().iter().any(|text| text.len() > 300);
    let endpoint = Endpoint::start(move |call| {
        let refusal = r#"{"error":{"code":"context_length_exceeded","message":"too long"}}"#;
        let is_hopeless = call.text().contains("hopeless");
        if too_long(call) || is_hopeless { Reply::Status(400, String::new(), refusal.to_owned()) } else { good(call) }
    })
    .await;
    let bed = Bed::new().await;
    let _worker = work(&bed, &endpoint.url(), &[]);

    let ended = bed.done(insert(&book(2))).await;
    assert_eq!(ended.state, State::Completed, "{:?}", ended.error);
    // Whole, and in two halves, for each of two chunks; vectors together, then each whole, then each in two halves.
    assert_eq!((endpoint.chats(), endpoint.calls().len()), (2 * 3, 2 * 3 + 1 + 2 * 2));
    assert_eq!(bed.rows_of("embeddings", TENANT).await, 2);

    let hopeless = bed.done(insert("A hopeless text is hopeless.")).await;
    assert_eq!((hopeless.state, hopeless.failure_class), (State::Failed, Some(FailureClass::DocumentTooLarge)));
    assert_eq!(endpoint.chats(), 6 + 2, "whole, and one half");
}

#[tokio::test]
async fn a_budget_ends_a_task_and_not_the_worker() {
    let endpoint = Endpoint::start(good).await;
    let bed = Bed::new().await;
    let settings = [("SLUICE_PROVIDER_TASK_TOKENS", "2000"), ("SLUICE_EXTRACT_REQUESTS", "1")];
    let _worker = work(&bed, &endpoint.url(), &settings);

    let ended = bed.done(insert(&book(40))).await;
    assert_eq!((ended.state, ended.failure_class), (State::Failed, Some(FailureClass::DocumentTooLarge)));
    assert!(ended.error.as_deref().is_some_and(|error| error.contains("may use 2000")), "{:?}", ended.error);
    assert!((1..=2_000).contains(&ended.tokens), "{}", ended.tokens);
    let calls = endpoint.chats();
    assert!((1..40).contains(&calls), "{calls}");

    let small = bed.done(insert("A small text.")).await;
    assert_eq!(small.state, State::Completed, "{:?}", small.error);
}

#[tokio::test]
async fn a_cancel_closes_the_connection() {
    const TIMES: usize = 5;
    let endpoint = Endpoint::start(|_| Reply::Silent).await;
    let bed = Bed::new().await;
    let _worker = work(&bed, &endpoint.url(), &[("SLUICE_TASK_DELIVERY", "bridged")]);

    let mut told = Vec::new();
    for number in 1..=TIMES {
        let id = bed.enqueue(insert("A text.")).await;
        bed.until("the endpoint is asked", async || endpoint.chats() == number).await;
        told.push(Instant::now());
        let outcome = cancel(&bed.operator, id, Request::default(), Scope::default()).await.expect("an answer");
        assert_eq!(outcome, CancelOutcome::Stopping);
        bed.until("the worker has left", async || endpoint.left().len() == number).await;
        assert_eq!(bed.until_ended(id).await.state, State::Cancelled);
    }
    let left = endpoint.left();
    let times: Vec<_> = told.iter().zip(&left).map(|(told, left)| left.saturating_duration_since(*told)).collect();
    println!("from the cancel until the endpoint sees the connection closed: {times:?}");
    // The machine may be busy with others; that it can be so quick shows that nothing waits for a poll.
    assert!(shortest(&told, &left).as_millis() <= 250, "{times:?}");
}
