//! Cancels at random moments of the way from a text or a PDF to a generation: each task ends as cancelled or completed, as
//! whoever was first says; nothing of a cancelled attempt is seen, and what a finished conversion made stays.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use sluice::domain::task::{State, TaskType};
use sluice::store::control::{CancelOutcome, Request, Scope, cancel_linked};
use sluice::store::enqueue::NewTask;
use sluice::store::status::TaskStatus;
use tokio::time::Instant;
use uuid::Uuid;

use crate::bed::{Bed, TENANT, book, task, upload};
use crate::common::pdf::pdf;
use crate::dice::Dice;
use crate::folder::Folder;

const CANCELS: usize = 40;
const SOAK_CANCELS: usize = 500;
/// More than the worker has slots: some are cancelled before anybody takes them.
const AT_ONCE: usize = 6;
/// So that a text goes through several batches, and a PDF through several reports.
const CHUNKS: usize = 100;
const PAGES: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_at_random_moments_leave_all_or_nothing() {
    cancels(CANCELS, 11).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make soak"]
async fn five_hundred_cancels_at_random_moments_leave_all_or_nothing() {
    cancels(SOAK_CANCELS, u64::from(std::process::id())).await;
}

/// One document on its way, and when somebody thinks better of it.
struct Case {
    task: NewTask,
    after: Duration,
}

async fn cancels(number: usize, seed: u64) {
    let folder = Folder::new();
    let words: Vec<_> = (0..PAGES).map(|page| format!("In Bern, Ada{page} met Grace.")).collect();
    fs::write(folder.path("long.pdf"), pdf(&words)).expect("a file");
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    let worker = bed.work();
    let text = || upload(TENANT, &book(CHUNKS));
    let url = format!("file://{}/long.pdf", folder.0.display());
    let from_pdf = || task(TaskType::PdfProcessing, TENANT, json!({ "url": url }));
    // How long each takes, so that cancels meet all of it, and the moments after it.
    let (text_takes, pdf_takes) = (whole_way(&bed, text()).await, whole_way(&bed, from_pdf()).await);

    let mut dice = Dice::new(seed);
    let cases: Vec<_> = (0..number)
        .map(|n| {
            let (task, takes) = if n % 2 == 0 { (text(), text_takes) } else { (from_pdf(), pdf_takes) };
            let task = NewTask { document_id: Some(Uuid::new_v4()), ..task };
            // Beside others it takes longer.
            Case { task, after: dice.moment(takes * 2) }
        })
        .collect();
    let ends: Vec<_> =
        futures::stream::iter(cases.into_iter().map(|case| run(&bed, case))).buffer_unordered(AT_ONCE).collect().await;

    let mut met = BTreeMap::<String, usize>::new();
    for end in ends.into_iter().flatten() {
        *met.entry(end).or_default() += 1;
    }
    println!("{met:#?}");
    assert!(met.keys().any(|end| end.contains("insert cancelled")), "a run that meets inserts: {met:?}");
    assert!(met.keys().any(|end| end.contains("pdf_processing cancelled")), "a run that meets conversions: {met:?}");
    bed.assert_graph_is_whole().await;
    worker.stop().await;
}

async fn whole_way(bed: &Bed, task: NewTask) -> Duration {
    let begun = Instant::now();
    let id = bed.enqueue(task).await;
    assert_eq!(bed.follow_on(id).await.state, State::Completed);
    begun.elapsed()
}

/// Answers how each task of the document ended.
async fn run(bed: &Bed, case: Case) -> Vec<String> {
    let document_id = case.task.document_id.expect("it was given one");
    let first = bed.enqueue(case.task).await;
    tokio::time::sleep(case.after).await;
    let answers = cancel_linked(&bed.operator, first, Request::default(), Scope::default()).await.expect("an answer");
    let tasks = all_ended(bed, first).await;
    for (id, outcome) in answers {
        let task = tasks.iter().find(|task| task.track_id == id).expect("a task of the tree");
        let expected = match outcome {
            CancelOutcome::Cancelled | CancelOutcome::Stopping | CancelOutcome::Unchanged => State::Cancelled,
            CancelOutcome::ConflictCompleted => State::Completed,
            CancelOutcome::AlreadyFinished | CancelOutcome::NotFound => panic!("{id}: {outcome}"),
        };
        assert_eq!(task.state, expected, "{outcome}: {}", told(&tasks));
    }
    assert_is_all_or_nothing(bed, document_id, &tasks).await;
    tasks.iter().map(|task| format!("{} {} while {}", task.task_type, task.state, stage(task))).collect()
}

/// For whoever has to find out why.
fn told(tasks: &[TaskStatus]) -> String {
    let one = |task: &TaskStatus| {
        let TaskStatus { track_id, task_type, state, attempt, error, .. } = task;
        format!("{track_id} {task_type} {state} while {}, attempt {attempt}, {error:?}", stage(task))
    };
    tasks.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn stage(task: &TaskStatus) -> &str {
    if task.attempt == 0 { "pending" } else { task.stage.as_deref().unwrap_or("starting") }
}

/// The task and its follow-on, if there is one. Once the first has ended, no follow-on can come any more.
async fn all_ended(bed: &Bed, first: Uuid) -> Vec<TaskStatus> {
    let mut tasks = vec![bed.until_ended(first).await];
    let sql = format!("select track_id::text from sluice.task_status where parent_id = '{first}'");
    for id in bed.texts(&sql).await {
        tasks.push(bed.until_ended(id.parse().expect("an id")).await);
    }
    tasks
}

async fn assert_is_all_or_nothing(bed: &Bed, document_id: Uuid, tasks: &[TaskStatus]) {
    for task in tasks {
        assert!(matches!(task.state, State::Cancelled | State::Completed), "{}", told(tasks));
    }
    let [first, rest @ ..] = tasks else { panic!("a task") };
    let rows = async |table: &str| {
        bed.number(&format!("select count(*) from ingest.{table} where document_id = '{document_id}'")).await
    };
    // What was taken in stays, though what follows is cancelled.
    let is_taken_in = first.state == State::Completed;
    assert_eq!(rows("contents").await, i64::from(is_taken_in), "{}", told(tasks));
    assert_eq!(rest.len(), usize::from(is_taken_in), "{}", told(tasks));
    let published = rest.iter().find(|task| task.state == State::Completed);
    assert_eq!(rows("document_versions").await, i64::from(published.is_some()), "{}", told(tasks));
    let Some(insert) = published else {
        assert_eq!(rows("chunks").await, 0, "{}", told(tasks));
        return;
    };
    let by = format!(
        "select count(*) from ingest.document_versions v
          where v.document_id = '{document_id}' and v.track_id = '{}' and v.attempt = {}
            and v.chunks = (select count(*) from ingest.chunks c where c.version_id = v.version_id)
            and v.chunks = (select count(*) from ingest.embeddings e where e.version_id = v.version_id)",
        insert.track_id, insert.attempt
    );
    assert_eq!(bed.number(&by).await, 1, "{}", told(tasks));
}
