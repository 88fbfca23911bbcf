//! What users see of a task and its document: `display_status` and `ui_phase`, from stored fields alone.

use std::borrow::Cow;
use std::fmt;

use super::closed_set::closed_set;
use super::failure::FailureClass;
use super::task::State;

closed_set! {
    pub enum UiPhase("UI phase") {
        Idle = "idle",
        Running = "running",
        Stopping = "stopping",
        Terminal = "terminal",
    }
}

closed_set! {
    /// The convert artifact of a PDF, not its document.
    pub enum PdfStatus("PDF status") {
        Pending = "pending",
        Processing = "processing",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

/// A document's stage or status in its display form: lower case, the old names translated, unknown ones kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stage(Cow<'static, str>);

impl Stage {
    /// Stages come from handlers of any language; a status field must stay small.
    pub const MAX_CHARS: usize = 64;

    /// Blank is no stage. Control characters go, and what is too long is cut.
    pub fn parse(name: &str) -> Option<Self> {
        let visible = name.trim().chars().filter(|c| !c.is_control());
        let lower: String = visible.flat_map(char::to_lowercase).take(Self::MAX_CHARS).collect();
        let lower = lower.trim();
        let name = match lower {
            "" => return None,
            "pending" => Cow::Borrowed("uploading"),
            "processing" => Cow::Borrowed("preprocessing"),
            "indexing" => Cow::Borrowed("storing"),
            "indexed" => Cow::Borrowed("completed"),
            other => Cow::Owned(other.to_owned()),
        };
        Some(Stage(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn end(&self) -> Option<End> {
        match self.as_str() {
            "completed" | "partial_success" => Some(End::Well),
            "failed" | "partial_failure" => Some(End::Failed),
            "cancelled" => Some(End::Cancelled),
            _ => None,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Well,
    Failed,
    Cancelled,
}

/// The stored fields; the task is the document's newest one, and a retry has cleared what earlier attempts left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    pub task: Option<State>,
    pub document: Option<Stage>,
    pub stage: Option<Stage>,
    pub pdf: Option<PdfStatus>,
    pub failure_class: Option<FailureClass>,
    pub cancel_asked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presentation {
    pub display_status: Cow<'static, str>,
    pub ui_phase: UiPhase,
    pub is_failure: bool,
    pub is_cancelled: bool,
}

impl Presentation {
    pub fn is_terminal(&self) -> bool {
        self.ui_phase == UiPhase::Terminal
    }
}

/// The status mapping; the first rule that matches wins, in the order written.
pub fn present(signals: &Signals) -> Presentation {
    let Signals { task, document, stage, pdf, failure_class, cancel_asked } = signals;

    let cancelled = *task == Some(State::Cancelled)
        || *pdf == Some(PdfStatus::Cancelled)
        || *failure_class == Some(FailureClass::Cancelled)
        || [document, stage].into_iter().flatten().any(|name| name.end() == Some(End::Cancelled));
    if cancelled {
        return ended("cancelled".into(), End::Cancelled);
    }

    let document_end = document_end(*task, document.as_ref(), stage.as_ref());
    if let Some((name, End::Well)) = &document_end {
        return ended(name.0.clone(), End::Well);
    }
    let in_flight = stage.as_ref().or(document.as_ref()).filter(|name| name.end().is_none());
    if in_flight.is_none() && *task == Some(State::Completed) {
        return ended("completed".into(), End::Well);
    }
    if let Some((name, end)) = document_end {
        return ended(name.0, end);
    }
    if in_flight.is_none() && *task == Some(State::Failed) {
        return ended("failed".into(), End::Failed);
    }

    let display_status = match in_flight {
        Some(name) => name.0.clone(),
        // Nothing is known yet but that somebody asked.
        None => match task.unwrap_or(State::Pending) {
            // A task that is to stop shows what it was doing; the phase tells the rest.
            State::Processing | State::Stopping => State::Processing.as_str().into(),
            state @ (State::Pending | State::Completed | State::Failed | State::Cancelled) => state.as_str().into(),
        },
    };
    let ui_phase = if *cancel_asked || *task == Some(State::Stopping) {
        UiPhase::Stopping
    } else if ["pending", "queued", "uploading"].contains(&display_status.as_ref()) {
        UiPhase::Idle
    } else {
        UiPhase::Running
    };
    Presentation { display_status, ui_phase, is_failure: false, is_cancelled: false }
}

/// The document's end: its status says it, and its stage where the status does not, unless a task still works on it
/// (a worker may report its last stage before the transaction that publishes).
fn document_end(task: Option<State>, document: Option<&Stage>, stage: Option<&Stage>) -> Option<(Stage, End)> {
    let is_worked_on = task.is_some_and(|state| !state.is_terminal());
    let from_stage = stage.filter(|_| !is_worked_on);
    [document, from_stage].into_iter().flatten().find_map(|name| Some((name.clone(), name.end()?)))
}

fn ended(display_status: Cow<'static, str>, end: End) -> Presentation {
    Presentation {
        display_status,
        ui_phase: UiPhase::Terminal,
        is_failure: end == End::Failed,
        is_cancelled: end == End::Cancelled,
    }
}

#[cfg(test)]
mod tests;
