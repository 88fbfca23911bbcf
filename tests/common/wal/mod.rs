//! The write-ahead log as a witness: a logical decoding slot records every row change in the order of the commits, and
//! the replay of it finds a claim above its cap, a second end, an attempt handed out twice, and a task that got lost.

pub mod decode;
pub mod replay;

use std::collections::{HashMap, HashSet};

use sqlx::{PgPool, Row, query, query_scalar};
use uuid::Uuid;

use decode::Line;
use replay::Replay;

const SLOT: &str = "sluice_test";
/// Changes that are decoded in one call.
const BATCH: i32 = 20_000;

/// Everything that was committed in a database since the witness came. Needs a server of its own.
pub struct Witness {
    admin: PgPool,
    replay: Replay,
    /// Where the last commit that was replayed ends: a crash makes the slot tell some of it again.
    replayed: i64,
}

impl Witness {
    /// `None`, and a line that says so, where the server has no decoder.
    pub async fn new(admin: &PgPool, test: &str) -> Option<Self> {
        let slot = query("select pg_create_logical_replication_slot($1, 'test_decoding')").bind(SLOT);
        if let Err(error) = slot.execute(admin).await {
            eprintln!("skipped {test}: the server has no test_decoding ({error})");
            return None;
        }
        Some(Self { admin: admin.clone(), replay: Replay::default(), replayed: 0 })
    }

    /// Replays what the slot has; answers how many lines that was.
    pub async fn read(&mut self) -> usize {
        const CHANGES: &str = "
            select data, (lsn - '0/0'::pg_lsn)::bigint
              from pg_logical_slot_get_changes($1, null, $2, 'include-xids', '0', 'skip-empty-xacts', '1')";
        let rows = query(CHANGES).bind(SLOT).bind(BATCH).fetch_all(&self.admin).await.expect("the slot is read");
        let mut changes = Vec::new();
        for row in &rows {
            match decode::line(row.get(0)).unwrap_or_else(|error| panic!("{error}")) {
                Line::Begin => changes.clear(),
                Line::Row(change) => changes.push(change),
                Line::Other => {}
                Line::Commit if row.get::<i64, _>(1) <= self.replayed => {}
                Line::Commit => {
                    self.replayed = row.get(1);
                    self.replay.apply(&changes).unwrap_or_else(|error| panic!("{error}: {changes:?}"));
                }
            }
        }
        rows.len()
    }

    /// All there is, held against what the tables say now: nothing may write them meanwhile.
    pub async fn finish(mut self) -> Replay {
        while self.read().await > 0 {}
        let Self { admin, replay, replayed: _ } = self;
        let (live, ended) = replay.result();
        let rows = query_scalar("select track_id from sluice.tasks").fetch_all(&admin).await.expect("live tasks");
        assert_eq!(rows.into_iter().collect::<HashSet<Uuid>>(), live);
        let rows = query("select track_id, state::text from sluice.tasks_archive")
            .fetch_all(&admin)
            .await
            .expect("ended tasks");
        let rows: HashMap<Uuid, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(rows, ended);
        assert_eq!(replay.enqueued, live.len() + ended.len(), "enqueued = live + ended");
        assert_eq!(replay.ends, ended.len() + replay.retried, "each retried task had ended once before");
        let wrong: i32 = query_scalar("select sluice.settle()").fetch_one(&admin).await.expect("settle");
        assert_eq!(wrong, 0, "lanes whose mark is wrong");
        replay
    }
}
