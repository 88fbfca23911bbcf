//! A folder that is scanned again and again: each content is taken in once.

use std::fs;

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::status::TaskStatus;

use crate::bed::{Bed, TENANT, counted, task};
use crate::common::pdf::pdf;
use crate::folder::Folder;

pub async fn scan(bed: &Bed, url: &str) -> TaskStatus {
    bed.done(task(TaskType::Scan, TENANT, json!({ "url": url }))).await
}

pub fn counts(scanned: &TaskStatus) -> [u64; 4] {
    assert_eq!(scanned.state, State::Completed, "{:?}", scanned.error);
    ["files", "enqueued", "unchanged", "skipped"].map(|what| counted(scanned, what))
}

/// Nothing of the tenant is pending or runs.
pub async fn until_idle(bed: &Bed) {
    let busy = "select count(*) from sluice.task_status where state in ('pending', 'processing', 'stopping')";
    bed.until("all is done", async || bed.number(busy).await == 0).await;
}

#[tokio::test]
async fn folder_is_taken_in_once_and_what_changes_once_more() {
    let folder = Folder::new();
    fs::create_dir(folder.path("inner")).expect("a directory");
    fs::write(folder.path("wish.md"), "# A wish\n\nWe like Lisbon.").expect("a file");
    fs::write(folder.path("inner/log.pdf"), pdf(&["The harbour of Porto is open."])).expect("a file");
    fs::write(folder.path("inner/map.png"), "a map").expect("a file");
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    let worker = bed.work();
    let url = format!("file://{}/", folder.0.display());

    assert_eq!(counts(&scan(&bed, &url).await), [3, 2, 0, 1]);
    until_idle(&bed).await;
    let titles = "select title from ingest.document_versions";
    assert_eq!(bed.texts(titles).await.into_iter().collect::<Vec<_>>(), ["A wish", "log"]);

    assert_eq!(counts(&scan(&bed, &url).await), [3, 0, 2, 1]);
    fs::write(folder.path("wish.md"), "# Another wish\n\nWe like Madrid.").expect("a file");
    assert_eq!(counts(&scan(&bed, &url).await), [3, 1, 1, 1]);
    until_idle(&bed).await;

    assert_eq!(bed.texts(titles).await.into_iter().collect::<Vec<_>>(), ["Another wish", "log"], "the same document");
    let inner = scan(&bed, &format!("{url}inner")).await;
    assert_eq!(counts(&inner), [2, 0, 1, 1]);
    worker.stop().await;
}

#[tokio::test]
async fn what_was_cancelled_is_not_taken_in_again_until_it_changes() {
    let folder = Folder::new();
    fs::write(folder.path("wish.md"), "We like Lisbon.").expect("a file");
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    let worker = bed.work();
    let url = format!("file://{}/", folder.0.display());
    let first = Bed::enqueue(&bed, task(TaskType::Scan, TENANT, json!({ "url": url }))).await;
    bed.until_ended(first).await;
    let upload = "select track_id::text from sluice.task_status where type = 'upload'";
    let id = bed.texts(upload).await.first().expect("an upload").parse().expect("an id");
    bed.until_ended(id).await;
    // Whatever became of it.
    bed.arrange("update sluice.tasks_archive set state = 'cancelled' where type = 'upload'").await;

    let again = bed.done(task(TaskType::Scan, TENANT, json!({ "url": url }))).await;
    assert_eq!(counts(&again), [1, 0, 1, 0]);
    fs::write(folder.path("wish.md"), "We like Madrid.").expect("a file");
    let changed = bed.done(task(TaskType::Scan, TENANT, json!({ "url": url }))).await;
    assert_eq!(counts(&changed), [1, 1, 0, 0]);
    worker.stop().await;
}

#[tokio::test]
async fn places_that_may_not_be_read_are_not_listed() {
    let folder = Folder::new();
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    let worker = bed.work();

    let rows = [
        ("file:///etc/".to_owned(), FailureClass::SourceForbidden),
        (format!("file://{}/none", folder.0.display()), FailureClass::SourceNotFound),
        ("https://a.example/".to_owned(), FailureClass::SourceForbidden),
    ];
    for (url, class) in rows {
        let scanned = scan(&bed, &url).await;
        assert_eq!((scanned.state, scanned.failure_class), (State::Failed, Some(class)), "{url}: {:?}", scanned.error);
    }
    worker.stop().await;
}
