//! A lane's marks against those who fill and free it: whoever is first, and whoever rolls back, nothing is stranded.

use serde_json::json;
use sluice::store::Database;
use uuid::Uuid;

use super::invariants;
use super::scene::Ending::{Commit, Rollback};
use super::scene::{
    Attempt, Open, Scene, TENANT, at_once, cancel, claim, complete, complete_many, enqueue, enqueue_items, fail,
    promote, reap, release, retry, rows, set_lane, settle, spawn, stopped, until,
};

/// Ways to free a slot.
#[derive(Debug, Clone, Copy)]
enum Freeing {
    Complete,
    Fail,
    FailForGood,
    Release,
    Stopped,
    Reap,
}

const FREEINGS: [Freeing; 6] =
    [Freeing::Complete, Freeing::Fail, Freeing::FailForGood, Freeing::Release, Freeing::Stopped, Freeing::Reap];

impl Freeing {
    async fn prepare(self, scene: &Scene, task: Attempt) {
        match self {
            Self::Stopped => assert_eq!(cancel(&mut scene.operator.clone(), task.track_id).await, "stopping"),
            Self::Reap => scene.expire_lease(task.track_id).await,
            Self::Complete | Self::Fail | Self::FailForGood | Self::Release => {}
        }
    }

    async fn act(self, session: &mut Open, task: Attempt) {
        let outcome = match self {
            Self::Complete => complete(session, task).await,
            Self::Fail => fail(session, task, "unknown").await,
            Self::FailForGood => fail(session, task, "invalid_document").await,
            Self::Release => release(session, task).await,
            Self::Stopped => stopped(session, task).await,
            Self::Reap => reap(session).await.remove(0).1,
        };
        let expected = match self {
            Self::Complete => "completed",
            Self::Fail => "retry",
            Self::FailForGood => "failed",
            Self::Release => "released",
            Self::Stopped => "cancelled",
            Self::Reap => "lost",
        };
        assert_eq!(outcome, expected, "{self:?}");
    }
}

/// Ways to fill a lane that has nothing ready.
#[derive(Debug, Clone, Copy)]
enum Filling {
    Enqueue,
    EnqueueKeyed,
    Retry,
    Resume,
    Promote,
}

const FILLINGS: [Filling; 5] =
    [Filling::Enqueue, Filling::EnqueueKeyed, Filling::Retry, Filling::Resume, Filling::Promote];

impl Filling {
    /// The lane exists, has what `act` needs, and nothing in it is ready.
    async fn prepare(self, scene: &Scene) -> Option<Uuid> {
        let mut worker = scene.worker.clone();
        match self {
            Self::Enqueue | Self::EnqueueKeyed => None,
            Self::Retry => {
                let id = enqueue(&mut worker, TENANT, 1).await[0];
                assert_eq!(cancel(&mut scene.operator.clone(), id).await, "cancelled");
                Some(id)
            }
            Self::Resume => {
                let item = json!({ "type": "insert", "tenant": TENANT, "suspended": true });
                enqueue_items(&mut worker, &[item]).await[0].0
            }
            Self::Promote => {
                let item = json!({ "type": "insert", "tenant": TENANT, "delay_secs": 3_600 });
                let id = enqueue_items(&mut worker, &[item]).await[0].0;
                scene.admin_execute("update sluice.tasks set available_at = now() where not ready").await;
                id
            }
        }
    }

    async fn act(self, session: &mut Open, task: Option<Uuid>) {
        match self {
            Self::Enqueue => {
                enqueue(session, TENANT, 1).await;
            }
            Self::EnqueueKeyed => {
                let item = json!({ "type": "insert", "tenant": TENANT, "idempotency_key": "k", "exclusive_key": "x" });
                assert_eq!(enqueue_items(session, &[item]).await[0].1, "created");
            }
            Self::Retry => assert_eq!(retry(session, task.expect("a task")).await, "pending"),
            Self::Resume => {
                let statement = sqlx::query("select sluice.resume($1)").bind(task.expect("a task"));
                rows(session, statement).await;
            }
            Self::Promote => assert_eq!(promote(session).await, 1),
        }
    }

    fn pool(self, scene: &Scene) -> Database {
        match self {
            Self::Retry | Self::Resume => scene.operator.clone(),
            Self::Enqueue | Self::EnqueueKeyed | Self::Promote => scene.worker.clone(),
        }
    }
}

