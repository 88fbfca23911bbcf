//! Who waits for whom: calls that meet in the wrong order must not wait in a ring, nor fill the server's lock table.

use private_postgres::Options;
use serde_json::{Value, json};
use sluice::store::{PoolSettings, Role, StoreError};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::invariants;
use super::scene::{
    Attempt, Open, Scene, TENANT, at_once, cancel, claim, enqueue, enqueue_items, heartbeat, register, release, rows,
    set_lane, spawn, try_claim, try_enqueue_items,
};
use crate::common::postgres::TestDb;

/// Each would fold the other's wake, hold that lane, and then wait for its own.
#[tokio::test]
async fn claimers_of_two_pools_that_fold_each_others_wakes_do_not_wait_in_a_ring() {
    let (scene, _) = Scene::with_lane(9, 3).await;
    rows(&mut scene.operator.clone(), sqlx::query("select sluice.set_pool('other')")).await;
    set_lane(&mut scene.operator.clone(), "b", json!({ "pool": "other" })).await;
    enqueue(&mut scene.worker.clone(), "b", 3).await;
    let other = register(&mut scene.worker.clone(), "other").await;
    // Wakes that are left when two freers woke a lane at once; the floors show the first pool only the second wake.
    scene
        .admin_execute(
            "insert into sluice.lane_wakes (lane_id) values (1), (2);
             update sluice.pools set full_scan_at = now() + interval '1 hour', wake_floor = case pool when 'default' then 2 else 1 end",
        )
        .await;
    let mut holder = scene.db.admin().begin().await.expect("a transaction");
    sqlx::query("select from sluice.lane_wakes for update").fetch_all(&mut *holder).await.expect("the wakes");

    let mut calls = Vec::new();
    for worker in [scene.id, other] {
        let mut session = Open::begin(&scene.worker).await;
        let pid = session.pid;
        calls.push(spawn(async move {
            let claimed = try_claim(&mut session, worker, 1, 1, 1).await;
            session.commit().await;
            claimed
        }));
        super::scene::until("it folds a wake", async || {
            let waits = sqlx::query("select cardinality(pg_blocking_pids($1)) > 0").bind(pid);
            sqlx::Row::get(&waits.fetch_one(scene.db.admin()).await.expect("an answer"), 0)
        })
        .await;
    }
    holder.rollback().await.expect("the rollback");

    for call in calls {
        call.await.expect("a call").expect("neither is a victim of a deadlock");
    }
    invariants::hold(&scene).await;
}

/// It holds the rows that it renews, so it must not wait for those that it gives back.
#[tokio::test]
async fn heartbeat_that_gives_back_a_claim_waits_for_nobody() {
    let (scene, _) = Scene::with_lane(9, 2).await;
    let mut worker = scene.worker.clone();
    let unnamed = claim(&mut worker, scene.id, 1, 1).await;
    let named = claim(&mut worker, scene.id, 2, 1).await;
    let mut operator = Open::begin(&scene.operator).await;
    assert_eq!(cancel(&mut operator, unnamed[0].track_id).await, "stopping");

    let answers = at_once("a heartbeat", heartbeat(&mut worker, scene.id, 2, &named)).await;
    assert_eq!(answers, ["serving", "renewed"]);
    operator.rollback().await;

    heartbeat(&mut worker, scene.id, 2, &named).await;
    assert_eq!(scene.state(unnamed[0].track_id).await, "pending", "the next one gives it back");
    invariants::hold(&scene).await;
}

