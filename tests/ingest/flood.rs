//! Fifty tenants with one document each, under one that floods: none of them waits for the flood.

use sluice::store::enqueue::{NewTask, enqueue_many};

use crate::bed::{Bed, upload};

const FLOOD: usize = 400;
const SMALL: usize = 50;
const FLOODING: &str = "select count(*) from sluice.tasks_archive t join sluice.tenant_lanes l using (lane_id) where l.tenant = 'flooding'";

/// Turns are what is counted, not time: each small tenant needs two (its upload, its insert), and while it waits for one of
/// them the flooding one gets its own, not all of its.
#[tokio::test]
async fn no_small_tenant_waits_for_one_that_floods() {
    let bed = Bed::new().await;
    let flood: Vec<_> = (0..FLOOD).map(|n| upload("flooding", &format!("In Lisbon, Ada{n} met Grace."))).collect();
    enqueue_all(&bed, &flood).await;
    let worker = bed.work();
    bed.until("the flood is under way", async || bed.number(FLOODING).await >= 10).await;
    let before = bed.number(FLOODING).await;

    let small: Vec<_> = (0..SMALL).map(|n| upload(&format!("small-{n}"), "In Porto, Ada met Grace.")).collect();
    enqueue_all(&bed, &small).await;
    let published = "select count(*) from ingest.document_versions where tenant like 'small-%'";
    bed.until("the small ones are published", async || bed.number(published).await == SMALL as i64).await;

    let meanwhile = bed.number(FLOODING).await - before;
    println!("{meanwhile} tasks of the flooding tenant beside {} of {SMALL} small tenants", 2 * SMALL);
    assert!(meanwhile <= SMALL as i64, "{meanwhile} tasks of the flooding tenant went first");
    worker.stop().await;
}

async fn enqueue_all(bed: &Bed, tasks: &[NewTask]) {
    let enqueued = enqueue_many(&bed.operator, tasks).await.expect("an answer");
    assert_eq!(enqueued.len(), tasks.len());
}
