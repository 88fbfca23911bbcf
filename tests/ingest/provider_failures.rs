//! An endpoint that misbehaves: each fault has its class, in bounded time, and nothing of it is written.

use sluice::domain::failure::FailureClass;
use sluice::domain::task::State;
use sluice::store::enqueue::NewTask;
use sqlx::Row;

use crate::bed::{Bed, TENANT};
use crate::endpoint::{Call, Endpoint, KEY, Reply, good, nobody, says, vectors};
use crate::provider::{insert, work};

/// What the endpoint does when a text has this word in it.
type Fault = (&'static str, fn(&Call) -> Reply, FailureClass);

fn status(status: u16, body: &str) -> Reply {
    Reply::Status(status, String::new(), body.to_owned())
}

const CHAT_FAULTS: [Fault; 14] = [
    ("unauthorized", |_| status(401, "Incorrect key sk-very-****"), FailureClass::ProviderMisconfigured),
    ("forbidden", |_| status(403, ""), FailureClass::ProviderMisconfigured),
    (
        "notfound",
        |_| status(404, r#"{"error":{"message":"no model of this name"}}"#),
        FailureClass::ProviderMisconfigured,
    ),
    (
        "redirected",
        |_| Reply::Status(307, "Location: https://example.com/\r\n".to_owned(), String::new()),
        FailureClass::ProviderMisconfigured,
    ),
    (
        "unsupported",
        |_| status(400, r#"{"error":{"code":"unsupported_parameter","message":"max_tokens"}}"#),
        FailureClass::LlmUnsupportedParam,
    ),
    ("broken", |_| status(500, "out of\0 luck \u{7}"), FailureClass::ProviderUnavailable),
    ("echoing", |call| status(500, &format!("{:?}", call.authorization)), FailureClass::ProviderUnavailable),
    ("overloaded", |_| status(503, ""), FailureClass::ProviderUnavailable),
    ("cutting", |_| Reply::Cut, FailureClass::ProviderUnavailable),
    ("halving", |_| says(r#"{"entities": [{"name": "Ber"#), FailureClass::ProviderUnavailable),
    ("chatting", |_| says("I am sorry, but I cannot."), FailureClass::ProviderUnavailable),
    ("silly", |_| Reply::Json("[1, 2".to_owned()), FailureClass::ProviderUnavailable),
    (
        "failing",
        |_| Reply::Says(b"data: {\"error\":{\"message\":\"no memory\"}}\n\n".to_vec()),
        FailureClass::ProviderUnavailable,
    ),
    ("endless", |_| Reply::Endless, FailureClass::ProviderUnavailable),
];

const VECTOR_FAULTS: [Fault; 7] = [
    ("nan", |_| vectors(1, "[1, NaN, 0, 0]"), FailureClass::EmbeddingLimit),
    ("null", |_| vectors(1, "[1, null, 0, 0]"), FailureClass::EmbeddingLimit),
    ("huge", |_| vectors(1, "[1e999, 0, 0, 0]"), FailureClass::EmbeddingLimit),
    ("short", |_| vectors(1, "[1, 0, 0]"), FailureClass::EmbeddingLimit),
    ("missing", |_| vectors(0, ""), FailureClass::EmbeddingLimit),
    ("surplus", |_| vectors(2, "[1, 0, 0, 0]"), FailureClass::EmbeddingLimit),
    ("cutvectors", |_| Reply::Cut, FailureClass::ProviderUnavailable),
];

fn answer(call: &Call) -> Reply {
    let faults = if call.is_chat() { &CHAT_FAULTS[..] } else { &VECTOR_FAULTS[..] };
    let text = call.text();
    faults
        .iter()
        .find(|(word, ..)| text.contains(&format!("is {word}.")))
        .map_or_else(|| good(call), |(_, reply, _)| reply(call))
}

#[tokio::test]
async fn each_fault_of_an_endpoint_has_its_class_and_leaves_nothing() {
    let endpoint = Endpoint::start(answer).await;
    let bed = Bed::new().await;
    let settings = [("SLUICE_PROVIDER_API_KEY", KEY), ("SLUICE_EXTRACT_ANSWER_TOKENS", "64")];
    let _worker = work(&bed, &endpoint.url(), &settings);

    let mut ids = Vec::new();
    for (word, _, class) in CHAT_FAULTS.iter().chain(&VECTOR_FAULTS) {
        ids.push((*word, *class, bed.enqueue(insert(&format!("The endpoint is {word}."))).await));
    }
    for (word, class, id) in ids {
        let ended = bed.until_ended(id).await;
        let error = ended.error.unwrap_or_default();
        println!("{word}: {error}");
        assert_eq!((ended.state, ended.failure_class), (State::Failed, Some(class)), "{word}: {error}");
        assert!(!error.is_empty() && !error.contains("sk-very") && !error.contains("127.0.0.1"), "{word}: {error}");
    }
    for table in ["document_versions", "chunks", "embeddings", "entities", "relations"] {
        assert_eq!(bed.rows_of(table, TENANT).await, 0, "{table}");
    }
    let artifacts = |kind: &str| format!("select count(*) from ingest.artifacts where kind = '{kind}'");
    assert_eq!(bed.number(&artifacts("embedding")).await, 0);
    assert_eq!(bed.number(&artifacts("extraction")).await, i64::try_from(VECTOR_FAULTS.len()).expect("a small number"));
}

#[tokio::test]
async fn an_endpoint_that_is_away_or_silent_is_given_up_in_time() {
    let silent = Endpoint::start(|_| Reply::Silent).await;
    for (url, said) in [(nobody(), "cannot be reached"), (silent.url(), "SLUICE_PROVIDER_TIMEOUT_SECS")] {
        let bed = Bed::new().await;
        let _worker = work(&bed, &url, &[("SLUICE_PROVIDER_TIMEOUT_SECS", "1")]);
        let ended = bed.done(insert("A text.")).await;
        assert_eq!((ended.state, ended.failure_class), (State::Failed, Some(FailureClass::ProviderUnavailable)));
        assert!(ended.error.as_deref().is_some_and(|error| error.contains(said)), "{:?}", ended.error);
    }
    assert_eq!(silent.left().len(), 1, "and its connection is closed");
}

/// In seconds from now.
async fn rest_of(bed: &Bed, tenant: &str) -> f64 {
    let sql = "select coalesce(extract(epoch from cooled_until - now()), 0)::float8 from sluice.tenant_lanes
                where tenant = $1 and class = 'ingest'";
    sqlx::query(sql).bind(tenant).fetch_one(bed.db.admin()).await.expect("a lane").get(0)
}

#[tokio::test]
async fn a_rate_limit_gives_the_task_back_and_rests_its_lane() {
    let limited =
        |headers: &str| Reply::Status(429, headers.to_owned(), r#"{"error":{"message":"slow down"}}"#.to_owned());
    let endpoint = Endpoint::start(move |call| match (call.text().contains("patient"), call.number) {
        _ if !call.is_chat() => good(call),
        (true, 0 | 1) => limited("Retry-After: 90\r\n"),
        (false, 0 | 1) => limited(""),
        _ => good(call),
    })
    .await;
    let bed = Bed::new().await;
    let _worker = work(&bed, &endpoint.url(), &[]);

    let of = |tenant: &str| NewTask { tenant: tenant.to_owned(), ..insert(&format!("A {tenant} text.")) };
    let tasks = [("patient", 90.0, bed.enqueue(of("patient")).await), ("hasty", 30.0, bed.enqueue(of("hasty")).await)];
    for (tenant, rest_secs, id) in tasks {
        bed.until("the lane rests", async || rest_of(&bed, tenant).await > 0.0).await;
        let rest = rest_of(&bed, tenant).await;
        assert!((rest_secs - 20.0..=rest_secs).contains(&rest), "{tenant} rests {rest} s");
        let task = bed.task(id).await;
        assert_eq!((task.state, task.failures), (State::Pending, 0), "{tenant}");
    }
    assert_eq!(endpoint.chats(), 2, "nobody asks while the lanes rest");

    bed.arrange("update sluice.tenant_lanes set cooled_until = now() - interval '1 s'").await;
    for (tenant, _, id) in tasks {
        let ended = bed.until_ended(id).await;
        assert_eq!((ended.state, ended.failures), (State::Completed, 0), "{tenant}: {:?}", ended.error);
    }
}
