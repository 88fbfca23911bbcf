//! A directory of one's own with daemons in it, removed with them when its owner is gone, however that died.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Uid, User};

use crate::error::{Doing, Error, Result};

const SCRIPT: &str = include_str!("supervisor.sh");
const PREFIX: &str = "private-postgres.";
const LOCK: &str = "lock";
/// Short enough not to be felt, long enough not to burn a core.
const POLL: Duration = Duration::from_millis(5);
const LOG_TAIL_BYTES: usize = 2_000;

/// The shell that owns the directory and the daemons. It is a process of its own because only that survives a
/// `kill -9` of the owner; a parent-death signal would fire as soon as the thread that started a daemon ends.
pub(crate) struct Supervisor {
    directory: PathBuf,
    process: Child,
}

impl Supervisor {
    /// `base` is where the directory is made: `TMPDIR`, or `/tmp` if the daemons' account cannot reach that.
    pub(crate) fn new(base: Option<&Path>, stop_signal: Signal) -> Result<Self> {
        let account = unprivileged_account()?;
        let base = match (base, &account) {
            (Some(base), _) => base.to_owned(),
            (None, Some(account)) if !reachable(&std::env::temp_dir(), account) => PathBuf::from("/tmp"),
            (None, _) => std::env::temp_dir(),
        };
        remove_abandoned(&base);

        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&base)
            .doing("make a directory for the server")?;
        let lock = lock(directory.path()).doing("lock the server's directory")?;

        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "supervisor"]).arg(directory.path()).arg(signal_name(stop_signal));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        // A group of its own: Ctrl-C is the owner's to handle.
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(lock);
        if let Some(account) = &account {
            chown(directory.path(), Some(account.uid.as_raw()), Some(account.gid.as_raw()))
                .doing("give the directory to the server's account")?;
            command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        }
        let process = command.spawn().doing("start the supervisor")?;
        Ok(Self { directory: directory.keep(), process })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a file that the daemons' account can read.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        fs::write(&path, content).doing("write a file for the server")?;
        if let Some(account) = unprivileged_account()? {
            chown(&path, Some(account.uid.as_raw()), Some(account.gid.as_raw()))
                .doing("give a file to the server's account")?;
        }
        Ok(path)
    }

    /// Starts a program under a name that its log, its pid and its exit code are found by.
    pub(crate) fn start(&mut self, name: &str, program: &Path, arguments: &[&str]) -> Result<()> {
        let mut line = format!("exec {}", quoted(&program.to_string_lossy()));
        for argument in arguments {
            line.push(' ');
            line.push_str(&quoted(argument));
        }
        self.write(&format!("{name}.cmd"), &line)?;
        for suffix in ["pid", "exit"] {
            match fs::remove_file(self.file(name, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).doing("forget the last run of a program");
                }
                Ok(()) | Err(_) => {}
            }
        }
        let stdin = self.process.stdin.as_mut().expect("the pipe is closed only by drop");
        writeln!(stdin, "{name}").doing("tell the supervisor to start a program")
    }

    /// Waits until `ready` says so; ends early if the program does.
    pub(crate) fn wait_until(&self, name: &str, limit: Duration, ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !ready() {
            if let Some(code) = self.exit_code(name) {
                // It may have ended, as it should, between the two looks.
                if ready() {
                    break;
                }
                return Err(Error::Ended { program: name.to_owned(), code, log: self.log_tail(name) });
            }
            if Instant::now() > deadline {
                return Err(Error::TimedOut {
                    program: name.to_owned(),
                    seconds: limit.as_secs(),
                    log: self.log_tail(name),
                });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until the program has ended, well or not; false if it has not.
    pub(crate) fn wait_for_end(&self, name: &str, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.exit_code(name).is_none() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }

    pub(crate) fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let pid = self.pid(name).ok_or(Error::NotRunning)?;
        kill(nix::unistd::Pid::from_raw(pid), signal).map_err(std::io::Error::from).doing("signal the server")
    }

    pub(crate) fn pid(&self, name: &str) -> Option<i32> {
        if self.exit_code(name).is_some() {
            return None;
        }
        fs::read_to_string(self.file(name, "pid")).ok()?.trim().parse().ok()
    }

    pub(crate) fn exit_code(&self, name: &str) -> Option<i32> {
        fs::read_to_string(self.file(name, "exit")).ok()?.trim().parse().ok()
    }

    pub(crate) fn log_tail(&self, name: &str) -> String {
        let log = fs::read(self.file(name, "log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned()
    }

    fn file(&self, name: &str, suffix: &str) -> PathBuf {
        self.directory.join(format!("{name}.{suffix}"))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // Only a supervisor that was killed fails to be waited for, and then the next start removes what it left.
        let _ = self.process.wait();
    }
}

/// The account to run as where that must not be ours: PostgreSQL refuses root.
fn unprivileged_account() -> Result<Option<User>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| User::from_name(name).ok().flatten())
        .map(Some)
        .ok_or(Error::NoAccount)
}

fn reachable(directory: &Path, account: &User) -> bool {
    directory.ancestors().all(|ancestor| {
        fs::metadata(ancestor).is_ok_and(|metadata| {
            let search_bit = if metadata.uid() == account.uid.as_raw() { 0o100 } else { 0o001 };
            metadata.mode() & search_bit != 0
        })
    })
}

/// Taken before it gets its name, so that nobody finds it free while it is being made.
fn lock(directory: &Path) -> std::io::Result<File> {
    let unnamed = directory.join("lock.new");
    let file = File::create(&unnamed)?;
    file.lock()?;
    fs::rename(&unnamed, directory.join(LOCK))?;
    Ok(file)
}

/// Removes what is left of runs whose supervisor was killed as well: nobody holds their lock any more.
fn remove_abandoned(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let directory = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Another account's directory cannot be opened, and is not ours to remove.
        let Ok(lock) = File::options().write(true).open(directory.join(LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            end_daemons_of(&directory);
            let _ = fs::remove_dir_all(&directory);
        }
    }
}

/// Kills what still runs from `directory`, after a look at the command line: its pid may be another's by now.
fn end_daemons_of(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "pid") {
            continue;
        }
        let Some(pid) = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok()) else {
            continue;
        };
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command_line).contains(&*directory.to_string_lossy()) {
            let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGQUIT);
        }
    }
}

fn signal_name(signal: Signal) -> &'static str {
    signal.as_str().trim_start_matches("SIG")
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
