//! What a handler says while it works: merged on the spot, sent by the worker a few times a second at most.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::text::{self, NOTE_MAX_CHARS, STAGE_MAX_CHARS};
use crate::domain::status::PdfStatus;
use crate::store::leases::{DocumentChange, Report};

/// Cheap to call, as often as one likes: it never waits, and what was not sent yet is replaced by what is newer.
#[derive(Clone)]
pub struct Reporter {
    pub(super) unsent: Arc<Mutex<Unsent>>,
    /// Tells the worker that there is something to send.
    pub(super) dirty: Arc<Notify>,
}

impl Reporter {
    /// At most 64 characters.
    pub fn stage(&self, stage: impl Into<String>) -> &Self {
        let stage = text::bounded(stage.into(), STAGE_MAX_CHARS);
        self.change(|unsent| unsent.stage = Some(stage))
    }

    /// From 0 to 1; what is outside is moved to the nearer end.
    pub fn progress(&self, share: f64) -> &Self {
        self.change(|unsent| unsent.progress = number_between(share, 0.0, 1.0))
    }

    /// At most 1,024 characters.
    pub fn message(&self, message: impl Into<String>) -> &Self {
        let message = text::bounded(message.into(), NOTE_MAX_CHARS);
        self.change(|unsent| unsent.message = Some(message))
    }

    /// Of all attempts of the task so far, in the provider's currency, and its tokens.
    pub fn cost(&self, cost: f64, tokens: u64) -> &Self {
        self.change(|unsent| {
            unsent.cost = number_between(cost, 0.0, f64::MAX);
            unsent.tokens = Some(tokens);
        })
    }

    pub fn document(&self, update: DocumentUpdate) -> &Self {
        self.change(|unsent| unsent.document.merge(update))
    }

    pub(super) fn take(&self) -> Option<Unsent> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::take(&mut *unsent);
        (taken != Unsent::default()).then_some(taken)
    }

    fn change(&self, change: impl FnOnce(&mut Unsent)) -> &Self {
        change(&mut self.unsent.lock().unwrap_or_else(PoisonError::into_inner));
        self.dirty.notify_one();
        self
    }
}

/// What changed of the task's document; what is not set stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentUpdate {
    status: Option<String>,
    stage: Option<String>,
    pdf_status: Option<PdfStatus>,
    pages: Option<u32>,
}

impl DocumentUpdate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn status(mut self, status: impl Into<String>) -> Self {
        self.status = Some(text::bounded(status.into(), STAGE_MAX_CHARS));
        self
    }

    pub fn stage(mut self, stage: impl Into<String>) -> Self {
        self.stage = Some(text::bounded(stage.into(), STAGE_MAX_CHARS));
        self
    }

    pub fn pdf_status(mut self, pdf_status: PdfStatus) -> Self {
        self.pdf_status = Some(pdf_status);
        self
    }

    pub fn pages(mut self, pages: u32) -> Self {
        self.pages = Some(pages);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn as_change(&self) -> DocumentChange<'_> {
        let Self { status, stage, pdf_status, pages } = self;
        DocumentChange { status: status.as_deref(), stage: stage.as_deref(), pdf_status: *pdf_status, pages: *pages }
    }

    fn merge(&mut self, newer: DocumentUpdate) {
        let DocumentUpdate { status, stage, pdf_status, pages } = newer;
        self.status = status.or(self.status.take());
        self.stage = stage.or(self.stage.take());
        self.pdf_status = pdf_status.or(self.pdf_status);
        self.pages = pages.or(self.pages);
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Unsent {
    stage: Option<String>,
    progress: Option<f64>,
    message: Option<String>,
    cost: Option<f64>,
    tokens: Option<u64>,
    document: DocumentUpdate,
}

impl Unsent {
    pub(super) fn as_report(&self) -> Report<'_> {
        let Self { stage, progress, message, cost, tokens, document } = self;
        Report {
            stage: stage.as_deref(),
            progress: *progress,
            message: message.as_deref(),
            cost: *cost,
            // What an SQL bigint holds.
            tokens: tokens.map(|tokens| tokens.min(i64::MAX.unsigned_abs())),
            document: document.as_change(),
        }
    }
}

/// `None` for what is no number: it would be refused, and the rest of the report with it.
fn number_between(number: f64, min: f64, max: f64) -> Option<f64> {
    (!number.is_nan()).then(|| number.clamp(min, max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> Reporter {
        Reporter { unsent: Arc::default(), dirty: Arc::default() }
    }

    #[test]
    fn newer_words_replace_older_ones_and_leave_the_rest() {
        let reporter = reporter();
        reporter.stage("converting").progress(0.1).document(DocumentUpdate::new().pages(3).stage("converting"));
        reporter.progress(7.0).document(DocumentUpdate::new().stage("storing"));

        let unsent = reporter.take().unwrap();
        let report = unsent.as_report();

        assert_eq!((report.stage, report.progress), (Some("converting"), Some(1.0)));
        assert_eq!((report.document.pages, report.document.stage), (Some(3), Some("storing")));
        assert_eq!(reporter.take(), None);
    }

    #[test]
    fn floods_and_wrong_numbers_stay_in_their_bounds() {
        let reporter = reporter();
        reporter.stage("x".repeat(1_000_000)).message("\0ü".repeat(1_000_000)).progress(f64::NAN).cost(-1.0, u64::MAX);

        let unsent = reporter.take().unwrap();
        let report = unsent.as_report();

        assert_eq!(report.stage.unwrap().len(), STAGE_MAX_CHARS);
        assert_eq!(report.message.unwrap().chars().count(), NOTE_MAX_CHARS);
        assert_eq!((report.progress, report.cost, report.tokens), (None, Some(0.0), Some(i64::MAX.unsigned_abs())));
    }
}
