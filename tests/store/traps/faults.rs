//! The server goes away, takes no writes, has no connection left, or has a wrong clock: the same pool survives it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use private_postgres::Options;
use serde_json::json;
use sluice::store::{Database, PoolSettings, Role, StoreError};
use sqlx::{Connection, PgConnection, Row};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::invariants;
use super::scene::{Open, Scene, Session, TENANT, claim, enqueue_items, promote, rows, set_lane, until};
use crate::common::postgres::TestDb;

/// Enqueues, claims and completes, as a worker would, without end; collects what went wrong.
struct Work {
    stop: Arc<AtomicBool>,
    /// So far.
    failures: Arc<AtomicUsize>,
    task: JoinHandle<Vec<StoreError>>,
}

impl Work {
    fn start(database: &Database, worker: Uuid) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let failures = Arc::new(AtomicUsize::new(0));
        let (database, stopped, failed) = (database.clone(), stop.clone(), failures.clone());
        let task = tokio::spawn(async move {
            let mut errors = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = one_task(&mut database.clone(), worker).await {
                    errors.push(error);
                    failed.store(errors.len(), Ordering::Relaxed);
                }
            }
            errors
        });
        Self { stop, failures, task }
    }

    async fn stop(self) -> Vec<StoreError> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("no panic")
    }
}

async fn one_task(session: &mut impl Session, worker: Uuid) -> Result<usize, StoreError> {
    session.rows(sqlx::query("select track_id from sluice.enqueue('insert', 'a')")).await?;
    let claimed =
        session.rows(sqlx::query("select track_id, attempt from sluice.claim($1, 1, 1)").bind(worker)).await?;
    for row in &claimed {
        let (id, attempt): (Uuid, i32) = (row.get(0), row.get(1));
        session.rows(sqlx::query("select sluice.complete($1, $2)").bind(id).bind(attempt)).await?;
    }
    Ok(claimed.len())
}

async fn private_scene(options: Options) -> Scene {
    let scene = Scene::on(TestDb::private(options).await).await;
    set_lane(&mut scene.operator.clone(), TENANT, json!({ "max_running": 0 })).await;
    scene
}

async fn until_more_is_done(scene: &Scene) {
    let done = async || scene.admin_value::<i64>("select count(*) from sluice.tasks_archive").await;
    let before = done().await;
    until("work goes on", async || done().await > before + 3).await;
}

