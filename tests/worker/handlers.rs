//! What handlers do to themselves costs their own task, and no other.

use serde_json::{Value, json};
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::enqueue::NewTask;
use sluice::worker::test_handlers::test_handlers;
use uuid::Uuid;

use crate::bed::{Bed, LEASE, TENANT, insert};
use crate::in_process::{Running, settings};
use crate::process::Process;
use crate::until::until;

fn once(payload: Value) -> NewTask {
    NewTask { max_attempts: Some(1), ..insert(payload) }
}

async fn assert_others_go_on(bed: &Bed) {
    let others = bed.enqueue_many(&vec![insert(json!({ "handler": "noop" })); 20]).await;
    for (id, task) in bed.until_ended(&others).await {
        assert_eq!((task.state, task.attempt), (State::Completed, 1), "{id}");
    }
}

async fn failure(bed: &Bed, id: Uuid) -> (FailureClass, String) {
    let task = bed.until_ended(&[id]).await.remove(&id).expect("the task");
    assert_eq!(task.state, State::Failed, "{task:?}");
    (task.failure_class.expect("a class"), task.error.unwrap_or_default())
}

#[tokio::test]
async fn panic_costs_one_task_and_says_what_it_said() {
    let bed = Bed::new(LEASE).await;
    let mut worker = Process::serve(&bed, 2);
    let id = bed.enqueue(once(json!({ "handler": "panic", "message": "the page has no end" }))).await;

    let (class, error) = failure(&bed, id).await;
    assert_eq!(class, FailureClass::Unknown);
    assert!(error.contains("the page has no end"), "{error}");
    assert_others_go_on(&bed).await;
    assert!(worker.is_running());
}

#[tokio::test]
async fn handler_that_hangs_is_ended_at_its_deadline() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 2);
    let id = bed.enqueue(NewTask { timeout_secs: Some(1), ..once(json!({ "handler": "hang" })) }).await;

    assert_others_go_on(&bed).await;
    let (class, error) = failure(&bed, id).await;
    assert!(!class.is_permanent(), "{class}: {error}");
    assert_others_go_on(&bed).await;
}

#[tokio::test]
async fn handler_that_ignores_its_cancel_is_ended_and_its_slot_is_free_again() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 1);
    let deaf = bed.enqueue(insert(json!({ "handler": "ignore", "ms": 600_000 }))).await;
    bed.until_state(deaf, State::Processing).await;

    bed.cancel(deaf).await;
    let task = bed.until_ended(&[deaf]).await.remove(&deaf).expect("the task");
    assert_eq!((task.state, task.attempt), (State::Cancelled, 1));
    // There is one slot only.
    assert_others_go_on(&bed).await;
}

/// For more than a lease, and without an await.
#[tokio::test]
async fn thread_that_a_handler_keeps_busy_costs_no_lease_and_stops_no_other() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 4);
    let busy = bed.enqueue(insert(json!({ "handler": "spin", "ms": 5_000 }))).await;
    bed.until_state(busy, State::Processing).await;
    assert_others_go_on(&bed).await;
    let task = bed.until_ended(&[busy]).await.remove(&busy).expect("the task");
    assert_eq!((task.state, task.attempt, task.lost_leases), (State::Completed, 1, 0));
}

#[tokio::test]
async fn flood_of_text_is_cut_and_stored() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 2);
    let id = bed.enqueue(once(json!({ "handler": "flood", "bytes": 20_000_000 }))).await;

    let (class, error) = failure(&bed, id).await;
    assert_eq!(class, FailureClass::Unknown);
    assert_eq!(error, "x".repeat(4_096));
    assert_others_go_on(&bed).await;
}

#[tokio::test]
async fn leaked_transactions_are_given_back_with_their_task() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 2);
    let id = bed.enqueue(insert(json!({ "handler": "leak", "connections": 2, "ms": 600_000 }))).await;
    bed.until_state(id, State::Processing).await;
    bed.cancel(id).await;
    bed.until_state(id, State::Cancelled).await;

    let counted = bed.enqueue_many(&vec![insert(json!({ "handler": "count" })); 10]).await;
    for (id, task) in bed.until_ended(&counted).await {
        assert_eq!(task.state, State::Completed, "{id}");
    }
}

#[tokio::test]
async fn payload_that_fits_no_handler_fails_for_good() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 2);
    let id = bed.enqueue(insert(json!({ "handler": "no such thing" }))).await;

    let (class, _) = failure(&bed, id).await;
    assert_eq!(class, FailureClass::InvalidDocument);
    assert_others_go_on(&bed).await;
}

/// One type that this worker has no handler for, and one that only a newer schema knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_an_unknown_type_fails_as_such_and_the_worker_goes_on() {
    let bed = Bed::new(LEASE).await;
    bed.arrange("alter type sluice.task_type add value 'translate'").await;
    let suspended = NewTask { suspended: true, ..insert(json!({ "handler": "noop" })) };
    let newer = bed.enqueue(suspended).await;
    bed.arrange("update sluice.tasks set type = 'translate', suspended = false, ready = true").await;
    let unhandled = bed.enqueue(NewTask::new(TaskType::Deletion, TENANT)).await;
    let worker = Running::start(settings(&bed, 2), test_handlers(&[TaskType::Insert]));

    until("both fail", async || {
        let failed =
            "select count(*) from sluice.tasks_archive where state = 'failed' and failure_class = 'unsupported_type'";
        bed.number(failed).await == 2
    })
    .await;
    assert_ne!(newer, unhandled);
    assert_others_go_on(&bed).await;
    worker.stop().await;
}

#[tokio::test]
async fn two_step_task_reports_its_document_and_its_follow_on_ends_it() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 2);
    let convert = NewTask {
        payload: json!({ "handler": "convert", "ms": 300, "pages": 7, "next": { "handler": "count", "before_ms": 100 } }),
        ..NewTask::new(TaskType::PdfProcessing, TENANT)
    };
    let root = bed.enqueue(convert).await;
    bed.until_state(root, State::Completed).await;

    let children = "select count(*) from sluice.task_status where root_id is not null and state = 'completed'";
    until("the follow-on ends", async || bed.number(children).await == 1).await;
    let document = bed.task(root).await.document.expect("a document");
    assert_eq!(document.pages, Some(7));
    assert_eq!(document.status.as_deref(), Some("completed"), "{document:?}");
    assert_eq!(bed.number("select count(*) from sluice_test_effects").await, 1);
}

#[tokio::test]
async fn failures_are_tried_again_and_what_was_given_back_is_not_counted() {
    let bed = Bed::new(LEASE).await;
    let _worker = Process::serve(&bed, 2);
    let twice = NewTask {
        max_attempts: Some(2),
        ..insert(json!({ "handler": "fail", "class": "provider_unavailable", "message": "503" }))
    };
    let twice = bed.enqueue(twice).await;
    let limited =
        bed.enqueue(NewTask { tenant: "limited".to_owned(), ..insert(json!({ "handler": "rate_limited" })) }).await;

    until("its lane rests", async || {
        bed.number("select count(*) from sluice.tenant_lanes where cooled_until > now() and tenant = 'limited'").await
            == 1
    })
    .await;
    let task = bed.task(limited).await;
    assert_eq!((task.state, task.failures, task.lost_leases), (State::Pending, 0, 0));
    let (class, error) = failure(&bed, twice).await;
    assert_eq!((class, error.as_str()), (FailureClass::ProviderUnavailable, "503"));
    assert_eq!(bed.task(twice).await.attempt, 2);
}
