//! Bad input: each has an outcome or a SQLSTATE of its own and says what to do; nothing is written, and the other items
//! of its call are not lost. Sent as text, since callers in other languages have no types of ours.

use serde_json::{Value, json};
use sqlx::postgres::PgDatabaseError;
use sqlx::{AssertSqlSafe, Row};

use crate::queue::{Queue, insert};

/// SQLSTATE, message and hint of a statement that must fail.
async fn refusal(queue: &Queue, sql: &str) -> (String, String, String) {
    let error = sqlx::query(AssertSqlSafe(sql)).execute(queue.db.admin()).await.expect_err(sql);
    let error = error.into_database_error().expect("the server says so");
    let error = error.downcast_ref::<PgDatabaseError>();
    (error.code().to_owned(), error.message().to_owned(), error.hint().unwrap_or_default().to_owned())
}

async fn rows(queue: &Queue) -> i64 {
    queue
        .number(
            "select (select count(*) from sluice.tasks) + (select count(*) from sluice.tasks_archive)
                  + (select count(*) from sluice.task_keys) + (select count(*) from sluice.documents)
                  + (select count(*) from sluice.mirrors) + (select count(*) from sluice.tenant_lanes)
                  + (select count(*) from sluice.task_events) + (select count(*) from sluice.pools)",
        )
        .await
}

#[tokio::test]
async fn each_bad_item_is_told_what_to_do_and_a_good_one_beside_it_is_taken() {
    let queue = Queue::new().await;
    queue.enqueue(&insert()).await;
    let good = json!({ "type": "insert", "tenant": "acme" });
    let with = |field: &str, value: Value| {
        let mut item = good.clone();
        item[field] = value;
        item
    };
    let resource = |field: &str, value: Value| {
        let mut resource = json!({ "cluster": "c", "namespace": "n", "name": "n", "uid": "u" });
        resource[field] = value;
        with("resource", resource)
    };
    let cases = [
        (json!(7), "not an object"),
        (json!({ "tenant": "acme" }), "type is missing; it must be one of pdf_processing"),
        (with("type", json!("bogus")), "type is 'bogus'; it must be one of"),
        (with("type", json!(5)), "type is '5'"),
        (json!({ "type": "insert" }), "tenant must be a string of 1 to 253"),
        (with("tenant", json!("")), "tenant must be a string of 1 to 253"),
        (with("tenant", json!("ü".repeat(254))), "tenant must be a string of 1 to 253"),
        (with("tenant", json!(1)), "tenant must be a string"),
        (with("workspace", json!("w".repeat(254))), "workspace must be a string of at most 253"),
        (with("payload", json!([1])), "payload must be a JSON object"),
        (with("payload", json!(null)), "payload must be a JSON object"),
        (with("payload", json!({ "text": "x".repeat(1_100_000) })), "payload is over 1 MiB"),
        (with("priority", json!(1_001)), "priority must be a whole number from -1000 to 1000"),
        (with("priority", json!(0.5)), "priority must be a whole number"),
        (with("priority", json!("1")), "priority must be a whole number"),
        (with("delay_secs", json!(-1)), "delay_secs must be a number from 0"),
        (with("delay_secs", json!(1e300)), "delay_secs must be a number from 0"),
        (with("delay_secs", json!("soon")), "delay_secs must be a number from 0"),
        (with("suspended", json!("yes")), "suspended must be true or false"),
        (with("max_attempts", json!(0)), "max_attempts must be a whole number from 1 to 100"),
        (with("max_attempts", json!(101)), "max_attempts must be a whole number from 1 to 100"),
        (with("timeout_secs", json!(0)), "timeout_secs must be a whole number from 1"),
        (with("timeout_secs", json!(1e12)), "timeout_secs must be a whole number from 1"),
        (with("document_id", json!("seven")), "document_id must be a UUID"),
        (with("idempotency_key", json!("")), "idempotency_key must be a string of 1 to 255"),
        (with("idempotency_key", json!("k".repeat(256))), "idempotency_key must be a string of 1 to 255"),
        (with("exclusive_key", json!(7)), "exclusive_key must be a string of 1 to 255"),
        (with("resource", json!({ "uid": "u" })), "resource must be an object with cluster"),
        (with("resource", json!(7)), "resource must be an object with cluster"),
        (resource("uid", json!(null)), "resource must be an object with cluster"),
        (resource("name", json!("n".repeat(254))), "resource must be an object with cluster"),
        (with("colour", json!("red")), "unknown field: colour"),
    ];

    for (bad, words) in cases {
        let before = rows(&queue).await;
        let answers =
            sqlx::query("select outcome, message, track_id is null from sluice.enqueue_many($1) order by item")
                .bind(json!([bad, good, bad]))
                .fetch_all(queue.db.admin())
                .await
                .expect("answers");

        let outcomes: Vec<String> = answers.iter().map(|row| row.get(0)).collect();
        assert_eq!(outcomes, ["invalid", "created", "invalid"], "{words}");
        assert!(answers[0].get::<String, _>(1).contains(words), "{words}: {}", answers[0].get::<String, _>(1));
        assert!(answers[0].get::<bool, _>(2), "{words}");
        assert_eq!(rows(&queue).await, before + 1, "{words}");
    }
}

