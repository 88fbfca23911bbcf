//! `private-postgres run -- COMMAND…`: runs a command with a server of its own in DATABASE_URL.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use private_postgres::{Options, Server};

const USAGE: &str = "usage: private-postgres run [--durable] [--directory DIR] [--setting NAME=VALUE]… -- COMMAND…

Starts a PostgreSQL server, runs COMMAND with its URL in DATABASE_URL, and removes the server afterwards.
The exit code is COMMAND's, 125 if the server could not be started, or 127 if COMMAND could not.

  --durable             commit as a production server does (default: fsync is off)
  --directory DIR       put the server's files below DIR (default: TMPDIR)
  --setting NAME=VALUE  set a parameter of the server; may be repeated
";
const FAILED: u8 = 125;
const NOT_FOUND: u8 = 127;

struct Invocation {
    options: Options,
    program: OsString,
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    let invocation = match parse(std::env::args_os().skip(1)) {
        Ok(Some(invocation)) => invocation,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("private-postgres: {problem}\n\n{USAGE}");
            return ExitCode::from(FAILED);
        }
    };
    let server = match Server::start(invocation.options) {
        Ok(server) => server,
        Err(error) => {
            report(&error);
            return ExitCode::from(FAILED);
        }
    };
    // Until here a signal may end us: the server goes then as well. From here `sigwait` takes them.
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().expect("these signals can be blocked");
    match start(&invocation.program, &invocation.arguments, &server.url("postgres"), signals) {
        Ok(mut command) => {
            forward(signals, &command);
            let status = command.wait().expect("a child can be waited for");
            drop(server);
            ExitCode::from(exit_code(status))
        }
        Err(error) => {
            eprintln!("private-postgres: could not run {}: {error}", invocation.program.display());
            ExitCode::from(NOT_FOUND)
        }
    }
}

/// `None` if help was asked for.
fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Option<Invocation>, String> {
    match words.next() {
        Some(word) if word == "run" => {}
        Some(word) if word == "--help" || word == "-h" => return Ok(None),
        Some(word) => return Err(format!("there is no command {}", word.display())),
        None => return Err("say what to run".to_owned()),
    }
    let mut settings = Vec::new();
    let mut durable = false;
    let mut base = None;
    loop {
        let word = words.next().ok_or("a `--` and a command are missing")?;
        match word.to_str() {
            Some("--") => break,
            Some("--help" | "-h") => return Ok(None),
            Some("--durable") => durable = true,
            Some("--directory") => base = Some(words.next().ok_or("--directory needs a directory")?),
            Some("--setting") => settings.push(setting(words.next())?),
            Some(_) | None => return Err(format!("there is no option {}", word.display())),
        }
    }
    let program = words.next().ok_or("a command is missing after `--`")?;
    let mut options = if durable { Options::durable() } else { Options::fast() };
    for (name, value) in settings {
        options = options.setting(name, value);
    }
    if let Some(base) = base {
        options = options.base(base);
    }
    Ok(Some(Invocation { options, program, arguments: words.collect() }))
}

fn setting(word: Option<OsString>) -> Result<(String, String), String> {
    word.as_deref()
        .and_then(|word| word.to_str()?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "--setting needs NAME=VALUE".to_owned())
}

#[allow(unsafe_code, reason = "only there can a new process be changed before it becomes the command")]
fn start(program: &OsString, arguments: &[OsString], url: &str, blocked: SigSet) -> std::io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env("DATABASE_URL", url);
    // What `cargo run` says of this package would be news to the build scripts of a cargo that we start: it would build
    // their dependencies anew, and so would the next one without us.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    // SAFETY: both calls are async-signal-safe and touch only the new process.
    unsafe {
        command.pre_exec(move || {
            blocked.thread_unblock()?;
            // A command without its server is of no use; only Linux can tie it to us.
            #[cfg(target_os = "linux")]
            nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
            Ok(())
        });
    }
    command.spawn()
}

fn forward(signals: SigSet, command: &Child) {
    let command = Pid::from_raw(command.id().cast_signed());
    // The terminal sends Ctrl-C to its whole foreground group, the command included.
    let terminal_sends_interrupts = std::io::stdin().is_terminal();
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal == Signal::SIGINT && terminal_sends_interrupts {
                continue;
            }
            // It may have ended in this moment.
            let _ = kill(command, signal);
        }
    });
}

/// As a shell tells it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(FAILED));
    u8::try_from(code).unwrap_or(FAILED)
}

fn report(error: &dyn std::error::Error) {
    eprint!("private-postgres: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        eprint!(": {cause}");
        source = cause.source();
    }
    eprintln!();
}
