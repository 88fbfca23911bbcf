//! What tasks make of their document: the convert with its insert, cancels, retries and published content.

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::status::{PdfStatus, UiPhase};
use sluice::domain::task::{State, TaskType};
use sluice::store::StoreError;
use sluice::store::claim::Attempt;
use sluice::store::control::{
    CancelOutcome, PriorityOutcome, ResumeOutcome, RetryOutcome, Scope, SuspendOutcome, cancel, cancel_linked, resume,
    retry, set_priority, suspend,
};
use sluice::store::ends::{CompleteOutcome, CompletedWithNext, complete, complete_with_next};
use sluice::store::enqueue::{Enqueued, NewTask, enqueue};
use sluice::store::leases::{DocumentChange, Report, ReportOutcome, report};
use sluice::store::status::DocumentStatus;
use sluice::store::upkeep::reap;
use uuid::Uuid;

use crate::queue::{ANYBODY, NOTHING, Queue, TENANT, UNNAMED, insert};

fn convert() -> NewTask {
    NewTask { workspace: Some("w".to_owned()), ..NewTask::new(TaskType::PdfProcessing, TENANT) }
}

fn on(task_type: TaskType, document_id: Uuid) -> NewTask {
    NewTask { document_id: Some(document_id), workspace: Some("w".to_owned()), ..NewTask::new(task_type, TENANT) }
}

async fn document(queue: &Queue, track_id: Uuid) -> DocumentStatus {
    queue.task(track_id).await.document.expect("a document")
}

/// What users see of a task: its display status and phase.
async fn shown(queue: &Queue, track_id: Uuid) -> (String, UiPhase) {
    let presentation = queue.task(track_id).await.presentation();
    (presentation.display_status.into_owned(), presentation.ui_phase)
}

fn as_shown(display_status: &str, ui_phase: UiPhase) -> (String, UiPhase) {
    (display_status.to_owned(), ui_phase)
}

/// A finished convert, and the insert that follows it, pending.
async fn converted(queue: &Queue) -> (Attempt, Uuid) {
    let track_id = queue.enqueue(&convert()).await;
    let attempt = queue.run(track_id).await;
    let next = NewTask::new(TaskType::Insert, "whatever is said here");
    let answer = complete_with_next(&queue.worker, attempt, &next, None, NOTHING).await.expect("an answer");
    let CompletedWithNext::Completed { next } = answer else { panic!("{answer:?}") };
    (attempt, next)
}

/// A document that readers see.
async fn published(queue: &Queue) -> Uuid {
    let (_, insert) = converted(queue).await;
    let attempt = queue.run(insert).await;
    assert_eq!(queue.complete(attempt).await, CompleteOutcome::Completed);
    document(queue, insert).await.document_id
}

#[tokio::test]
async fn document_follows_its_task_from_upload_to_the_end() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&convert()).await;
    assert_eq!(shown(&queue, track_id).await, as_shown("uploading", UiPhase::Idle));

    let attempt = queue.run(track_id).await;
    let converting = Report {
        stage: Some("converting"),
        progress: Some(0.5),
        message: Some("page 3 of 6"),
        cost: Some(0.25),
        tokens: Some(100),
        document: DocumentChange { pages: Some(6), pdf_status: Some(PdfStatus::Processing), ..NOTHING },
    };
    let answer = report(&queue.worker, attempt, &converting).await.expect("an answer");

    assert_eq!(answer, ReportOutcome::Ok);
    assert_eq!(shown(&queue, track_id).await, as_shown("converting", UiPhase::Running));
    let task = queue.task(track_id).await;
    assert_eq!(
        (task.progress, task.message.as_deref(), task.cost, task.tokens),
        (Some(0.5), Some("page 3 of 6"), 0.25, 100)
    );
    let document = task.document.expect("a document");
    assert_eq!((document.pages, document.pdf_status), (Some(6), Some(PdfStatus::Processing)));
    // What was spent never goes down.
    let less = Report { cost: Some(0.1), tokens: Some(5), ..Report::default() };
    report(&queue.worker, attempt, &less).await.expect("an answer");
    assert_eq!((queue.task(track_id).await.cost, queue.task(track_id).await.tokens), (0.25, 100));

    let partly = DocumentChange { status: Some("partial_success"), ..NOTHING };
    let answer = complete(&queue.worker, attempt, Some(&json!({ "n\0": 1 })), partly).await.expect("an answer");

    assert_eq!(answer, CompleteOutcome::Completed);
    assert_eq!(shown(&queue, track_id).await, as_shown("partial_success", UiPhase::Terminal));
    assert_eq!(queue.task(track_id).await.result, Some(json!({ "n": 1 })));
}