#[tokio::test]
async fn widest_good_values_are_taken() {
    let queue = Queue::new().await;
    let tenant = "\u{1F4C4}".repeat(253);
    let item = json!({
        "type": "insert", "tenant": tenant, "workspace": "ü".repeat(253), "payload": { "text": "x".repeat(1_000_000) },
        "priority": -1000, "delay_secs": 315_360_000, "suspended": true, "max_attempts": 100, "timeout_secs": 86_400,
        "idempotency_key": "k".repeat(255), "exclusive_key": "x".repeat(255),
        "resource": { "cluster": "c".repeat(253), "namespace": "n", "name": "n".repeat(253), "uid": "u" },
    });

    let outcome: String = sqlx::query("select outcome from sluice.enqueue_many($1)")
        .bind(json!([item]))
        .fetch_one(queue.db.admin())
        .await
        .expect("an answer")
        .get(0);

    assert_eq!(outcome, "created");
}

const A: &str = "'00000000-0000-7000-8000-000000000001'::uuid";

#[tokio::test]
async fn each_bad_call_has_its_sqlstate_and_says_what_to_do() {
    let queue = Queue::new().await;
    queue.enqueue(&insert()).await;
    let a = A;
    let many_ids = "array_fill(gen_random_uuid(), array[100000])";
    let many_attempts = "array_fill(1, array[100000])";
    let cases = [
        ("sluice.enqueue('bogus', 'acme')".to_owned(), "22023", "type is 'bogus'"),
        ("sluice.enqueue(null, 'acme')".to_owned(), "22023", "type is missing"),
        ("sluice.enqueue('insert', null)".to_owned(), "22023", "tenant must be a string"),
        ("sluice.enqueue('insert', 'acme', '[]')".to_owned(), "22023", "payload must be a JSON object"),
        ("sluice.enqueue('insert', 'acme', '{\"a\": \"\\u0000\"}')".to_owned(), "22P05", "unsupported Unicode"),
        ("sluice.enqueue('insert', 'acme', '{}', '[]')".to_owned(), "22023", "options are not a JSON object"),
        ("sluice.enqueue('insert', 'acme', '{}', '{\"weight\": 1}')".to_owned(), "22023", "unknown field: weight"),
        ("sluice.enqueue_many('{}')".to_owned(), "22023", "not a JSON array"),
        ("sluice.enqueue_many(null)".to_owned(), "22023", "not a JSON array"),
        (
            "sluice.enqueue_many((select jsonb_agg(1) from generate_series(1, 100000)))".to_owned(),
            "54000",
            "100000 tasks",
        ),
        ("sluice.register_worker('nowhere')".to_owned(), "P0002", "no pool 'nowhere'"),
        (format!("sluice.claim({a}, 1, 1)"), "P0002", "is not registered"),
        (format!("sluice.claim({a}, 1, 0)"), "22023", "claim of 0"),
        (format!("sluice.claim({a}, 1, 1001)"), "22023", "claim of 1001"),
        (format!("sluice.claim({a}, 1, 1, 0)"), "22023", "quantum of 0"),
        (format!("sluice.claim({a}, null, 1)"), "22023", "claim of 1"),
        (format!("sluice.adopt({a}, {a}, 1)"), "P0002", "is not registered"),
        (format!("sluice.heartbeat({a}, 1, array[{a}], '{{}}')"), "2202E", "1 track ids, but 0 attempts"),
        (format!("sluice.heartbeat({a}, 1, array[{a}], array[null]::int[])"), "2202E", "1 track ids, but 0 attempts"),
        (format!("sluice.heartbeat({a}, 1, array[null]::uuid[], array[1])"), "22004", "a track id is null"),
        (format!("sluice.heartbeat({a}, 1, {many_ids}, {many_attempts})"), "54000", "100000 track ids in one call"),
        (format!("sluice.watch({a}, {many_ids})"), "54000", "100000 track ids in one call"),
        (format!("sluice.watch({a}, null)"), "22004", "a track id is null"),
        (format!("sluice.report({a}, 1, '[]')"), "22023", "the report is not an object"),
        (format!("sluice.report({a}, 1, null)"), "22023", "the report is not an object"),
        (format!("sluice.report({a}, 1, '{{\"mood\": 1}}')"), "22023", "the report is not an object"),
        (format!("sluice.report({a}, 1, '{{\"progress\": 1.5}}')"), "22023", "progress, cost or tokens"),
        (format!("sluice.report({a}, 1, '{{\"progress\": \"half\"}}')"), "22023", "progress, cost or tokens"),
        (format!("sluice.report({a}, 1, '{{\"cost\": -1}}')"), "22023", "progress, cost or tokens"),
        (format!("sluice.report({a}, 1, '{{\"tokens\": 1e20}}')"), "22023", "progress, cost or tokens"),
        (format!("sluice.report({a}, 1, '{{\"document\": 1}}')"), "22023", "the document is not an object"),
        (
            format!("sluice.report({a}, 1, '{{\"document\": {{\"colour\": 1}}}}')"),
            "22023",
            "the document is not an object",
        ),
        (format!("sluice.report({a}, 1, '{{\"document\": {{\"pages\": -1}}}}')"), "22023", "pages of the document"),
        (format!("sluice.complete({a}, 1, null, '{{\"pdf_status\": \"fine\"}}')"), "22023", "pdf_status is 'fine'"),
        (format!("sluice.complete({a}, 1, null, '{{\"status\": 1}}')"), "22023", "status or stage of the document"),
        ("sluice.complete(null, 1)".to_owned(), "22004", "a track id is null"),
        (format!("sluice.complete({a}, null)"), "2202E", "1 track ids, but 0 attempts"),
        (format!("sluice.complete_many(array[{a}], array[1, 2])"), "2202E", "1 track ids, but 2 attempts"),
        (format!("sluice.complete_many(array[{a}], null)"), "2202E", "1 track ids, but 0 attempts"),
        (format!("sluice.complete_many(array[{a}], array[1], '{{}}')"), "2202E", "1 track ids, but 0 results"),
        (format!("sluice.complete_many({many_ids}, {many_attempts})"), "54000", "100000 track ids in one call"),
        (format!("sluice.complete_with_next({a}, 1, '[]')"), "22023", "the follow-on is not a JSON object"),
        (format!("sluice.fail({a}, 1, 'bad luck')"), "22023", "'bad luck' is not a failure class"),
        (format!("sluice.fail({a}, 1, null)"), "22023", "null is not a failure class"),
        (format!("sluice.fail({a}, 1, 'cancelled')"), "22023", "'cancelled' is not a failure class"),
        (format!("sluice.release(array[{a}], '{{}}')"), "2202E", "1 track ids, but 0 attempts"),
        (format!("sluice.release({many_ids}, {many_attempts})"), "54000", "100000 track ids in one call"),
        ("sluice.cancel_active('[]')".to_owned(), "22023", "the filter is not an object"),
        ("sluice.cancel_active('{\"tenants\": 1}')".to_owned(), "22023", "the filter is not an object"),
        ("sluice.cancel_active('{\"class\": \"heavy\"}')".to_owned(), "22023", "class or the type of the filter"),
        ("sluice.cancel_active('{\"type\": \"heavy\"}')".to_owned(), "22023", "class or the type of the filter"),
        ("sluice.cancel_active('{}', null, null, 100000)".to_owned(), "22023", "a limit of 100000"),
        (format!("sluice.set_priority({a}, 1001)"), "22023", "a priority of 1001"),
        (format!("sluice.set_priority({a}, null)"), "22023", "a priority of"),
        ("sluice.set_lane('', 'ingest')".to_owned(), "22023", "tenant must have 1 to 253"),
        ("sluice.set_lane(repeat('x', 254), 'ingest')".to_owned(), "22023", "tenant must have 1 to 253"),
        ("sluice.set_lane('acme', 'heavy')".to_owned(), "22023", "class is 'heavy'"),
        ("sluice.set_lane('acme', 'ingest', '{\"max_running\": -1}')".to_owned(), "22023", "max_running must be"),
        ("sluice.set_lane('acme', 'ingest', '{\"max_running\": 1e9}')".to_owned(), "22023", "max_running must be"),
        ("sluice.set_lane('acme', 'ingest', '{\"weight\": 0}')".to_owned(), "22023", "weight must be"),
        ("sluice.set_lane('acme', 'ingest', '{\"weight\": 1001}')".to_owned(), "22023", "weight must be"),
        ("sluice.set_lane('acme', 'ingest', '{\"policy\": \"stop\"}')".to_owned(), "22023", "policy must be"),
        ("sluice.set_lane('acme', 'ingest', '{\"pool\": \"nowhere\"}')".to_owned(), "P0002", "no pool 'nowhere'"),
        ("sluice.set_lane('acme', 'ingest', '{\"colour\": 1}')".to_owned(), "22023", "known fields"),
        ("sluice.set_lane('acme', 'ingest', '{\"allowed_sources\": \"s3:\"}')".to_owned(), "22023", "allowed_sources"),
        ("sluice.set_lane('acme', 'ingest', '{\"mirror_limit\": -1}')".to_owned(), "22023", "mirror_limit"),
        ("sluice.hold_lane('acme', 'ingest', null)".to_owned(), "22023", "policy must be"),
        ("sluice.hold_lane('acme', 'ingest', 'stop')".to_owned(), "22023", "policy must be"),
        ("sluice.hold_all(null)".to_owned(), "22023", "p_held is null"),
        ("sluice.set_pool('')".to_owned(), "22023", "pool must have 1 to 253"),
        ("sluice.set_pool('p', '{\"lease_secs\": 0}')".to_owned(), "22023", "lease_secs must be"),
        ("sluice.set_pool('p', '{\"ingest_cap\": -1}')".to_owned(), "22023", "a cap or clamp"),
        ("sluice.set_pool('p', '{\"ingest_clamp\": 0}')".to_owned(), "22023", "a cap or clamp"),
        ("sluice.set_pool('p', '{\"auto_resume\": \"no\"}')".to_owned(), "22023", "auto_resume"),
        ("sluice.set_pool('p', '{\"colour\": 1}')".to_owned(), "22023", "known fields"),
        ("sluice.retain(0)".to_owned(), "22023", "under one day"),
        ("sluice.mirror_ack(array[1], '{}')".to_owned(), "2202E", "1 mirrors, but 0 revisions"),
        (
            "sluice.mirror_ack(array_fill(1, array[100000]), array_fill(1, array[100000]))".to_owned(),
            "54000",
            "100000 mirrors in one call",
        ),
    ];

    let before = rows(&queue).await;
    for (call, sqlstate, words) in cases {
        let (code, message, hint) = refusal(&queue, &format!("select from {call}")).await;
        assert_eq!(code, sqlstate, "{call}: {message}");
        assert!(message.contains(words), "{call}: {message}");
        // What the server itself refuses comes without advice of ours.
        assert!(
            !hint.is_empty() || code == "22P05" || message.contains(" must "),
            "{call} says not what to do: {message}"
        );
    }
    assert_eq!(rows(&queue).await, before);
}

