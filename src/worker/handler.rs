//! What somebody writes who wants work done: a handler for a task type, and what it gets and answers.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::reporter::{DocumentUpdate, Reporter};
use super::text::{self, MESSAGE_MAX_CHARS};
use crate::domain::failure::FailureClass;
use crate::domain::task::TaskType;
use crate::store::claim::Attempt;
use crate::store::enqueue::NewTask;
use crate::store::{Database, StoreError, Transaction};

/// Does the work of one task type. Write it as an `async fn`, or give a closure:
///
/// ```
/// use sluice::worker::{Context, Done, Handled, Handler};
///
/// struct Measure;
///
/// impl Handler for Measure {
///     async fn handle(&self, context: Context) -> Handled {
///         let text: String = context.payload()?;
///         context.reporter().stage("measuring");
///         Ok(Done::new().with_result(text.len()))
///     }
/// }
/// ```
///
/// A panic, a hang or a flood of text costs this task and nothing else. When `context.cancellation()` fires, end soon:
/// what ignores it is aborted at its next `.await` after the worker's grace, and the task is given up for it.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, context: Context) -> impl Future<Output = Handled> + Send;
}

impl<F, Fut> Handler for F
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Handled> + Send,
{
    fn handle(&self, context: Context) -> impl Future<Output = Handled> + Send {
        self(context)
    }
}

/// How a handler ends. `?` on any error means [`NotDone::Failed`] with class `unknown`; see [`NotDone`].
pub type Handled = Result<Done, NotDone>;

/// The work is done. What is committed with it, if anything, is told here.
#[derive(Default)]
#[must_use = "it is the handler's answer"]
pub struct Done {
    pub(super) result: Option<Value>,
    pub(super) document: DocumentUpdate,
    pub(super) next: Option<Box<NewTask>>,
    pub(super) transaction: Option<Transaction>,
}

impl Done {
    pub fn new() -> Self {
        Self::default()
    }

    /// Kept with the task; at most 1 MiB of JSON.
    pub fn with_result(mut self, result: impl Into<Value>) -> Self {
        self.result = Some(result.into());
        self
    }

    /// What became of the task's document.
    pub fn with_document(mut self, document: DocumentUpdate) -> Self {
        self.document = document;
        self
    }

    /// Enqueued in the transaction that completes this task, or not at all. Tenant, workspace and document are this
    /// task's, whatever `next` says.
    pub fn then(mut self, next: NewTask) -> Self {
        self.next = Some(Box::new(next));
        self
    }

    /// What was written in a transaction of [`Context::begin`] becomes visible with the end of the task, or never: the
    /// worker completes the task in it and commits.
    pub fn publish(mut self, transaction: Transaction) -> Self {
        self.transaction = Some(transaction);
        self
    }
}

/// Why the work is not done. Every error becomes one by `?`: `Failed` with class `unknown`, or `GiveBack` if it says that
/// the database is away.
#[derive(Debug)]
pub enum NotDone {
    /// Counts; tried again unless the class is permanent or the task's attempts are spent.
    Failed { class: FailureClass, message: String },
    /// Pending again, not counted.
    GiveBack { reason: String },
    /// A provider said 429: pending again, not counted, and its lane rests for a while, at least as long as it asked for.
    RateLimited { reason: String, retry_after_secs: Option<u32> },
    /// The handler saw its token fire and stopped. Without a fired token it is a failure.
    Stopped,
}

impl NotDone {
    pub fn failed(class: FailureClass, message: impl Into<String>) -> Self {
        Self::Failed { class, message: text::bounded(message.into(), MESSAGE_MAX_CHARS) }
    }

    pub fn give_back(reason: impl Into<String>) -> Self {
        Self::GiveBack { reason: text::bounded(reason.into(), MESSAGE_MAX_CHARS) }
    }

    pub fn rate_limited(reason: impl Into<String>, retry_after_secs: Option<u32>) -> Self {
        Self::RateLimited { reason: text::bounded(reason.into(), MESSAGE_MAX_CHARS), retry_after_secs }
    }
}

impl<E: Into<anyhow::Error>> From<E> for NotDone {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast_ref::<StoreError>() {
            Some(store) if store.is_outage() => Self::give_back(store.to_string()),
            Some(_) | None => Self::failed(FailureClass::Unknown, format!("{error:#}")),
        }
    }
}

/// What a handler is given to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Track id, and the number that fences every write of this run.
    pub attempt: Attempt,
    pub task_type: TaskType,
    pub tenant: String,
    pub workspace: Option<String>,
    pub document_id: Option<Uuid>,
    pub payload: Value,
    /// From the claim on.
    pub timeout_secs: u32,
    /// Earlier attempts that a handler failed.
    pub failures: u32,
}

/// Why a token fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopCause {
    /// Somebody cancelled the task.
    Cancel,
    /// The lane is being drained: the task is given back.
    Drain,
    /// The worker ends: the task is given back.
    Shutdown,
    /// The task took longer than it may.
    Timeout,
    /// The database says that the task is another's, or has ended.
    Lost,
    /// The lease could not be renewed in time.
    LeaseOver,
}

/// The handler's side of one attempt.
pub struct Context {
    pub task: Task,
    pub(super) stop: Arc<super::attempt::Stop>,
    pub(super) reporter: Reporter,
    pub(super) database: Database,
    pub(super) control: Handle,
}

