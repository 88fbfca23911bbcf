//! Starts that cannot succeed: the exit code is not 0, one sentence says what to set, and nothing is retried in silence.

use sluice::store::Role;
use sqlx::{Connection, PgConnection};

use crate::bed::{Bed, LEASE};
use crate::common::postgres::TestDb;
use crate::process::{Process, Settings};

/// `EX_CONFIG`: starting again does not help until a setting is changed.
const CONFIG: i32 = 78;
/// It may help to start again.
const FAILURE: i32 = 1;

/// How a process ended that never began to work: its code, and what it said last.
async fn refusal(settings: &Settings) -> (i32, String) {
    let mut process = Process::start(settings);
    let status = process.end().await;
    let code = status.code().unwrap_or_else(|| panic!("{status}: {}", process.log()));
    let log = process.log();
    assert!(!log.contains("panicked"), "{log}");
    assert!(!log.contains("only-for-tests") && !log.contains("hunter2"), "a password is in {log}");
    let last = log.lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("sluice: "), "the last line is no sentence of ours:\n{log}");
    (code, last)
}

fn told(url: &str) -> Settings {
    Settings::none().set("DATABASE_URL", url).set("SLUICE_TEST_HANDLERS", "all")
}

#[tokio::test]
async fn settings_that_cannot_hold_end_with_78_and_one_sentence_that_names_what_to_set() {
    // Nothing listens there: settings are looked at first.
    let url = "postgres://sluice:hunter2@127.0.0.1:1/app";
    let cases: &[(&str, &str, &str)] = &[
        ("DATABASE_URL", "", "DATABASE_URL"),
        ("DATABASE_URL", "mysql://sluice:hunter2@db/app", "DATABASE_URL"),
        ("SLUICE_LISTEN_DATABASE_URL", "http://db:hunter2", "SLUICE_LISTEN_DATABASE_URL"),
        ("SLUICE_TASK_DELIVERY", "kafka", "local, bridged, notify_only"),
        ("SLUICE_TASK_DELIVERY", "LOCAL", "SLUICE_TASK_DELIVERY"),
        ("EDGEQUAKE_TASK_DELIVERY", "both", "EDGEQUAKE_TASK_DELIVERY"),
        ("SLUICE_REPLICAS", "2", "SLUICE_TASK_DELIVERY"),
        ("SLUICE_REPLICAS", "many", "SLUICE_REPLICAS"),
        ("SLUICE_REPLICAS", "-1", "SLUICE_REPLICAS"),
        ("WORKER_THREADS", "0", "WORKER_THREADS"),
        ("WORKER_THREADS", "4.5", "WORKER_THREADS"),
        ("SLUICE_TASK_LEASE_TTL_SECS", "29", "30"),
        ("SLUICE_TASK_LEASE_TTL_SECS", "1e3", "SLUICE_TASK_LEASE_TTL_SECS"),
        ("SLUICE_STARTUP_AUTO_RESUME", "maybe", "SLUICE_STARTUP_AUTO_RESUME"),
        ("TASK_PROCESSING_TIMEOUT_SECS", "an hour", "TASK_PROCESSING_TIMEOUT_SECS"),
        ("MAX_TASKS_PER_TENANT", "-3", "MAX_TASKS_PER_TENANT"),
        ("SLUICE_DRAIN_SECS", "soon", "SLUICE_DRAIN_SECS"),
        ("SLUICE_HANDLER_CONNECTIONS", "0", "SLUICE_HANDLER_CONNECTIONS"),
        ("SLUICE_HEALTH_LISTEN", "8081", "SLUICE_HEALTH_LISTEN"),
        ("SLUICE_TEST_HANDLERS", "translate", "SLUICE_TEST_HANDLERS"),
        ("SLUICE_LOG", "sluice=loud", "SLUICE_LOG"),
        ("SLUICE_LOG_FORMAT", "xml", "text, json"),
    ];
    for (name, value, expected) in cases {
        let (code, sentence) = refusal(&told(url).set(name, value)).await;
        assert_eq!(code, CONFIG, "{name}={value}: {sentence}");
        assert!(sentence.contains(expected), "{name}={value}: {sentence}");
    }
}

#[tokio::test]
async fn job_without_its_whole_attempt_is_a_usage_error() {
    for arguments in [&["--task=01890a5d-ac96-774b-bcce-b302099a8057"][..], &["--attempt=1"]] {
        let settings = arguments.iter().fold(told("postgres://sluice@127.0.0.1:1/app"), |s, a| s.argument(a));
        let mut process = Process::start(&settings);
        assert_eq!(process.end().await.code(), Some(2), "{}", process.log());
    }
    for (flag, value) in [("--task", "7"), ("--attempt", "0"), ("--attempt", "first")] {
        let whole = told("postgres://sluice@127.0.0.1:1/app").argument("--task=01890a5d-ac96-774b-bcce-b302099a8057");
        let whole =
            if flag == "--task" { told("postgres://sluice@127.0.0.1:1/app").argument("--attempt=1") } else { whole };
        let (code, sentence) = refusal(&whole.argument(format!("{flag}={value}"))).await;
        assert_eq!(code, CONFIG, "{sentence}");
        assert!(sentence.contains(flag), "{sentence}");
    }
}

