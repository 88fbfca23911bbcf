//! `sluice migrate` through the real binary.

use std::process::{Command, Output};

use private_postgres::{Options, Server};

fn migrate(arguments: &[&str], database_url: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("migrate").args(arguments).env_clear();
    command.envs(database_url.map(|url| ("DATABASE_URL", url)));
    command.output().expect("the binary was built for this test")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_missing_or_wrong_database_url_is_a_settings_error_without_its_password() {
    let missing = migrate(&[], None);
    assert_eq!(missing.status.code(), Some(78));
    assert!(stderr(&missing).contains("DATABASE_URL is not set"), "{}", stderr(&missing));

    let wrong = migrate(&[], Some("mysql://sluice:hunter2@db/sluice"));
    assert_eq!(wrong.status.code(), Some(78));
    assert!(stderr(&wrong).contains("DATABASE_URL"), "{}", stderr(&wrong));
    assert!(!stderr(&wrong).contains("hunter2"), "{}", stderr(&wrong));
}

#[test]
fn migrate_brings_a_database_up_to_date_and_check_says_what_is_missing_before() {
    let server = Server::start(Options::fast()).expect("a private server starts");
    server.create_database("app").expect("a database is created");
    let url = server.url("app");

    let before = migrate(&["--check"], Some(&url));
    assert_eq!(before.status.code(), Some(1), "{}", stderr(&before));
    assert!(stdout(&before).contains("missing: 0001_"), "{}", stdout(&before));

    let first = migrate(&[], Some(&url));
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    assert!(stdout(&first).contains("applied 0001_"), "{}", stdout(&first));

    let second = migrate(&[], Some(&url));
    assert_eq!(stdout(&second), "the schema is up to date\n");

    let after = migrate(&["--check"], Some(&url));
    assert!(!stdout(&after).contains("missing"), "{}", stdout(&after));
}

#[test]
fn an_unreachable_server_is_named_without_its_password() {
    let output = migrate(&[], Some("postgres://sluice:hunter2@127.0.0.1:1/app"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("127.0.0.1:1"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("hunter2"), "{}", stderr(&output));
}
