//! What is kept for how long: partitions made ahead and dropped by age, and keys that outlive their task.

use sluice::domain::task::TaskType;
use sluice::store::enqueue::{Enqueued, NewTask, Resource, enqueue};
use sluice::store::status::task_status;
use sluice::store::upkeep::{Retained, Retention, retain};
use uuid::Uuid;

use crate::queue::{Queue, TENANT, insert};

const WEEK: Retention = Retention { archive_days: 7, history_days: 7, key_days: 7, batch: 100 };

async fn retained(queue: &Queue, retention: Retention) -> Vec<Retained> {
    retain(&queue.worker, retention).await.expect("an answer")
}

/// As if it had ended 60 days ago: such an id belongs to no partition of its own.
async fn age(queue: &Queue, track_id: Uuid) -> Uuid {
    let old = Uuid::new_v4();
    for sql in [
        "update sluice.tasks_archive set track_id = $2, finished_at = now() - interval '60 days' where track_id = $1",
        "update sluice.task_keys set track_id = $2 where track_id = $1",
    ] {
        let old = Uuid::from_u128(old.as_u128() >> 96);
        sqlx::query(sql).bind(track_id).bind(old).execute(queue.db.admin()).await.expect(sql);
    }
    Uuid::from_u128(old.as_u128() >> 96)
}

#[tokio::test]
async fn keys_outlive_a_task_that_was_archived_and_dropped() {
    let queue = Queue::new().await;
    let by_key = NewTask { idempotency_key: Some("k".to_owned()), ..insert() };
    let resource = Resource {
        cluster: "here".to_owned(),
        namespace: "docs".to_owned(),
        name: "a-file".to_owned(),
        uid: "u".to_owned(),
    };
    let by_resource = NewTask { resource: Some(resource), ..NewTask::new(TaskType::Scan, TENANT) };
    let mut ids = Vec::new();
    for task in [&by_key, &by_resource] {
        let track_id = queue.enqueue(task).await;
        let attempt = queue.run(track_id).await;
        queue.complete(attempt).await;
        ids.push(age(&queue, track_id).await);
    }

    let done = retained(&queue, WEEK).await;

    assert_eq!(done, [Retained { what: "archive rows".to_owned(), rows: 2 }]);
    for (task, track_id) in [&by_key, &by_resource].into_iter().zip(ids) {
        assert_eq!(task_status(&queue.worker, track_id).await.expect("an answer"), None);
        let again = enqueue(&queue.worker, task).await.expect("an answer");
        assert_eq!(again, Enqueued::Existing { track_id });
    }

    // The key's own retention ends it; a resource's key stays as long as the resource.
    sqlx::query("update sluice.task_keys set created_at = now() - interval '8 days'")
        .execute(queue.db.admin())
        .await
        .expect("older keys");
    let done = retained(&queue, WEEK).await;
    assert_eq!(done, [Retained { what: "keys".to_owned(), rows: 1 }]);
    queue.enqueue(&by_key).await;
    let again = enqueue(&queue.worker, &by_resource).await.expect("an answer");
    assert!(matches!(again, Enqueued::Existing { .. }), "{again:?}");
}

#[tokio::test]
async fn key_of_a_task_that_is_alive_stays() {
    let queue = Queue::new().await;
    let task = NewTask { idempotency_key: Some("k".to_owned()), ..insert() };
    let track_id = queue.enqueue(&task).await;
    sqlx::query("update sluice.task_keys set created_at = now() - interval '99 days'")
        .execute(queue.db.admin())
        .await
        .expect("an older key");

    assert_eq!(retained(&queue, WEEK).await, []);
    assert_eq!(enqueue(&queue.worker, &task).await.expect("an answer"), Enqueued::Existing { track_id });
}

#[tokio::test]
async fn partition_goes_when_its_newest_end_is_past() {
    let queue = Queue::new().await;
    // A week long past, with a row that ended long ago and one that was retried and ended today.
    sqlx::raw_sql(
        "create table sluice.tasks_archive_w2020_10 (like sluice.tasks_archive including all);
         alter table sluice.tasks_archive_w2020_10 owner to sluice_owner;
         alter table sluice.tasks_archive attach partition sluice.tasks_archive_w2020_10
           for values from ('01709784-0000-0000-0000-000000000000') to ('0170bb90-0000-0000-0000-000000000000');
         insert into sluice.tasks_archive (track_id, id, lane_id, state, type, finished_at)
         values ('01709784-0000-7000-8000-000000000001', 1, 1, 'completed', 'insert', now() - interval '999 days'),
                ('01709784-0000-7000-8000-000000000002', 2, 1, 'completed', 'insert', now());",
    )
    .execute(queue.db.admin())
    .await
    .expect("a partition");

    assert_eq!(retained(&queue, WEEK).await, []);
    queue
        .arrange(
            "update sluice.tasks_archive set finished_at = now() - interval '8 days' where track_id = $1",
            "01709784-0000-7000-8000-000000000002".parse().expect("an id"),
        )
        .await;
    let done = retained(&queue, WEEK).await;
    assert_eq!(done, [Retained { what: "dropped tasks_archive_w2020_10".to_owned(), rows: 0 }]);
}

#[tokio::test]
async fn missing_partition_fails_nothing_and_its_rows_move_when_it_is_made() {
    let queue = Queue::new().await;
    let name: String = sqlx::query_scalar(
        "select relname from pg_class where relname = 'tasks_archive_w' || to_char(now(), 'IYYY_IW') and relkind = 'r'",
    )
    .fetch_one(queue.db.admin())
    .await
    .expect("this week's partition");
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("drop table sluice.{name}")))
        .execute(queue.db.admin())
        .await
        .expect("none of this week");
    let attempt = queue.running().await;
    queue.complete(attempt).await;
    assert_eq!(queue.number("select count(*) from sluice.tasks_archive_default").await, 1);

    let done = retained(&queue, Retention::default()).await;

    assert_eq!(done, [Retained { what: format!("made {name}"), rows: 0 }]);
    assert_eq!(queue.number("select count(*) from sluice.tasks_archive_default").await, 0);
    assert_eq!(queue.task(attempt.track_id).await.attempt, 1);
}

#[tokio::test]
async fn history_and_workers_that_are_long_gone_are_let_go() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&insert()).await;
    queue.cancel(track_id).await;
    for sql in [
        "update sluice.task_events set at = now() - interval '99 days'",
        "update sluice.workers set alive_until = now() - interval '2 days'",
    ] {
        sqlx::query(sql).execute(queue.db.admin()).await.expect(sql);
    }

    let done = retained(&queue, Retention::default()).await;

    let rows = |what: &str| done.iter().find(|done| done.what == what).map(|done| done.rows);
    assert!(rows("history rows").is_some_and(|rows| rows >= 1), "{done:?}");
    assert_eq!(rows("workers"), Some(1), "{done:?}");
}
