//! A process of ours: started as an operator would, ended by signals, looked at from outside.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
pub use std::process::Command;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use uuid::Uuid;

use super::bed::Database;

/// For what takes a moment, or a corpus, on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub struct Process {
    child: Child,
    output: Option<JoinHandle<String>>,
    log: Option<JoinHandle<String>>,
}

/// How it ended, and what it said.
pub struct Ended {
    pub took: Duration,
    pub output: String,
    pub log: String,
}

/// When each task's handler started or was told to stop, in microseconds since 1970: all processes of a machine have one clock.
pub type Times = HashMap<Uuid, u64>;

impl Process {
    pub fn start(mut command: Command, database: &Database, settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        // What the caller's shell has set is no setting of this process.
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("DATABASE_URL", database.worker_url());
        // A setting may lead to another database role.
        command.envs(settings.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start it")?;
        let output = child.stdout.take().map(read_to_end);
        let log = child.stderr.take().map(read_to_end);
        Ok(Self { child, output, log })
    }

    /// The row is what claims are made for: without it nothing has begun.
    pub async fn registered(&mut self, database: &Database) -> anyhow::Result<()> {
        self.until("the worker to register", database, "select count(*) from sluice.workers", |rows| rows > 0).await
    }

    /// Waits until a number of the database is as it should be.
    pub async fn until(
        &mut self,
        what: &str,
        database: &Database,
        sql: &'static str,
        is_right: impl Fn(i64) -> bool,
    ) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let number = database.number(sql).await?;
            if is_right(number) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status}) before {what}; it said: {}", text(&mut self.log));
            }
            ensure!(started.elapsed() < LIMIT, "waited {LIMIT:?} for {what}: {sql} says {number}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub fn terminate(&self) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().context("run kill")?;
        ensure!(status.success(), "it was gone before it was told to end");
        Ok(())
    }

    /// Without a word more.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("kill it")?;
        self.child.wait().context("wait for its end")?;
        Ok(())
    }

    /// Waits for the end, which must be a good one.
    pub async fn ended(mut self) -> anyhow::Result<Ended> {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(started.elapsed() < LIMIT, "it did not end within {LIMIT:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        };
        let took = started.elapsed();
        ensure!(status.success(), "it ended with {status}; it said: {}", text(&mut self.log));
        Ok(Ended { took, output: text(&mut self.output), log: text(&mut self.log) })
    }

    pub async fn stop(self) -> anyhow::Result<Ended> {
        self.terminate()?;
        self.ended().await
    }

    /// Resident memory in MiB.
    pub fn memory(&self) -> anyhow::Result<f64> {
        self.status_mib("VmRSS:")
    }

    /// The most resident memory that it ever had, in MiB; without its children.
    pub fn peak_memory(&self) -> anyhow::Result<f64> {
        self.status_mib("VmHWM:")
    }

    fn status_mib(&self, field: &str) -> anyhow::Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(Path::new(&path)).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().context(line.to_owned())?;
        Ok(kib / 1_024.0)
    }
}

impl Drop for Process {
    /// A cell that failed leaves nothing behind.
    fn drop(&mut self) {
        // It has ended already, if all went well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// On a thread of its own, so that no pipe is ever full.
fn read_to_end(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        // What is missing is found out by whoever looks for it.
        pipe.read_to_string(&mut text).ok();
        text
    })
}

fn text(reader: &mut Option<JoinHandle<String>>) -> String {
    reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default()
}

/// What handlers of a bench's worker print at its end: a word, a task and a time a line.
pub fn times(output: &str, word: &str) -> Times {
    let parse = |line: &str| {
        let (track_id, at) = line.strip_prefix(word)?.trim().split_once(' ')?;
        Some((track_id.parse().ok()?, at.parse().ok()?))
    };
    output.lines().filter_map(parse).collect()
}

pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
