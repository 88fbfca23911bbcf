//! What follows when an attempt does not end well: classes, budgets, back-off, breakers, rests.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use chrono::Utc;
use sluice::domain::failure::FailureClass;
use sluice::domain::lane::Class;
use sluice::domain::retry::{self, COOL_DOWNS, FailureCounts};
use sluice::domain::task::{State, TaskType};
use sluice::store::claim::Attempt;
use sluice::store::control::{RetryOutcome, retry as retry_by_hand};
use sluice::store::ends::{CoolDown, FailOutcome, release};
use sluice::store::enqueue::NewTask;
use sluice::store::lanes::{WorkerPoolSettings, set_pool};
use sluice::store::leases::{Report, register_worker, report};
use sluice::store::reads::lane_counts;
use sluice::store::upkeep::{ReapOutcome, promote, reap};
use sqlx::Row;
use uuid::Uuid;

use crate::queue::{ANYBODY, Queue, TENANT, insert, serving};

#[tokio::test]
async fn classes_of_the_schema_are_those_of_the_domain() {
    let queue = Queue::new().await;
    let permanence = async |name: &str| -> Option<bool> {
        sqlx::query("select sluice._is_permanent($1)")
            .bind(name)
            .fetch_one(queue.db.admin())
            .await
            .expect("an answer")
            .get(0)
    };
    let source: String = sqlx::query("select pg_get_functiondef('sluice._is_permanent(text)'::regprocedure)")
        .fetch_one(queue.db.admin())
        .await
        .expect("the source")
        .get(0);
    let named = source.split('\'').skip(1).step_by(2).filter(|name| !name.is_empty()).collect::<BTreeSet<_>>();

    assert_eq!(named, FailureClass::ALL.iter().map(|class| class.as_str()).collect());
    for class in FailureClass::ALL {
        assert_eq!(permanence(class.as_str()).await, Some(class.is_permanent()), "{class}");
    }
    assert_eq!(permanence("bad_luck").await, None);
}

#[tokio::test]
async fn each_class_ends_or_retries_as_the_domain_decides() {
    let queue = Queue::new().await;
    for class in FailureClass::ALL.iter().filter(|class| **class != FailureClass::Cancelled) {
        let attempt = queue.running().await;

        let outcome = queue.fail(attempt, *class).await;

        let task = queue.task(attempt.track_id).await;
        let counts = FailureCounts { failures: 1, max_attempts: 3, timeouts_in_a_row: u32::from(class.is_timeout()) };
        match retry::after_failure(*class, counts) {
            retry::Next::TryAgain => assert_eq!((outcome, task.state), (FailOutcome::Retry, State::Pending), "{class}"),
            retry::Next::Fail(class) => {
                assert_eq!((outcome, task.state), (FailOutcome::Failed, State::Failed), "{class}");
                assert_eq!(task.failure_class, Some(class));
            }
        }
        assert_eq!((task.failures, task.error.as_deref()), (1, Some("why")), "{class}");
    }
}

#[tokio::test]
async fn third_failure_is_the_last_and_each_waits_longer() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;
    for failures in 0..3_u32 {
        let attempt = queue.run(track_id).await;
        let outcome = queue.fail(attempt, FailureClass::ProviderUnavailable).await;
        if failures == 2 {
            assert_eq!(outcome, FailOutcome::Failed);
            break;
        }
        assert_eq!(outcome, FailOutcome::Retry);
        assert_eq!(queue.claim_this(track_id).await, None, "it backs off");
        queue.make_due(track_id).await;
    }
    let task = queue.task(track_id).await;
    assert_eq!((task.state, task.failures, task.attempt), (State::Failed, 3, 3));
}

#[tokio::test]
async fn back_off_is_within_the_bounds_of_the_domain() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&NewTask { max_attempts: Some(100), ..insert() }).await;
    for failures_before in [0, 1, 2, 3, 4, 5, 6, 7, 30, 98] {
        let attempt = queue.run(track_id).await;
        let set = format!("update sluice.tasks set failures = {failures_before} where track_id = $1");
        queue.arrange(&set, track_id).await;

        queue.fail(attempt, FailureClass::Unknown).await;

        let wait: f64 = sqlx::query(
            "select extract(epoch from available_at - (select max(at) from sluice.task_events where track_id = $1))::float8
               from sluice.tasks where track_id = $1",
        )
        .bind(track_id)
        .fetch_one(queue.db.admin())
        .await
        .expect("a wait")
        .get(0);
        let shortest = retry::backoff(failures_before, 0).as_secs_f64();
        let longest = retry::backoff(failures_before, retry::JITTER_MAX_PERMILLE).as_secs_f64();
        assert!((shortest..=longest).contains(&wait), "{failures_before}: {wait} s, not {shortest} to {longest}");
        queue.make_due(track_id).await;
    }
}

