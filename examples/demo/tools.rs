//! Programs that the demo runs: what they print, or one sentence about why they failed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// What waits for others, and may be ended when they will not come any more.
static WAITING: Waiting = Waiting(Mutex::new(Vec::new()));

/// Process groups.
struct Waiting(Mutex<Vec<u32>>);

impl Waiting {
    fn add(&self, group: u32) {
        if let Ok(mut groups) = self.0.lock() {
            groups.push(group);
        }
    }

    fn remove(&self, group: u32) {
        if let Ok(mut groups) = self.0.lock() {
            groups.retain(|known| *known != group);
        }
    }

    fn end(&self) {
        let Ok(groups) = self.0.lock() else { return };
        for group in groups.iter().filter_map(|group| i32::try_from(*group).ok()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

/// Runs it until it ends or is ended, with something to read if there is.
pub fn run(command: &mut Command, input: Option<&str>) -> Result<String> {
    run_in(Some(&WAITING), command, input)
}

/// The same for what must not be ended half-way.
pub fn run_to_end(command: &mut Command) -> Result<String> {
    run_in(None, command, None)
}

/// Ends what `run` runs.
pub fn end_all() {
    WAITING.end();
}

fn run_in(waiting: Option<&Waiting>, command: &mut Command, input: Option<&str>) -> Result<String> {
    let name = command.get_program().to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
    let arguments = command.get_args().take(3).map(|argument| argument.to_string_lossy());
    let name = std::iter::once(name.into()).chain(arguments).collect::<Vec<_>>().join(" ");
    // Ctrl-C is for the demo, which then ends what it has begun.
    command.process_group(0);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("`{name}` cannot be run"))?;
    let group = child.id();
    waiting.iter().for_each(|waiting| waiting.add(group));
    let writer = child.stdin.take().zip(input.map(str::to_owned)).map(|(mut stdin, input)| {
        // One that fails early closes its input; its words say why.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())))
    });
    let output = child.wait_with_output();
    waiting.iter().for_each(|waiting| waiting.remove(group));
    if let Some(writer) = writer {
        let _ = writer.join();
    }
    let output = output.with_context(|| format!("`{name}` was lost"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    bail!("`{name}` failed: {}", reason(&String::from_utf8_lossy(&output.stderr)))
}

/// The same where other tasks of the runtime go on.
pub async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

/// The last line that says something: tools print warnings before it.
fn reason(said: &str) -> &str {
    said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it did not say why")
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_waits_can_be_ended() {
        static OWN: Waiting = Waiting(Mutex::new(Vec::new()));
        let begun = Instant::now();
        let waiting = thread::spawn(|| run_in(Some(&OWN), Command::new("sleep").arg("60"), None));
        while OWN.0.lock().expect("the list").is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not start");
            thread::sleep(Duration::from_millis(5));
        }
        OWN.end();
        let error = waiting.join().expect("an end").expect_err("it was ended");
        assert_eq!(error.to_string(), "`sleep 60` failed: it did not say why");
        assert!(OWN.0.lock().expect("the list").is_empty());
    }

    #[test]
    fn failure_is_one_sentence_with_the_programs_last_words() {
        let mut shell = Command::new("sh");
        let error =
            run(shell.args(["-c", "cat >&2; echo; exit 3"]), Some("a warning\nit broke\n")).expect_err("it fails");
        assert_eq!(error.to_string(), "`sh -c cat >&2; echo; exit 3` failed: it broke");
        let error = run(&mut Command::new("no-such-program"), None).expect_err("it is not there");
        assert!(error.to_string().starts_with("`no-such-program` cannot be run"), "{error}");
    }
}
