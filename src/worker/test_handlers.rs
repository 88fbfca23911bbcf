//! Handlers for tests: the payload says what to do, as in `{"handler": "sleep", "ms": 50}`.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::handler::{Context, Done, Handled, Handlers, NotDone};
use super::reporter::DocumentUpdate;
use crate::domain::failure::FailureClass;
use crate::domain::status::PdfStatus;
use crate::domain::task::TaskType;
use crate::store::enqueue::NewTask;
use crate::store::test_effects;

/// What a test's payload may ask for. Times are milliseconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "handler", rename_all = "snake_case", deny_unknown_fields)]
pub enum TestWork {
    /// Done at once.
    Noop {},
    /// Sleeps, and stops when it is told to.
    Sleep {
        ms: u64,
    },
    /// Writes a row of (track_id, attempt) into `sluice_test_effects`, a table of the test's own, in the transaction that
    /// completes it: sleeps `before_ms` before the transaction and `inside_ms` in it. A row counts a completion.
    Count {
        #[serde(default)]
        before_ms: u64,
        #[serde(default)]
        inside_ms: u64,
    },
    /// Keeps a thread busy and never awaits.
    Spin {
        ms: u64,
    },
    Panic {
        message: String,
    },
    /// Takes `connections` of the handlers' own, in open transactions, and keeps them for `ms` or until it is stopped.
    Leak {
        connections: usize,
        ms: u64,
    },
    /// Sleeps, whatever its token says.
    Ignore {
        ms: u64,
    },
    /// Never ends, whatever its token says.
    Hang {},
    /// Reports floods of text, and fails with one.
    Flood {
        bytes: usize,
    },
    /// Reports progress in so many steps while it sleeps.
    Report {
        steps: u32,
        ms: u64,
    },
    /// The two-step one: reports stage and pages of the document while it sleeps, completes it with its PDF completed, and
    /// enqueues an `insert` whose payload is `next`.
    Convert {
        #[serde(default)]
        ms: u64,
        #[serde(default = "one_page")]
        pages: u32,
        #[serde(default = "noop")]
        next: Value,
    },
    Fail {
        class: String,
        message: String,
    },
    GiveBack {},
    RateLimited {},
}

fn one_page() -> u32 {
    1
}

fn noop() -> Value {
    json!({ "handler": "noop" })
}

/// For these types; with an empty list, for all.
pub fn test_handlers(task_types: &[TaskType]) -> Handlers {
    Handlers::new().on_each(if task_types.is_empty() { TaskType::ALL } else { task_types }, perform)
}

async fn perform(context: Context) -> Handled {
    match work(&context)? {
        TestWork::Noop {} => Ok(Done::new()),
        TestWork::Sleep { ms } => sleep(&context, ms).await,
        TestWork::Count { before_ms, inside_ms } => count(&context, before_ms, inside_ms).await,
        TestWork::Spin { ms } => {
            spin(Duration::from_millis(ms));
            Ok(Done::new())
        }
        TestWork::Panic { message } => panic_with(message),
        TestWork::Leak { connections, ms } => leak(&context, connections, ms).await,
        TestWork::Ignore { ms } => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(Done::new())
        }
        TestWork::Hang {} => std::future::pending().await,
        TestWork::Flood { bytes } => flood(&context, bytes),
        TestWork::Report { steps, ms } => report(&context, steps, ms).await,
        TestWork::Convert { ms, pages, next } => convert(&context, ms, pages, next).await,
        TestWork::Fail { class, message } => Err(NotDone::failed(FailureClass::parse(&class)?, message)),
        TestWork::GiveBack {} => Err(NotDone::give_back("the payload says so")),
        TestWork::RateLimited {} => Err(NotDone::rate_limited("the payload says so", None)),
    }
}

/// A resource's payload is its source, with no handler in it: a text that says what to do is done, and any other source at
/// once.
fn work(context: &Context) -> Result<TestWork, NotDone> {
    match context.task.payload.get("handler") {
        Some(_) => context.payload(),
        None => Ok(asked_by(&context.task.payload).unwrap_or(TestWork::Noop {})),
    }
}

fn asked_by(source: &Value) -> Option<TestWork> {
    serde_json::from_str(source["text"].as_str()?).ok()
}

async fn sleep(context: &Context, ms: u64) -> Handled {
    context.unless_stopped(tokio::time::sleep(Duration::from_millis(ms))).await?;
    Ok(Done::new())
}

async fn count(context: &Context, before_ms: u64, inside_ms: u64) -> Handled {
    context.unless_stopped(tokio::time::sleep(Duration::from_millis(before_ms))).await?;
    let mut transaction = context.begin().await?;
    test_effects::insert(&mut transaction, context.task.attempt).await?;
    context.unless_stopped(tokio::time::sleep(Duration::from_millis(inside_ms))).await?;
    Ok(Done::new().publish(transaction))
}

fn spin(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[expect(clippy::panic, reason = "that a panic costs one task only is what is tested")]
fn panic_with(message: String) -> Handled {
    panic!("{message}")
}

async fn leak(context: &Context, connections: usize, ms: u64) -> Handled {
    let mut taken = Vec::new();
    for _ in 0..connections {
        match context.begin().await {
            Ok(transaction) => taken.push(transaction),
            // There are no more.
            Err(_) => break,
        }
        context.check()?;
    }
    context.unless_stopped(tokio::time::sleep(Duration::from_millis(ms))).await?;
    Ok(Done::new().with_result(taken.len()))
}

fn flood(context: &Context, bytes: usize) -> Handled {
    let text = "\0x".repeat(bytes / 2);
    context.reporter().stage(text.clone()).message(text.clone());
    Err(NotDone::failed(FailureClass::Unknown, text))
}

async fn report(context: &Context, steps: u32, ms: u64) -> Handled {
    for step in 1..=steps {
        context.unless_stopped(tokio::time::sleep(Duration::from_millis(ms) / steps)).await?;
        context.reporter().stage("counting").progress(f64::from(step) / f64::from(steps)).cost(f64::from(step), 10);
    }
    Ok(Done::new())
}

async fn convert(context: &Context, ms: u64, pages: u32, next: Value) -> Handled {
    let document = DocumentUpdate::new().status("processing").stage("converting");
    context.reporter().stage("converting").document(document.pages(pages).pdf_status(PdfStatus::Processing));
    context.unless_stopped(tokio::time::sleep(Duration::from_millis(ms))).await?;
    let mut insert = NewTask::new(TaskType::Insert, context.task.tenant.clone());
    insert.payload = next;
    Ok(Done::new().with_document(DocumentUpdate::new().pdf_status(PdfStatus::Completed)).then(insert))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_resource_may_say_what_to_do() {
        let asked = asked_by(&json!({ "text": r#"{"handler": "sleep", "ms": 5}"# }));
        assert!(matches!(asked, Some(TestWork::Sleep { ms: 5 })), "{asked:?}");
        for source in
            [json!({ "text": "Hello" }), json!({ "url": "https://example.com/a.pdf" }), json!({ "text": "{}" })]
        {
            assert!(asked_by(&source).is_none(), "{source}");
        }
    }
}