#[tokio::test]
async fn callers_of_another_isolation_are_refused_by_every_function_that_writes() {
    let queue = Queue::new().await;
    let a = A;
    let calls = [
        "sluice.enqueue('insert', 'acme')".to_owned(),
        "sluice.enqueue_many('[]')".to_owned(),
        "sluice.register_worker()".to_owned(),
        format!("sluice.claim({a}, 1, 1)"),
        format!("sluice.heartbeat({a}, 1, '{{}}', '{{}}')"),
        format!("sluice.report({a}, 1, '{{}}')"),
        format!("sluice.adopt({a}, {a}, 1)"),
        format!("sluice.drain_worker({a})"),
        format!("sluice.undrain_worker({a})"),
        format!("sluice.complete({a}, 1)"),
        "sluice.complete_many('{}', '{}')".to_owned(),
        format!("sluice.complete_with_next({a}, 1, '{{}}')"),
        format!("sluice.fail({a}, 1, 'unknown')"),
        format!("sluice.stopped({a}, 1)"),
        "sluice.release('{}', '{}')".to_owned(),
        format!("sluice.cancel({a})"),
        format!("sluice.cancel_linked({a})"),
        "sluice.cancel_active('{}')".to_owned(),
        format!("sluice.retry({a})"),
        format!("sluice.suspend({a})"),
        format!("sluice.resume({a})"),
        format!("sluice.set_priority({a}, 1)"),
        "sluice.set_lane('acme', 'ingest')".to_owned(),
        "sluice.hold_lane('acme', 'ingest', 'hold')".to_owned(),
        "sluice.hold_all(true)".to_owned(),
        "sluice.set_pool('p')".to_owned(),
        "sluice.reap()".to_owned(),
        "sluice.promote()".to_owned(),
        "sluice.retain()".to_owned(),
        "sluice.settle()".to_owned(),
        "sluice.mirror_changes('c')".to_owned(),
        "sluice.mirror_ack('{}', '{}')".to_owned(),
    ];
    for isolation in ["repeatable read", "serializable"] {
        for call in &calls {
            let mut transaction = queue.db.admin().begin().await.expect("a transaction");
            let set = format!("set transaction isolation level {isolation}");
            sqlx::query(AssertSqlSafe(set)).execute(&mut *transaction).await.expect("an isolation");
            let statement = AssertSqlSafe(format!("select from {call}"));
            let error = sqlx::query(statement).execute(&mut *transaction).await.expect_err(call);
            let error = error.into_database_error().expect("the server says so");
            assert_eq!(error.code().as_deref(), Some("25001"), "{call}");
            assert!(error.message().contains("sluice needs READ COMMITTED"), "{}", error.message());
        }
    }
}
