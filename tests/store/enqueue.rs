//! Work that comes in: keys, batches, lanes made on the way, and what cannot be taken.

use serde_json::json;
use sluice::domain::lane::{Cap, Class};
use sluice::domain::task::{State, TaskType};
use sluice::store::enqueue::{Enqueued, NewTask, Resource, enqueue, enqueue_many};
use sluice::store::lanes::{Setting, WorkerPoolSettings, set_pool};
use sluice::store::reads::lane_counts;
use sluice::store::upkeep::promote;
use uuid::Uuid;

use crate::queue::{Queue, TENANT, assert_sqlstate, insert};

fn keyed(key: &str) -> NewTask {
    NewTask { idempotency_key: Some(key.to_owned()), ..insert() }
}

fn exclusive(key: &str) -> NewTask {
    NewTask { exclusive_key: Some(key.to_owned()), ..insert() }
}

fn of_resource(uid: &str) -> NewTask {
    let resource = Resource {
        cluster: "here".to_owned(),
        namespace: "docs".to_owned(),
        name: "a-file".to_owned(),
        uid: uid.to_owned(),
    };
    NewTask { resource: Some(resource), ..insert() }
}

fn track_id(answer: &Enqueued) -> Uuid {
    match answer {
        Enqueued::Created { track_id } | Enqueued::Existing { track_id } => *track_id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn task_has_what_was_asked_for_and_an_id_that_sorts_by_time() {
    let queue = Queue::new().await;
    let asked = NewTask {
        workspace: Some("w".to_owned()),
        payload: json!({ "text": "a\0b", "k\0": 1 }),
        priority: 7,
        suspended: true,
        max_attempts: Some(5),
        timeout_secs: Some(60),
        ..NewTask::new(TaskType::WorkspaceWipe, "t\0enant")
    };

    let first = queue.enqueue(&asked).await;
    let second = queue.enqueue(&asked).await;

    let task = queue.task(first).await;
    assert_eq!((task.task_type, task.class, task.state), (TaskType::WorkspaceWipe, Class::Lifecycle, State::Pending));
    assert_eq!((task.tenant.as_str(), task.workspace.as_deref()), ("tenant", Some("w")));
    assert_eq!(task.payload, json!({ "text": "ab", "k": 1 }));
    assert_eq!((task.priority, task.is_suspended, task.is_ready), (7, true, false));
    assert_eq!((task.max_attempts, task.timeout_secs, task.attempt), (5, 60, 0));
    assert_eq!(first.get_version_num(), 7);
    assert!(first.as_u128() >> 80 <= second.as_u128() >> 80);
}

#[tokio::test]
async fn first_task_of_a_tenant_makes_its_lane_with_the_limits_of_the_pool() {
    let queue = Queue::new().await;
    let settings = WorkerPoolSettings {
        ingest_cap: Some(Cap::new(8)),
        ingest_clamp: Setting::To(2),
        clamp_reason: Setting::To("local provider"),
        ..WorkerPoolSettings::default()
    };
    set_pool(&queue.operator, "default", settings, None).await.expect("settings");

    queue.enqueue(&insert()).await;

    let lanes = lane_counts(&queue.worker, Some(&[TENANT.to_owned()])).await.expect("the lanes");
    let [lane] = &lanes[..] else { panic!("{lanes:?}") };
    assert_eq!((lane.class, lane.cap, lane.effective_cap), (Class::Ingest, Cap::new(8), Cap::new(2)));
    assert_eq!(lane.effective_reason.as_deref(), Some("local provider"));
    assert_eq!((lane.ready, lane.pending, lane.parked), (1, 1, 0));
}

#[tokio::test]
async fn delayed_task_is_claimable_when_it_is_due() {
    let queue = Queue::new().await;
    let delayed = queue.enqueue(&NewTask { delay_secs: 3_600.0, ..insert() }).await;

    assert_eq!(promote(&queue.worker, 1_000).await.expect("an answer"), 0);
    assert_eq!(queue.claim_this(delayed).await, None);
    queue.arrange("update sluice.tasks set available_at = now() where track_id = $1", delayed).await;
    assert_eq!(promote(&queue.worker, 1_000).await.expect("an answer"), 1);
    assert!(queue.claim_this(delayed).await.is_some());
}

#[tokio::test]
async fn idempotency_key_finds_its_task_whatever_became_of_it() {
    let queue = Queue::new().await;
    let first = queue.enqueue(&keyed("k")).await;
    let attempt = queue.run(first).await;

    assert_eq!(enqueue(&queue.worker, &keyed("k")).await.expect("an answer"), Enqueued::Existing { track_id: first });
    queue.complete(attempt).await;
    assert_eq!(enqueue(&queue.worker, &keyed("k")).await.expect("an answer"), Enqueued::Existing { track_id: first });
    let others = NewTask { tenant: "another".to_owned(), ..keyed("k") };
    assert_ne!(queue.enqueue(&others).await, first);
}

#[tokio::test]
async fn idempotency_key_with_other_content_is_a_conflict() {
    let queue = Queue::new().await;
    let first = queue.enqueue(&keyed("k")).await;

    for other in [
        NewTask { payload: json!({ "a": 1 }), ..keyed("k") },
        NewTask { workspace: Some("w".to_owned()), ..keyed("k") },
        NewTask { task_type: TaskType::Scan, ..keyed("k") },
        NewTask { document_id: Some(Uuid::new_v4()), ..keyed("k") },
    ] {
        let answer = enqueue(&queue.worker, &other).await.expect("an answer");
        assert!(matches!(answer, Enqueued::ConflictIdempotency { track_id, .. } if track_id == first), "{answer:?}");
    }
    // How it is run is not what it is.
    let patient = NewTask { priority: 9, delay_secs: 5.0, ..keyed("k") };
    assert_eq!(track_id(&enqueue(&queue.worker, &patient).await.expect("an answer")), first);
}

#[tokio::test]
async fn document_that_the_queue_makes_up_is_no_content() {
    let queue = Queue::new().await;
    for task_type in [TaskType::Upload, TaskType::PdfProcessing] {
        let task = NewTask { task_type, ..keyed(task_type.as_str()) };
        let first = queue.enqueue(&task).await;

        assert_eq!(track_id(&enqueue(&queue.worker, &task).await.expect("an answer")), first);
        assert!(queue.task(first).await.document.is_some());
    }
}

#[tokio::test]
async fn exclusive_key_is_free_again_when_its_task_has_ended() {
    let queue = Queue::new().await;
    let first = queue.enqueue(&exclusive("k")).await;
    let conflict = enqueue(&queue.worker, &exclusive("k")).await.expect("an answer");
    assert!(matches!(conflict, Enqueued::ConflictActive { track_id: Some(id), .. } if id == first), "{conflict:?}");
    let others = NewTask { tenant: "another".to_owned(), ..exclusive("k") };
    queue.enqueue(&others).await;

    let attempt = queue.run(first).await;
    queue.complete(attempt).await;

    assert_ne!(queue.enqueue(&exclusive("k")).await, first);
}

#[tokio::test]
async fn refused_task_leaves_its_other_keys_free() {
    let queue = Queue::new().await;
    queue.enqueue(&exclusive("busy")).await;
    queue.enqueue(&keyed("used")).await;

    let busy = NewTask { exclusive_key: Some("busy".to_owned()), ..keyed("k") };
    let answer = enqueue(&queue.worker, &busy).await.expect("an answer");
    assert!(matches!(answer, Enqueued::ConflictActive { .. }), "{answer:?}");
    let used = NewTask { idempotency_key: Some("used".to_owned()), payload: json!({ "a": 1 }), ..of_resource("uid") };
    let answer = enqueue(&queue.worker, &used).await.expect("an answer");
    assert!(matches!(answer, Enqueued::ConflictIdempotency { .. }), "{answer:?}");

    queue.enqueue(&keyed("k")).await;
    queue.enqueue(&of_resource("uid")).await;
}

#[tokio::test]
async fn resource_has_one_task() {
    let queue = Queue::new().await;
    let first = queue.enqueue(&of_resource("uid")).await;

    let again = enqueue(&queue.worker, &NewTask { payload: json!({ "a": 1 }), ..of_resource("uid") }).await;

    assert_eq!(again.expect("an answer"), Enqueued::Existing { track_id: first });
    assert_ne!(queue.enqueue(&of_resource("another uid")).await, first);
}

#[tokio::test]
async fn batch_is_answered_in_its_order_and_bad_items_cost_the_others_nothing() {
    let queue = Queue::new().await;
    let document = NewTask { document_id: Some(Uuid::new_v4()), ..insert() };
    queue.enqueue(&document).await;
    let foreign = NewTask { tenant: "another".to_owned(), ..document };
    let tasks = [
        keyed("k"),
        NewTask { tenant: String::new(), ..insert() },
        keyed("k"),
        exclusive("k"),
        insert(),
        exclusive("k"),
        foreign,
        NewTask { payload: json!([]), ..insert() },
        NewTask { tenant: "another".to_owned(), task_type: TaskType::Deletion, ..insert() },
        NewTask { payload: json!({ "a": 1 }), ..keyed("k") },
    ];

    let answers = enqueue_many(&queue.worker, &tasks).await.expect("answers");

    let words: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Enqueued::Created { .. } => "created",
            Enqueued::Existing { .. } => "existing",
            Enqueued::ConflictIdempotency { .. } => "other content",
            Enqueued::ConflictActive { .. } => "active",
            Enqueued::Invalid { .. } => "invalid",
        })
        .collect();
    let expected = [
        "created",
        "invalid",
        "existing",
        "created",
        "created",
        "active",
        "invalid",
        "invalid",
        "created",
        "other content",
    ];
    assert_eq!(words, expected);
    assert_eq!(track_id(&answers[0]), track_id(&answers[2]));
    assert_eq!(queue.number("select count(*) from sluice.tasks").await, 5);
    assert!(matches!(&answers[6], Enqueued::Invalid { message } if message.contains("not a document of this tenant")));
}