#[tokio::test]
async fn convert_hands_its_document_to_the_insert_that_follows() {
    let queue = Queue::new().await;
    let (convert, insert) = converted(&queue).await;

    let task = queue.task(insert).await;
    assert_eq!((task.tenant.as_str(), task.workspace.as_deref()), (TENANT, Some("w")));
    assert_eq!((task.parent_id, task.root_id), (Some(convert.track_id), Some(convert.track_id)));
    let of_insert = document(&queue, insert).await;
    assert_eq!(of_insert, document(&queue, convert.track_id).await);
    assert_eq!(of_insert.pdf_status, Some(PdfStatus::Completed));
    // The convert has completed; its document is still on its way.
    assert_eq!(shown(&queue, convert.track_id).await, as_shown("preprocessing", UiPhase::Running));

    let attempt = queue.run(insert).await;
    queue.complete(attempt).await;

    assert_eq!(shown(&queue, convert.track_id).await, as_shown("completed", UiPhase::Terminal));
    assert_eq!(shown(&queue, insert).await, as_shown("completed", UiPhase::Terminal));
}

#[tokio::test]
async fn follow_on_that_cannot_be_taken_completes_nothing() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&convert()).await;
    let attempt = queue.run(track_id).await;

    let bad = NewTask { payload: json!([]), ..NewTask::new(TaskType::Insert, TENANT) };
    let error = complete_with_next(&queue.worker, attempt, &bad, None, NOTHING).await.expect_err("it is bad");

    assert!(matches!(error, StoreError::BadInput { .. }), "{error:?}");
    assert!(error.to_string().contains("the follow-on: payload must be a JSON object"), "{error}");
    assert_eq!(queue.state(track_id).await, State::Processing);
}

#[tokio::test]
async fn convert_that_was_cancelled_or_lost_has_no_follow_on() {
    let queue = Queue::new().await;
    let next = NewTask::new(TaskType::Insert, TENANT);
    let track_id = queue.enqueue(&convert()).await;
    let attempt = queue.run(track_id).await;
    let older = Attempt { number: attempt.number - 1, ..attempt };

    let answer = complete_with_next(&queue.worker, older, &next, None, NOTHING).await.expect("an answer");
    assert_eq!(answer, CompletedWithNext::Not(CompleteOutcome::Lost));
    queue.cancel(track_id).await;
    let answer = complete_with_next(&queue.worker, attempt, &next, None, NOTHING).await.expect("an answer");
    assert_eq!(answer, CompletedWithNext::Not(CompleteOutcome::Cancelled));

    assert_eq!(queue.number("select count(*) from sluice.tasks").await, 0);
    assert_eq!(document(&queue, track_id).await.pdf_status, Some(PdfStatus::Cancelled));
    assert_eq!(shown(&queue, track_id).await, as_shown("cancelled", UiPhase::Terminal));
}

#[tokio::test]
async fn handlers_writes_and_its_end_are_one_transaction() {
    let queue = Queue::new().await;
    sqlx::query("create table public.written (n int)").execute(queue.db.admin()).await.expect("a table");
    sqlx::query("grant insert on public.written to public").execute(queue.db.admin()).await.expect("a grant");
    let attempt = queue.running().await;

    for is_cancelled in [false, true] {
        let attempt = if is_cancelled { queue.stopping().await } else { attempt };
        let mut transaction = queue.worker.begin().await.expect("a transaction");
        let insert = sqlx::query("insert into public.written values (1)");
        transaction.execute(insert).await.expect("a handler's write");
        match complete(&mut transaction, attempt, None, NOTHING).await.expect("an answer") {
            CompleteOutcome::Completed => transaction.commit().await.expect("a commit"),
            CompleteOutcome::Cancelled => transaction.rollback().await.expect("a rollback"),
            other => panic!("{other:?}"),
        }
    }

    assert_eq!(queue.number("select count(*) from public.written").await, 1);
    assert_eq!(queue.number("select count(*) from sluice.tasks where state = 'stopping'").await, 1);
}

