//! Two who want to end, take or move one task at the same moment: one wins, the other is told, whoever is first and
//! whichever rolls back.

use serde_json::json;
use sqlx::Row;
use uuid::Uuid;

use super::invariants;
use super::scene::Ending::{Commit, Rollback};
use super::scene::{
    Attempt, Open, Scene, TENANT, at_once, cancel, claim, complete, enqueue_items, fail, heartbeat, promote, reap,
    release, retry, rows, stopped, text,
};

/// What a worker says of an attempt, with its answer, what the task is after it, and what a cancel answers then.
#[derive(Debug, Clone, Copy)]
enum End {
    Complete,
    FailAndRetry,
    FailForGood,
    Release,
}

const ENDS: [End; 4] = [End::Complete, End::FailAndRetry, End::FailForGood, End::Release];

impl End {
    async fn say(self, session: &mut Open, task: Attempt) -> String {
        match self {
            Self::Complete => complete(session, task).await,
            Self::FailAndRetry => fail(session, task, "unknown").await,
            Self::FailForGood => fail(session, task, "invalid_document").await,
            Self::Release => release(session, task).await,
        }
    }

    fn answer(self) -> &'static str {
        match self {
            Self::Complete => "completed",
            Self::FailAndRetry => "retry",
            Self::FailForGood => "failed",
            Self::Release => "released",
        }
    }

    fn cancel_after_it(self) -> &'static str {
        match self {
            Self::Complete => "conflict_completed",
            Self::FailForGood => "already_finished",
            Self::FailAndRetry | Self::Release => "cancelled",
        }
    }

    fn state_after_both(self) -> &'static str {
        match self {
            Self::Complete => "completed",
            Self::FailForGood => "failed",
            Self::FailAndRetry | Self::Release => "cancelled",
        }
    }
}

async fn one_running(scene: &Scene) -> Attempt {
    scene.lane(9, 1).await;
    scene.claim_one().await
}