#[tokio::test]
async fn empty_batch_is_answered_and_one_over_the_limit_is_refused() {
    let queue = Queue::new().await;

    assert_eq!(enqueue_many(&queue.worker, &[]).await.expect("an answer"), []);
    let thousand = vec![insert(); 1_000];
    assert_eq!(enqueue_many(&queue.worker, &thousand).await.expect("answers").len(), 1_000);
    assert_sqlstate(
        enqueue_many(&queue.worker, &vec![insert(); 1_001]).await,
        "54000",
        "1001 tasks in one call: send at most 1000",
    );
}

#[tokio::test]
async fn task_enqueued_in_a_transaction_is_there_with_its_commit() {
    let queue = Queue::new().await;
    let mut transaction = queue.worker.begin().await.expect("a transaction");
    let answer = enqueue(&mut transaction, &insert()).await.expect("an answer");
    assert_eq!(queue.claim(10).await, []);
    transaction.commit().await.expect("a commit");
    assert!(queue.claim_this(track_id(&answer)).await.is_some());

    let mut transaction = queue.worker.begin().await.expect("a transaction");
    enqueue(&mut transaction, &keyed("k")).await.expect("an answer");
    transaction.rollback().await.expect("a rollback");
    queue.enqueue(&keyed("k")).await;
}
