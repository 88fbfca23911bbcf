//! A real `sluice worker`: started, asked, signalled and seen to end.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use sluice::store::Role;

use crate::bed::Bed;
use crate::http;
use crate::until::until;

/// Ends with this value, however the test does.
pub struct Process {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

/// What a process is told, and nothing else.
#[derive(Clone)]
pub struct Settings {
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
}

impl Settings {
    pub fn none() -> Self {
        Self { variables: Vec::new(), arguments: Vec::new() }
    }

    /// The last value given counts.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    #[must_use]
    pub fn argument(mut self, argument: impl ToString) -> Self {
        self.arguments.push(argument.to_string());
        self
    }
}

impl Process {
    /// A worker of the bed that handles tasks as their payload says.
    pub fn serve(bed: &Bed, slots: u32) -> Self {
        Self::start(&Self::settings(bed, slots))
    }

    pub fn settings(bed: &Bed, slots: u32) -> Settings {
        Settings::none()
            .set("DATABASE_URL", bed.db.url(Role::Worker))
            .set("SLUICE_TASK_DELIVERY", "bridged")
            .set("SLUICE_TEST_HANDLERS", "all")
            .set("WORKER_THREADS", slots)
            .set("SLUICE_LOG", "info,sluice=debug")
    }

    pub fn start(settings: &Settings) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.arg("worker").env_clear().env("RUST_BACKTRACE", "1").env("SLUICE_HEALTH_LISTEN", "127.0.0.1:0");
        command.envs(settings.variables.iter().cloned()).args(&settings.arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (stderr, lines) = (child.stderr.take().expect("a pipe"), log.clone());
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().expect("no panic holds it").push(line);
            }
        });
        Self { child, log, reader: Some(reader) }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).expect("a child that was not waited for has its pid");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// How it ended; the process must be on its way out.
    pub async fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the process ends", async || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        })
        .await;
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the log is read to its end");
        }
        status.expect("it has ended")
    }

    /// What it said on standard error so far.
    pub fn log(&self) -> String {
        self.log.lock().expect("no panic holds it").join("\n")
    }

    pub async fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        let log = self.log();
        let told = log.lines().filter(|line| line.contains("probes and metrics")).find_map(|line| {
            let digits = line.split_once("127.0.0.1:")?.1;
            digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        });
        // It listens nowhere yet.
        let port = told.ok_or(std::io::ErrorKind::ConnectionRefused)?;
        http::get(port, path).await
    }

    /// The row says that a task is processing a moment before the claim's reply is here.
    pub async fn until_it_holds(&self, at_least: u64) {
        let held = |text: &str| {
            let count = text.lines().find_map(|line| line.strip_prefix("sluice_worker_leases "));
            count.and_then(|count| count.parse::<u64>().ok())
        };
        until(
            "the worker has its tasks",
            async || matches!(self.get("/metrics").await, Ok((200, text)) if held(&text) >= Some(at_least)),
        )
        .await;
    }

    pub async fn until_ready(&self) {
        until("the worker is ready", async || matches!(self.get("/readyz").await, Ok((200, _)))).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL ends stopped processes as well. It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("── log of worker {} ──\n{}\n──", self.child.id(), self.log());
        }
    }
}
