//! Starts a handler for each claimed task, on the handlers' runtime, and makes sure that its end is told.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use super::attempt::Stop;
use super::core::{Core, Ended};
use super::decide::Answer;
use super::handler::{Context, ErasedHandler, NotDone, Task};
use super::held::{Entry, Phase};
use super::reporter::Reporter;
use super::text;
use crate::domain::failure::FailureClass;
use crate::domain::task::TaskType;
use crate::store::Database;
use crate::store::claim::{Attempt, ClaimedTask};

/// A panic's own words.
const PANIC_MAX_CHARS: usize = 1_024;

/// `sent` is when their claim was sent: leases and deadlines count from there.
pub(super) fn start(core: &Arc<Core>, claimed: Vec<ClaimedTask>, sent: Instant) {
    let database = core.databases.pools().handlers.clone();
    if let Some(claimed) = claimed.first() {
        core.learn_lease(claimed.lease_secs);
    }
    let (mut entries, mut starts) = (Vec::with_capacity(claimed.len()), Vec::with_capacity(claimed.len()));
    for claimed in claimed {
        let (entry, start) = prepare(core, &database, claimed, sent);
        entries.push((start.told.attempt, entry));
        starts.push(start);
    }
    core.held().insert_all(entries);
    // From within the runtime, a spawn is cheap and wakes nobody; and each handler is a task of its own.
    core.handler_runtime.spawn(async move { starts.into_iter().for_each(Start::spawn) });
}

fn prepare(core: &Core, database: &Database, claimed: ClaimedTask, sent: Instant) -> (Entry, Start) {
    let ClaimedTask { attempt, task_type, tenant, workspace, document_id, payload, timeout_secs, lease_secs, failures } =
        claimed;
    let known = task_type.map_err(|unknown| unknown.to_string());
    let handler = known.and_then(|known| match core.handlers.get(known) {
        Some(handler) => Ok((known, handler)),
        None => Err(format!("this worker has no handler for {known}")),
    });
    let type_name = handler.as_ref().map_or("unknown", |(known, _)| known.as_str());
    let span =
        tracing::info_span!("task", track_id = %attempt.track_id, tenant, attempt = attempt.number, r#type = type_name);
    let (stop, lease) = (Arc::new(Stop::default()), Duration::from_secs(u64::from(lease_secs)));
    let reporter = Reporter { unsent: Arc::default(), dirty: Arc::clone(&core.reports_wake) };
    let entry = Entry {
        // What nobody knows is never a conversion; only a timeout's class asks.
        task_type: handler.as_ref().map_or(TaskType::Insert, |(known, _)| *known),
        timeout_secs,
        stop: Arc::clone(&stop),
        reporter: reporter.clone(),
        lease,
        lease_until: sent + lease,
        deadline: sent + Duration::from_secs(u64::from(timeout_secs)),
        started: Instant::now(),
        span: span.clone(),
        phase: Phase::Running { stopping_since: None, aborted_at: None },
        is_reporting: false,
        end_after_report: None,
    };
    let work = handler.map(|(task_type, handler)| {
        let task = Task { attempt, task_type, tenant, workspace, document_id, payload, timeout_secs, failures };
        let (database, control) = (database.clone(), core.control.clone());
        let context = Context { task, stop: Arc::clone(&stop), reporter, database, control };
        Work { handler, context }
    });
    (entry, Start { work, stop, span, told: TellEnd { attempt, ended: core.ended.clone(), is_told: false } })
}

/// A handler that is about to run; or why there is none.
struct Start {
    work: Result<Work, String>,
    stop: Arc<Stop>,
    span: Span,
    told: TellEnd,
}

struct Work {
    handler: Arc<dyn ErasedHandler>,
    context: Context,
}

impl Start {
    fn spawn(self) {
        let Self { work, stop, span, mut told } = self;
        match work {
            // It was given up before it came to run. That is told as `told` goes.
            Ok(_) if stop.is_aborted() => {}
            Ok(Work { handler, context }) => {
                let running = run(handler, context, told).instrument(span);
                stop.set_handler(tokio::spawn(running).abort_handle());
            }
            Err(reason) => told.tell(Answer::NotDone(NotDone::failed(FailureClass::UnsupportedType, reason))),
        }
    }
}

async fn run(handler: Arc<dyn ErasedHandler>, context: Context, mut told: TellEnd) {
    let answer = match AssertUnwindSafe(handler.handle_boxed(context)).catch_unwind().await {
        Ok(Ok(done)) => Answer::Done(done),
        Ok(Err(not_done)) => Answer::NotDone(not_done),
        Err(panic) => {
            let message = panic_message(&*panic);
            tracing::error!(message, "the handler panicked");
            Answer::Panicked(message)
        }
    };
    told.tell(answer);
}

/// Tells that the handler is gone, also if its future is dropped before it ends.
struct TellEnd {
    attempt: Attempt,
    ended: mpsc::UnboundedSender<Ended>,
    is_told: bool,
}

impl TellEnd {
    fn tell(&mut self, answer: Answer) {
        self.is_told = true;
        // Nobody listens any more: the worker is over.
        let _ = self.ended.send(Ended { attempt: self.attempt, answer });
    }
}

impl Drop for TellEnd {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(Answer::Aborted);
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    text::bounded(message.unwrap_or_else(|| "no message".to_owned()), PANIC_MAX_CHARS)
}
