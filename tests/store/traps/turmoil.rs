//! Everything at once, over a few lanes with short leases: no deadlock, no error, no wrong mark.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sluice::store::{Database, PoolSettings, Role, StoreError};
use sqlx::Row;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::invariants;
use super::scene::{Attempt, Scene, Session, Statement, reap, register, rows};

const TENANTS: [&str; 4] = ["a", "b", "c", "d"];
/// What was handed out or made is remembered up to here; the oldest is forgotten.
const REMEMBERED: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_seconds_of_everything_end_without_a_deadlock() {
    everything_for(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: make soak"]
async fn minute_of_everything_ends_without_a_deadlock() {
    everything_for(Duration::from_secs(60)).await;
}

async fn everything_for(duration: Duration) {
    let scene = Scene::new().await;
    for pool in ["default", "other"] {
        let statement = sqlx::query(r#"select sluice.set_pool($1, '{"lease_secs": 1}')"#).bind(pool);
        rows(&mut scene.operator.clone(), statement).await;
    }
    let settings = PoolSettings { max_connections: 25, acquire_timeout: Duration::from_secs(30) };
    let stage = Stage {
        worker: scene.db.connect(Role::Worker, settings),
        operator: scene.db.connect(Role::Operator, settings),
        until: Instant::now() + duration,
        held: Arc::default(),
        known: Arc::default(),
    };
    let mut actors = JoinSet::new();
    for nth in 0..8 {
        let pool = if nth < 6 { "default" } else { "other" };
        let id = register(&mut scene.worker.clone(), pool).await;
        actors.spawn(stage.clone().claims(id, nth));
    }
    for nth in 10..13 {
        actors.spawn(stage.clone().ends(nth));
        actors.spawn(stage.clone().enqueues(nth + 10));
        actors.spawn(stage.clone().keeps_up(nth + 20));
        actors.spawn(stage.clone().operates(nth + 30));
    }
    let mut calls = 0;
    let mut errors = Vec::new();
    while let Some(actor) = actors.join_next().await {
        match actor.expect("an actor's asserts hold") {
            Ok(count) => calls += count,
            Err((call, error)) => errors.push(format!("{call}: {error:?}")),
        }
    }
    let deadlocks: i64 =
        scene.admin_value("select deadlocks from pg_stat_database where datname = current_database()").await;
    assert_eq!((deadlocks, errors), (0, vec![]), "after {calls} calls");
    assert!(calls > 200, "only {calls} calls");

    // What runs is nobody's any more; caps were lowered beneath it.
    scene.admin_execute("update sluice.tasks set lease_until = now() - interval '1 s' where leased").await;
    while !reap(&mut scene.worker.clone()).await.is_empty() {}
    for tenant in TENANTS {
        super::scene::set_lane(&mut scene.operator.clone(), tenant, json!({ "policy": "none", "max_running": 5 }))
            .await;
    }
    invariants::hold(&scene).await;
}

#[derive(Clone)]
struct Stage {
    worker: Database,
    operator: Database,
    until: Instant,
    held: Arc<Mutex<VecDeque<Attempt>>>,
    known: Arc<Mutex<VecDeque<Uuid>>>,
}

/// The number of calls, or the first that failed.
type Played = Result<u64, (&'static str, StoreError)>;

impl Stage {
    async fn claims(mut self, id: Uuid, seed: u64) -> Played {
        let mut dice = Dice(seed + 1);
        let mut sequence = 0;
        while Instant::now() < self.until {
            sequence += 1;
            let (want, quantum) = (dice.up_to(16) + 1, dice.up_to(4) + 1);
            let claim = sqlx::query("select track_id, attempt from sluice.claim($1, $2, $3, $4)");
            let claim = claim.bind(id).bind(sequence).bind(want as i32).bind(quantum as i32);
            let claimed = call(&mut self.worker, "claim", claim).await?;
            remember(&self.held, claimed.iter().map(|row| Attempt { track_id: row.get(0), attempt: row.get(1) }));
            if dice.up_to(4) == 0 {
                // Names some of what it may hold; the rest goes back.
                let some = some_of(&self.held, dice.up_to(40));
                let beat = sqlx::query("select answer from sluice.heartbeat($1, $2, $3, $4)")
                    .bind(id)
                    .bind(sequence - dice.up_to(3));
                call(&mut self.worker, "heartbeat", beat.bind(ids(&some)).bind(attempts(&some))).await?;
                call(
                    &mut self.worker,
                    "watch",
                    sqlx::query("select answer from sluice.watch($1, $2)").bind(id).bind(ids(&some)),
                )
                .await?;
            }
            if dice.up_to(50) == 0 {
                for change in ["select sluice.drain_worker($1)", "select sluice.undrain_worker($1)"] {
                    call(&mut self.operator, "drain", sqlx::query(change).bind(id)).await?;
                }
            }
        }
        Ok(sequence.unsigned_abs())
    }

    async fn ends(mut self, seed: u64) -> Played {
        let mut dice = Dice(seed);
        let mut calls = 0;
        while Instant::now() < self.until {
            calls += 1;
            let mut some = take(&self.held, dice.up_to(32) as usize + 1);
            dice.shuffle(&mut some);
            let Some(one) = some.first().copied() else {
                tokio::task::yield_now().await;
                continue;
            };
            let of_one = |statement: &'static str| sqlx::query(statement).bind(one.track_id).bind(one.attempt);
            let of_all = |statement: &'static str| sqlx::query(statement).bind(ids(&some)).bind(attempts(&some));
            let worker = &mut self.worker;
            match dice.up_to(8) {
                0 => call(worker, "fail", of_one("select sluice.fail($1, $2, 'unknown', 'an error')")).await?,
                1 => call(worker, "fail for good", of_one("select sluice.fail($1, $2, 'invalid_document')")).await?,
                2 => call(worker, "release", of_all("select outcome from sluice.release($1, $2)")).await?,
                3 => call(worker, "stopped", of_one("select sluice.stopped($1, $2)")).await?,
                4 => {
                    let report = r#"select sluice.report($1, $2, '{"stage": "extracting", "progress": 0.5}')"#;
                    call(worker, "report", of_one(report)).await?
                }
                5 => {
                    let next = r#"select outcome from sluice.complete_with_next($1, $2, '{"type": "insert"}')"#;
                    call(worker, "complete_with_next", of_one(next)).await?
                }
                _ => call(worker, "complete_many", of_all("select outcome from sluice.complete_many($1, $2)")).await?,
            };
        }
        Ok(calls)
    }

    async fn enqueues(mut self, seed: u64) -> Played {
        let mut dice = Dice(seed);
        let mut calls = 0;
        while Instant::now() < self.until {
            calls += 1;
            let count = if dice.up_to(2) == 0 { 1 } else { dice.up_to(20) + 1 };
            let items: Vec<Value> = (0..count).map(|_| item(&mut dice)).collect();
            let enqueue = sqlx::query("select track_id from sluice.enqueue_many($1) where track_id is not null")
                .bind(json!(items));
            let made = call(&mut self.worker, "enqueue_many", enqueue).await?;
            remember(&self.known, made.iter().map(|row| row.get(0)));
            // As fast as the others can take it, or the run ends with a mountain.
            let pending = "select coalesce(sum(startable), 0)::bigint > 2000 from sluice.pool_demand()";
            if call(&mut self.worker, "pool_demand", sqlx::query(pending)).await?[0].get(0) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(calls)
    }

    async fn keeps_up(mut self, seed: u64) -> Played {
        let mut dice = Dice(seed);
        let mut calls = 0;
        while Instant::now() < self.until {
            calls += 1;
            let worker = &mut self.worker;
            match dice.up_to(8) {
                0 => {
                    let wrong: i32 = call(worker, "settle", sqlx::query("select sluice.settle()")).await?[0].get(0);
                    assert_eq!(wrong, 0, "lanes with a wrong mark");
                }
                1 => drop(call(worker, "retain", sqlx::query("select what from sluice.retain(1, 1, 1)")).await?),
                2 | 3 => drop(call(worker, "promote", sqlx::query("select sluice.promote()")).await?),
                4 | 5 => drop(call(worker, "reap", sqlx::query("select outcome from sluice.reap()")).await?),
                _ => {
                    let changes = sqlx::query("select mirror_id, rev from sluice.mirror_changes('k', 50)");
                    let changes = call(&mut self.operator, "mirror_changes", changes).await?;
                    let (mirrors, revs): (Vec<i64>, Vec<i64>) =
                        changes.iter().map(|row| (row.get::<i64, _>(0), row.get::<i64, _>(1))).unzip();
                    let ack = sqlx::query("select sluice.mirror_ack($1, $2)").bind(mirrors).bind(revs);
                    call(&mut self.operator, "mirror_ack", ack).await?;
                }
            }
        }
        Ok(calls)
    }

    async fn operates(mut self, seed: u64) -> Played {
        let mut dice = Dice(seed);
        let mut calls = 0;
        while Instant::now() < self.until {
            calls += 1;
            let one = some_of(&self.known, 1).first().copied().unwrap_or_default();
            let tenant = TENANTS[dice.up_to(4) as usize];
            let operator = &mut self.operator;
            match dice.up_to(10) {
                0 | 1 => {
                    call(
                        operator,
                        "cancel_linked",
                        sqlx::query("select outcome from sluice.cancel_linked($1)").bind(one),
                    )
                    .await?
                }
                2 => call(operator, "cancel", sqlx::query("select sluice.cancel($1)").bind(one)).await?,
                3 => {
                    let cancel = sqlx::query("select outcome from sluice.cancel_active($1, p_limit => 20)");
                    call(operator, "cancel_active", cancel.bind(json!({ "tenant": tenant }))).await?
                }
                4 | 5 => call(operator, "retry", sqlx::query("select outcome from sluice.retry($1)").bind(one)).await?,
                6 => {
                    for change in
                        ["select sluice.suspend($1)", "select sluice.set_priority($1, 5)", "select sluice.resume($1)"]
                    {
                        call(operator, change, sqlx::query(change).bind(one)).await?;
                    }
                    continue;
                }
                7 => {
                    let cap = sqlx::query("select sluice.set_pool('default', jsonb_build_object('ingest_cap', $1))");
                    call(operator, "set_pool", cap.bind(dice.up_to(6) as i32 + 1)).await?
                }
                8 => {
                    let hold = sqlx::query("select sluice.hold_lane($1, 'ingest', $2)").bind(tenant);
                    call(operator, "hold_lane", hold.bind(if dice.up_to(3) == 0 { "hold" } else { "none" })).await?
                }
                _ => {
                    let pool = if dice.up_to(4) == 0 { "other" } else { "default" };
                    let mut settings = json!({ "weight": dice.up_to(9) + 1, "pool": pool });
                    // Some lanes follow their pool's cap.
                    settings["max_running"] = if dice.up_to(2) == 0 { Value::Null } else { json!(dice.up_to(9) + 1) };
                    let set = sqlx::query("select lane_id from sluice.set_lane($1, 'ingest', $2)")
                        .bind(tenant)
                        .bind(settings);
                    call(operator, "set_lane", set).await?
                }
            };
        }
        Ok(calls)
    }
}

/// Plain, delayed, keyed, of a document, of a resource: a few of each, so that they meet.
fn item(dice: &mut Dice) -> Value {
    let tenant = TENANTS[dice.up_to(4) as usize];
    let mut item = json!({ "type": "insert", "tenant": tenant });
    match dice.up_to(10) {
        0 => item["delay_secs"] = json!(0.2),
        1 => item["idempotency_key"] = json!(format!("i{}", dice.up_to(2_000))),
        2 => item["exclusive_key"] = json!(format!("x{}", dice.up_to(20))),
        3 => {
            item["document_id"] =
                json!(Uuid::from_u128(u128::from(tenant.as_bytes()[0]) << 32 | dice.up_to(20) as u128))
        }
        4 => {
            let name = format!("r{}", dice.up_to(1_000));
            item["resource"] = json!({ "cluster": "k", "namespace": "n", "name": name, "uid": name });
        }
        5 => item["type"] = json!("pdf_processing"),
        _ => {}
    }
    item
}

async fn call(
    database: &mut Database,
    name: &'static str,
    statement: Statement<'_>,
) -> Result<Vec<sqlx::postgres::PgRow>, (&'static str, StoreError)> {
    database.rows(statement).await.map_err(|error| (name, error))
}

fn remember<T>(memory: &Mutex<VecDeque<T>>, new: impl Iterator<Item = T>) {
    let mut memory = memory.lock().expect("no panic");
    memory.extend(new);
    let over = memory.len().saturating_sub(REMEMBERED);
    memory.drain(..over);
}

fn take<T>(memory: &Mutex<VecDeque<T>>, count: usize) -> Vec<T> {
    let mut memory = memory.lock().expect("no panic");
    let count = count.min(memory.len());
    memory.drain(..count).collect()
}

/// The newest ones.
fn some_of<T: Copy>(memory: &Mutex<VecDeque<T>>, count: i64) -> Vec<T> {
    let memory = memory.lock().expect("no panic");
    memory.iter().rev().take(usize::try_from(count).expect("small")).copied().collect()
}

fn ids(tasks: &[Attempt]) -> Vec<Uuid> {
    tasks.iter().map(|task| task.track_id).collect()
}

fn attempts(tasks: &[Attempt]) -> Vec<i32> {
    tasks.iter().map(|task| task.attempt).collect()
}

/// xorshift: the same throws for the same seed, though not the same interleaving.
struct Dice(u64);

impl Dice {
    /// From 0 to one below the limit.
    fn up_to(&mut self, limit: i64) -> i64 {
        for shift in [(13, true), (7, false), (17, true)] {
            self.0 ^= if shift.1 { self.0 << shift.0 } else { self.0 >> shift.0 };
        }
        i64::try_from((self.0 >> 16) % limit.unsigned_abs()).expect("below the limit")
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.up_to(i64::try_from(at).expect("small") + 1);
            items.swap(at, usize::try_from(other).expect("small"));
        }
    }
}
