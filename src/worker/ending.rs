//! From a handler's answer to a row that says so: decides what is said, and sees that it is said.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use super::core::{Core, Ended};
use super::decide::{self, Answer, End};
use super::handler::StopCause;
use super::held::Entry;
use super::metrics::{Name, TypeOutcome};
use super::publishing::{self, NO_CHANGE};
use super::reporter::Unsent;
use crate::domain::failure::FailureClass;
use crate::store::StoreError;
use crate::store::claim::Attempt;
use crate::store::ends::{self, CoolDown, ReleaseOutcome};
use crate::store::leases;

/// Ends that are looked at before others get their turn.
const BATCH: usize = 1_024;

/// Hears of handlers that are gone.
pub(super) async fn receive(core: Arc<Core>, mut ended: mpsc::UnboundedReceiver<Ended>) {
    let mut batch = Vec::with_capacity(BATCH);
    while ended.recv_many(&mut batch, BATCH).await > 0 {
        core.held().handlers_gone(batch.len());
        end_all(&core, batch.drain(..));
        core.publish_counts();
        // A slot is free.
        core.shared.claim_wake.notify_one();
        core.changed.notify_one();
    }
}

/// Says how an attempt ends; nothing if that was said before.
pub(super) fn end(core: &Arc<Core>, attempt: Attempt, answer: Answer) {
    end_all(core, std::iter::once(Ended { attempt, answer }));
}

fn end_all(core: &Arc<Core>, ended: impl Iterator<Item = Ended>) {
    let (mut words, mut times) = (Vec::new(), Vec::new());
    {
        let mut held = core.held();
        for Ended { attempt, answer } in ended {
            let Some((entry, stopping_since)) = held.set_ending(attempt) else { continue };
            let (cause, now) = (entry.stop.cause(), Instant::now());
            times.push((entry.task_type, now - entry.started));
            if let (Some(since), Some(StopCause::Cancel)) = (stopping_since, cause) {
                core.shared.metrics.cancel_seconds.observe((now - since).as_secs_f64());
            }
            let end = decide::end_of(entry.task_type, entry.timeout_secs, cause, answer);
            if entry.is_reporting {
                entry.end_after_report = Some(end);
            } else {
                words.push(Words { attempt, end, unsent: entry.reporter.take() });
            }
        }
    }
    core.shared.metrics.handlers_done(&times);
    say(core, words);
}

/// What is to be said of an attempt, and what its handler had reported by then.
struct Words {
    attempt: Attempt,
    end: End,
    unsent: Option<Unsent>,
}

pub(super) fn dispatch(core: &Arc<Core>, attempt: Attempt, end: End) {
    let unsent = core.held().get(attempt).and_then(|entry| entry.reporter.take());
    say(core, vec![Words { attempt, end, unsent }]);
}

/// Plain ends travel together, the others each by itself.
fn say(core: &Arc<Core>, words: Vec<Words>) {
    let mut completions = Vec::with_capacity(words.len());
    for Words { attempt, end, unsent } in words {
        match end {
            End::Nothing => finish(core, attempt, "lost"),
            End::Complete(done) if unsent.is_none() && done.is_plain() => completions.push((attempt, done.result)),
            End::Release { reason, cool_down: CoolDown::No } if unsent.is_none() => {
                core.flushing.release(attempt, reason)
            }
            end => write_alone(core, attempt, end, unsent),
        }
    }
    if !completions.is_empty() {
        core.flushing.complete(completions);
    }
}

pub(super) fn write_alone(core: &Arc<Core>, attempt: Attempt, end: End, unsent: Option<Unsent>) {
    let span = core.held().get(attempt).map_or_else(Span::none, |entry| entry.span.clone());
    let core = Arc::clone(core);
    tokio::spawn(async move { write(&core, attempt, end, unsent).await }.instrument(span));
}

/// The database has answered, or the attempt is not ours any more.
pub(super) fn finish(core: &Core, attempt: Attempt, outcome: &'static str) {
    finish_all(core, std::iter::once((attempt, outcome)));
}

