//! Converters as processes: each converts one file, and while it does, the next one starts and waits for its own. A start
//! takes longer than most pages.

use std::fs::File;
use std::io;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};

use tokio::process::{Child, ChildStdin, Command};

use super::{ConvertSettings, allowed};
use crate::domain::failure::FailureClass;
use crate::worker::NotDone;

/// Read by the converter's library: the MiB that one compressed stream of a PDF may have in the end.
const STREAM_LIMIT: &str = "PDF_OXIDE_MAX_DECOMPRESS_MB";
/// So many of the largest streams have room in a converter's memory. A buffer that grows needs room for three; and where
/// memory ends before the limit is reached, the library takes the stream for a broken one, and tries it in twenty ways.
const STREAMS: u32 = 8;

pub struct Converters {
    settings: ConvertSettings,
    waiting: Mutex<Option<Child>>,
}

impl Converters {
    pub fn new(settings: ConvertSettings) -> Self {
        Self { settings, waiting: Mutex::default() }
    }

    /// One that has the file, from where it stands. Dropped, it is killed.
    pub fn start_on(&self, file: File) -> Result<Child, NotDone> {
        let mut child = match self.replace(None).and_then(alive) {
            Some(child) => child,
            None => self.start().map_err(|error| self.not_started(&error))?,
        };
        if let Some(stdin) = child.stdin.take() {
            tokio::task::spawn_blocking(move || pour(file, stdin));
        }
        // Why it could not be started is said when it is needed.
        self.replace(self.start().ok());
        Ok(child)
    }

    fn replace(&self, next: Option<Child>) -> Option<Child> {
        std::mem::replace(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner), next)
    }

    fn start(&self) -> io::Result<Child> {
        let ConvertSettings { program, memory_mib } = &self.settings;
        Command::new(program)
            .args(["--memory-mib", &memory_mib.to_string(), "--cpu-secs", &allowed(1).as_secs().to_string()])
            // It needs nothing else of an environment, and must not see ours.
            .env_clear()
            .env(STREAM_LIMIT, (memory_mib / STREAMS).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }

    fn not_started(&self, error: &io::Error) -> NotDone {
        let program = self.settings.program.display();
        let message = format!("the converter {program} cannot be started: {error}; set SLUICE_CONVERTER");
        NotDone::failed(FailureClass::Unknown, message)
    }
}

/// Somebody may have killed it while it waited.
fn alive(mut child: Child) -> Option<Child> {
    matches!(child.try_wait(), Ok(None)).then_some(child)
}

/// The kernel moves the bytes. A converter that ends before it has read all says why.
fn pour(mut file: File, stdin: ChildStdin) {
    if let Ok(pipe) = stdin.into_owned_fd() {
        let _ = io::copy(&mut file, &mut File::from(pipe));
    }
}
