//! What holds after every test: no lane above its cap, no wrong mark, and nothing pending that a claim does not return.

use std::time::Duration;

use sqlx::Row;
use tokio::time::Instant;
use uuid::Uuid;

use super::scene::{Scene, claim, complete_many, register, settle};

/// Design §7.5: how long permitted work may lie while a worker asks for it.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const CLAIMS_IN_VAIN: u32 = 50;

/// Ends the test's work: what is running stays, what is permitted to run is claimed and completed until nothing is.
pub async fn hold(scene: &Scene) {
    no_lane_is_above_its_cap(scene).await;
    assert_eq!(settle(&mut scene.worker.clone()).await, 0, "lanes with a wrong mark");
    everything_permitted_is_claimed(scene).await;
    no_lane_is_above_its_cap(scene).await;
    assert_eq!(settle(&mut scene.worker.clone()).await, 0, "lanes with a wrong mark after the drain");
}

/// The cap in force now: for tests that did not lower it while tasks ran.
pub async fn no_lane_is_above_its_cap(scene: &Scene) {
    let above: Vec<String> = sqlx::query(
        "select format('lane %s runs %s at cap %s', l.lane_id, count(*), l.cap)
           from sluice.lane_turns l join sluice.tasks t on t.lane_id = l.lane_id and t.state in ('processing', 'stopping')
          group by l.lane_id, l.cap having count(*) > l.cap",
    )
    .fetch_all(scene.db.admin())
    .await
    .expect("the lanes")
    .iter()
    .map(|row| row.get(0))
    .collect();
    assert!(above.is_empty(), "{above:?}");
}

/// Claims as one worker of each pool would, and completes what it gets, until nothing is permitted any more.
pub async fn everything_permitted_is_claimed(scene: &Scene) {
    let mut worker = scene.worker.clone();
    let pools = sqlx::query("select pool from sluice.pools where not held order by pool_id");
    for pool in pools.fetch_all(scene.db.admin()).await.expect("the pools") {
        let pool: String = pool.get(0);
        let id = register(&mut worker, &pool).await;
        let (mut last_served, mut in_vain) = (Instant::now(), 0);
        for sequence in 1.. {
            let claimed = claim(&mut worker, id, sequence, 1_000).await;
            if !claimed.is_empty() {
                complete_many(&mut worker, &claimed).await;
                (last_served, in_vain) = (Instant::now(), 0);
                continue;
            }
            let left = permitted(scene, &pool).await;
            if left.is_empty() {
                break;
            }
            // Time alone would tell of a machine that stood still.
            in_vain += 1;
            let is_late = last_served.elapsed() > LONGEST_WAIT && in_vain > CLAIMS_IN_VAIN;
            assert!(!is_late, "permitted, but no claim returns them: {left:?}");
        }
    }
}

/// Pending, ready tasks of the pool's lanes, as many of each lane as its cap leaves room for.
async fn permitted(scene: &Scene, pool: &str) -> Vec<Uuid> {
    let statement = "select t.track_id
           from sluice.lane_turns l
           join sluice.pools p on p.pool_id = l.pool_id and p.pool = $1
          cross join lateral (
            select t.track_id from sluice.tasks t
             where t.lane_id = l.lane_id and t.state = 'pending' and t.ready
             limit greatest(0, l.cap::bigint - (select count(*) from sluice.tasks r
                                                 where r.lane_id = l.lane_id and r.state in ('processing', 'stopping')))) t
          where not l.is_held";
    let rows = sqlx::query(statement).bind(pool).fetch_all(scene.db.admin()).await.expect("the tasks");
    rows.iter().map(|row| row.get(0)).collect()
}