#[tokio::test]
async fn cancel_of_a_pending_convert_cancels_its_document_and_pdf() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&convert()).await;

    queue.cancel(track_id).await;

    let document = document(&queue, track_id).await;
    assert_eq!((document.status.as_deref(), document.pdf_status), (Some("cancelled"), Some(PdfStatus::Cancelled)));
    assert_eq!(document.failure_class, Some(FailureClass::Cancelled));
}

#[tokio::test]
async fn cancel_of_a_finished_convert_reaches_the_insert_and_keeps_the_pdf() {
    let queue = Queue::new().await;
    for is_running in [false, true] {
        let (convert, insert) = converted(&queue).await;
        let attempt = if is_running { Some(queue.run(insert).await) } else { None };

        let answers = cancel_linked(&queue.operator, convert.track_id, UNNAMED, ANYBODY).await.expect("answers");

        match attempt {
            None => assert_eq!(answers, [(insert, CancelOutcome::Cancelled)]),
            Some(attempt) => {
                assert_eq!(answers, [(insert, CancelOutcome::Stopping)]);
                assert_eq!(shown(&queue, convert.track_id).await.1, UiPhase::Running);
                assert_eq!(shown(&queue, insert).await.1, UiPhase::Stopping);
                assert_eq!(queue.complete(attempt).await, CompleteOutcome::Cancelled);
            }
        }
        assert_eq!(queue.state(convert.track_id).await, State::Completed);
        let document = document(&queue, insert).await;
        assert_eq!((document.status.as_deref(), document.pdf_status), (Some("cancelled"), Some(PdfStatus::Completed)));
        assert_eq!(shown(&queue, convert.track_id).await, as_shown("cancelled", UiPhase::Terminal));
    }
}

#[tokio::test]
async fn linked_cancel_of_one_task_answers_as_cancel_does() {
    let queue = Queue::new().await;
    let linked = async |track_id| cancel_linked(&queue.operator, track_id, UNNAMED, ANYBODY).await.expect("answers");
    for (state, outcome) in [
        (State::Pending, CancelOutcome::Cancelled),
        (State::Processing, CancelOutcome::Stopping),
        (State::Stopping, CancelOutcome::Stopping),
        (State::Completed, CancelOutcome::ConflictCompleted),
        (State::Failed, CancelOutcome::AlreadyFinished),
        (State::Cancelled, CancelOutcome::Unchanged),
    ] {
        let track_id = queue.in_state(state).await.track_id;
        assert_eq!(linked(track_id).await, [(track_id, outcome)], "{state}");
    }
    let nobodys = Uuid::new_v4();
    assert_eq!(linked(nobodys).await, [(nobodys, CancelOutcome::NotFound)]);
}

#[tokio::test]
async fn ignored_cancel_of_a_convert_ends_with_its_lease() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&convert()).await;
    queue.run(track_id).await;
    queue.cancel(track_id).await;

    queue.expire_lease(track_id).await;
    reap(&queue.operator, 10).await.expect("an answer");

    assert_eq!(shown(&queue, track_id).await, as_shown("cancelled", UiPhase::Terminal));
    assert_eq!(document(&queue, track_id).await.pdf_status, Some(PdfStatus::Cancelled));
}

#[tokio::test]
async fn cancelled_reindex_gives_a_published_document_its_status_back() {
    let queue = Queue::new().await;
    let document_id = published(&queue).await;
    for is_running in [false, true] {
        let track_id = queue.enqueue(&on(TaskType::Reindex, document_id)).await;
        assert_eq!(document(&queue, track_id).await.status.as_deref(), Some("pending"));
        let attempt = if is_running { Some(queue.run(track_id).await) } else { None };

        queue.cancel(track_id).await;
        if let Some(attempt) = attempt {
            queue.complete(attempt).await;
        }

        let document = document(&queue, track_id).await;
        assert_eq!((document.status.as_deref(), document.failure_class), (Some("completed"), None));
        assert_eq!(document.pdf_status, Some(PdfStatus::Completed));
    }
}

