//! A private server starts, keeps its data, and leaves nothing behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use private_postgres::{Error, Options, PgBouncer, PgBouncerOptions, Server};

const LIMIT: Duration = Duration::from_secs(20);

fn started(options: Options) -> Server {
    Server::start(options).expect("a server starts")
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ids of the processes whose command line names `directory`.
fn processes_of(directory: &Path) -> Vec<String> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,command="]).output().expect("ps runs");
    let name = directory.to_string_lossy();
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.contains(&*name)).map(str::to_owned).collect()
}

/// A run of the program, and the directory of its server.
fn run_that_waits(base: &Path) -> (Child, PathBuf) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_private-postgres"))
        .args(["run", "--directory"])
        .arg(base)
        .args(["--", "sh", "-c", "echo ready; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    BufReader::new(run.stdout.take().expect("a pipe")).read_line(&mut line).expect("the command writes");
    assert_eq!(line, "ready\n");
    (run, only_directory_in(base))
}

fn only_directory_in(base: &Path) -> PathBuf {
    let mut entries: Vec<_> = fs::read_dir(base).expect("the base").flatten().map(|entry| entry.path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

/// A base that the server's account can enter.
fn open_base() -> tempfile::TempDir {
    let base = tempfile::tempdir_in("/tmp").expect("a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(base.path(), mode).expect("permissions");
    base
}

#[test]
fn server_answers_over_tcp_and_socket_with_the_settings_asked_for() {
    let server = started(Options::fast().setting("work_mem", "7MB"));

    let over_socket = server.psql("postgres", "SHOW work_mem").expect("the socket answers");
    let over_tcp = Command::new(server.binaries().path("psql"))
        .args(["-X", "-A", "-t", "-c", "SHOW wal_level"])
        .arg(server.url("postgres"))
        .output()
        .expect("psql runs");

    assert_eq!(over_socket, "7MB");
    assert_eq!(String::from_utf8_lossy(&over_tcp.stdout).trim(), "logical");
}

#[test]
fn two_servers_run_side_by_side() {
    let servers: Vec<Server> = thread::scope(|scope| {
        let starts: Vec<_> = (0..2).map(|_| scope.spawn(|| started(Options::fast()))).collect();
        starts.into_iter().map(|start| start.join().expect("no panic")).collect()
    });

    assert_ne!(servers[0].port(), servers[1].port());
    for server in &servers {
        assert_eq!(server.psql("postgres", "SELECT 1").expect("it answers"), "1");
    }
}

#[test]
fn restart_keeps_data_and_port() {
    let mut server = started(Options::fast());
    server.create_database("kept").expect("a database");
    server.psql("kept", "CREATE TABLE t AS SELECT 42 AS answer").expect("a table");
    let port = server.port();

    server.restart().expect("a restart");

    assert_eq!(server.psql("kept", "SELECT answer FROM t").expect("it answers"), "42");
    assert_eq!(server.port(), port);
}

#[test]
fn crash_loses_nothing_that_was_committed() {
    let mut server = started(Options::fast());
    server.psql("postgres", "CREATE TABLE t AS SELECT generate_series(1, 1000) AS n").expect("a table");

    server.kill().expect("a crash");
    assert!(matches!(server.kill(), Err(Error::NotRunning)));
    server.start_again().expect("recovery");

    assert_eq!(server.psql("postgres", "SELECT count(*) FROM t").expect("it answers"), "1000");
}

#[test]
fn template_gives_each_test_a_database_of_its_own() {
    let server = started(Options::fast());
    server.create_database("template").expect("a database");
    server.psql("template", "CREATE TABLE t (n int)").expect("a table");

    server.copy_database("one", "template").expect("a copy");
    server.copy_database("two", "template").expect("a copy");
    server.psql("one", "INSERT INTO t VALUES (1)").expect("a row");

    assert_eq!(server.psql("two", "SELECT count(*) FROM t").expect("it answers"), "0");
}

#[test]
fn drop_leaves_neither_process_nor_directory() {
    let server = started(Options::fast());
    let directory = server.directory().to_owned();
    assert!(!processes_of(&directory).is_empty());

    drop(server);

    assert!(!directory.exists());
    eventually("no process is left", || processes_of(&directory).is_empty());
}

#[test]
fn killed_run_leaves_nothing() {
    let base = open_base();
    let (mut run, directory) = run_that_waits(base.path());

    run.kill().expect("SIGKILL");
    run.wait().expect("it ended");

    eventually("the directory is removed", || !directory.exists());
    eventually("no process is left", || processes_of(&directory).is_empty());
}

#[test]
fn run_and_supervisor_both_killed_are_removed_by_the_next_start() {
    let base = open_base();
    let (mut run, directory) = run_that_waits(base.path());
    let supervisors = processes_of(&directory).into_iter().filter(|line| line.contains("supervisor"));
    for line in supervisors {
        let pid = line.split_whitespace().next().expect("a pid").parse().expect("a number");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("SIGKILL");
    }
    run.kill().expect("SIGKILL");
    run.wait().expect("it ended");
    assert!(directory.exists());

    let next = started(Options::fast().base(base.path()));

    assert!(!directory.exists());
    assert!(next.directory().exists());
    eventually("no process is left", || processes_of(&directory).is_empty());
}

#[test]
fn exit_code_of_the_command_is_passed_on() {
    let status = Command::new(env!("CARGO_BIN_EXE_private-postgres"))
        .args(["run", "--", "sh", "-c", "test -n \"$DATABASE_URL\" && exit 7"])
        .status()
        .expect("the program runs");

    assert_eq!(status.code(), Some(7));
}

#[test]
fn signals_reach_the_command_and_the_server_goes_with_it() {
    let base = open_base();
    let (mut run, directory) = run_that_waits(base.path());

    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGTERM).expect("SIGTERM");
    let status = run.wait().expect("it ended");

    assert_eq!(status.code(), Some(128 + 15));
    assert!(!directory.exists());
}

#[test]
fn runs_for_an_account_that_is_not_root() {
    let Some(account) = User::from_name("nobody").ok().flatten().filter(|_| Uid::effective().is_root()) else {
        // Every other test has shown it.
        return;
    };
    // The build directory may be closed to others.
    let base = open_base();
    let program = base.path().join("private-postgres");
    fs::copy(env!("CARGO_BIN_EXE_private-postgres"), &program).expect("a copy of the program");

    let output = Command::new(&program)
        .args(["run", "--", "sh", "-c", "id -un; echo $DATABASE_URL"])
        .uid(account.uid.as_raw())
        .gid(account.gid.as_raw())
        .current_dir("/")
        .output()
        .expect("the program runs");

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("nobody\npostgres://postgres:"), "{output:?}");
}

#[test]
fn wrong_setting_is_told_with_the_end_of_the_log() {
    let error = Server::start(Options::fast().setting("work_memory", "1")).err().expect("it cannot start").to_string();

    assert!(error.contains("unrecognized configuration parameter \"work_memory\""), "{error}");
}

#[test]
fn pooler_answers_in_transaction_mode() {
    let server = started(Options::fast());
    let Some(pooler) = PgBouncer::start(&server.url("postgres"), &PgBouncerOptions::default()).expect("a pooler")
    else {
        eprintln!("skipped pooler_answers_in_transaction_mode: pgbouncer is not installed");
        return;
    };

    server.psql("postgres", "CREATE ROLE guest LOGIN PASSWORD 'secret'").expect("a role");

    let current_user = |url: String| {
        let output = Command::new(server.binaries().path("psql"))
            .args(["-X", "-A", "-t", "-c", "SELECT current_user"])
            .arg(url)
            .output()
            .expect("psql runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()
    };

    assert_eq!(current_user(pooler.url("postgres")), "postgres");
    assert_eq!(current_user(pooler.url_as("guest", "secret", "postgres")), "guest");
    assert!(current_user(pooler.url_as("guest", "wrong", "postgres")).contains("authentication failed"));
}
