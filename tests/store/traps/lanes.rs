//! The claim over lanes: exact caps, turns that nobody stalls, order that does not depend on the order of commits.

use serde_json::json;
use sqlx::Row;
use sqlx::postgres::PgListener;

use super::invariants;
use super::scene::Ending::{Commit, Rollback};
use super::scene::{
    Open, Scene, TENANT, at_once, cancel, claim, complete, complete_many, enqueue, fail, heartbeat, promote, reap,
    register, release, retry, rows, set_lane, settle, spawn, stopped, text, try_claim,
};

/// Counting and claiming in one snapshot would not see the peer's two, and start five at cap 3.
#[tokio::test]
async fn claimer_that_waited_for_a_lane_counts_what_its_peer_took() {
    let scene = Scene::new().await;
    for ending in [Commit, Rollback] {
        let ids = scene.lane(3, 5).await;
        let (peer, taken) = scene.open_claim(2).await;
        assert_eq!(taken.iter().map(|task| task.track_id).collect::<Vec<_>>(), ids[..2]);

        let again = async |second: &mut Open| claim(second, scene.id, 1, 5).await;
        let claimed = scene.outcome(peer, ending, &scene.worker, again).await;

        // Neither more than the cap, nor past the rows that the peer had locked.
        let got: Vec<_> = claimed.iter().map(|task| task.track_id).collect();
        let expected = if ending == Commit { &ids[2..3] } else { &ids[..3] };
        assert_eq!(got, expected, "{ending:?}");
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn many_claimers_never_exceed_a_cap() {
    const CLAIMERS: usize = 12;
    const TASKS: usize = 240;
    let (scene, _) = Scene::with_lane(3, TASKS).await;
    let claimers: Vec<_> = (0..CLAIMERS)
        .map(|_| {
            let mut worker = scene.worker.clone();
            let (id, admin) = (scene.id, scene.db.admin().clone());
            spawn(async move {
                let mut done = 0;
                loop {
                    let claimed = claim(&mut worker, id, 1, 2).await;
                    let count =
                        sqlx::query("select count(*) filter (where state = 'processing'), count(*) from sluice.tasks");
                    let count = count.fetch_one(&admin).await.expect("a count");
                    let (running, left): (i64, i64) = (count.get(0), count.get(1));
                    assert!(running <= 3, "{running} run at cap 3");
                    if left == 0 {
                        break done;
                    }
                    done += complete_many(&mut worker, &claimed).await.len();
                }
            })
        })
        .collect();
    let mut done = 0;
    for claimer in claimers {
        done += claimer.await.expect("a claimer");
    }
    assert_eq!(done, TASKS, "each task was handed out once");
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn cap_that_is_lowered_while_a_claimer_waits_holds_for_it() {
    let (scene, _) = Scene::with_lane(5, 9).await;
    let mut operator = Open::begin(&scene.operator).await;
    set_lane(&mut operator, TENANT, json!({ "max_running": 2 })).await;

    let late = async |claimer: &mut Open| claim(claimer, scene.id, 1, 9).await;
    let claimed = scene.outcome(operator, Commit, &scene.worker, late).await;

    assert_eq!(claimed.len(), 2);
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn cap_is_not_lowered_beneath_a_claim_that_is_not_through() {
    let (scene, _) = Scene::with_lane(5, 9).await;
    let (claimer, claimed) = scene.open_claim(4).await;
    assert_eq!(claimed.len(), 4);

    let lower = async |operator: &mut Open| set_lane(operator, TENANT, json!({ "max_running": 2 })).await;
    scene.outcome(claimer, Commit, &scene.operator, lower).await;

    assert_eq!(scene.claim(9).await, [], "four run at a cap of two, and none is killed");
    complete_many(&mut scene.worker.clone(), &claimed).await;
    assert_eq!(scene.claim(9).await.len(), 2);
    invariants::hold(&scene).await;
}

/// A subquery with a limit that runs twice takes other rows the second time; it must be read once, whatever the plan.
#[tokio::test]
async fn claim_takes_exactly_what_it_answers() {
    const CALLS: i64 = 9;
    let scene = Scene::new().await;
    for tenant in ["a", "b", "c", "d"] {
        set_lane(&mut scene.operator.clone(), tenant, json!({ "max_running": 40 })).await;
        enqueue(&mut scene.worker.clone(), tenant, 40).await;
    }
    // One session, so that later calls run with the plans of the first.
    let mut session = Open::begin(&scene.worker).await;
    let mut handed_out = std::collections::BTreeSet::new();
    for sequence in 1..=CALLS {
        let claimed = try_claim(&mut session, scene.id, sequence, 7, 2).await.expect("a claim");
        assert_eq!(claimed.len(), 7);
        handed_out.extend(claimed.iter().map(|task| task.track_id));
        let row = &rows(
            &mut session,
            sqlx::query("select demand, startable from sluice.pool_demand() where pool = 'default'"),
        )
        .await[0];
        let (demand, startable): (i64, i64) = (row.get(0), row.get(1));
        assert_eq!(demand - startable, 7 * sequence, "as many run as were answered");
    }
    assert_eq!(handed_out.len(), 63, "none twice");
    session.commit().await;
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn lower_id_that_is_committed_after_a_higher_one_is_claimed() {
    let (scene, _) = Scene::with_lane(9, 0).await;
    let mut slow = Open::begin(&scene.worker).await;
    let lower = enqueue(&mut slow, TENANT, 1).await[0];
    let higher = enqueue(&mut scene.worker.clone(), TENANT, 1).await[0];

    assert_eq!(scene.claim_one().await.track_id, higher);
    slow.commit().await;
    assert_eq!(scene.claim_one().await.track_id, lower);
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn open_producer_on_the_lane_with_the_lowest_turn_costs_others_nothing() {
    const CLAIMS: usize = 200;
    let (scene, _) = Scene::with_lane(9, 0).await;
    set_lane(&mut scene.operator.clone(), "b", json!({ "max_running": 0 })).await;
    enqueue(&mut scene.worker.clone(), "b", CLAIMS).await;
    scene.admin_execute("update sluice.lane_turns set vtime = case cap when 9 then 0 else 5000000 end").await;

    let mut producer = Open::begin(&scene.worker).await;
    enqueue(&mut producer, TENANT, 1).await;
    for nth in 0..CLAIMS {
        assert_eq!(at_once("a claim beside a producer", scene.claim(1)).await.len(), 1, "claim {nth}");
    }
    producer.commit().await;
    assert_eq!(scene.claim(1).await.len(), 1);
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn row_lock_on_a_lane_never_blocks_its_producers() {
    let scene = Scene::new().await;
    // A new lane, and one that is marked empty.
    for marked in [false, true] {
        scene.lane(9, 0).await;
        if marked {
            assert_eq!(scene.claim(1).await, []);
        }
        let mut holder = scene.db.admin().begin().await.expect("a transaction");
        for statement in ["select from sluice.tenant_lanes for update", "select from sluice.lane_turns for update"] {
            sqlx::query(statement).fetch_all(&mut *holder).await.expect("the locks");
        }
        at_once("a producer", enqueue(&mut scene.worker.clone(), TENANT, 3)).await;
        holder.rollback().await.expect("the rollback");
        assert_eq!(scene.claim(9).await.len(), 3);
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn drained_worker_gets_nothing_whoever_is_first() {
    let scene = Scene::new().await;
    for ending in [Commit, Rollback] {
        scene.lane(9, 4).await;
        let drain = || sqlx::query("select sluice.drain_worker($1)").bind(scene.id);

        // The drain is first: the claim waits for its outcome.
        let mut operator = Open::begin(&scene.operator).await;
        assert_eq!(text(&mut operator, drain()).await, "draining");
        let late = async |claimer: &mut Open| claim(claimer, scene.id, 1, 2).await;
        let claimed = scene.outcome(operator, ending, &scene.worker, late).await;
        assert_eq!(claimed.len(), if ending == Commit { 0 } else { 2 });

        // The claim is first: whoever drained reads its leases afterwards.
        let undrain = sqlx::query("select sluice.undrain_worker($1)").bind(scene.id);
        assert_eq!(text(&mut scene.operator.clone(), undrain).await, "serving");
        let (claimer, claimed) = scene.open_claim(1).await;
        assert_eq!(claimed.len(), 1);
        let drain_and_look = async |operator: &mut Open| {
            text(operator, drain()).await;
            let leases = sqlx::query("select leases from sluice.pool_workers() where worker_id = $1").bind(scene.id);
            rows(operator, leases).await[0].get::<i64, _>(0)
        };
        let leases = scene.outcome(claimer, Commit, &scene.operator, drain_and_look).await;
        assert!(leases >= 1, "the lease of a claim that was first is seen");
        assert_eq!(scene.claim(9).await, []);
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn heartbeat_leaves_a_claim_alone_whose_reply_is_on_its_way() {
    let (scene, _) = Scene::with_lane(9, 3).await;
    let mut worker = scene.worker.clone();
    let mut open = Open::begin(&scene.worker).await;
    let claimed = claim(&mut open, scene.id, 7, 1).await;

    // The claim is not through: its rows are nobody's yet. (A heartbeat writes the worker's row, which a claim reads.)
    let beat = async |session: &mut Open| heartbeat(session, scene.id, 7, &[]).await;
    assert_eq!(scene.outcome(open, Commit, &scene.worker, beat).await, ["serving"]);

    // It is through, and its reply is on its way: its sequence is the newest that was sent.
    assert_eq!(heartbeat(&mut worker, scene.id, 7, &[]).await, ["serving"]);
    assert_eq!(scene.state(claimed[0].track_id).await, "processing");
    assert_eq!(heartbeat(&mut worker, scene.id, 7, &claimed).await, ["serving", "renewed"]);

    // A newer claim was sent, so the reply to this one never came.
    assert_eq!(heartbeat(&mut worker, scene.id, 8, &[]).await, ["serving"]);
    assert_eq!(scene.state(claimed[0].track_id).await, "pending");
    assert_eq!(complete(&mut worker, claimed[0]).await, "lost", "its token is of no use any more");
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn heartbeat_answers_busy_for_a_row_that_another_session_holds() {
    let (scene, _) = Scene::with_lane(9, 2).await;
    let claimed = scene.claim(2).await;
    let mut completing = Open::begin(&scene.worker).await;
    assert_eq!(complete(&mut completing, claimed[0]).await, "completed");

    let answers = at_once("a heartbeat", heartbeat(&mut scene.worker.clone(), scene.id, 1, &claimed)).await;
    assert_eq!(answers, ["serving", "busy", "renewed"]);
    completing.commit().await;
    assert_eq!(heartbeat(&mut scene.worker.clone(), scene.id, 1, &claimed).await, ["serving", "lost", "renewed"]);
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn worker_whose_row_was_deleted_by_hand_finishes_its_work_and_comes_back() {
    let (scene, _) = Scene::with_lane(9, 4).await;
    let mut worker = scene.worker.clone();
    let claimed = scene.claim(3).await;
    scene.admin_execute("delete from sluice.workers").await;

    let error = try_claim(&mut worker, scene.id, 2, 1, 1).await.expect_err("nobody is registered");
    assert_eq!(error.sqlstate().as_deref(), Some("P0002"));
    assert_eq!(
        heartbeat(&mut worker, scene.id, 1, &claimed).await,
        ["unregistered", "renewed", "renewed", "renewed"],
        "the leases are the rows', not the worker's"
    );
    assert_eq!(complete(&mut worker, claimed[0]).await, "completed");
    assert_eq!(release(&mut worker, claimed[1]).await, "released");
    scene.expire_lease(claimed[2].track_id).await;
    assert_eq!(reap(&mut worker).await, [(claimed[2].track_id, "lost".to_owned())]);

    let again = sqlx::query("select sluice.register_worker('default', p_worker => $1)").bind(scene.id);
    rows(&mut worker, again).await;
    assert_eq!(scene.claim(9).await.len(), 3);
    invariants::hold(&scene).await;
}

/// A work list that reads only lanes with work would hide this one: another pool's worker folds its wake, or nobody does.
#[tokio::test]
async fn wake_of_one_pool_is_served_whatever_workers_of_another_do() {
    let scene = Scene::new().await;
    let (scene, running) = {
        scene.lane(1, 2).await;
        let running = scene.claim_one().await;
        (scene, running)
    };
    let mut operator = scene.operator.clone();
    rows(&mut operator, sqlx::query("select sluice.set_pool('other')")).await;
    let other = register(&mut scene.worker.clone(), "other").await;
    assert_eq!(scene.claim(1).await, []);

    assert_eq!(complete(&mut scene.worker.clone(), running).await, "completed");
    assert_eq!(claim(&mut scene.worker.clone(), other, 1, 9).await, [], "the lane is not of its pool");
    assert_eq!(scene.claim(9).await.len(), 1);
    invariants::hold(&scene).await;
}

/// NOTIFY takes a lock over the whole server at the commit: only what is meant to wake or to stop somebody may use it.
#[tokio::test]
async fn only_wake_and_cancel_notify() {
    let (scene, _) = Scene::with_lane(9, 9).await;
    let (mut worker, mut operator) = (scene.worker.clone(), scene.operator.clone());
    let mut listener = PgListener::connect(&scene.db.admin_url()).await.expect("a listener");
    listener.listen_all(["sluice_wake", "sluice_cancel"]).await.expect("it listens");

    let claimed = scene.claim(6).await;
    complete(&mut worker, claimed[0]).await;
    fail(&mut worker, claimed[1], "unknown").await;
    fail(&mut worker, claimed[2], "invalid_document").await;
    release(&mut worker, claimed[3]).await;
    scene.expire_lease(claimed[4].track_id).await;
    reap(&mut worker).await;
    heartbeat(&mut worker, scene.id, 2, &claimed).await;
    promote(&mut worker).await;
    settle(&mut worker).await;
    rows(&mut worker, sqlx::query("select what from sluice.retain()")).await;
    assert_eq!(retry(&mut operator, claimed[2].track_id).await, "pending");
    set_lane(&mut operator, TENANT, json!({ "max_running": 20, "weight": 2 })).await;
    let pending = enqueue(&mut worker, TENANT, 1).await[0];
    assert_eq!(cancel(&mut operator, pending).await, "cancelled");

    // The last in the queue: had one of the calls above notified, it would come before.
    rows(&mut worker, sqlx::query("select sluice.wake('default')")).await;
    let first = at_once("the wake", listener.recv()).await.expect("a notification");
    assert_eq!((first.channel(), first.payload()), ("sluice_wake", "default"));

    assert_eq!(cancel(&mut operator, claimed[5].track_id).await, "stopping");
    let second = at_once("the cancel", listener.recv()).await.expect("a notification");
    assert_eq!((second.channel(), second.payload()), ("sluice_cancel", scene.id.to_string().as_str()));
    stopped(&mut worker, claimed[5]).await;
    invariants::hold(&scene).await;
}

/// A session that listens and is not read must not keep dead rows alive: it has to listen outside of a transaction.
#[tokio::test]
async fn session_that_listens_pins_no_horizon() {
    let scene = Scene::new().await;
    let mut listener = PgListener::connect(&scene.db.admin_url()).await.expect("a listener");
    listener.listen("sluice_wake").await.expect("it listens");
    rows(&mut scene.worker.clone(), sqlx::query("select sluice.wake('default')")).await;

    let pinned: i64 = scene
        .admin_value(
            "select count(*) from pg_stat_activity
              where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen%'
                and (backend_xmin is not null or xact_start is not null)",
        )
        .await;
    assert_eq!(pinned, 0);
}