#[tokio::test]
async fn document_whose_upload_had_no_insert_yet_is_not_published() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&NewTask::new(TaskType::Upload, TENANT)).await;
    let attempt = queue.run(track_id).await;
    let next = NewTask::new(TaskType::Insert, TENANT);
    let answer = complete_with_next(&queue.worker, attempt, &next, None, NOTHING).await.expect("an answer");
    let CompletedWithNext::Completed { next: insert } = answer else { panic!("{answer:?}") };

    queue.cancel(insert).await;

    assert_eq!(document(&queue, insert).await.status.as_deref(), Some("cancelled"));
}

#[tokio::test]
async fn follow_on_has_the_priority_of_its_task_unless_it_names_one() {
    let queue = Queue::new().await;
    for (own, named, expected) in [(700, 0, 700), (-5, 0, -5), (700, 9, 9), (0, 0, 0)] {
        let upload = NewTask { priority: own, ..NewTask::new(TaskType::Upload, TENANT) };
        let track_id = queue.enqueue(&upload).await;
        let attempt = queue.run(track_id).await;
        let next = NewTask { priority: named, ..NewTask::new(TaskType::Insert, TENANT) };
        let answer = complete_with_next(&queue.worker, attempt, &next, None, NOTHING).await.expect("an answer");
        let CompletedWithNext::Completed { next: insert } = answer else { panic!("{answer:?}") };
        assert_eq!(queue.task(insert).await.priority, expected, "{own} {named}");
        queue.cancel(insert).await;
    }
}

#[tokio::test]
async fn only_the_newest_task_writes_its_document() {
    let queue = Queue::new().await;
    let document_id = published(&queue).await;
    let older = queue.enqueue(&on(TaskType::Reindex, document_id)).await;
    let older_attempt = queue.run(older).await;
    let newer = queue.enqueue(&on(TaskType::Reindex, document_id)).await;

    let late = Report { stage: Some("embedding"), ..Report::default() };
    report(&queue.worker, older_attempt, &late).await.expect("an answer");
    queue.fail(older_attempt, FailureClass::GraphMerge).await;

    let document = document(&queue, newer).await;
    assert_eq!((document.status.as_deref(), document.stage, document.failure_class), (Some("pending"), None, None));
}

#[tokio::test]
async fn document_that_was_deleted_is_gone() {
    let queue = Queue::new().await;
    let document_id = published(&queue).await;
    let track_id = queue.enqueue(&on(TaskType::Deletion, document_id)).await;
    let attempt = queue.run(track_id).await;

    queue.complete(attempt).await;

    assert_eq!(document(&queue, track_id).await.status, None);
    assert_eq!(shown(&queue, track_id).await, as_shown("completed", UiPhase::Terminal));
}

#[tokio::test]
async fn retry_clears_the_signals_of_earlier_attempts() {
    let queue = Queue::new().await;
    for is_failed in [true, false] {
        let track_id = queue.enqueue(&convert()).await;
        let attempt = queue.run(track_id).await;
        let converting = Report { stage: Some("converting"), cost: Some(2.0), ..Report::default() };
        report(&queue.worker, attempt, &converting).await.expect("an answer");
        if is_failed {
            queue.fail(attempt, FailureClass::InvalidDocument).await;
            assert_eq!(shown(&queue, track_id).await, as_shown("failed", UiPhase::Terminal));
        } else {
            queue.cancel(track_id).await;
            queue.complete(attempt).await;
            assert_eq!(shown(&queue, track_id).await, as_shown("cancelled", UiPhase::Terminal));
        }

        let answer = retry(&queue.operator, track_id, Some("ann"), ANYBODY).await.expect("an answer");

        assert_eq!(answer, (track_id, RetryOutcome::Pending));
        let task = queue.task(track_id).await;
        assert_eq!((task.state, task.retries, task.failures), (State::Pending, 1, 0));
        assert_eq!((task.cancel.clone(), task.failure_class, task.error.clone()), (None, None, None));
        assert_eq!((task.stage.clone(), task.progress, task.message.clone()), (None, None, None));
        assert_eq!((task.attempt, task.cost), (1, 2.0), "the token goes on, and so does what was spent");
        let document = document(&queue, track_id).await;
        assert_eq!((document.status.as_deref(), document.stage, document.failure_class), (Some("pending"), None, None));
        assert_eq!(document.pdf_status, Some(PdfStatus::Pending));
        assert_eq!(shown(&queue, track_id).await, as_shown("uploading", UiPhase::Idle));
        assert_eq!(queue.run(track_id).await.number, 2);
    }
}