#[tokio::test]
async fn end_that_waited_for_a_cancel_ends_as_cancelled() {
    let scene = Scene::new().await;
    for end in ENDS {
        for ending in [Commit, Rollback] {
            let task = one_running(&scene).await;
            let mut canceller = Open::begin(&scene.operator).await;
            assert_eq!(cancel(&mut canceller, task.track_id).await, "stopping");

            let answer =
                scene.outcome(canceller, ending, &scene.worker, async |worker| end.say(worker, task).await).await;

            assert_eq!(answer, if ending == Commit { "cancelled" } else { end.answer() }, "{end:?}");
            if ending == Commit {
                assert_eq!(scene.state(task.track_id).await, "cancelled");
            }
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn cancel_that_waited_for_an_end_answers_what_became_of_the_task() {
    let scene = Scene::new().await;
    for end in ENDS {
        for ending in [Commit, Rollback] {
            let task = one_running(&scene).await;
            let mut worker = Open::begin(&scene.worker).await;
            assert_eq!(end.say(&mut worker, task).await, end.answer());

            let answer = scene
                .outcome(worker, ending, &scene.operator, async |operator| cancel(operator, task.track_id).await)
                .await;

            let expected = if ending == Commit { end.cancel_after_it() } else { "stopping" };
            assert_eq!(answer, expected, "{end:?}");
            if ending == Rollback {
                assert_eq!(stopped(&mut scene.worker.clone(), task).await, "cancelled");
            }
            let state = if ending == Commit { end.state_after_both() } else { "cancelled" };
            assert_eq!(scene.state(task.track_id).await, state, "{end:?}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn cancel_that_waited_for_a_claim_stops_its_attempt() {
    let scene = Scene::new().await;
    for ending in [Commit, Rollback] {
        let ids = scene.lane(9, 1).await;
        let (claimer, claimed) = scene.open_claim(1).await;

        let answer =
            scene.outcome(claimer, ending, &scene.operator, async |operator| cancel(operator, ids[0]).await).await;

        if ending == Commit {
            assert_eq!(answer, "stopping");
            assert_eq!(heartbeat(&mut scene.worker.clone(), scene.id, 1, &claimed).await, ["serving", "cancel"]);
            assert_eq!(complete(&mut scene.worker.clone(), claimed[0]).await, "cancelled");
        } else {
            assert_eq!(answer, "cancelled");
        }
        assert_eq!(scene.state(ids[0]).await, "cancelled");
        assert_eq!(scene.claim(9).await, []);
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn claim_passes_what_is_being_cancelled_suspended_or_moved() {
    let scene = Scene::new().await;
    for act in ["select sluice.cancel($1)", "select sluice.suspend($1)", "select sluice.set_priority($1, 7)"] {
        for ending in [Commit, Rollback] {
            let ids = scene.lane(9, 2).await;
            let mut operator = Open::begin(&scene.operator).await;
            rows(&mut operator, sqlx::query(act).bind(ids[0])).await;

            let passed = at_once("a claim beside it", scene.claim(1)).await;
            assert_eq!(passed[0].track_id, ids[1], "{act}");
            operator.end(ending).await;

            let comes_back = ending == Rollback || act.contains("priority");
            let next: Vec<Uuid> = scene.claim(9).await.iter().map(|task| task.track_id).collect();
            assert_eq!(next, if comes_back { vec![ids[0]] } else { vec![] }, "{act}, {ending:?}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn suspension_and_priority_that_waited_for_a_claim_are_refused() {
    let scene = Scene::new().await;
    for act in ["select sluice.suspend($1)", "select sluice.set_priority($1, 7)"] {
        let ids = scene.lane(9, 1).await;
        let (claimer, _) = scene.open_claim(1).await;
        let ask = async |operator: &mut Open| text(operator, sqlx::query(act).bind(ids[0])).await;
        assert_eq!(scene.outcome(claimer, Commit, &scene.operator, ask).await, "refused", "{act}");
        assert_eq!(scene.state(ids[0]).await, "processing");
        invariants::hold(&scene).await;
    }
}

/// A task that waits for its time, and whose time has come.
async fn one_due(scene: &Scene) -> Uuid {
    scene.lane(9, 0).await;
    let item = json!({ "type": "insert", "tenant": TENANT, "delay_secs": 3_600 });
    let id = enqueue_items(&mut scene.worker.clone(), &[item]).await[0].0.expect("a task");
    scene.admin_execute("update sluice.tasks set available_at = now()").await;
    id
}

#[tokio::test]
async fn cancel_and_promotion_of_one_task_leave_it_cancelled() {
    let scene = Scene::new().await;
    for ending in [Commit, Rollback] {
        let id = one_due(&scene).await;
        let mut promoter = Open::begin(&scene.worker).await;
        assert_eq!(promote(&mut promoter).await, 1);
        let answer =
            scene.outcome(promoter, ending, &scene.operator, async |operator| cancel(operator, id).await).await;
        assert_eq!(answer, "cancelled");
        assert_eq!(scene.state(id).await, "cancelled");
        invariants::hold(&scene).await;

        let id = one_due(&scene).await;
        let mut operator = Open::begin(&scene.operator).await;
        assert_eq!(cancel(&mut operator, id).await, "cancelled");
        assert_eq!(at_once("a promotion beside a cancel", promote(&mut scene.worker.clone())).await, 0);
        operator.end(ending).await;
        assert_eq!(promote(&mut scene.worker.clone()).await, i32::from(ending == Rollback));
        assert_eq!(scene.claim(9).await.len(), usize::from(ending == Rollback));
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn end_that_waited_for_the_reaper_is_told_that_its_attempt_is_lost() {
    let scene = Scene::new().await;
    for end in ENDS {
        for ending in [Commit, Rollback] {
            let task = one_running(&scene).await;
            scene.expire_lease(task.track_id).await;
            let mut reaper = Open::begin(&scene.worker).await;
            assert_eq!(reap(&mut reaper).await, [(task.track_id, "lost".to_owned())]);

            let answer = scene.outcome(reaper, ending, &scene.worker, async |worker| end.say(worker, task).await).await;

            assert_eq!(answer, if ending == Commit { "lost" } else { end.answer() }, "{end:?}");
            if ending == Commit {
                assert_eq!(scene.state(task.track_id).await, "pending");
            }
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn reaper_leaves_an_attempt_alone_that_is_ending_or_renewed() {
    let scene = Scene::new().await;
    for end in ENDS {
        for ending in [Commit, Rollback] {
            let task = one_running(&scene).await;
            scene.expire_lease(task.track_id).await;
            let mut worker = Open::begin(&scene.worker).await;
            assert_eq!(end.say(&mut worker, task).await, end.answer());
            assert_eq!(at_once("a reaper beside an end", reap(&mut scene.worker.clone())).await, []);
            worker.end(ending).await;

            let reaped = reap(&mut scene.worker.clone()).await;
            assert_eq!(reaped.len(), usize::from(ending == Rollback), "{end:?}");
            invariants::hold(&scene).await;
        }
    }

    for ending in [Commit, Rollback] {
        let task = one_running(&scene).await;
        scene.expire_lease(task.track_id).await;
        let mut worker = Open::begin(&scene.worker).await;
        assert_eq!(heartbeat(&mut worker, scene.id, 1, &[task]).await, ["serving", "renewed"]);
        assert_eq!(at_once("a reaper beside a heartbeat", reap(&mut scene.worker.clone())).await, []);
        worker.end(ending).await;
        assert_eq!(reap(&mut scene.worker.clone()).await.len(), usize::from(ending == Rollback));
        invariants::hold(&scene).await;
    }
}

#[tokio::test]
async fn heartbeat_beside_the_reaper_is_busy_and_then_lost() {
    let scene = Scene::new().await;
    let task = one_running(&scene).await;
    let mut worker = scene.worker.clone();
    scene.expire_lease(task.track_id).await;
    let mut reaper = Open::begin(&scene.worker).await;
    reap(&mut reaper).await;
    assert_eq!(at_once("a heartbeat", heartbeat(&mut worker, scene.id, 1, &[task])).await, ["serving", "busy"]);
    reaper.commit().await;
    assert_eq!(heartbeat(&mut worker, scene.id, 1, &[task]).await, ["serving", "lost"]);
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn only_one_of_two_ends_is_accepted() {
    let scene = Scene::new().await;
    for (first_end, second_end) in
        [(End::Complete, End::Complete), (End::Complete, End::FailForGood), (End::FailForGood, End::Complete)]
    {
        for ending in [Commit, Rollback] {
            let task = one_running(&scene).await;
            let mut first = Open::begin(&scene.worker).await;
            assert_eq!(first_end.say(&mut first, task).await, first_end.answer());
            let answer =
                scene.outcome(first, ending, &scene.worker, async |worker| second_end.say(worker, task).await).await;
            assert_eq!(answer, if ending == Commit { "refused" } else { second_end.answer() });
            let won = if ending == Commit { first_end } else { second_end };
            assert_eq!(scene.state(task.track_id).await, won.state_after_both());
            invariants::hold(&scene).await;
        }
    }
}

/// Only the end of a lease or of a deadline takes a task from its worker, never the time that it has run.
#[tokio::test]
async fn long_attempt_with_a_live_lease_is_never_taken_from_its_worker() {
    let scene = Scene::new().await;
    let task = one_running(&scene).await;
    scene
        .admin_execute(
            "update sluice.tasks set created_at = now() - interval '30 days', available_at = created_at,
                    started_at = now() - interval '20 hours', timeout_secs = 86400, deadline = started_at + interval '24 hours'",
        )
        .await;
    assert_eq!(heartbeat(&mut scene.worker.clone(), scene.id, 1, &[task]).await, ["serving", "renewed"]);

    assert_eq!(reap(&mut scene.worker.clone()).await, []);
    promote(&mut scene.worker.clone()).await;
    rows(&mut scene.worker.clone(), sqlx::query("select what from sluice.retain(1, 1, 1)")).await;
    assert_eq!(scene.claim(9).await, []);
    assert_eq!(complete(&mut scene.worker.clone(), task).await, "completed");
    invariants::hold(&scene).await;
}

#[tokio::test]
async fn linked_cancel_reaches_the_insert_that_followed_while_it_waited() {
    let scene = Scene::new().await;
    for ending in [Commit, Rollback] {
        scene.lane(9, 0).await;
        let item = json!({ "type": "pdf_processing", "tenant": TENANT });
        let convert = enqueue_items(&mut scene.worker.clone(), &[item]).await[0].0.expect("a task");
        let task = scene.claim_one().await;
        let mut worker = Open::begin(&scene.worker).await;
        let next = sqlx::query("select next_track_id from sluice.complete_with_next($1, $2, $3)")
            .bind(task.track_id)
            .bind(task.attempt)
            .bind(json!({ "type": "insert" }));
        let insert: Uuid = rows(&mut worker, next).await[0].get(0);

        let cancelled = scene
            .outcome(worker, ending, &scene.operator, async |operator| {
                let statement = sqlx::query("select track_id, outcome from sluice.cancel_linked($1)").bind(convert);
                rows(operator, statement)
                    .await
                    .iter()
                    .map(|row| (row.get(0), row.get(1)))
                    .collect::<Vec<(Uuid, String)>>()
            })
            .await;

        if ending == Commit {
            assert_eq!(cancelled, [(insert, "cancelled".to_owned())]);
            assert_eq!(scene.state(convert).await, "completed");
            assert_eq!(scene.state(insert).await, "cancelled");
        } else {
            assert_eq!(cancelled, [(convert, "stopping".to_owned())]);
            assert_eq!(stopped(&mut scene.worker.clone(), task).await, "cancelled");
        }
        assert_eq!(scene.claim(9).await, []);
        invariants::hold(&scene).await;
    }
}

/// A failed task whose end is long past: in the default partition of the archive, or in one of its own week.
async fn one_failed_long_ago(scene: &Scene, partitioned: bool) -> Uuid {
    let task = one_running(scene).await;
    assert_eq!(fail(&mut scene.worker.clone(), task, "invalid_document").await, "failed");
    if partitioned {
        scene
            .admin_execute(
                "do $$ declare v_week timestamptz := date_trunc('week', now() - interval '60 days'); begin
                   set local role sluice_owner;
                   execute format('create table sluice.%I partition of sluice.tasks_archive for values from (%L) to (%L)',
                     'tasks_archive_w' || to_char(v_week, 'IYYY_IW'), sluice._uuid_at(v_week), sluice._uuid_at(v_week + interval '7 days'));
                   update sluice.tasks_archive set track_id = sluice._uuid_at(v_week + interval '1 day'), finished_at = v_week + interval '1 day';
                 end $$",
            )
            .await;
    } else {
        scene
            .admin_execute(
                "update sluice.tasks_archive set track_id = sluice._uuid_at(now() - interval '400 days'),
                        finished_at = now() - interval '400 days'",
            )
            .await;
    }
    scene.admin_value("select track_id from sluice.tasks_archive").await
}

async fn retain(session: &mut impl super::scene::Session) -> Vec<String> {
    rows(session, sqlx::query("select what from sluice.retain()")).await.iter().map(|row| row.get(0)).collect()
}

async fn is_archived(scene: &Scene) -> bool {
    scene.admin_value("select exists (select from sluice.tasks_archive where state = 'failed')").await
}

#[tokio::test]
async fn retention_leaves_a_task_alone_that_is_being_retried() {
    let scene = Scene::new().await;
    for partitioned in [false, true] {
        for ending in [Commit, Rollback] {
            let id = one_failed_long_ago(&scene, partitioned).await;
            let mut operator = Open::begin(&scene.operator).await;
            assert_eq!(retry(&mut operator, id).await, "pending");

            let done = at_once("retention beside a retry", retain(&mut scene.worker.clone())).await;
            assert!(!done.iter().any(|what| what.starts_with("dropped") || what == "archive rows"), "{done:?}");
            assert_eq!(done.iter().any(|what| what.starts_with("busy")), partitioned, "{done:?}");
            operator.end(ending).await;

            assert_eq!(is_archived(&scene).await, ending == Rollback);
            retain(&mut scene.worker.clone()).await;
            assert!(!is_archived(&scene).await, "what nobody retries goes");
            assert_eq!(scene.claim(9).await.len(), usize::from(ending == Commit), "{partitioned}, {ending:?}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn retry_that_waited_for_the_retention_is_told_that_the_task_is_gone() {
    let scene = Scene::new().await;
    for partitioned in [false, true] {
        for ending in [Commit, Rollback] {
            let id = one_failed_long_ago(&scene, partitioned).await;
            let mut retainer = Open::begin(&scene.worker).await;
            assert!(!retain(&mut retainer).await.is_empty());

            let outcome =
                scene.outcome(retainer, ending, &scene.operator, async |operator| retry(operator, id).await).await;

            assert_eq!(outcome, if ending == Commit { "not_found" } else { "pending" }, "{partitioned}");
            invariants::hold(&scene).await;
        }
    }
}

#[tokio::test]
async fn second_of_two_retries_finds_the_task_active() {
    let scene = Scene::new().await;
    for ending in [Commit, Rollback] {
        let task = one_running(&scene).await;
        fail(&mut scene.worker.clone(), task, "invalid_document").await;
        let mut first = Open::begin(&scene.operator).await;
        assert_eq!(retry(&mut first, task.track_id).await, "pending");
        let second =
            scene.outcome(first, ending, &scene.operator, async |operator| retry(operator, task.track_id).await).await;
        assert_eq!(second, if ending == Commit { "active" } else { "pending" });
        assert_eq!(claim(&mut scene.worker.clone(), scene.id, 2, 9).await.len(), 1);
        invariants::hold(&scene).await;
    }
}
