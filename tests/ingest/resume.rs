//! A worker that is killed in the middle: the next one pays for one batch at most again.

use sluice::domain::task::State;
use sluice::store::enqueue::NewTask;

use crate::bed::{Bed, TENANT, book, counted, upload};
use crate::gate::Gate;

const CHUNKS: u64 = 400;
const BATCH: u64 = 32;

/// Kills the worker as soon as half of one kind of artifact is there, and lets another one go on.
async fn assert_little_is_paid_again(kind: &str, counter: &str) {
    let bed = Bed::new().await;
    let mut first = bed.work_in_process();
    let kept = format!("select count(*) from ingest.artifacts where kind = '{kind}'");
    let half = format!(
        "new.kind = '{kind}' and (select count(*) from ingest.artifacts a where a.kind = '{kind}') >= {}",
        CHUNKS / 2
    );
    let gate = Gate::close(&bed, "artifacts", &half).await;
    let uploaded = bed.enqueue(upload(TENANT, &book(CHUNKS.try_into().expect("a small number")))).await;
    gate.until_reached(&bed).await;

    first.kill();
    gate.end_who_waits(&bed).await;
    let paid = u64::try_from(bed.number(&kept).await).expect("a count");
    gate.open(&bed).await;
    let second = bed.work_in_process();
    let inserted = bed.follow_on(uploaded).await;

    assert_eq!(inserted.state, State::Completed, "{:?}", inserted.error);
    assert_eq!(inserted.lost_leases, 1);
    // What the first one had under way when it died was one batch: all others were kept.
    assert!(paid + BATCH >= CHUNKS / 2 && paid < CHUNKS && paid % BATCH == 0, "{paid} were kept");
    assert_eq!(counted(&inserted, counter), CHUNKS - paid);
    assert_eq!(bed.rows_of("chunks", TENANT).await, 400);
    bed.assert_graph_is_whole().await;
    drop(second);
}

#[tokio::test]
async fn worker_killed_while_it_extracts_costs_one_batch() {
    assert_little_is_paid_again("extraction", "extracted").await;
}

#[tokio::test]
async fn worker_killed_while_it_embeds_costs_one_batch() {
    assert_little_is_paid_again("embedding", "embedded").await;
}

#[tokio::test]
async fn older_insert_that_publishes_takes_nothing_from_a_newer_one() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let gate = Gate::close(&bed, "document_versions", "true").await;
    let older = bed.enqueue(upload(TENANT, "We like Lisbon.")).await;
    gate.until_reached(&bed).await;
    let document_id = bed.task(older).await.document.expect("a document").document_id;
    let newer = NewTask { document_id: Some(document_id), ..upload(TENANT, "We like Madrid.") };
    let newer = bed.enqueue(newer).await;
    // All of it is paid for, and it waits for the graph.
    bed.until("the newer one is paid for", async || bed.rows_of("artifacts", TENANT).await == 4).await;

    gate.open(&bed).await;
    let (older, newer) = (bed.follow_on(older).await, bed.follow_on(newer).await);

    assert_eq!((older.state, newer.state), (State::Completed, State::Completed), "{:?} {:?}", older.error, newer.error);
    assert_eq!((newer.attempt, newer.failures), (1, 0));
    assert_eq!(bed.texts("select name from ingest.entities").await.into_iter().collect::<Vec<_>>(), ["Madrid"]);
    assert_eq!((bed.rows_of("contents", TENANT).await, bed.rows_of("artifacts", TENANT).await), (1, 2));
    worker.stop().await;
}