pub(super) fn finish_all(core: &Core, answers: impl Iterator<Item = (Attempt, &'static str)>) {
    let finished: Vec<_> = {
        let mut held = core.held();
        answers.filter_map(|(attempt, outcome)| Some((held.remove(attempt)?, outcome))).collect()
    };
    if finished.is_empty() {
        return;
    }
    let label = |(entry, outcome): &(Entry, &'static str)| TypeOutcome {
        r#type: Name(entry.task_type.as_str()),
        outcome: Name(outcome),
    };
    for alike in finished.chunk_by(|one, other| label(one) == label(other)) {
        core.shared.metrics.ends.get_or_create(&label(&alike[0])).inc_by(alike.len() as u64);
    }
    for (entry, outcome) in &finished {
        if *outcome == ReleaseOutcome::Released.as_str() && core.closing.is_cancelled() {
            core.given_back.fetch_add(1, Ordering::Relaxed);
        }
        match *outcome {
            "completed" if !tracing::enabled!(tracing::Level::DEBUG) => {}
            "completed" => entry.span.in_scope(|| tracing::debug!("completed")),
            outcome => entry.span.in_scope(|| tracing::info!(outcome, "ended")),
        }
    }
    core.changed.notify_one();
    // Their lanes have room.
    core.shared.claim_wake.notify_one();
}

async fn write(core: &Arc<Core>, attempt: Attempt, end: End, unsent: Option<Unsent>) {
    // It is never closed.
    let Ok(_permit) = core.writers.acquire().await else { return };
    if let Some(unsent) = unsent {
        // What it cost stays on the row, however it ends.
        let unsent = Arc::new(unsent);
        let call = || {
            let unsent = Arc::clone(&unsent);
            core.ask(move |pools| async move { leases::report(&pools.ends, attempt, &unsent.as_report()).await })
        };
        let sent = retried(core, "reporting", call).await;
        if let Some(Err(error)) = sent {
            core.complaints.failed("reporting", &error);
        }
    }
    let outcome = match end {
        End::Complete(done) => publishing::complete(core, attempt, *done).await,
        End::Fail { class, message } => fail(core, attempt, class, &message).await,
        End::Release { reason, cool_down } => {
            release(core, attempt, &reason, cool_down).await.map(ReleaseOutcome::as_str)
        }
        End::Stopped => stopped(core, attempt).await,
        End::Nothing => Some("lost"),
    };
    if let Some(outcome) = outcome {
        finish(core, attempt, outcome);
    }
    core.publish_counts();
}

/// `None`, here and below: the worker is over, or what was said is not understood, which was logged.
pub(super) async fn fail(core: &Core, attempt: Attempt, class: FailureClass, message: &str) -> Option<&'static str> {
    tracing::warn!(%class, message, "the handler failed");
    let call = || {
        let message = message.to_owned();
        core.ask(move |pools| async move { ends::fail(&pools.ends, attempt, class, Some(&message), NO_CHANGE).await })
    };
    told(core, "failing a task", retried(core, "failing a task", call).await).map(ends::FailOutcome::as_str)
}

pub(super) async fn release(
    core: &Core,
    attempt: Attempt,
    reason: &str,
    cool_down: CoolDown,
) -> Option<ReleaseOutcome> {
    let call = || release_call(core, vec![attempt], reason, cool_down);
    let answers = told(core, "giving a task back", retried(core, "giving a task back", call).await)?;
    answers.first().map(|(_, outcome)| *outcome)
}

pub(super) async fn release_call(
    core: &Core,
    attempts: Vec<Attempt>,
    reason: &str,
    cool_down: CoolDown,
) -> Result<Vec<(Attempt, ReleaseOutcome)>, StoreError> {
    let reason = reason.to_owned();
    core.ask(move |pools| async move { ends::release(&pools.ends, &attempts, Some(&reason), cool_down).await }).await
}

pub(super) async fn stopped(core: &Core, attempt: Attempt) -> Option<&'static str> {
    let call = || core.ask(move |pools| async move { ends::stopped(&pools.ends, attempt).await });
    told(core, "acknowledging a stop", retried(core, "acknowledging a stop", call).await)
        .map(ends::StoppedOutcome::as_str)
}

/// What cannot be said will not be by saying it again: the lease runs out then.
fn told<T>(core: &Core, what: &'static str, answer: Option<Result<T, StoreError>>) -> Option<T> {
    match answer? {
        Ok(answer) => {
            core.complaints.succeeded(what);
            Some(answer)
        }
        Err(error) => {
            core.complaints.failed(what, &error);
            None
        }
    }
}

/// Until it is answered, or the worker is over (`None`).
pub(super) async fn retried<T, F>(
    core: &Core,
    what: &'static str,
    call: impl Fn() -> F,
) -> Option<Result<T, StoreError>>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut failures = 0;
    loop {
        match call().await {
            Err(error @ (StoreError::Transient { .. } | StoreError::ReadOnly { .. })) => {
                core.complaints.failed(what, &error);
                failures += 1;
                if !core.pause(failures).await {
                    return None;
                }
            }
            answer => return Some(answer),
        }
    }
}

/// All that still run are told to stop.
pub(super) fn stop_all(core: &Core, cause: StopCause) {
    let running = core.held().running_attempts();
    for attempt in running {
        core.fire(attempt, cause);
    }
}