#[tokio::test]
async fn server_that_takes_no_writes_for_a_while_is_survived() {
    let scene = private_scene(Options::fast()).await;
    let work = Work::start(&scene.worker, scene.id);
    until_more_is_done(&scene).await;

    for statement in ["alter system set default_transaction_read_only = on", "select pg_reload_conf()"] {
        scene.admin_execute(statement).await;
    }
    until("a write is refused", async || work.failures.load(Ordering::Relaxed) > 0).await;
    // Reads go on, and a claim is none of them.
    rows(&mut scene.worker.clone(), sqlx::query("select pool from sluice.pool_demand()")).await;
    // The session that mends it is as read-only as all others, but this needs no transaction that writes.
    for statement in ["alter system reset default_transaction_read_only", "select pg_reload_conf()"] {
        scene.admin_execute(statement).await;
    }
    until_more_is_done(&scene).await;

    let errors = work.stop().await;
    assert!(!errors.is_empty());
    assert!(errors.iter().all(|error| matches!(error, StoreError::ReadOnly { .. })), "{errors:?}");
    assert!(errors[0].to_string().contains("takes no writes"), "{}", errors[0]);
    invariants::hold(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_and_crash_of_the_server_are_survived() {
    let mut scene = private_scene(Options::fast()).await;
    let work = Work::start(&scene.worker, scene.id);
    until_more_is_done(&scene).await;

    tokio::task::block_in_place(|| scene.db.server().restart().expect("a restart"));
    until_more_is_done(&scene).await;
    tokio::task::block_in_place(|| {
        scene.db.server().kill().expect("a crash");
        scene.db.server().start_again().expect("a recovery");
    });
    until_more_is_done(&scene).await;

    let errors = work.stop().await;
    assert!(errors.iter().all(|error| matches!(error, StoreError::Transient { .. })), "{errors:?}");
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn server_without_a_connection_left_is_survived() {
    let scene = private_scene(Options::fast().setting("max_connections", "30")).await;
    let mut busy = Open::begin(&scene.worker).await;
    // This one has no connection yet.
    let settings = PoolSettings { max_connections: 2, acquire_timeout: Duration::from_millis(500) };
    let mut late = scene.db.connect(Role::Worker, settings);
    let mut others = Vec::new();
    let url = scene.db.url(Role::Reader);
    while let Ok(connection) = PgConnection::connect(&url).await {
        others.push(connection);
    }
    assert!(!others.is_empty());

    let error = one_task(&mut late, scene.id).await.expect_err("there is none left");
    assert!(matches!(error, StoreError::Transient { .. }), "{error:?}");
    assert!(error.to_string().contains("has no connection left"), "{error}");
    one_task(&mut busy, scene.id).await.expect("whoever has one works on");
    busy.commit().await;

    for connection in others {
        connection.close().await.expect("it closes");
    }
    until("the same pool works", async || one_task(&mut late, scene.id).await.is_ok()).await;
    invariants::hold(&scene).await;
}

/// The model of time is the database's `now()`: a client has no say in it, so its clock may be as wrong as it likes.
#[tokio::test]
async fn no_client_says_what_time_it_is() {
    let scene = Scene::new().await;
    let timed: i64 = scene
        .admin_value(
            "select count(*) from pg_proc p
              where p.pronamespace = 'sluice'::regnamespace and p.proname !~ '^_'
                and p.proargtypes::oid[] && array['timestamptz', 'timestamp', 'date', 'time', 'timetz', 'interval']::regtype[]::oid[]",
        )
        .await;
    assert_eq!(timed, 0, "functions that take a time");

    let mut paths = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/store"))];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).expect("a folder").map(|entry| entry.expect("a file").path()));
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("a source");
        for clock in ["SystemTime", "Utc::now", "Local::now"] {
            assert!(!source.contains(clock), "{} reads the client's clock: {clock}", path.display());
        }
    }
}

/// A session's time zone moves no lease, no due date and no edge of a partition.
#[tokio::test]
async fn time_zones_of_sessions_move_nothing() {
    let scene = Scene::new().await;
    scene.lane(9, 1).await;
    let mut far = Open::begin(&scene.worker).await;
    assert_eq!(claim(&mut far, scene.id, 1, 1).await.len(), 1);
    let item = json!({ "type": "insert", "tenant": TENANT, "delay_secs": 3_600 });
    enqueue_items(&mut far, &[item]).await;
    far.commit().await;
    assert_eq!(promote(&mut scene.worker.clone()).await, 0, "it is due in an hour, wherever one asks");
    let right: bool = scene
        .admin_value(
            "select bool_and(case when leased then lease_until - now() between '100 s' and '120 s'
                                  else available_at - now() between '59 min' and '60 min' end) from sluice.tasks",
        )
        .await;
    assert!(right);

    // Partitions that were made in one zone, and the next ones in others, on both sides of the date line.
    scene
        .admin_execute(
            "do $$ declare v_part text; begin
               for v_part in select c.relname from pg_class c where c.relname ~ '^(tasks_archive_w|task_events_m)' and c.relkind = 'r'
                order by c.relname desc
               loop
                 execute format('drop table sluice.%I', v_part);
                 perform set_config('timezone', case when v_part > 'tasks_archive_w' then 'Pacific/Kiritimati' else 'Etc/GMT+12' end, true);
                 perform what from sluice.retain();
               end loop;
             end $$",
        )
        .await;
    let bounds: Vec<String> = sqlx::query(
        "select distinct to_char(b.bound at time zone 'UTC', 'HH24:MI') from pg_class c,
                lateral regexp_matches(pg_get_expr(c.relpartbound, c.oid), '''(\\d{4}-[^'']+)''', 'g') m,
                lateral (select m[1]::timestamptz as bound) b
          where c.relname ~ '^task_events_m'",
    )
    .fetch_all(scene.db.admin())
    .await
    .expect("the bounds")
    .iter()
    .map(|row| row.get(0))
    .collect();
    assert_eq!(bounds, ["00:00"], "months begin in UTC");
}
