//! The program as a worker starts it: what it says, and what it cannot do.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../../tests/common/pdf.rs"]
mod pdf;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::pdf::pdf;

/// Long enough for a machine that does other things as well.
const DEADLINE: Duration = Duration::from_secs(60);

fn converter() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice-convert"));
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(input: &[u8]) -> Child {
    let mut child = converter().spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(input).unwrap();
    child
}

fn convert(input: &[u8]) -> (Vec<String>, Output) {
    let output = start(input).wait_with_output().unwrap();
    (String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_owned).collect(), output)
}

#[test]
fn each_page_is_a_line_and_the_last_line_says_that_it_is_the_last() {
    let (lines, output) = convert(&pdf(&["Hello harbour", "Good night"]));

    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[0], r#"{"pages":2}"#);
    assert!(lines[1].starts_with(r#"{"page":""#) && lines[1].contains("Hello harbour"), "{lines:?}");
    assert!(lines[2].contains("Good night"), "{lines:?}");
    assert_eq!(lines[3], r#""done""#);
}

#[test]
fn what_is_no_pdf_is_told_and_is_no_failure_of_the_program() {
    let (half, none) = (pdf(&["x"])[..90].to_owned(), pdf(&[""; 0]));
    // The tree of the half is there, and none of its pages.
    let rows = [(b"".as_slice(), "invalid"), (b"<html>no</html>", "invalid"), (&half, "no_pages"), (&none, "no_pages")];
    for (input, problem) in rows {
        let (lines, output) = convert(input);
        assert!(output.status.success(), "{output:?}");
        assert!(lines[0].starts_with(&format!(r#"{{"failed":{{"problem":"{problem}","message":""#)), "{lines:?}");
    }
}

#[test]
fn all_its_threads_are_locked_in_before_it_has_read_anything() {
    let mut child = start(b"%PDF-");
    let tasks = format!("/proc/{}/task", child.id());
    let locked = |status: &str| status.contains("\nSeccomp:\t2\n") && status.contains("\nNoNewPrivs:\t1\n");

    let begun = Instant::now();
    loop {
        let statuses: Vec<_> = fs::read_dir(&tasks)
            .unwrap()
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok())
            .collect();
        if statuses.len() == 2 && statuses.iter().all(|status| locked(status)) {
            break;
        }
        assert!(begun.elapsed() < DEADLINE, "{statuses:#?}");
        sleep(Duration::from_millis(5));
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let soft = |name: &str| limits.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert!(soft("Max address space").starts_with("1073741824 "), "{limits}");
    assert!(soft("Max cpu time").starts_with("60 "), "{limits}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn it_ends_when_nobody_reads() {
    let mut child = start(b"%PDF-");
    drop(child.stdout.take());

    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < DEADLINE, "it goes on for nobody");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn memory_beyond_the_limit_ends_it_and_says_so() {
    let mut child = converter().args(["--memory-mib", "128"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // It stops reading when it cannot keep what it reads.
    while input.write_all(&[b' '; 1 << 20]).is_ok() {}
    drop(input);

    let complaint = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok).collect::<String>();
    assert!(!child.wait().unwrap().success());
    assert!(complaint.contains("memory"), "{complaint}");
}