impl Context {
    /// The payload as the handler's own type; what does not fit it is a permanent failure, `invalid_document`.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, NotDone> {
        T::deserialize(&self.task.payload).map_err(|error| {
            NotDone::failed(FailureClass::InvalidDocument, format!("the payload does not fit its task: {error}"))
        })
    }

    /// Fires when the handler is to stop.
    pub fn cancellation(&self) -> &CancellationToken {
        self.stop.token()
    }

    /// Why it fired; `None` while it has not.
    pub fn stop_cause(&self) -> Option<StopCause> {
        self.stop.cause()
    }

    /// `context.check()?` between two steps ends a handler that is to stop.
    pub fn check(&self) -> Result<(), NotDone> {
        if self.stop.token().is_cancelled() { Err(NotDone::Stopped) } else { Ok(()) }
    }

    /// The work's answer, or `Stopped` as soon as the token fires; the work is dropped then. Not for what talks to the
    /// database: let that finish, then `check`.
    pub async fn unless_stopped<F: Future>(&self, work: F) -> Result<F::Output, NotDone> {
        self.stop.token().run_until_cancelled(work).await.ok_or(NotDone::Stopped)
    }

    /// Stage, progress, message, cost and what becomes of the document.
    pub fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// A transaction for what this attempt publishes; hand it over with [`Done::publish`]. Dropped, it is rolled back.
    /// Statements in it may take 30 s, and it may lie idle for 60 s: open it when the work is done.
    pub async fn begin(&self) -> Result<Transaction, StoreError> {
        let database = self.database.clone();
        // On the worker's own thread, where its end is written too: handlers that block theirs hold up nobody's end.
        let begun = self.control.spawn(async move { database.begin().await }).await;
        begun.unwrap_or_else(|_| {
            Err(StoreError::Transient { cause: "the worker that ran this task has ended".to_owned(), driver: None })
        })
    }

    /// The handlers' own few connections, for reads and for writes that need not wait for the end.
    pub fn database(&self) -> &Database {
        &self.database
    }
}

/// Who handles what. A task of a type that is not here fails as `unsupported_type`.
#[derive(Clone, Default)]
pub struct Handlers {
    by_type: Vec<(TaskType, Arc<dyn ErasedHandler>)>,
}

impl Handlers {
    pub fn new() -> Self {
        Self::default()
    }

    /// The last one for a type holds.
    pub fn on(mut self, task_type: TaskType, handler: impl Handler) -> Self {
        self.set(task_type, Arc::new(handler));
        self
    }

    /// One handler for several types.
    pub fn on_each(mut self, task_types: &[TaskType], handler: impl Handler) -> Self {
        let handler: Arc<dyn ErasedHandler> = Arc::new(handler);
        for task_type in task_types {
            self.set(*task_type, Arc::clone(&handler));
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.by_type.is_empty()
    }

    pub fn task_types(&self) -> Vec<TaskType> {
        self.by_type.iter().map(|(task_type, _)| *task_type).collect()
    }

    pub(super) fn get(&self, task_type: TaskType) -> Option<Arc<dyn ErasedHandler>> {
        self.by_type.iter().find(|(known, _)| *known == task_type).map(|(_, handler)| Arc::clone(handler))
    }

    fn set(&mut self, task_type: TaskType, handler: Arc<dyn ErasedHandler>) {
        self.by_type.retain(|(known, _)| *known != task_type);
        self.by_type.push((task_type, handler));
    }
}

/// [`Handler`], behind a pointer.
pub(super) trait ErasedHandler: Send + Sync {
    fn handle_boxed(self: Arc<Self>, context: Context) -> BoxFuture<'static, Handled>;
}

impl<H: Handler> ErasedHandler for H {
    fn handle_boxed(self: Arc<Self>, context: Context) -> BoxFuture<'static, Handled> {
        async move { self.handle(context).await }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_counted_failure_with_its_whole_chain() {
        fn work() -> Handled {
            Err(anyhow::anyhow!("the disk is full").context("the page was not kept"))?
        }

        let Err(NotDone::Failed { class, message }) = work() else { panic!("a failure") };

        assert_eq!(class, FailureClass::Unknown);
        assert_eq!(message, "the page was not kept: the disk is full");
    }

    #[test]
    fn the_database_being_away_is_no_failure_of_the_work() {
        let away = StoreError::Transient { cause: "nothing listens".to_owned(), driver: None };

        assert!(matches!(NotDone::from(away), NotDone::GiveBack { reason } if reason == "nothing listens"));
    }

    #[test]
    fn messages_are_bounded_and_storable() {
        let NotDone::Failed { message, .. } = NotDone::failed(FailureClass::Unknown, "\0ä".repeat(1_000_000)) else {
            panic!("a failure")
        };

        assert_eq!(message, "ä".repeat(MESSAGE_MAX_CHARS));
    }

    #[test]
    fn the_last_handler_of_a_type_holds() {
        let give_back = |reason: &'static str| move |_: Context| async move { Err(NotDone::give_back(reason)) };
        let handlers = Handlers::new()
            .on_each(&[TaskType::Insert, TaskType::Upload], give_back("first"))
            .on(TaskType::Insert, give_back("second"));

        assert_eq!(handlers.task_types(), [TaskType::Upload, TaskType::Insert]);
        assert!(handlers.get(TaskType::Scan).is_none());
    }
}
