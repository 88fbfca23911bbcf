//! Programs that the demo runs: what they print, or one sentence about why they failed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs it to its end, with something to read if there is.
pub fn run(command: &mut Command, input: Option<&str>) -> Result<String> {
    let name = command.get_program().to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
    let arguments: Vec<_> =
        command.get_args().take(3).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let name = format!("{name} {}", arguments.join(" "));
    // Ctrl-C is for the demo, which then ends what it has begun.
    command.process_group(0);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{name}` cannot be run"))?;
    let writer = child.stdin.take().zip(input.map(str::to_owned)).map(|(mut stdin, input)| {
        // One that fails early closes its input; its words say why.
        std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())))
    });
    let output = child.wait_with_output().with_context(|| format!("`{name}` was lost"))?;
    if let Some(writer) = writer {
        let _ = writer.join();
    }
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
    use super::*;

    #[test]
    fn failure_is_one_sentence_with_the_programs_last_words() {
        let mut shell = Command::new("sh");
        let error =
            run(shell.args(["-c", "cat >&2; echo; exit 3"]), Some("a warning\nit broke\n")).expect_err("it fails");
        assert_eq!(error.to_string(), "`sh -c cat >&2; echo; exit 3` failed: it broke");
        let error = run(&mut Command::new("no-such-program"), None).expect_err("it is not there");
        assert!(error.to_string().starts_with("`no-such-program ` cannot be run"), "{error}");
    }
}