/// Two batches that lock the same rows in two orders wait in a ring; so all lock the lowest first. The rows lie in the table
/// the other way round, and there are few of them: a plan that reads the table would take them as they lie.
#[tokio::test]
async fn every_batch_locks_the_lowest_task_and_the_lowest_document_first() {
    let scene = Scene::new().await;
    for verb in ["cancel_active", "release", "complete_many", "reap"] {
        for table in ["tasks", "documents"] {
            // A reaper passes by what is locked, and a cancel of what runs leaves its document alone.
            if matches!((verb, table), ("reap", "tasks") | ("cancel_active", "documents")) {
                continue;
            }
            let (low, high, tasks) = upside_down(&scene, table, verb != "cancel_active").await;
            let mut holder = scene.db.admin().begin().await.expect("a transaction");
            let pid: i32 = sqlx::Row::get(
                &sqlx::query("select pg_backend_pid()").fetch_one(&mut *holder).await.expect("a pid"),
                0,
            );
            lock(&mut holder, table, low).await.expect("nobody has it");
            let (ids, attempts): (Vec<_>, Vec<_>) = tasks.iter().map(|task| (task.track_id, task.attempt)).unzip();
            let mut session = Open::begin(if verb == "cancel_active" { &scene.operator } else { &scene.worker }).await;
            let waiting = session.pid;
            let call = spawn(async move {
                let statement = match verb {
                    "cancel_active" => sqlx::query("select from sluice.cancel_active('{}')"),
                    "reap" => sqlx::query("select from sluice.reap()"),
                    "release" => sqlx::query("select from sluice.release($1, $2)").bind(ids).bind(attempts),
                    _ => sqlx::query("select from sluice.complete_many($1, $2)").bind(ids).bind(attempts),
                };
                let done = rows(&mut session, statement).await.len();
                session.commit().await;
                done
            });
            scene.until_blocked(waiting, pid).await;

            let mut other = scene.db.admin().begin().await.expect("a transaction");
            let free = lock(&mut other, table, high).await;
            assert!(free.is_ok(), "{verb} has the higher one of {table}, and waits for the lower one");
            other.rollback().await.expect("the rollback");
            holder.rollback().await.expect("the rollback");
            assert_eq!(call.await.expect("a call"), 2, "{verb}");
            invariants::hold(&scene).await;
        }
    }
}

/// Two running tasks of late workers, the first of them stopping or not, with documents in the other order; and the two rows
/// of the table, the lower one last.
async fn upside_down(scene: &Scene, table: &str, is_stopping: bool) -> (Uuid, Uuid, Vec<Attempt>) {
    scene.lane(9, 0).await;
    let documents = [9_u128, 1].map(Uuid::from_u128);
    let items = documents.map(|id| json!({ "type": "insert", "tenant": TENANT, "document_id": id }));
    for item in items {
        enqueue_items(&mut scene.worker.clone(), &[item]).await;
    }
    let mut tasks = scene.claim(2).await;
    tasks.sort_by_key(|task| task.track_id);
    if is_stopping {
        cancel(&mut scene.operator.clone(), tasks[0].track_id).await;
    }
    scene
        .admin_execute(
            "update sluice.tasks set lease_until = now() - interval '1 s' where document_id = '00000000-0000-0000-0000-000000000001';
             update sluice.tasks set lease_until = now() - interval '1 s' where document_id <> '00000000-0000-0000-0000-000000000001';
             analyze sluice.tasks, sluice.documents;",
        )
        .await;
    match table {
        "tasks" => (tasks[0].track_id, tasks[1].track_id, tasks),
        _ => (documents[1], documents[0], tasks),
    }
}

async fn lock(session: &mut PgConnection, table: &str, id: Uuid) -> Result<PgRow, sqlx::Error> {
    let statement = match table {
        "tasks" => "select from sluice.tasks where track_id = $1 for update nowait",
        _ => "select from sluice.documents where document_id = $1 for update nowait",
    };
    sqlx::query(statement).bind(id).fetch_one(session).await
}