#[tokio::test]
async fn three_timeouts_in_a_row_without_progress_open_the_circuit() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&NewTask { max_attempts: Some(100), ..insert() }).await;
    let time_out = async |with_progress: bool, class| {
        queue.make_due(track_id).await;
        let attempt = queue.run(track_id).await;
        if with_progress {
            let stage = Report { stage: Some("extracting"), ..Report::default() };
            report(&queue.worker, attempt, &stage).await.expect("an answer");
        }
        queue.fail(attempt, class).await
    };
    let timeout = FailureClass::TimeoutPhaseExtract;

    // Progress, or another failure, begins a new row.
    for (with_progress, class) in [
        (false, timeout),
        (false, timeout),
        (true, timeout),
        (false, timeout),
        (false, FailureClass::TimeoutPhaseConvert),
        (false, FailureClass::Unknown),
        (false, timeout),
        (false, timeout),
    ] {
        assert_eq!(time_out(with_progress, class).await, FailOutcome::Retry);
    }
    assert_eq!(time_out(false, timeout).await, FailOutcome::Failed);
    assert_eq!(queue.task(track_id).await.failure_class, Some(FailureClass::CircuitBreaker));
}

#[tokio::test]
async fn deadline_that_passed_by_a_lease_is_a_timeout() {
    let queue = Queue::new().await;
    for (task_type, class) in [
        (TaskType::PdfProcessing, FailureClass::TimeoutPhaseConvert),
        (TaskType::Insert, FailureClass::TimeoutPhaseExtract),
    ] {
        let track_id = queue.enqueue(&NewTask::new(task_type, TENANT)).await;
        queue.run(track_id).await;
        let late = "update sluice.tasks set deadline = now() - interval '119 s' where track_id = $1";
        queue.arrange(late, track_id).await;
        assert_eq!(reap(&queue.worker, 10).await.expect("an answer"), []);

        let later = "update sluice.tasks set deadline = now() - interval '121 s' where track_id = $1";
        queue.arrange(later, track_id).await;
        assert_eq!(reap(&queue.worker, 10).await.expect("an answer"), [(track_id, ReapOutcome::Retry)]);

        let task = queue.task(track_id).await;
        assert_eq!((task.state, task.failures, task.failure_class), (State::Pending, 1, Some(class)));
    }
}

#[tokio::test]
async fn fifth_lost_lease_ends_the_task_and_none_counts_as_a_failure() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;
    for lost in 1..=5 {
        queue.run(track_id).await;
        queue.expire_lease(track_id).await;
        let reaped = reap(&queue.worker, 1_000).await.expect("an answer");
        let expected = if lost < 5 { ReapOutcome::Lost } else { ReapOutcome::Failed };
        assert_eq!(reaped, [(track_id, expected)]);
        let task = queue.task(track_id).await;
        assert_eq!((task.lost_leases, task.failures), (lost, 0));
    }
    let task = queue.task(track_id).await;
    assert_eq!((task.state, task.failure_class), (State::Failed, Some(FailureClass::WorkerLost)));
}

#[tokio::test]
async fn pool_without_auto_resume_fails_what_was_interrupted() {
    let queue = Queue::new().await;
    let settings = WorkerPoolSettings { auto_resume: Some(false), ..WorkerPoolSettings::default() };
    set_pool(&queue.operator, "default", settings, None).await.expect("settings");
    let attempt = queue.running().await;
    let stopping = queue.stopping().await;

    queue.expire_lease(attempt.track_id).await;
    queue.expire_lease(stopping.track_id).await;
    let reaped: HashMap<Uuid, ReapOutcome> = reap(&queue.worker, 10).await.expect("an answer").into_iter().collect();

    assert_eq!(reaped[&attempt.track_id], ReapOutcome::Failed);
    assert_eq!(reaped[&stopping.track_id], ReapOutcome::Cancelled);
    let task = queue.task(attempt.track_id).await;
    assert_eq!(task.failure_class, Some(FailureClass::Interrupted));
    assert_eq!(task.error.as_deref(), Some("Interrupted — use Reprocess"));
    let answer = retry_by_hand(&queue.operator, attempt.track_id, None, ANYBODY).await.expect("an answer");
    assert_eq!(answer.1, RetryOutcome::Pending);
}

#[tokio::test]
async fn live_lease_of_another_process_is_never_touched() {
    let queue = Queue::new().await;
    let attempt = queue.running().await;
    register_worker(&queue.worker, &serving("default")).await.expect("another worker");

    assert_eq!(reap(&queue.worker, 1_000).await.expect("an answer"), []);
    assert_eq!(queue.state(attempt.track_id).await, State::Processing);
}