/// One lane, full: cap 1, one running, one pending.
async fn full_lane(scene: &Scene) -> Attempt {
    scene.lane(1, 2).await;
    scene.claim_one().await
}

async fn is_marked(scene: &Scene, mark: &'static str) -> bool {
    match mark {
        "full" => scene.admin_value("select is_full from sluice.lane_turns").await,
        _ => scene.admin_value("select is_empty from sluice.lane_turns").await,
    }
}

/// Its wake has a number by then, and nobody sees it: it must not be left below the floor until the next full look.
#[tokio::test]
async fn work_that_is_on_its_way_while_floors_are_set_is_claimed_once_it_is_there() {
    let (scene, _) = Scene::with_lane(3, 0).await;
    assert_eq!(scene.claim(1).await, []);
    let mut producer = Open::begin(&scene.worker).await;
    let task = enqueue(&mut producer, TENANT, 1).await[0];
    // Others take numbers after it.
    scene.admin_execute("select nextval('sluice.lane_wakes_wake_id_seq') from generate_series(1, 3)").await;
    scene.admin_execute("update sluice.pools set full_scan_at = '-infinity'").await;
    assert_eq!(scene.claim(1).await, []);
    // However long the next lines take, no claim looks below the floors.
    scene.admin_execute("update sluice.pools set full_scan_at = now() + interval '1 hour'").await;
    producer.commit().await;

    assert_eq!(scene.claim_one().await.track_id, task);
}

