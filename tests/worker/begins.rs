//! A handler that is dropped in the middle of a `begin` leaves no transaction open.

use sluice::store::{PoolSettings, Role};
use sqlx::Row;

use crate::common::postgres::TestDb;
use crate::until::until;

const BEGINS: u64 = 1_000;
const CONNECTIONS: u32 = 4;

/// The time-out is what the house forbids: the test does what a mistake would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_cancelled_begins_leave_no_open_transaction() {
    let db = TestDb::new().await;
    let settings = PoolSettings { max_connections: CONNECTIONS, ..PoolSettings::default() };
    let database = db.connect(Role::Worker, settings);
    database.ping().await.expect("the server answers");
    // Cut off at every moment of what an undisturbed one takes, and at some after it.
    let started = std::time::Instant::now();
    database.begin().await.expect("a transaction").rollback().await.expect("a rollback");
    let usual = started.elapsed();
    for n in 0..BEGINS {
        let limit = usual.mul_f64((n % 50) as f64 / 40.0);
        drop(tokio::time::timeout(limit, database.begin()).await);
    }

    // As many at once as there are connections, so that each is looked at.
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        open.push(database.begin().await.expect("a transaction"));
    }
    for transaction in open {
        transaction.rollback().await.expect("a rollback");
    }
    let idle_in_transaction = "
        select count(*) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'";
    until("no transaction is open", async || {
        let open: i64 = sqlx::query(idle_in_transaction).fetch_one(db.admin()).await.expect("a count").get(0);
        open == 0
    })
    .await;
}
