//! Plans that hold with statistics that are wrong: taken when the tables were empty, and generic ones after the sixth call.

use serde_json::Value;
use sluice::store::{Database, PoolSettings, Role};
use sqlx::Row;
use uuid::Uuid;

use super::invariants;
use super::scene::{Scene, Statement, claim, complete_many, rows, try_claim};

/// Analysed empty and then left alone: 100,000 tasks over 1,000 lanes.
async fn crowd() -> (Scene, Database) {
    let scene = Scene::new().await;
    scene
        .admin_execute(
            "alter table sluice.tasks set (autovacuum_enabled = off);
             alter table sluice.lane_turns set (autovacuum_enabled = off);
             alter table sluice.tenant_lanes set (autovacuum_enabled = off);
             alter table sluice.tasks_archive_default set (autovacuum_enabled = off);
             analyze sluice.tasks, sluice.lane_turns, sluice.tenant_lanes, sluice.tasks_archive, sluice.workers, sluice.lane_wakes;
             insert into sluice.tenant_lanes (tenant, class, pool_id, max_running, effective_max_running)
             select format('t%s', n), 'ingest', 1, 0, 0 from generate_series(1, 1000) n;
             insert into sluice.lane_turns (lane_id, pool_id, cap, weight, vtime)
             select lane_id, pool_id, 8, 1, 0 from sluice.tenant_lanes;
             insert into sluice.tasks (track_id, id, lane_id, type)
             select sluice._uuid_v7(), nextval('sluice.task_ids'), 1 + n % 1000, 'insert' from generate_series(1, 100000) n;",
        )
        .await;
    // One session, whose sixth call is planned once for all.
    let database = scene.db.connect(Role::Worker, PoolSettings { max_connections: 1, ..PoolSettings::default() });
    (scene, database)
}

/// Pages that a statement touches, counted by the server.
async fn buffers(database: &mut Database, statement: Statement<'_>) -> i64 {
    let plan: Value = rows(database, statement).await[0].get(0);
    let count = |name: &str| plan[0]["Plan"][name].as_i64().expect("a count");
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

#[tokio::test]
async fn claim_of_16_touches_few_pages_with_stale_statistics_and_generic_plans() {
    const LIMIT: i64 = 1_000;
    let (scene, mut database) = crowd().await;
    let mut touched = Vec::new();
    for sequence in 1..=9 {
        let statement = "explain (analyze, buffers, format json) select * from sluice.claim($1, $2, 16, 1)";
        touched.push(buffers(&mut database, sqlx::query(statement).bind(scene.id).bind(sequence)).await);
    }
    // The first reads the catalogue too.
    eprintln!("pages touched by a claim of 16: {touched:?}");
    assert!(touched[1..].iter().all(|pages| *pages <= LIMIT), "{touched:?}");
    invariants::no_lane_is_above_its_cap(&scene).await;
}

#[tokio::test]
async fn completion_of_512_touches_few_pages_with_stale_statistics_and_generic_plans() {
    const LIMIT: i64 = 30_000;
    let (scene, mut database) = crowd().await;
    let mut touched = Vec::new();
    for sequence in 1..=8 {
        let claimed = try_claim(&mut database, scene.id, sequence, 512, 1).await.expect("a claim");
        assert_eq!(claimed.len(), 512);
        let (ids, attempts): (Vec<Uuid>, Vec<i32>) = claimed.iter().map(|task| (task.track_id, task.attempt)).unzip();
        let statement = "explain (analyze, buffers, format json) select * from sluice.complete_many($1, $2)";
        touched.push(buffers(&mut database, sqlx::query(statement).bind(ids).bind(attempts)).await);
    }
    eprintln!("pages touched by a completion of 512: {touched:?}");
    assert!(touched.iter().all(|pages| *pages <= LIMIT), "{touched:?}");
    assert_eq!(scene.admin_value::<i64>("select count(*) from sluice.tasks_archive").await, 8 * 512);
}

/// The calls around them, as a worker makes them: none may fall into a scan of 100,000 rows.
#[tokio::test]
async fn heartbeat_report_release_and_reap_touch_few_pages_with_stale_statistics() {
    const LIMIT: i64 = 6_000;
    let (scene, mut database) = crowd().await;
    for sequence in 1..=7 {
        let claimed = claim(&mut database, scene.id, sequence, 32).await;
        let (ids, attempts): (Vec<Uuid>, Vec<i32>) = claimed.iter().map(|task| (task.track_id, task.attempt)).unzip();
        let beat =
            sqlx::query("explain (analyze, buffers, format json) select * from sluice.heartbeat($1, $2, $3, $4)");
        let pages =
            buffers(&mut database, beat.bind(scene.id).bind(sequence).bind(ids.clone()).bind(attempts.clone())).await;
        assert!(pages <= LIMIT, "heartbeat {sequence}: {pages}");
        let watch = sqlx::query("explain (analyze, buffers, format json) select * from sluice.watch($1, $2)");
        let pages = buffers(&mut database, watch.bind(scene.id).bind(ids.clone())).await;
        assert!(pages <= LIMIT, "watch {sequence}: {pages}");
        let give = sqlx::query("explain (analyze, buffers, format json) select * from sluice.release($1, $2)");
        let pages = buffers(&mut database, give.bind(ids[..8].to_vec()).bind(attempts[..8].to_vec())).await;
        assert!(pages <= LIMIT, "release {sequence}: {pages}");
        let pages =
            buffers(&mut database, sqlx::query("explain (analyze, buffers, format json) select * from sluice.reap()"))
                .await;
        assert!(pages <= LIMIT, "reap {sequence}: {pages}");
        let pages =
            buffers(&mut database, sqlx::query("explain (analyze, buffers, format json) select sluice.promote()"))
                .await;
        assert!(pages <= LIMIT, "promote {sequence}: {pages}");
        complete_many(&mut database, &claimed[8..]).await;
    }
}