#[tokio::test]
async fn server_that_is_not_there_is_named_and_not_waited_for_for_ever() {
    let (code, sentence) = refusal(&told("postgres://sluice:hunter2@127.0.0.1:1/app")).await;
    assert_eq!(code, FAILURE, "it may be there the next time: {sentence}");
    assert!(sentence.contains("127.0.0.1:1") && sentence.contains("nothing listens"), "{sentence}");
}

#[tokio::test]
async fn wrong_password_or_database_is_told_by_role_or_name() {
    let db = TestDb::new().await;
    let url = db.url(Role::Worker);
    let (code, sentence) = refusal(&told(&url.replace("only-for-tests", "hunter2"))).await;
    assert_eq!(code, CONFIG, "{sentence}");
    assert!(sentence.contains("password") && sentence.contains("sluice_test_worker"), "{sentence}");

    let (at, _) = url.rsplit_once('/').expect("a database");
    let (code, sentence) = refusal(&told(&format!("{at}/no_such_database"))).await;
    assert_eq!(code, CONFIG, "{sentence}");
    assert!(sentence.contains("there is no database no_such_database"), "{sentence}");
}

#[tokio::test]
async fn database_without_the_schema_or_with_an_older_one_asks_for_migrate() {
    let empty = TestDb::unmigrated().await;
    let older = TestDb::new().await;
    let forget = "delete from sluice.migrations where version = (select max(version) from sluice.migrations)";
    sqlx::raw_sql(forget).execute(older.admin()).await.expect("the newest migration is forgotten");
    for db in [&empty, &older] {
        let (code, sentence) = refusal(&told(&db.url(Role::Worker))).await;
        assert_eq!(code, CONFIG, "{sentence}");
        assert!(sentence.contains("sluice migrate"), "{sentence}");
    }
}

#[tokio::test]
async fn newer_schema_asks_for_a_newer_program() {
    let db = TestDb::new().await;
    let newer = "insert into sluice.migrations (version, name, checksum) values (9999, '9999_later.sql', 'x')";
    sqlx::raw_sql(newer).execute(db.admin()).await.expect("a later migration");
    let (code, sentence) = refusal(&told(&db.url(Role::Worker))).await;
    assert_eq!(code, CONFIG, "{sentence}");
    assert!(sentence.contains("newer version of sluice") && sentence.contains("9999"), "{sentence}");
}

/// A login that may enter the database, and is no worker.
#[tokio::test]
async fn role_without_rights_is_told_which_role_to_grant() {
    let db = TestDb::new().await;
    let stranger = "do $$ begin
        if not exists (select from pg_roles where rolname = 'sluice_test_stranger') then
          create role sluice_test_stranger login password 'only-for-tests';
        end if;
      exception when duplicate_object or unique_violation then null; end $$";
    sqlx::raw_sql(stranger).execute(db.admin()).await.expect("a role without rights");
    let url = db.url(Role::Worker).replace("sluice_test_worker", "sluice_test_stranger");
    PgConnection::connect(&url).await.expect("it may connect").close().await.expect("it closes");
    for url in [url, db.url(Role::Reader)] {
        let (code, sentence) = refusal(&told(&url)).await;
        assert_eq!(code, CONFIG, "{sentence}");
        assert!(sentence.contains("sluice_worker"), "{sentence}");
    }
}

#[tokio::test]
async fn pool_that_is_not_there_is_named() {
    let bed = Bed::new(LEASE).await;
    let (code, sentence) = refusal(&Process::settings(&bed, 1).set("SLUICE_POOL", "no-such-pool")).await;
    assert_eq!(code, CONFIG, "{sentence}");
    assert!(sentence.contains("no-such-pool"), "{sentence}");
}

#[tokio::test]
async fn role_that_may_not_enter_is_told_so() {
    let db = TestDb::new().await;
    let closed = "do $$ begin
        if not exists (select from pg_roles where rolname = 'sluice_test_closed') then
          create role sluice_test_closed nologin password 'only-for-tests';
        end if;
      exception when duplicate_object or unique_violation then null; end $$";
    sqlx::raw_sql(closed).execute(db.admin()).await.expect("a role that may not log in");
    for role in ["sluice_test_closed", "sluice_test_nobody"] {
        let (code, sentence) = refusal(&told(&db.url(Role::Worker).replace("sluice_test_worker", role))).await;
        assert_eq!(code, CONFIG, "{sentence}");
        assert!(sentence.contains(role), "{sentence}");
    }
}

#[tokio::test]
async fn worker_that_was_told_another_lease_than_its_pools_does_not_start() {
    let bed = Bed::new(LEASE).await;
    let asked = Process::settings(&bed, 1).set("SLUICE_TASK_LEASE_TTL_SECS", 60);
    let (code, sentence) = refusal(&asked).await;
    assert_eq!(code, CONFIG, "{sentence}");
    for part in ["60 s", "4 s", "SLUICE_TASK_LEASE_TTL_SECS", "set_pool", "\"default\""] {
        assert!(sentence.contains(part), "{part} is not in {sentence}");
    }
}

#[tokio::test]
async fn address_that_is_taken_is_named() {
    let bed = Bed::new(LEASE).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let (code, sentence) = refusal(&Process::settings(&bed, 1).set("SLUICE_HEALTH_LISTEN", address)).await;
    assert_eq!(code, FAILURE, "{sentence}");
    assert!(sentence.contains(&address.to_string()), "{sentence}");
}
