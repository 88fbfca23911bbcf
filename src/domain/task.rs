//! What a task is, and which event moves it to which state.

use super::UnknownName;
use super::closed_set::closed_set;
use super::lane::Class;
use super::retry::Verdict;

closed_set! {
    pub enum State("task state") {
        Pending = "pending",
        Processing = "processing",
        Stopping = "stopping",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl State {
    /// A worker holds it: it takes a slot of its lane.
    pub const fn is_running(self) -> bool {
        match self {
            State::Processing | State::Stopping => true,
            State::Pending | State::Completed | State::Failed | State::Cancelled => false,
        }
    }

    /// It has ended; only a manual retry of a failed or cancelled task starts it again.
    pub const fn is_terminal(self) -> bool {
        match self {
            State::Completed | State::Failed | State::Cancelled => true,
            State::Pending | State::Processing | State::Stopping => false,
        }
    }
}

closed_set! {
    pub enum TaskType("task type") {
        PdfProcessing = "pdf_processing",
        Insert = "insert",
        Upload = "upload",
        Scan = "scan",
        Reindex = "reindex",
        KnowledgeInjection = "knowledge_injection",
        Deletion = "deletion",
        WorkspaceWipe = "workspace_wipe",
    }
}

impl TaskType {
    pub const fn class(self) -> Class {
        match self {
            TaskType::PdfProcessing
            | TaskType::Insert
            | TaskType::Upload
            | TaskType::Scan
            | TaskType::Reindex
            | TaskType::KnowledgeInjection => Class::Ingest,
            TaskType::Deletion | TaskType::WorkspaceWipe => Class::Lifecycle,
        }
    }

    /// The name in custom resources.
    pub const fn kind_name(self) -> &'static str {
        match self {
            TaskType::PdfProcessing => "PdfProcessing",
            TaskType::Insert => "Insert",
            TaskType::Upload => "Upload",
            TaskType::Scan => "Scan",
            TaskType::Reindex => "Reindex",
            TaskType::KnowledgeInjection => "KnowledgeInjection",
            TaskType::Deletion => "Deletion",
            TaskType::WorkspaceWipe => "WorkspaceWipe",
        }
    }

    pub fn parse_kind_name(name: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.iter().find(|task_type| task_type.kind_name() == name);
        found
            .copied()
            .ok_or_else(|| UnknownName::new("task type", name, Self::ALL.iter().map(|t| t.kind_name()).collect()))
    }
}

/// What can happen to a task. Worker events carry the current attempt: fencing comes before this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Claim,
    Complete,
    Fail(Verdict),
    Cancel,
    /// The worker says that it has stopped.
    AcknowledgeStop,
    /// The worker gives it back: drain, park, a provider's rate limit.
    Release,
    LeaseLost(Verdict),
    /// By hand; the verdict is the budget of manual retries.
    Retry(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Moved(State),
    /// Accepted, and nothing had to change.
    Unchanged,
    /// The caller is told why; nothing is written.
    Refused(Refusal),
    /// The event cannot meet this state; nothing is written.
    NotApplicable,
}

closed_set! {
    /// Why an event is refused: the answers of the schema's functions.
    pub enum Refusal("refusal") {
        /// Cancel of a completed task.
        ConflictCompleted = "conflict_completed",
        /// Cancel of a failed task.
        AlreadyFinished = "already_finished",
        /// A worker's end for a task that has ended.
        Ended = "refused",
        /// Retry of a completed task.
        Completed = "completed",
        /// Retry of a task that has not ended.
        Active = "active",
        MaxRetriesExceeded = "max_retries_exceeded",
    }
}

/// The picture of all transitions.
pub const fn apply(state: State, event: Event) -> Outcome {
    use Outcome::{Moved, NotApplicable, Refused, Unchanged};
    match (event, state) {
        (Event::Claim, State::Pending) => Moved(State::Processing),
        (Event::Claim, State::Processing | State::Stopping | State::Completed | State::Failed | State::Cancelled) => {
            NotApplicable
        }

        (Event::Cancel, State::Pending) => Moved(State::Cancelled),
        (Event::Cancel, State::Processing) => Moved(State::Stopping),
        (Event::Cancel, State::Stopping | State::Cancelled) => Unchanged,
        (Event::Cancel, State::Completed) => Refused(Refusal::ConflictCompleted),
        (Event::Cancel, State::Failed) => Refused(Refusal::AlreadyFinished),

        (Event::Retry(_), State::Pending | State::Processing | State::Stopping) => Refused(Refusal::Active),
        (Event::Retry(_), State::Completed) => Refused(Refusal::Completed),
        (Event::Retry(Verdict::Again), State::Failed | State::Cancelled) => Moved(State::Pending),
        (Event::Retry(Verdict::Final), State::Failed | State::Cancelled) => Refused(Refusal::MaxRetriesExceeded),

        (Event::LeaseLost(_), State::Pending | State::Completed | State::Failed | State::Cancelled) => NotApplicable,
        (Event::LeaseLost(verdict), State::Processing) => Moved(after_attempt(verdict)),
        (Event::LeaseLost(_), State::Stopping) => Moved(State::Cancelled),

        (Event::Complete | Event::Fail(_) | Event::AcknowledgeStop | Event::Release, State::Pending) => NotApplicable,
        (Event::Complete, State::Processing) => Moved(State::Completed),
        (Event::Fail(verdict), State::Processing) => Moved(after_attempt(verdict)),
        // Without a cancel there is nothing to acknowledge.
        (Event::AcknowledgeStop, State::Processing) => NotApplicable,
        (Event::Release, State::Processing) => Moved(State::Pending),
        // A cancel that was accepted ends in `cancelled`, whatever the worker says.
        (Event::Complete | Event::Fail(_) | Event::AcknowledgeStop | Event::Release, State::Stopping) => {
            Moved(State::Cancelled)
        }
        (
            Event::Complete | Event::Fail(_) | Event::AcknowledgeStop | Event::Release,
            State::Completed | State::Failed | State::Cancelled,
        ) => Refused(Refusal::Ended),
    }
}

const fn after_attempt(verdict: Verdict) -> State {
    match verdict {
        Verdict::Again => State::Pending,
        Verdict::Final => State::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 6] =
        [State::Pending, State::Processing, State::Stopping, State::Completed, State::Failed, State::Cancelled];

    fn row(event: Event, expected: [Outcome; 6]) {
        for (state, expected) in STATES.into_iter().zip(expected) {
            assert_eq!(apply(state, event), expected, "{event:?} on {state}");
        }
    }

    const NONE: Outcome = Outcome::NotApplicable;
    const SAME: Outcome = Outcome::Unchanged;
    const ENDED: Outcome = Outcome::Refused(Refusal::Ended);
    const CONFLICT: Outcome = Outcome::Refused(Refusal::ConflictCompleted);
    const FINISHED: Outcome = Outcome::Refused(Refusal::AlreadyFinished);
    const COMPLETED: Outcome = Outcome::Refused(Refusal::Completed);
    const ACTIVE: Outcome = Outcome::Refused(Refusal::Active);
    const SPENT: Outcome = Outcome::Refused(Refusal::MaxRetriesExceeded);

    fn to(state: State) -> Outcome {
        Outcome::Moved(state)
    }

    #[test]
    fn claim_takes_pending_tasks_only() {
        row(Event::Claim, [to(State::Processing), NONE, NONE, NONE, NONE, NONE]);
    }

    #[test]
    fn complete_is_accepted_once_and_loses_to_a_cancel() {
        row(Event::Complete, [NONE, to(State::Completed), to(State::Cancelled), ENDED, ENDED, ENDED]);
    }

    #[test]
    fn a_failure_with_budget_left_goes_back_to_pending() {
        row(Event::Fail(Verdict::Again), [NONE, to(State::Pending), to(State::Cancelled), ENDED, ENDED, ENDED]);
    }

    #[test]
    fn a_final_failure_fails() {
        row(Event::Fail(Verdict::Final), [NONE, to(State::Failed), to(State::Cancelled), ENDED, ENDED, ENDED]);
    }

    #[test]
    fn cancel_ends_pending_work_at_once_and_asks_a_worker_to_stop() {
        row(Event::Cancel, [to(State::Cancelled), to(State::Stopping), SAME, CONFLICT, FINISHED, SAME]);
    }

    #[test]
    fn only_a_stopping_task_can_acknowledge_its_stop() {
        row(Event::AcknowledgeStop, [NONE, NONE, to(State::Cancelled), ENDED, ENDED, ENDED]);
    }

    #[test]
    fn release_gives_a_task_back() {
        row(Event::Release, [NONE, to(State::Pending), to(State::Cancelled), ENDED, ENDED, ENDED]);
    }

    #[test]
    fn a_lost_lease_gives_a_task_back_until_its_budget_is_spent() {
        row(Event::LeaseLost(Verdict::Again), [NONE, to(State::Pending), to(State::Cancelled), NONE, NONE, NONE]);
        row(Event::LeaseLost(Verdict::Final), [NONE, to(State::Failed), to(State::Cancelled), NONE, NONE, NONE]);
    }

    #[test]
    fn retry_starts_failed_and_cancelled_tasks_again_within_its_budget() {
        row(Event::Retry(Verdict::Again), [ACTIVE, ACTIVE, ACTIVE, COMPLETED, to(State::Pending), to(State::Pending)]);
        row(Event::Retry(Verdict::Final), [ACTIVE, ACTIVE, ACTIVE, COMPLETED, SPENT, SPENT]);
    }

    #[test]
    fn names_round_trip() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Ok(*state));
        }
        for task_type in TaskType::ALL {
            assert_eq!(TaskType::parse(task_type.as_str()), Ok(*task_type));
            assert_eq!(TaskType::parse_kind_name(task_type.kind_name()), Ok(*task_type));
        }
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::parse(refusal.as_str()), Ok(*refusal));
        }
    }

    #[test]
    fn an_unknown_type_lists_the_known_ones() {
        let error = TaskType::parse_kind_name("Pdf").unwrap_err().to_string();
        assert!(error.contains("PdfProcessing, Insert"), "{error}");
    }

    #[test]
    fn each_type_has_the_class_of_its_row() {
        let rows = [
            ("PdfProcessing", "pdf_processing", Class::Ingest),
            ("Insert", "insert", Class::Ingest),
            ("Upload", "upload", Class::Ingest),
            ("Scan", "scan", Class::Ingest),
            ("Reindex", "reindex", Class::Ingest),
            ("KnowledgeInjection", "knowledge_injection", Class::Ingest),
            ("Deletion", "deletion", Class::Lifecycle),
            ("WorkspaceWipe", "workspace_wipe", Class::Lifecycle),
        ];
        assert_eq!(rows.len(), TaskType::ALL.len());
        for (kind_name, name, class) in rows {
            let task_type = TaskType::parse(name).unwrap();
            assert_eq!(task_type.kind_name(), kind_name);
            assert_eq!(task_type.class(), class);
        }
    }

    #[test]
    fn a_state_is_pending_running_or_terminal() {
        for state in State::ALL {
            let kinds = [*state == State::Pending, state.is_running(), state.is_terminal()];
            assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{state}");
        }
    }

    #[test]
    fn completed_is_absorbing() {
        let verdicts = [Verdict::Again, Verdict::Final];
        let events = [Event::Claim, Event::Complete, Event::Cancel, Event::AcknowledgeStop, Event::Release]
            .into_iter()
            .chain(verdicts.map(Event::Fail))
            .chain(verdicts.map(Event::LeaseLost))
            .chain(verdicts.map(Event::Retry));
        for event in events {
            assert!(!matches!(apply(State::Completed, event), Outcome::Moved(_)), "{event:?}");
        }
    }
}