#[tokio::test]
async fn retry_of_a_convert_retries_the_insert_that_failed() {
    let queue = Queue::new().await;
    let (convert, insert) = converted(&queue).await;
    assert_eq!(
        retry(&queue.operator, convert.track_id, None, ANYBODY).await.expect("an answer"),
        (convert.track_id, RetryOutcome::Active)
    );
    let attempt = queue.run(insert).await;
    queue.fail(attempt, FailureClass::EmbeddingLimit).await;
    assert_eq!(shown(&queue, insert).await, as_shown("failed", UiPhase::Terminal));

    let answer = retry(&queue.operator, convert.track_id, None, ANYBODY).await.expect("an answer");

    assert_eq!(answer, (insert, RetryOutcome::Pending));
    assert_eq!(queue.state(convert.track_id).await, State::Completed);
    assert_eq!(shown(&queue, convert.track_id).await.1, UiPhase::Idle);
    let attempt = queue.run(insert).await;
    queue.complete(attempt).await;
    assert_eq!(
        retry(&queue.operator, convert.track_id, None, ANYBODY).await.expect("an answer"),
        (convert.track_id, RetryOutcome::Completed)
    );
}

#[tokio::test]
async fn retry_is_refused_while_another_task_has_the_exclusive_key() {
    let queue = Queue::new().await;
    let exclusive = NewTask { exclusive_key: Some("k".to_owned()), ..insert() };
    let first = queue.enqueue(&exclusive).await;
    queue.cancel(first).await;
    let second = queue.enqueue(&exclusive).await;

    let answer = retry(&queue.operator, first, None, ANYBODY).await.expect("an answer");
    assert_eq!(answer, (first, RetryOutcome::ConflictActive));
    queue.cancel(second).await;
    let answer = retry(&queue.operator, first, None, ANYBODY).await.expect("an answer");
    assert_eq!(answer, (first, RetryOutcome::Pending));
    let answer = enqueue(&queue.worker, &exclusive).await.expect("an answer");
    assert!(matches!(answer, Enqueued::ConflictActive { track_id: Some(id), .. } if id == first), "{answer:?}");
}

#[tokio::test]
async fn tenant_touches_nothing_of_another() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&convert()).await;
    let before = queue.task(track_id).await;

    for scope in [
        Scope { tenant: Some("another"), workspace: None },
        Scope { tenant: Some(TENANT), workspace: Some("another") },
        Scope { tenant: None, workspace: Some("another") },
    ] {
        let operator = &queue.operator;
        let cancelled = cancel(operator, track_id, UNNAMED, scope).await.expect("an answer");
        assert_eq!(cancelled, CancelOutcome::NotFound);
        let linked = cancel_linked(operator, track_id, UNNAMED, scope).await.expect("an answer");
        assert_eq!(linked, [(track_id, CancelOutcome::NotFound)]);
        assert_eq!(retry(operator, track_id, None, scope).await.expect("an answer").1, RetryOutcome::NotFound);
        assert_eq!(suspend(operator, track_id, None, scope).await.expect("an answer"), SuspendOutcome::NotFound);
        assert_eq!(resume(operator, track_id, None, scope).await.expect("an answer"), ResumeOutcome::NotFound);
        assert_eq!(set_priority(operator, track_id, 1, scope).await.expect("an answer"), PriorityOutcome::NotFound);
    }
    assert_eq!(queue.task(track_id).await, before);

    let own = Scope { tenant: Some(TENANT), workspace: Some("w") };
    assert_eq!(cancel(&queue.operator, track_id, UNNAMED, own).await.expect("an answer"), CancelOutcome::Cancelled);
}