#[tokio::test]
async fn task_is_retried_by_hand_three_times() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;
    for retries in 0..=3 {
        let attempt = queue.run(track_id).await;
        assert_eq!(attempt.number, retries + 1);
        queue.fail(attempt, FailureClass::GraphMerge).await;
        let (_, outcome) = retry_by_hand(&queue.operator, track_id, None, ANYBODY).await.expect("an answer");
        assert_eq!(outcome == RetryOutcome::Pending, retries < 3, "{outcome}");
    }
    let (_, outcome) = retry_by_hand(&queue.operator, track_id, None, ANYBODY).await.expect("an answer");
    assert_eq!(outcome, RetryOutcome::MaxRetriesExceeded);
}

#[tokio::test]
async fn rate_limited_lane_rests_longer_each_time() {
    let queue = Queue::new().await;
    let counts = async || lane_counts(&queue.worker, None).await.expect("the lanes").remove(0);
    let track_id = queue.enqueue(&insert()).await;
    for rest in COOL_DOWNS.into_iter().chain([COOL_DOWNS[3]]) {
        let attempt = queue.run(track_id).await;
        release(&queue.worker, &[attempt], Some("429"), CoolDown::Lanes { retry_after_secs: None })
            .await
            .expect("an answer");

        let until: f64 =
            sqlx::query("select extract(epoch from cooled_until - now())::float8 from sluice.tenant_lanes")
                .fetch_one(queue.db.admin())
                .await
                .expect("a rest")
                .get(0);
        let rest = rest.as_secs_f64();
        assert!((rest - 20.0..=rest).contains(&until), "{until} s, not {rest} s");
        assert_eq!(queue.claim_this(track_id).await, None);
        assert_eq!((counts().await.parked, queue.task(track_id).await.failures), (1, 0));
        promote(&queue.worker, 10).await.expect("an answer");
        assert_eq!(queue.claim_this(track_id).await, None, "it still rests");

        let rested = "update sluice.tenant_lanes set cooled_until = now() - interval '1 s' where $1 is not null";
        queue.arrange(rested, track_id).await;
        promote(&queue.worker, 10).await.expect("an answer");
        assert_eq!(counts().await.parked, 0);
    }
    assert_eq!(counts().await.class, Class::Ingest);
}

#[tokio::test]
async fn rate_limited_lane_rests_as_long_as_its_provider_asks() {
    let queue = Queue::new().await;
    let attempts = [queue.running().await, queue.running().await, queue.running().await];
    // The second word of one rest makes it longer, never shorter.
    for (attempt, (asked, rest)) in attempts.into_iter().zip([(40, 40.0), (5, 40.0), (86_400, 3_600.0)]) {
        let cool_down = CoolDown::Lanes { retry_after_secs: Some(asked) };
        release(&queue.worker, &[attempt], Some("429"), cool_down).await.expect("an answer");
        let until: f64 =
            sqlx::query("select extract(epoch from cooled_until - now())::float8 from sluice.tenant_lanes")
                .fetch_one(queue.db.admin())
                .await
                .expect("a rest")
                .get(0);
        assert!((rest - 20.0..=rest).contains(&until), "{until} s, not {rest} s");
    }
}

#[tokio::test]
async fn task_released_forty_thousand_times_goes_on() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;
    // The events would be as many rows, which is another matter.
    sqlx::query(
        "create procedure public.release_often(p_worker uuid, p_times int) language plpgsql as $$
         declare
           v_task record;
         begin
           for v_n in 1 .. p_times loop
             select c.track_id, c.attempt into strict v_task from sluice.claim(p_worker, v_n, 1) c;
             perform from sluice.release(array[v_task.track_id], array[v_task.attempt]);
             if v_n % 10 = 0 then
               commit;
             end if;
           end loop;
         end $$",
    )
    .execute(queue.db.admin())
    .await
    .expect("a procedure");

    let releases = tokio::time::timeout(Duration::from_secs(300), async {
        sqlx::query("call public.release_often($1, 40000)").bind(queue.worker_id).execute(queue.db.admin()).await
    });
    releases.await.expect("in time").expect("no overflow");

    let task = queue.task(track_id).await;
    assert_eq!((task.state, task.attempt, task.failures, task.lost_leases), (State::Pending, 40_000, 0, 0));
    assert!(task.available_at <= Utc::now() + chrono::TimeDelta::days(1));
    let attempt: Attempt = queue.run(track_id).await;
    assert_eq!(attempt.number, 40_001);
}