#[tokio::test]
async fn work_that_comes_while_its_lane_is_marked_empty_is_not_stranded() {
    let scene = Scene::new().await;
    for filling in FILLINGS {
        for (marker_ends, filler_ends) in
            [(Commit, Commit), (Rollback, Commit), (Commit, Rollback), (Rollback, Rollback)]
        {
            scene.lane(3, 0).await;
            let task = filling.prepare(&scene).await;

            // The claim finds nothing, marks the lane, and is not through yet.
            let (marker, claimed) = scene.open_claim(1).await;
            assert_eq!(claimed, []);
            let act = async |filler: &mut Open| filling.act(filler, task).await;
            let (filler, ()) = scene.meet(marker, marker_ends, &filling.pool(&scene), act).await;
            assert_eq!(is_marked(&scene, "empty").await, marker_ends == Commit, "the race was played");
            filler.end(filler_ends).await;

            let expected = usize::from(filler_ends == Commit);
            assert_eq!(scene.claim(9).await.len(), expected, "{filling:?}, {marker_ends:?}, {filler_ends:?}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn lane_is_never_marked_empty_while_work_for_it_is_uncommitted() {
    let scene = Scene::new().await;
    for filling in FILLINGS {
        for ending in [Commit, Rollback] {
            scene.lane(3, 0).await;
            let task = filling.prepare(&scene).await;

            let mut filler = Open::begin(&filling.pool(&scene)).await;
            filling.act(&mut filler, task).await;
            assert_eq!(at_once("a claim beside a producer", scene.claim(1)).await, []);
            assert!(!is_marked(&scene, "empty").await, "{filling:?}");
            filler.end(ending).await;

            assert_eq!(scene.claim(9).await.len(), usize::from(ending == Commit), "{filling:?}, {ending:?}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn work_wakes_a_lane_that_is_marked_empty() {
    let scene = Scene::new().await;
    for filling in FILLINGS {
        scene.lane(3, 0).await;
        let task = filling.prepare(&scene).await;
        assert_eq!(scene.claim(1).await, []);
        assert!(is_marked(&scene, "empty").await);

        let mut rolled_back = Open::begin(&filling.pool(&scene)).await;
        filling.act(&mut rolled_back, task).await;
        assert_eq!(scene.claim(1).await, [], "nothing of it is seen before its commit");
        rolled_back.rollback().await;
        assert_eq!(settle(&mut scene.worker.clone()).await, 0);

        let mut filler = Open::begin(&filling.pool(&scene)).await;
        filling.act(&mut filler, task).await;
        filler.commit().await;
        assert_eq!(scene.claim(9).await.len(), 1, "{filling:?}");
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn slot_that_is_freed_while_its_lane_is_marked_full_is_not_stranded() {
    let scene = Scene::new().await;
    for freeing in FREEINGS {
        for (marker_ends, freer_ends) in
            [(Commit, Commit), (Rollback, Commit), (Commit, Rollback), (Rollback, Rollback)]
        {
            let running = full_lane(&scene).await;
            freeing.prepare(&scene, running).await;

            let (marker, claimed) = scene.open_claim(1).await;
            assert_eq!(claimed, []);
            let act = async |freer: &mut Open| freeing.act(freer, running).await;
            let (freer, ()) = scene.meet(marker, marker_ends, &scene.worker, act).await;
            assert_eq!(is_marked(&scene, "full").await, marker_ends == Commit, "the race was played");
            freer.end(freer_ends).await;

            let expected = usize::from(freer_ends == Commit);
            assert_eq!(scene.claim(9).await.len(), expected, "{freeing:?}, {marker_ends:?}, {freer_ends:?}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn lane_is_never_marked_full_while_a_slot_of_it_is_being_freed() {
    let scene = Scene::new().await;
    for freeing in FREEINGS {
        for ending in [Commit, Rollback] {
            let running = full_lane(&scene).await;
            freeing.prepare(&scene, running).await;

            let mut freer = Open::begin(&scene.worker).await;
            freeing.act(&mut freer, running).await;
            assert_eq!(at_once("a claim beside one that frees", scene.claim(1)).await, []);
            assert!(!is_marked(&scene, "full").await, "{freeing:?}");
            freer.end(ending).await;

            assert_eq!(scene.claim(9).await.len(), usize::from(ending == Commit), "{freeing:?}, {ending:?}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn freed_slot_wakes_a_lane_that_is_marked_full() {
    let scene = Scene::new().await;
    for freeing in FREEINGS {
        let running = full_lane(&scene).await;
        freeing.prepare(&scene, running).await;
        assert_eq!(scene.claim(1).await, []);
        assert!(is_marked(&scene, "full").await);

        let mut rolled_back = Open::begin(&scene.worker).await;
        freeing.act(&mut rolled_back, running).await;
        assert_eq!(scene.claim(1).await, [], "the slot is not free before the commit");
        rolled_back.rollback().await;
        assert_eq!(settle(&mut scene.worker.clone()).await, 0);

        let mut freer = Open::begin(&scene.worker).await;
        freeing.act(&mut freer, running).await;
        freer.commit().await;
        assert_eq!(scene.claim(9).await.len(), 1, "{freeing:?}");
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn those_who_free_and_fill_one_lane_never_wait_for_each_other_and_never_hide_it() {
    let (scene, _) = Scene::with_lane(2, 4).await;
    let running = scene.claim(2).await;
    assert_eq!(scene.claim(1).await, []);
    assert!(is_marked(&scene, "full").await);

    let mut first = Open::begin(&scene.worker).await;
    assert_eq!(complete(&mut first, running[0]).await, "completed");
    let mut producer = Open::begin(&scene.worker).await;
    at_once("a producer", enqueue(&mut producer, TENANT, 1)).await;
    // The lane is marked, and two have it woken and not committed: the third must neither wait nor be lost.
    assert_eq!(at_once("the second who frees", complete(&mut scene.worker.clone(), running[1])).await, "completed");
    assert_eq!(at_once("a claim", scene.claim(9)).await.len(), 1, "the one slot that is free");

    first.commit().await;
    producer.commit().await;
    assert_eq!(scene.claim(9).await.len(), 1, "the other one");
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn wake_survives_the_claim_that_took_it_away_and_rolled_back() {
    let scene = Scene::new().await;
    let running = full_lane(&scene).await;
    assert_eq!(scene.claim(1).await, []);
    assert_eq!(complete(&mut scene.worker.clone(), running).await, "completed");

    let (claimer, claimed) = scene.open_claim(1).await;
    assert_eq!(claimed.len(), 1);
    claimer.rollback().await;

    assert_eq!(scene.claim(1).await.len(), 1);
    invariants::hold(&scene).await;
}

/// A wake that is there already serves a second one, also when a claim takes it away at this moment.
#[tokio::test]
async fn slot_that_is_freed_while_a_claim_takes_an_older_wake_away_is_not_stranded() {
    let scene = Scene::new().await;
    for ending in [Commit, Rollback] {
        scene.lane(2, 4).await;
        let running = scene.claim(2).await;
        assert_eq!(scene.claim(1).await, []);
        assert_eq!(complete(&mut scene.worker.clone(), running[0]).await, "completed");

        // Takes the wake and the slot; the lane is full again, and it could not say so.
        let (claimer, claimed) = scene.open_claim(1).await;
        assert_eq!(claimed.len(), 1);
        let mut freer = Open::begin(&scene.worker).await;
        assert_eq!(at_once("one that frees", complete(&mut freer, running[1])).await, "completed");
        claimer.end(ending).await;
        let seen = scene.claim(1).await.len();
        assert_eq!(seen, usize::from(ending == Rollback), "the slot of the first, if the claimer gave it back");
        freer.commit().await;

        assert_eq!(scene.claim(1).await.len(), 1, "the slot of the second");
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn raised_cap_and_lifted_hold_wake_a_lane() {
    let scene = Scene::new().await;
    full_lane(&scene).await;
    assert_eq!(scene.claim(1).await, []);
    set_lane(&mut scene.operator.clone(), TENANT, json!({ "max_running": 2 })).await;
    assert_eq!(scene.claim(9).await.len(), 1);

    enqueue(&mut scene.worker.clone(), TENANT, 1).await;
    set_lane(&mut scene.operator.clone(), TENANT, json!({ "policy": "hold", "max_running": 3 })).await;
    assert_eq!(scene.claim(9).await, []);
    set_lane(&mut scene.operator.clone(), TENANT, json!({ "policy": "none" })).await;
    assert_eq!(scene.claim(9).await.len(), 1);
    invariants::hold(&scene).await;
}

/// A lane's first claim after many empty ones: marks of a thousand lanes at once are neither wrong nor too many to look at.
#[tokio::test]
async fn thousands_of_marked_lanes_are_settled_without_a_lock_for_each() {
    const LANES: i64 = 8_000;
    let scene = Scene::new().await;
    scene
        .admin_execute(
            "insert into sluice.tenant_lanes (tenant, class, pool_id, max_running, effective_max_running)
             select 't' || n, 'ingest', 1, 1, 1 from generate_series(1, 8000) n;
             insert into sluice.lane_turns (lane_id, pool_id, cap, weight, vtime, is_empty)
             select lane_id, 1, 1, 1, 0, true from sluice.tenant_lanes;",
        )
        .await;
    let mut open = Open::begin(&scene.worker).await;
    assert_eq!(settle(&mut open).await, 0);
    let locks: i64 = scene.admin_value("select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())").await;
    assert!(locks < LANES / 4, "{locks} locks of lanes whose marks are right");
    open.commit().await;

    // It still finds what is wrong.
    scene
        .admin_execute(
            "insert into sluice.tasks (track_id, id, lane_id, type)
             select sluice._uuid_v7(), nextval('sluice.task_ids'), lane_id, 'insert' from sluice.lane_turns order by lane_id limit 3",
        )
        .await;
    assert_eq!(settle(&mut scene.worker.clone()).await, 3);
    assert_eq!(scene.claim(9).await.len(), 3);
    invariants::hold(&scene).await;
}

/// The marks as they come and go by themselves: claimers, producers and freers of two lanes at full speed.
#[tokio::test]
async fn marks_that_come_and_go_strand_nothing() {
    const TASKS: usize = 300;
    let (scene, _) = Scene::with_lane(1, 0).await;
    set_lane(&mut scene.operator.clone(), "b", json!({ "max_running": 2 })).await;

    let producers = ["a", "b"].map(|tenant| {
        let mut worker = scene.worker.clone();
        spawn(async move {
            for _ in 0..TASKS {
                enqueue(&mut worker, tenant, 1).await;
            }
        })
    });
    let claimers = (0..4).map(|_| {
        let mut worker = scene.worker.clone();
        let id = scene.id;
        spawn(async move {
            let mut done = 0;
            // Empty claims mark the lanes; the next enqueue or completion must wake them.
            for _ in 0..TASKS {
                let claimed = claim(&mut worker, id, 1, 1).await;
                done += claimed.len();
                complete_many(&mut worker, &claimed).await;
            }
            done
        })
    });
    let claimers: Vec<_> = claimers.collect();
    for producer in producers {
        producer.await.expect("all enqueued");
    }
    let mut done = 0;
    for claimer in claimers {
        done += claimer.await.expect("a claimer");
    }
    assert!(done > 0);
    invariants::hold(&scene).await;
    until("everything is done", async || {
        scene.admin_value::<i64>("select count(*) from sluice.tasks_archive").await == 2 * TASKS as i64
    })
    .await;
}
