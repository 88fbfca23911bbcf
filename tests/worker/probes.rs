//! What a worker tells the outside: probes that speak of ability alone, metrics with bounded labels, and its log.

use std::collections::HashMap;

use private_postgres::Options;
use serde_json::{Value, json};
use sluice::domain::task::State;
use sluice::store::enqueue::NewTask;

use crate::bed::{Bed, LEASE, insert};
use crate::process::Process;
use crate::until::until;

#[tokio::test]
async fn metrics_tell_of_slots_claims_ends_and_cancels_and_no_label_grows_with_the_work() {
    let bed = Bed::new(LEASE).await;
    let worker = Process::serve(&bed, 4);
    let done: Vec<_> =
        (0..30).map(|n| NewTask { tenant: format!("tenant-{n}"), ..insert(json!({ "handler": "noop" })) }).collect();
    bed.until_ended(&bed.enqueue_many(&done).await).await;
    let cancelled = bed.enqueue(insert(json!({ "handler": "sleep", "ms": 600_000 }))).await;
    bed.until_state(cancelled, State::Processing).await;
    bed.cancel(cancelled).await;
    bed.until_state(cancelled, State::Cancelled).await;

    let (status, text) = worker.get("/metrics").await.expect("an answer");
    assert_eq!(status, 200);
    let mut series = HashMap::<&str, usize>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        *series.entry(name).or_default() += 1;
        assert!(name.starts_with("sluice_"), "{line}");
        assert!(!line.contains("tenant-"), "{line}");
    }
    assert!(series.values().all(|count| *count <= 40), "{series:?}");
    for about in ["slots", "claim", "lease", "cancel", "flush"] {
        assert!(series.keys().any(|name| name.contains(about)), "nothing about {about} in\n{text}");
    }
}

/// Neither load nor a database that is away is a reason to kill a worker or to start none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_speak_of_ability_alone_and_survive_the_database() {
    let mut bed = Bed::private(LEASE, Options::fast()).await;
    let mut worker = Process::serve(&bed, 1);
    worker.until_ready().await;
    assert_eq!(worker.get("/livez").await.expect("an answer").0, 200);
    assert_eq!(worker.get("/no-such-page").await.expect("an answer").0, 404);

    let ids = bed.enqueue_many(&vec![insert(json!({ "handler": "sleep", "ms": 20 })); 50]).await;
    assert_eq!(worker.get("/readyz").await.expect("an answer").0, 200, "it is busy, and able");
    bed.until_ended(&ids).await;

    tokio::task::block_in_place(|| bed.db.server().stop().expect("it stops"));
    until("the worker complains", async || worker.log().contains("failed and is tried again")).await;
    for probe in ["/livez", "/readyz"] {
        assert_eq!(worker.get(probe).await.expect("an answer").0, 200, "{probe}");
    }
    tokio::task::block_in_place(|| bed.db.server().start_again().expect("it starts"));
    let next = bed.enqueue(insert(json!({ "handler": "noop" }))).await;
    bed.until_state(next, State::Completed).await;
    assert!(worker.is_running());
}

#[tokio::test]
async fn log_in_json_names_task_tenant_and_attempt_and_no_secret() {
    let bed = Bed::new(LEASE).await;
    let worker = Process::start(&Process::settings(&bed, 1).set("SLUICE_LOG_FORMAT", "json"));
    let failing = NewTask { max_attempts: Some(1), ..insert(json!({ "handler": "panic", "message": "no end" })) };
    let id = bed.enqueue(failing).await;
    bed.until_state(id, State::Failed).await;

    let mut found = None;
    until("the failure is in the log", async || {
        let lines = worker.log();
        found = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect(line)).find(|line| {
            line.to_string().contains(&id.to_string()) && matches!(line["level"].as_str(), Some("WARN" | "ERROR"))
        });
        found.is_some()
    })
    .await;
    let line = found.expect("a line").to_string();
    for part in [&id.to_string(), "\"attempt\":1", "\"tenant\":\"acme\""] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    assert!(!worker.log().contains("only-for-tests"), "the password is in the log");
}
