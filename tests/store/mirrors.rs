//! What moves from rows to resources: each visible change once, until it is acknowledged.

use sluice::domain::failure::FailureClass;
use sluice::domain::task::TaskType;
use sluice::store::control::retry;
use sluice::store::ends::{CompletedWithNext, complete_with_next};
use sluice::store::enqueue::{NewTask, Resource};
use sluice::store::leases::{Report, report};
use sluice::store::reads::{MirrorChange, mirror_ack, mirror_changes};
use sluice::store::upkeep::reap;
use uuid::Uuid;

use crate::queue::{ANYBODY, NOTHING, Queue, TENANT, insert};

fn of_resource(task_type: TaskType, cluster: &str, uid: &str) -> NewTask {
    let resource = Resource {
        cluster: cluster.to_owned(),
        namespace: "docs".to_owned(),
        name: format!("task-{uid}"),
        uid: uid.to_owned(),
    };
    NewTask { resource: Some(resource), ..NewTask::new(task_type, TENANT) }
}

async fn changes(queue: &Queue) -> Vec<MirrorChange> {
    mirror_changes(&queue.operator, "here", 100).await.expect("the changes")
}

/// Acknowledges all there is, and answers how many changes there were.
async fn settled(queue: &Queue) -> usize {
    let changes = changes(queue).await;
    let written: Vec<_> = changes.iter().map(|change| (change.mirror_id, change.rev)).collect();
    let moved = mirror_ack(&queue.operator, &written).await.expect("an answer");
    assert_eq!(usize::try_from(moved).expect("small"), changes.len());
    changes.len()
}

#[tokio::test]
async fn change_is_told_until_it_is_acknowledged_and_not_again() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&of_resource(TaskType::Insert, "here", "u")).await;
    queue.enqueue(&insert()).await;

    let first = changes(&queue).await;
    let [change] = &first[..] else { panic!("{first:?}") };
    assert_eq!((change.namespace.as_str(), change.name.as_str(), change.uid.as_str()), ("docs", "task-u", "u"));
    assert_eq!((change.track_id, change.newest_track_id), (track_id, track_id));
    assert_eq!(changes(&queue).await, first);

    assert_eq!(settled(&queue).await, 1);
    assert_eq!(changes(&queue).await, []);
    // An old acknowledgement takes nothing back.
    assert_eq!(mirror_ack(&queue.operator, &[(change.mirror_id, change.rev - 1)]).await.expect("an answer"), 0);
    assert_eq!(changes(&queue).await, []);
}

#[tokio::test]
async fn newest_of_two_acknowledgements_in_one_call_holds_in_either_order() {
    let queue = Queue::new().await;
    for newest_first in [true, false] {
        let track_id = queue.enqueue(&of_resource(TaskType::Insert, "here", &newest_first.to_string())).await;
        let older = changes(&queue).await;
        queue.cancel(track_id).await;
        let newer = changes(&queue).await;
        let mut both = [(older[0].mirror_id, older[0].rev), (newer[0].mirror_id, newer[0].rev)];
        if newest_first {
            both.reverse();
        }
        assert_eq!(mirror_ack(&queue.operator, &both).await.expect("an answer"), 1);
        assert_eq!(changes(&queue).await, []);
    }
}

#[tokio::test]
async fn change_that_comes_while_the_status_is_written_is_not_lost() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&of_resource(TaskType::Insert, "here", "u")).await;
    let seen = changes(&queue).await;

    queue.cancel(track_id).await;
    let newer = changes(&queue).await;
    mirror_ack(&queue.operator, &[(seen[0].mirror_id, seen[0].rev)]).await.expect("an answer");

    assert!(newer[0].rev > seen[0].rev);
    assert_eq!(changes(&queue).await, newer);
}

#[tokio::test]
async fn every_visible_transition_is_a_change() {
    let queue = Queue::new().await;
    let track_id = queue.enqueue(&of_resource(TaskType::Insert, "here", "u")).await;
    assert_eq!(settled(&queue).await, 1);
    let attempt = queue.run(track_id).await;
    // The claim touches no mirror; the first report does.
    let stage = Report { stage: Some("extracting"), ..Report::default() };
    report(&queue.worker, attempt, &stage).await.expect("an answer");
    assert_eq!(settled(&queue).await, 1);
    queue.fail(attempt, FailureClass::Unknown).await;
    assert_eq!(settled(&queue).await, 1);
    queue.make_due(track_id).await;
    queue.run(track_id).await;
    queue.cancel(track_id).await;
    assert_eq!(settled(&queue).await, 1);
    queue.expire_lease(track_id).await;
    reap(&queue.operator, 10).await.expect("an answer");
    assert_eq!(settled(&queue).await, 1);
    retry(&queue.operator, track_id, None, ANYBODY).await.expect("an answer");
    assert_eq!(settled(&queue).await, 1);
    assert_eq!(settled(&queue).await, 0);
}

#[tokio::test]
async fn insert_that_follows_a_convert_moves_the_resource_of_the_convert() {
    let queue = Queue::new().await;
    let convert = queue.enqueue(&of_resource(TaskType::PdfProcessing, "here", "u")).await;
    let attempt = queue.run(convert).await;
    let next = NewTask::new(TaskType::Insert, TENANT);
    let answer = complete_with_next(&queue.worker, attempt, &next, None, NOTHING).await.expect("an answer");
    let CompletedWithNext::Completed { next: insert } = answer else { panic!("{answer:?}") };
    let change = changes(&queue).await.remove(0);
    assert_eq!((change.track_id, change.newest_track_id), (convert, insert));
    settled(&queue).await;

    let attempt = queue.run(insert).await;
    queue.complete(attempt).await;

    let change = changes(&queue).await.remove(0);
    assert_eq!((change.track_id, change.newest_track_id), (convert, insert));
}

#[tokio::test]
async fn clusters_on_one_database_see_only_their_own() {
    let queue = Queue::new().await;
    queue.enqueue(&of_resource(TaskType::Insert, "here", "u")).await;
    let elsewhere = queue.enqueue(&of_resource(TaskType::Insert, "there", "u")).await;

    assert_eq!(changes(&queue).await.len(), 1);
    let there = mirror_changes(&queue.operator, "there", 100).await.expect("the changes");
    assert_eq!(there.iter().map(|change| change.track_id).collect::<Vec<Uuid>>(), [elsewhere]);
    assert_eq!(mirror_changes(&queue.operator, "nowhere", 100).await.expect("the changes"), []);
}
