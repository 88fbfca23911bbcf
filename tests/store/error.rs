//! Errors of a real server: sorted by what to do, with the real cause in words, never with a password.

use std::time::Duration;

use private_postgres::Options;
use sluice::store::{Database, PoolSettings, Role, StoreError};
use sqlx::Row;

use crate::common::postgres::TestDb;

const SOON: PoolSettings = PoolSettings { max_connections: 1, acquire_timeout: Duration::from_millis(500) };

fn handle(url: &str) -> Database {
    Database::new(url.parse().expect("a URL"), Role::Worker, SOON)
}

/// The error of a database that cannot be used, checked for what no error may say.
async fn ping_error(url: &str) -> StoreError {
    let error = handle(url).ping().await.expect_err(url);
    let everything = format!("{error} {error:?}");
    let password =
        url.split_once("://").and_then(|(_, rest)| rest.split_once('@')).and_then(|(user, _)| user.split_once(':'));
    if let Some((_, password)) = password {
        assert!(!everything.contains(password), "{everything}");
    }
    error
}

#[track_caller]
fn assert_transient(error: &StoreError, words: &str) {
    assert!(matches!(error, StoreError::Transient { .. }), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}

/// The URL with another part where the first one was.
fn with(url: &str, part: &str, other: &str) -> String {
    assert!(url.contains(part), "{part} in {url}");
    url.replacen(part, other, 1)
}

fn port_of(url: &str) -> &str {
    let after_host = url.rsplit_once('@').and_then(|(_, rest)| rest.split_once(':')).expect("a port").1;
    after_host.split('/').next().expect("a port")
}

#[tokio::test]
async fn wrong_port_is_named() {
    let db = TestDb::new().await;
    let url = db.url(Role::Worker);
    // Port 1 is nobody's.
    let error = ping_error(&with(&url, &format!(":{}/", port_of(&url)), ":1/")).await;

    assert_transient(&error, "nothing listens on 127.0.0.1:1: the port is wrong or the server is down");
}

#[tokio::test]
async fn wrong_host_is_named() {
    let db = TestDb::new().await;
    let url = db.url(Role::Worker);

    let error = ping_error(&with(&url, "@127.0.0.1:", "@no-such-host.invalid:")).await;

    assert_transient(&error, "the host of no-such-host.invalid:");
}

#[tokio::test]
async fn missing_socket_is_named() {
    let error = ping_error("postgres://app:hunter2@%2Fnowhere/sluice").await;

    assert_transient(&error, "there is no socket in /nowhere");
}

#[tokio::test]
async fn wrong_password_is_named() {
    let db = TestDb::new().await;

    let error = ping_error(&with(&db.url(Role::Worker), "only-for-tests", "hunter2")).await;

    if db.is_pooled() {
        assert_transient(&error, "authentication failed");
    } else {
        assert_transient(&error, "refused the password of role sluice_test_worker");
    }
}

#[tokio::test]
async fn missing_database_is_named() {
    let db = TestDb::new().await;
    let url = db.url(Role::Worker);
    let name = url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a database").to_owned();

    let error = ping_error(&with(&url, &name, "nowhere")).await;

    assert_transient(&error, "nowhere");
    assert!(db.is_pooled() || error.to_string().starts_with("there is no database nowhere on"), "{error}");
}

#[tokio::test]
async fn pool_that_is_all_in_use_is_named() {
    let db = TestDb::new().await;
    let database = db.connect(Role::Worker, SOON);
    let _held = database.begin().await.expect("the only connection");

    let error = database.ping().await.expect_err("there is no other");

    assert_transient(&error, "all 1 connections of this process");
}

#[tokio::test]
async fn missing_schema_says_what_to_run() {
    let db = TestDb::unmigrated().await;
    let database = db.connect(Role::Migrator, SOON);

    for text in ["select sluice.no_function()", "select from sluice.no_table"] {
        let error = database.execute(sqlx::query(text)).await.expect_err("there is no schema");
        assert_transient(&error, "run `sluice migrate`");
    }
}

#[tokio::test]
async fn busy_lock_is_transient() {
    let db = TestDb::new().await;
    sqlx::query("create table public.held (n int)").execute(db.admin()).await.expect("a table");
    let mut holder = db.admin().begin().await.expect("a transaction");
    sqlx::query("lock table public.held").execute(&mut *holder).await.expect("a lock");
    let database = db.connect(Role::Migrator, SOON);

    let mut waiting = database.begin().await.expect("a transaction");
    waiting.execute_script("set local lock_timeout = '10ms'").await.expect("a setting");
    let error = waiting.execute_script("lock table public.held").await.expect_err("it is held");

    assert_transient(&error, "lock timeout");
    assert_eq!(error.sqlstate().as_deref(), Some("55P03"));
}

#[tokio::test]
async fn read_only_server_is_told_apart() {
    let db = TestDb::new().await;
    let database = db.connect(Role::Migrator, SOON);

    let mut transaction = database.begin().await.expect("a transaction");
    transaction.execute_script("set transaction read only").await.expect("a setting");
    let error = transaction.execute_script("create table public.t (n int)").await.expect_err("it is read-only");

    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("takes no writes"), "{error}");
}

