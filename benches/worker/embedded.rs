//! The worker of the bench: the runtime as a program of one's own embeds it, with handlers that note the time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use sluice::config::{LogArgs, LogFormat};
use sluice::domain::delivery::WakeMode;
use sluice::domain::task::TaskType;
use sluice::store::enqueue::NewTask;
use sluice::telemetry;
use sluice::worker::{Context, Done, Handled, Handlers, NotDone, Shutdown, WorkerSettings, run};
use uuid::Uuid;

use crate::common::bed::Database;
use crate::common::process::{Command, Process, now_us};

/// The argument that makes this program the worker.
pub const MODE: &str = "serve";
/// What a line of its output says of a task.
pub const STARTED: &str = "started";
pub const FIRED: &str = "fired";

/// What is done with a task, by its type; `load` makes inserts.
const NO_OP: TaskType = TaskType::Insert;
const NOTE_START: TaskType = TaskType::Scan;
const WAIT_FOR_TOKEN: TaskType = TaskType::Reindex;
const IGNORE_TOKEN: TaskType = TaskType::KnowledgeInjection;

const TENANTS: usize = 100;
/// Nobody asks for so many cancels or starts of one task type in a cell.
const NOTES: usize = 100_000;

/// Does nothing, and says when.
pub fn noting_start(number: usize) -> NewTask {
    NewTask::new(NOTE_START, format!("tenant-{}", number % TENANTS))
}

/// Runs until its token fires, and says when.
pub fn waiting_for_token(number: usize) -> NewTask {
    NewTask::new(WAIT_FOR_TOKEN, format!("tenant-{}", number % TENANTS))
}

/// Runs on, whatever its token says.
pub fn ignoring_token(number: usize) -> NewTask {
    NewTask::new(IGNORE_TOKEN, format!("tenant-{}", number % TENANTS))
}

/// How the worker differs from the defaults.
pub struct Embedded {
    pub slots: usize,
    pub delivery: WakeMode,
    pub drain: Duration,
}

impl Embedded {
    /// In a process of its own.
    pub fn start(&self, database: &Database) -> anyhow::Result<Process> {
        let program = std::env::current_exe().context("find this program")?;
        let mut command = Command::new(program);
        command.args([MODE, &self.slots.to_string(), self.delivery.as_str(), &self.drain.as_secs().to_string()]);
        command.arg(database.listener_url());
        Process::start(command, database, &[])
    }

    fn parse(words: &[String]) -> anyhow::Result<(Self, String)> {
        let [slots, delivery, drain, listen] = words else { anyhow::bail!("{MODE} SLOTS DELIVERY DRAIN LISTEN_URL") };
        let delivery = WakeMode::parse(delivery)?;
        Ok((Self { slots: slots.parse()?, delivery, drain: Duration::from_secs(drain.parse()?) }, listen.clone()))
    }
}

struct Note {
    word: &'static str,
    track_id: Uuid,
    at_us: u64,
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

impl Notes {
    fn add(&self, word: &'static str, context: &Context) {
        let note = Note { word, at_us: now_us(), track_id: context.task.attempt.track_id };
        self.lock().push(note);
    }

    fn print(&self) {
        for Note { word, track_id, at_us } in self.lock().iter() {
            println!("{word} {track_id} {at_us}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Note>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process's whole life. What handlers noted is printed at its end, so that no handler waits for a pipe.
pub async fn serve(words: &[String]) -> anyhow::Result<()> {
    let (Embedded { slots, delivery, drain }, listen) = Embedded::parse(words)?;
    // A log that is written costs something, as it does in production.
    telemetry::init(&LogArgs { log_format: LogFormat::Text, log: "info".parse()? })?;
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL")?;
    let mut settings = WorkerSettings::new(url.parse()?, u32::try_from(slots)?);
    settings.listen_database = listen.parse()?;
    settings.wake_mode = delivery;
    settings.drain = drain;
    let notes = Notes::default();
    notes.lock().reserve(NOTES);
    run(settings, handlers(&notes), Shutdown::on_signals()?).await?;
    notes.print();
    Ok(())
}

fn handlers(notes: &Notes) -> Handlers {
    let (starts, fires) = (notes.clone(), notes.clone());
    Handlers::new()
        .on(NO_OP, async |_: Context| Ok(Done::new()))
        .on(NOTE_START, move |context: Context| {
            starts.add(STARTED, &context);
            async { Ok(Done::new()) }
        })
        .on(WAIT_FOR_TOKEN, move |context: Context| {
            let notes = fires.clone();
            async move {
                context.cancellation().cancelled().await;
                notes.add(FIRED, &context);
                Err(NotDone::Stopped)
            }
        })
        .on(IGNORE_TOKEN, async |_: Context| std::future::pending::<Handled>().await)
}
