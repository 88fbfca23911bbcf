//! Sessions that work, fail, cancel and are killed, until enough attempts were handed out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Row, query, query_scalar, raw_sql};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use uuid::Uuid;

const CLAIMERS: u32 = 12;
const ENQUEUERS: u32 = 2;
const TENANTS: u32 = 12;
/// Enough that lanes are full, few enough that cancels and retries meet tasks of every state.
const BACKLOG: i64 = 600;
/// The pace of what is done to the queue by others than workers.
const PACE: Duration = Duration::from_millis(25);
/// Killed sessions are to be those of the load.
const APPLICATION: &str = "load";

/// What the sessions were told; each is checked against the log.
#[derive(Default)]
pub struct Told {
    pub enqueued: Vec<Uuid>,
    /// How an attempt ended, as its worker was told.
    pub ends: HashMap<(Uuid, i32), String>,
    pub twice: Vec<(Uuid, i32)>,
    pub handed_out: Vec<(Uuid, i32)>,
    pub killed: usize,
}

#[derive(Clone)]
struct Load {
    options: PgConnectOptions,
    attempts: Arc<AtomicUsize>,
    enough: usize,
    told: Arc<Mutex<Told>>,
}

/// A cheap source of choices: the run need not be repeatable, the log says what happened.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Runs until `enough` attempts were handed out.
pub async fn run(url: &str, enough: usize) -> Told {
    let options: PgConnectOptions = url.parse().expect("a URL");
    let load =
        Load { options: options.application_name(APPLICATION), attempts: Arc::default(), enough, told: Arc::default() };
    load.prepare().await;
    let mut sessions = JoinSet::new();
    for n in 0..CLAIMERS {
        sessions.spawn(load.clone().keep(n, Role::Claimer));
    }
    for n in 0..ENQUEUERS {
        sessions.spawn(load.clone().keep(100 + n, Role::Enqueuer));
    }
    for (n, role) in [Role::Upkeep, Role::Canceller, Role::Platform, Role::Killer].into_iter().enumerate() {
        sessions.spawn(load.clone().keep(200 + u32::try_from(n).expect("small"), role));
    }
    while let Some(ended) = sessions.join_next().await {
        ended.expect("a session of the load panics only if it found something");
    }
    let told = Arc::into_inner(load.told).expect("all sessions have ended");
    told.into_inner()
}

#[derive(Clone, Copy)]
enum Role {
    Claimer,
    Enqueuer,
    /// Reaper and promoter.
    Upkeep,
    Canceller,
    Platform,
    Killer,
}

impl Load {
    fn is_enough(&self) -> bool {
        self.attempts.load(Ordering::Relaxed) >= self.enough
    }

    async fn prepare(&self) {
        let mut connection = self.options.connect().await.expect("the server answers");
        let setup = "select sluice.set_pool('default', '{\"lease_secs\": 1}')";
        raw_sql(setup).execute(&mut connection).await.expect("short leases");
    }