#[tokio::test]
async fn second_row_of_a_unique_key_is_a_conflict() {
    let db = TestDb::new().await;
    sqlx::query("create table public.keyed (k text primary key)").execute(db.admin()).await.expect("a table");
    let database = db.connect(Role::Migrator, SOON);
    let insert = || sqlx::query("insert into public.keyed values ($1)").bind("k");

    database.execute(insert()).await.expect("the first");
    let error = database.execute(insert()).await.expect_err("the second");

    assert!(matches!(error, StoreError::Conflict { .. }), "{error:?}");
}

#[tokio::test]
async fn value_that_postgres_cannot_store_is_bad_input() {
    let db = TestDb::new().await;
    let database = db.worker();

    let error = database.fetch_one(sqlx::query("select $1").bind("a\0b")).await.expect_err("U+0000");

    assert!(matches!(error, StoreError::BadInput { .. }), "{error:?}");
}

#[tokio::test]
async fn missing_grant_is_named() {
    let db = TestDb::new().await;
    sqlx::query("create table public.secret (n int)").execute(db.admin()).await.expect("a table");

    let error = db.worker().fetch_all(sqlx::query("select n from public.secret")).await.expect_err("no grant");

    assert!(matches!(error, StoreError::Bug { .. }), "{error:?}");
    assert!(error.to_string().starts_with("role sluice_test_worker may not do this"), "{error}");
}

#[tokio::test]
async fn url_that_hides_a_pooler_is_found_out() {
    let Some(db) = TestDb::through_pgbouncer("url_that_hides_a_pooler_is_found_out").await else { return };

    let error = ping_error(&with(&db.url(Role::Worker), "?pgbouncer=true", "")).await;

    assert_transient(&error, "add pgbouncer=true to the database URL");
}

#[tokio::test]
async fn restart_of_the_server_is_survived() {
    let mut db = TestDb::private(Options::fast()).await;
    let database = db.connect(Role::Worker, PoolSettings { acquire_timeout: Duration::from_millis(500), ..SOON });
    let mut cut = database.begin().await.expect("a transaction");

    db.server().stop().expect("a stop");
    let error = cut.fetch_one(sqlx::query("select 1")).await.expect_err("the session ended");
    assert!(matches!(error, StoreError::Transient { .. }), "{error:?}");
    drop(cut);
    assert_transient(&database.ping().await.expect_err("it is down"), "nothing listens on");

    db.server().start_again().expect("a start");
    database.ping().await.expect("it is back, without a restart of ours");
}

#[tokio::test]
async fn server_without_a_connection_left_is_named() {
    let settings = Options::fast().setting("max_connections", "8").setting("superuser_reserved_connections", "3");
    let db = TestDb::private(settings).await;
    let hog = db.connect(Role::Worker, PoolSettings { max_connections: 10, ..SOON });
    let mut held = Vec::new();
    while let Ok(transaction) = hog.begin().await {
        held.push(transaction);
    }

    let database = db.connect(Role::Operator, SOON);
    assert_transient(&database.ping().await.expect_err("none is left"), "has no connection left");

    held.clear();
    // Its connections close with the pool.
    hog.close().await;
    let row = database.fetch_one(sqlx::query("select 1")).await.expect("one is free again");
    assert_eq!(row.get::<i32, _>(0), 1);
}
