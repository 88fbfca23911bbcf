//! Connections: time limits, poolers, and what a cancelled `begin` leaves behind.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use sluice::store::{Database, PoolSettings, Role};
use sqlx::Row;

use crate::common::postgres::TestDb;

async fn setting(database: &Database, name: &str) -> String {
    let row = database.fetch_one(sqlx::query("select current_setting($1)").bind(name)).await.expect("a setting");
    row.get(0)
}

async fn limits(database: &Database) -> [String; 3] {
    [
        setting(database, "statement_timeout").await,
        setting(database, "lock_timeout").await,
        setting(database, "idle_in_transaction_session_timeout").await,
    ]
}

#[tokio::test]
async fn each_role_has_its_limits_and_its_name() {
    let db = TestDb::new().await;

    assert_eq!(limits(&db.worker()).await, ["30s", "5s", "5s"]);
    assert_eq!(limits(&db.connect(Role::Handler, PoolSettings::default())).await, ["30s", "5s", "1min"]);
    assert_eq!(limits(&db.operator()).await, ["30s", "5s", "5s"]);
    assert_eq!(limits(&db.reader()).await, ["10s", "2s", "10s"]);
    assert_eq!(limits(&db.connect(Role::Migrator, PoolSettings::default())).await, ["0", "3s", "1min"]);
    assert_eq!(setting(&db.worker(), "application_name").await, "sluice worker");
}

#[tokio::test]
async fn limits_hold_through_pgbouncer() {
    let Some(db) = TestDb::through_pgbouncer("limits_hold_through_pgbouncer").await else { return };

    assert_eq!(limits(&db.worker()).await, ["30s", "5s", "5s"]);
    let mut transaction = db.reader().begin().await.expect("a transaction");
    let row = transaction.fetch_one(sqlx::query("select current_setting('lock_timeout')")).await.expect("a setting");
    assert_eq!(row.get::<String, _>(0), "2s");
}

#[tokio::test]
async fn statements_of_many_clients_are_never_mixed_up_by_pgbouncer() {
    const CLIENTS: i64 = 40;
    const STATEMENTS: i64 = 50;
    let Some(db) = TestDb::through_pgbouncer("statements_of_many_clients_are_never_mixed_up_by_pgbouncer").await else {
        return;
    };
    let settings = PoolSettings { max_connections: 20, ..PoolSettings::default() };
    let database = db.connect(Role::Worker, settings);

    let clients = (0..CLIENTS).map(|client| {
        let database = database.clone();
        tokio::spawn(async move {
            for number in 0..STATEMENTS {
                // Different texts, parameters and row shapes, so that a wrong statement cannot go unnoticed.
                let row = if (client + number) % 2 == 0 {
                    database.fetch_one(sqlx::query("select $1 * 2 + $2").bind(client).bind(number)).await
                } else {
                    database.fetch_one(sqlx::query("select $1 * 2 + 7, 'x'::text").bind(client)).await
                };
                let expected = if (client + number) % 2 == 0 { client * 2 + number } else { client * 2 + 7 };
                assert_eq!(row.expect("an answer").get::<i64, _>(0), expected);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.expect("no client failed");
    }
}

/// Polls a new `begin` so many times, lets the runtime run in between, and drops it.
async fn begin_and_cancel(database: &Database, polls: usize) {
    let mut begin = Box::pin(database.begin());
    for _ in 0..polls {
        let ready = begin.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(transaction) = ready {
            // Too late to cancel: an ordinary transaction that is dropped.
            drop(transaction);
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn cancelled_begin_takes_nobodys_write_with_it() {
    const MOMENTS: usize = 60;
    let db = TestDb::new().await;
    sqlx::query("create table public.written (n int)").execute(db.admin()).await.expect("a table");
    sqlx::query("grant all on public.written to public").execute(db.admin()).await.expect("a grant");
    let database = db.connect(Role::Worker, PoolSettings { max_connections: 1, ..PoolSettings::default() });

    for polls in 0..MOMENTS {
        // The answer comes within a few polls; after that it is too late.
        begin_and_cancel(&database, polls % 10).await;
        let insert = sqlx::query("insert into public.written values ($1)").bind(i32::try_from(polls).expect("small"));
        database.execute(insert).await.expect("an insert");
    }

    let written: i64 =
        sqlx::query("select count(*) from public.written").fetch_one(db.admin()).await.expect("a count").get(0);
    assert_eq!(written, i64::try_from(MOMENTS).expect("small"));
}

#[tokio::test]
async fn dropped_transaction_is_rolled_back() {
    let db = TestDb::new().await;
    sqlx::query("create table public.written (n int)").execute(db.admin()).await.expect("a table");
    let database = db.connect(Role::Migrator, PoolSettings { max_connections: 1, ..PoolSettings::default() });

    let mut transaction = database.begin().await.expect("a transaction");
    transaction.execute(sqlx::query("insert into public.written values (1)")).await.expect("an insert");
    drop(transaction);

    let count = database.fetch_one(sqlx::query("select count(*) from public.written")).await.expect("a count");
    assert_eq!(count.get::<i64, _>(0), 0);
}