    /// One session after another, since any may be killed at any time.
    async fn keep(self, n: u32, role: Role) {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (u64::from(n) << 32) ^ u64::from(std::process::id()));
        while !self.is_enough() {
            // A server that has just killed a session may refuse the next one for a moment.
            let Ok(mut connection) = self.options.connect().await else { continue };
            let ended = match role {
                Role::Claimer => self.claim(&mut connection, &mut dice).await,
                Role::Enqueuer => self.enqueue(&mut connection, &mut dice).await,
                Role::Upkeep => self.keep_up(&mut connection).await,
                Role::Canceller => self.cancel_and_retry(&mut connection, &mut dice).await,
                Role::Platform => self.change_lanes(&mut connection, &mut dice).await,
                Role::Killer => self.kill(&mut connection).await,
            };
            if let Err(error) = ended {
                assert!(is_loss_of_session(&error), "a session of the load: {error}");
            }
        }
    }

    async fn claim(&self, connection: &mut PgConnection, dice: &mut Dice) -> sqlx::Result<()> {
        let worker: Uuid = query_scalar("select sluice.register_worker()").fetch_one(&mut *connection).await?;
        let mut sequence = 0_i64;
        while !self.is_enough() {
            sequence += 1;
            let want = 1 + i32::try_from(dice.roll(8)).expect("small");
            let claim = query("select track_id, attempt from sluice.claim($1, $2, $3, 2)")
                .bind(worker)
                .bind(sequence)
                .bind(want);
            let rows = claim.fetch_all(&mut *connection).await?;
            let claimed: Vec<(Uuid, i32)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            self.attempts.fetch_add(claimed.len(), Ordering::Relaxed);
            self.told.lock().await.handed_out.extend(&claimed);
            if claimed.is_empty() {
                tokio::time::sleep(PACE).await;
            }
            if dice.roll(10) == 0 {
                self.heartbeat(connection, worker, sequence, &claimed).await?;
            }
            if dice.roll(2) == 0 {
                self.complete_many(connection, &claimed).await?;
                continue;
            }
            for (id, attempt) in claimed {
                self.end(connection, dice, id, attempt).await?;
            }
        }
        Ok(())
    }

    async fn heartbeat(
        &self,
        connection: &mut PgConnection,
        worker: Uuid,
        sequence: i64,
        claimed: &[(Uuid, i32)],
    ) -> sqlx::Result<()> {
        let (ids, attempts): (Vec<Uuid>, Vec<i32>) = claimed.iter().copied().unzip();
        let beat =
            query("select from sluice.heartbeat($1, $2, $3, $4)").bind(worker).bind(sequence).bind(ids).bind(attempts);
        beat.execute(connection).await.map(drop)
    }

    async fn complete_many(&self, connection: &mut PgConnection, claimed: &[(Uuid, i32)]) -> sqlx::Result<()> {
        let (ids, attempts): (Vec<Uuid>, Vec<i32>) = claimed.iter().copied().unzip();
        let complete =
            query("select track_id, attempt, outcome from sluice.complete_many($1, $2)").bind(ids).bind(attempts);
        for row in complete.fetch_all(connection).await? {
            self.hear((row.get(0), row.get(1)), row.get(2)).await;
        }
        Ok(())
    }

    /// One of the ways in which an attempt ends, or does not.
    async fn end(&self, connection: &mut PgConnection, dice: &mut Dice, id: Uuid, attempt: i32) -> sqlx::Result<()> {
        let sql = match dice.roll(40) {
            0..=21 => "select sluice.complete($1, $2)",
            22..=25 => "select outcome from sluice.complete_with_next($1, $2, '{\"type\": \"insert\"}')",
            26..=28 => "select sluice.fail($1, $2, 'provider_unavailable')",
            29..=32 => "select sluice.fail($1, $2, 'invalid_document')",
            33..=37 => "select outcome from sluice.release(array[$1], array[$2])",
            38 => "select sluice.stopped($1, $2)",
            // Nobody hears of it again: its lease runs out.
            _ => return Ok(()),
        };
        let asked = query(sql).bind(id).bind(attempt);
        let outcome = asked.fetch_one(connection).await?.get(0);
        self.hear((id, attempt), outcome).await;
        Ok(())
    }

    async fn hear(&self, attempt: (Uuid, i32), outcome: String) {
        if matches!(outcome.as_str(), "completed" | "failed" | "cancelled") {
            let mut told = self.told.lock().await;
            if told.ends.insert(attempt, outcome).is_some() {
                told.twice.push(attempt);
            }
        }
    }

    async fn enqueue(&self, connection: &mut PgConnection, dice: &mut Dice) -> sqlx::Result<()> {
        while !self.is_enough() {
            let waiting: i64 = query_scalar("select count(*) from sluice.tasks where state = 'pending'")
                .fetch_one(&mut *connection)
                .await?;
            if waiting > BACKLOG {
                tokio::time::sleep(PACE).await;
                continue;
            }
            let items: Vec<_> = (0..60)
                .map(|_| json!({"type": if dice.roll(5) == 0 { "deletion" } else { "insert" },
                                "tenant": format!("tenant {}", dice.roll(u64::from(TENANTS))), "priority": dice.roll(3)}))
                .collect();
            let enqueue = query_scalar("select track_id from sluice.enqueue_many($1)").bind(json!(items));
            let made: Vec<Uuid> = enqueue.fetch_all(&mut *connection).await?;
            self.told.lock().await.enqueued.extend(made);
        }
        Ok(())
    }

    async fn keep_up(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        while !self.is_enough() {
            query("select from sluice.reap(100)").execute(&mut *connection).await?;
            query("select sluice.promote(100)").execute(&mut *connection).await?;
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    async fn cancel_and_retry(&self, connection: &mut PgConnection, dice: &mut Dice) -> sqlx::Result<()> {
        const LIVE: &str = "select track_id from sluice.tasks order by random() limit 6";
        const ENDED: &str =
            "select track_id from sluice.tasks_archive where state <> 'completed' order by track_id desc limit 20";
        while !self.is_enough() {
            for id in query_scalar::<_, Uuid>(LIVE).fetch_all(&mut *connection).await? {
                let cancel = if dice.roll(2) == 0 {
                    "select sluice.cancel($1)"
                } else {
                    "select outcome from sluice.cancel_linked($1)"
                };
                query(cancel).bind(id).execute(&mut *connection).await?;
            }
            for id in query_scalar::<_, Uuid>(ENDED).fetch_all(&mut *connection).await? {
                query("select from sluice.retry($1)").bind(id).execute(&mut *connection).await?;
            }
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    async fn change_lanes(&self, connection: &mut PgConnection, dice: &mut Dice) -> sqlx::Result<()> {
        while !self.is_enough() {
            let change =
                json!({"max_running": 1 + dice.roll(8), "policy": if dice.roll(8) == 0 { "hold" } else { "none" }});
            let class = if dice.roll(3) == 0 { "lifecycle" } else { "ingest" };
            let set = query("select from sluice.set_lane($1, $2, $3)")
                .bind(format!("tenant {}", dice.roll(u64::from(TENANTS))));
            set.bind(class).bind(change).execute(&mut *connection).await?;
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    async fn kill(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        const KILL: &str = "
            select count(pg_terminate_backend(pid)) from (
              select pid from pg_stat_activity where application_name = $1 and pid <> pg_backend_pid() order by random() limit 1) s";
        while !self.is_enough() {
            let killed: i64 = query_scalar(KILL).bind(APPLICATION).fetch_one(&mut *connection).await?;
            self.told.lock().await.killed += usize::try_from(killed).expect("a count");
            tokio::time::sleep(4 * PACE).await;
        }
        Ok(())
    }
}

/// Killed, or cut off while it asked.
fn is_loss_of_session(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) => true,
        sqlx::Error::Database(error) => error.code().as_deref() == Some("57P01"),
        _ => false,
    }
}