#[tokio::test]
async fn batches_that_name_the_same_keys_in_another_order_do_not_wait_in_a_ring() {
    const ROUNDS: usize = 6;
    for kind in ["idempotency_key", "exclusive_key"] {
        let (scene, _) = Scene::with_lane(9, 0).await;
        for round in 0..ROUNDS {
            let item = |nth: usize| {
                let mut item = json!({ "type": "insert", "tenant": TENANT });
                item[kind] = json!(format!("{round}-{nth}"));
                item
            };
            // Somebody has a key for a moment, so that both come to it together.
            let mut first = Open::begin(&scene.worker).await;
            enqueue_items(&mut first, &[item(round % 2)]).await;
            let mut calls = Vec::new();
            for items in [[item(0), item(1)], [item(1), item(0)]] {
                let mut session = Open::begin(&scene.worker).await;
                let pid = session.pid;
                calls.push(spawn(async move {
                    let outcomes = try_enqueue_items(&mut session, &items).await;
                    session.commit().await;
                    outcomes
                }));
                super::scene::until("it comes to the key", async || {
                    let waits = sqlx::query("select cardinality(pg_blocking_pids($1)) > 0").bind(pid);
                    sqlx::Row::get(&waits.fetch_one(scene.db.admin()).await.expect("an answer"), 0)
                })
                .await;
            }
            first.rollback().await;
            let mut created = 0;
            for call in calls {
                let outcomes = call.await.expect("a call").expect("neither is a victim of a deadlock");
                created += outcomes.iter().filter(|(_, outcome)| outcome == "created").count();
            }
            assert_eq!(created, 2, "each key has one task");
        }
        assert_eq!(scene.claim(9).await.len(), 9);
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn lanes_that_rest_and_a_pool_that_is_set_do_not_wait_in_a_ring() {
    let (scene, _) = Scene::with_lane(9, 0).await;
    let tenants = ["b", "c", "d"];
    for tenant in tenants {
        enqueue(&mut scene.worker.clone(), tenant, 1).await;
    }
    // The rows' order on disk is not that of their ids.
    scene.admin_execute("update sluice.tenant_lanes set cool_downs = 0 where tenant = 'b'").await;
    let claimed = scene.claim(9).await;
    let mut resting = Open::begin(&scene.worker).await;
    let statement = sqlx::query("select outcome from sluice.release($1, $2, '429', true)")
        .bind(claimed.iter().map(|task| task.track_id).collect::<Vec<_>>())
        .bind(claimed.iter().map(|task| task.attempt).collect::<Vec<_>>());
    rows(&mut resting, statement).await;
    let set = async |operator: &mut Open| {
        rows(operator, sqlx::query(r#"select sluice.set_pool('default', '{"ingest_cap": 7}')"#)).await.len()
    };
    assert_eq!(scene.outcome(resting, super::scene::Ending::Commit, &scene.operator, set).await, 1);
    let capped: i64 = scene.admin_value("select count(*) from sluice.lane_turns where cap = 7 and is_held").await;
    assert_eq!(capped, 3, "they rest, and have the new cap");
}

const SESSIONS: usize = 24;

/// Lanes for every session, made at once.
async fn many_lanes(scene: &Scene) {
    scene
        .admin_execute(
            "insert into sluice.tenant_lanes (tenant, class, pool_id, max_running, effective_max_running)
             select format('t%s', n), 'ingest', 1, 3, 3 from generate_series(0, 23999) n;
             insert into sluice.lane_turns (lane_id, pool_id, cap, weight, vtime)
             select lane_id, pool_id, 3, 1, 0 from sluice.tenant_lanes;
             analyze sluice.tenant_lanes, sluice.lane_turns;",
        )
        .await;
}

fn thousand_lanes(session: usize) -> Vec<Value> {
    (0..1_000).map(|nth| json!({ "type": "insert", "tenant": format!("t{}", session * 1_000 + nth) })).collect()
}

#[tokio::test]
async fn thousand_lanes_in_each_of_24_open_sessions_fit_the_lock_table() {
    let scene = Scene::on(TestDb::private(Options::fast()).await).await;
    many_lanes(&scene).await;
    let mut sessions = Vec::new();
    for session in 0..SESSIONS {
        let mut open = Open::begin(&scene.worker).await;
        assert_eq!(try_enqueue_items(&mut open, &thousand_lanes(session)).await.expect("it fits").len(), 1_000);
        sessions.push(open);
    }
    let locks: i64 = scene.admin_value("select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())").await;
    assert_eq!(locks, 24_000, "all at once");
    for open in sessions {
        open.commit().await;
    }
    assert_eq!(scene.claim(1_000).await.len(), 256, "one of each lane that a claim looks at");
}

#[tokio::test]
async fn lock_table_that_is_too_small_is_a_transient_error_that_says_so() {
    let options = Options::fast().setting("max_locks_per_transaction", "64").setting("max_connections", "40");
    let scene = Scene::on(TestDb::private(options).await).await;
    many_lanes(&scene).await;
    let database = scene.db.connect(Role::Worker, PoolSettings { max_connections: 24, ..PoolSettings::default() });
    let mut sessions = Vec::new();
    let error = loop {
        assert!(sessions.len() < SESSIONS, "the table holds 24,000 locks?");
        let mut open = Open::begin(&database).await;
        match try_enqueue_items(&mut open, &thousand_lanes(sessions.len())).await {
            Ok(_) => sessions.push(open),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Transient { .. }), "{error:?}");
    assert!(error.to_string().contains("max_locks_per_transaction"), "{error}");

    // The others are not harmed, and room comes back with their commit.
    for open in sessions {
        open.commit().await;
    }
    let mut database = database;
    enqueue(&mut database, TENANT, 3).await;
    let claimed = claim(&mut database, scene.id, 1, 1).await;
    assert_eq!(release(&mut database, claimed[0]).await, "released");
}
