//! The end that makes a handler's work visible: `complete` is the last statement of the handler's own transaction.

use std::sync::Arc;

use super::core::Core;
use super::ending::{fail, release, retried, stopped};
use super::handler::Done;
use super::reporter::DocumentUpdate;
use crate::domain::failure::FailureClass;
use crate::store::claim::Attempt;
use crate::store::ends::{self, CompleteOutcome, CompletedWithNext, CoolDown, ReleaseOutcome};
use crate::store::enqueue::NewTask;
use crate::store::leases::DocumentChange;
use crate::store::reads;
use crate::store::{Session, StoreError, Transaction};

pub(super) const NO_CHANGE: DocumentChange<'static> =
    DocumentChange { status: None, stage: None, pdf_status: None, pages: None };

/// What is said with `complete`.
struct Words {
    result: Option<serde_json::Value>,
    document: DocumentUpdate,
    next: Option<Box<NewTask>>,
}

impl Words {
    async fn say(&self, session: impl Session, attempt: Attempt) -> Result<CompleteOutcome, StoreError> {
        let Self { result, document, next } = self;
        let (result, document) = (result.as_ref(), document.as_change());
        match next {
            None => ends::complete(session, attempt, result, document).await,
            Some(next) => Ok(match ends::complete_with_next(session, attempt, next, result, document).await? {
                CompletedWithNext::Completed { next: _ } => CompleteOutcome::Completed,
                CompletedWithNext::Not(outcome) => outcome,
            }),
        }
    }
}

/// Answers the outcome; `None` if the worker is over.
pub(super) async fn complete(core: &Core, attempt: Attempt, done: Done) -> Option<&'static str> {
    let Done { result, document, next, transaction } = done;
    let words = Arc::new(Words { result, document, next });
    let has_next = words.next.is_some();
    let outcome = match transaction {
        Some(transaction) => publish(core, attempt, transaction, words).await,
        None => say(core, attempt, &words).await,
    };
    if outcome == Some(CompleteOutcome::Completed.as_str()) && has_next {
        wake(core).await;
    }
    outcome
}

/// There is nothing to publish but the end itself.
async fn say(core: &Core, attempt: Attempt, words: &Arc<Words>) -> Option<&'static str> {
    let call = || {
        let words = Arc::clone(words);
        core.ask(move |pools| async move { words.say(&pools.ends, attempt).await })
    };
    match retried(core, "completing", call).await? {
        Ok(outcome) => Some(outcome.as_str()),
        Err(error) => unpublished(core, attempt, &error).await,
    }
}

/// What became of the handler's transaction.
enum Published {
    Committed,
    /// Rolled back, since the answer was another one.
    Refused(CompleteOutcome),
    /// It is not known whether the commit was done.
    Doubtful(String),
    Failed(StoreError),
}

async fn publish(core: &Core, attempt: Attempt, transaction: Transaction, words: Arc<Words>) -> Option<&'static str> {
    // It may never be answered, and must not be dropped: it ends by itself then.
    let publishing = tokio::spawn(complete_and_commit(transaction, attempt, words));
    let published = match tokio::time::timeout(core.answer_limit(), publishing).await {
        Ok(Ok(published)) => published,
        Ok(Err(dropped)) => Published::Doubtful(dropped.to_string()),
        Err(_) => Published::Doubtful("the database does not answer".to_owned()),
    };
    match published {
        Published::Committed => Some(CompleteOutcome::Completed.as_str()),
        // The cancel was rolled back with the rest: say it again.
        Published::Refused(CompleteOutcome::Cancelled) => stopped(core, attempt).await,
        Published::Refused(outcome) => Some(outcome.as_str()),
        Published::Doubtful(why) => doubtful(core, attempt, &why).await,
        Published::Failed(error) => unpublished(core, attempt, &error).await,
    }
}

async fn complete_and_commit(mut transaction: Transaction, attempt: Attempt, words: Arc<Words>) -> Published {
    match words.say(&mut transaction, attempt).await {
        Ok(CompleteOutcome::Completed) => match transaction.commit().await {
            Ok(()) => Published::Committed,
            Err(error) => Published::Doubtful(error.to_string()),
        },
        Ok(refused) => {
            if let Err(error) = transaction.rollback().await {
                // Its session is gone, and what it wrote with it.
                tracing::debug!(%error, "a rollback failed");
            }
            Published::Refused(refused)
        }
        Err(error) => Published::Failed(error),
    }
}

/// The answer to a commit never came. If it was done the attempt has ended, and giving it back is refused.
async fn doubtful(core: &Core, attempt: Attempt, why: &str) -> Option<&'static str> {
    tracing::warn!(why, "it is not known whether a commit was done: asking");
    match release(core, attempt, "its commit was not answered", CoolDown::No).await? {
        ReleaseOutcome::Refused => Some(CompleteOutcome::Completed.as_str()),
        other => Some(other.as_str()),
    }
}

/// Nothing of it is visible. Work of a database that is away is done again; what cannot be stored is a failure.
async fn unpublished(core: &Core, attempt: Attempt, error: &StoreError) -> Option<&'static str> {
    let reason = format!("its end could not be written: {error}");
    if error.is_outage() {
        release(core, attempt, &reason, CoolDown::No).await.map(ReleaseOutcome::as_str)
    } else {
        fail(core, attempt, FailureClass::Unknown, &reason).await
    }
}

/// There is a follow-on.
async fn wake(core: &Core) {
    let mode = core.settings.wake_mode;
    if mode.wakes_in_process() {
        core.shared.claim_wake.notify_one();
    }
    if mode.listens() {
        let pool = core.settings.pool.clone();
        if let Err(error) = core.ask(move |pools| async move { reads::wake(&pools.ends, &pool).await }).await {
            tracing::debug!(%error, "a wake was not sent: workers poll");
        }
    }
}
