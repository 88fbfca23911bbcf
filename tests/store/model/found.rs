//! What the model or the log has found, each by itself.

use serde_json::json;
use sqlx::{query, query_scalar};
use uuid::Uuid;

use crate::common::postgres::TestDb;

const CLAIM: &str = "select count(*) from sluice.claim($1, $2, 8)";

/// The list of lanes whose key it got was null, then, and the marks with it.
#[tokio::test]
async fn claim_passes_a_lane_that_an_open_release_has_freed() {
    let db = TestDb::new().await;
    let admin = db.admin();
    let worker: Uuid = query_scalar("select sluice.register_worker()").fetch_one(admin).await.expect("a worker");
    query("select sluice.set_lane('ann', 'ingest', $1)")
        .bind(json!({"max_running": 1}))
        .execute(admin)
        .await
        .expect("a cap");
    let items = json!([{"type": "insert", "tenant": "ann"}, {"type": "insert", "tenant": "ann"}]);
    query("select sluice.enqueue_many($1)").bind(items).execute(admin).await.expect("work");
    let claim = |sequence: i64| query_scalar(CLAIM).bind(worker).bind(sequence).fetch_one(admin);
    assert_eq!(claim(1).await.map_err(|error| error.to_string()), Ok(1_i64));

    let mut open = admin.begin().await.expect("a transaction");
    let release = "select sluice.release(array[track_id], array[attempt]) from sluice.tasks where state = 'processing'";
    query(release).execute(&mut *open).await.expect("a slot is free, but for the commit");

    assert_eq!(claim(2).await.map_err(|error| error.to_string()), Ok(0));
    open.commit().await.expect("the slot is free");
    assert_eq!(claim(3).await.map_err(|error| error.to_string()), Ok(1));
}

/// Each lane was asked for two of its tasks, and a sort that keeps no order chose whose second one was left out.
#[tokio::test]
async fn claim_that_is_cut_short_takes_the_first_of_each_lane() {
    let db = TestDb::new().await;
    let admin = db.admin();
    let worker: Uuid = query_scalar("select sluice.register_worker()").fetch_one(admin).await.expect("a worker");
    for (kind, tenants) in
        [("insert", &["bob", "cy", "ann"][..]), ("deletion", &["ann"]), ("insert", &["bob", "ann", "cy"])]
    {
        let items: Vec<_> = tenants.iter().map(|tenant| json!({"type": kind, "tenant": tenant})).collect();
        query("select sluice.enqueue_many($1)").bind(json!(items)).execute(admin).await.expect("work");
    }
    query("select sluice.claim($1, 1, 5)").bind(worker).execute(admin).await.expect("a claim");

    let left: Vec<i64> = query_scalar("select id from sluice.tasks where state = 'pending' order by id")
        .fetch_all(admin)
        .await
        .expect("two");
    assert!(left.len() == 2 && left[0] > 4, "left are {left:?}, and up to 4 they are the first of a lane");
}

/// The planner's price of a plan that is switched off is over every threshold of the JIT: 100 ms for a claim of 1 ms.
#[tokio::test]
async fn functions_that_switch_plans_off_are_never_compiled() {
    let db = TestDb::new().await;
    let compiled: Vec<String> = query_scalar(
        "select proname::text from pg_proc
          where pronamespace = 'sluice'::regnamespace and proconfig::text like '%enable_%=off%' and not 'jit=off' = any (proconfig)",
    )
    .fetch_all(db.admin())
    .await
    .expect("the functions");
    assert_eq!(compiled, [""; 0]);
}
