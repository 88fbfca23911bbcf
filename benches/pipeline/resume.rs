//! What a provider is asked for a second time after the worker was killed in the middle.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::json;
use sluice::domain::task::TaskType;
use sluice::store::enqueue::NewTask;
use sluice::store::reads;
use tokio::sync::Notify;

use crate::common::asking::{enqueue, operator};
use crate::common::bed::Bed;
use crate::common::report::Report;
use crate::endpoint::{DIMENSIONS, Endpoint, good};
use crate::installation::{self, TENANT, WORKSPACE, book, until_none};

const CHUNKS: usize = 400;
/// Chunks of one batch: requests under way at once, and texts of one request.
const CHATS: usize = 4;
const VECTORS: usize = 32;
/// Short, as the second worker waits for its end.
const LEASE_SECS: u32 = 2;

/// The worse of a kill in the middle of the extractions and one in the middle of the vectors.
pub async fn waste(bed: &Bed, report: &mut Report) -> anyhow::Result<()> {
    let mut worst = 0.0_f64;
    for (what, in_chats) in [("extracting", true), ("embedding", false)] {
        let (chats, vectors) = killed(bed, in_chats).await?;
        let batches = chats as f64 / CHATS as f64 + vectors as f64 / VECTORS as f64;
        report.note(format!(
            "killed while {what}, half-way through {CHUNKS} chunks: asked again for {chats} extractions and {vectors} vectors, {batches:.2} batches"
        ));
        worst = worst.max(batches);
    }
    report.set("resume_waste", worst);
    Ok(())
}

/// Extractions and vectors that both workers together asked for, beyond one for each chunk.
async fn killed(bed: &Bed, in_chats: bool) -> anyhow::Result<(usize, usize)> {
    let (half, asked) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let reached = Arc::clone(&half);
    let endpoint = Endpoint::start(move |call| {
        if call.is_chat() == in_chats && asked.fetch_add(call.texts().len(), Ordering::Relaxed) >= CHUNKS / 2 {
            half.notify_one();
        }
        good(call)
    })
    .await;
    let database = installation::database(bed, Some(LEASE_SECS)).await?;
    let (url, dimensions) = (endpoint.url(), DIMENSIONS.to_string());
    let settings = [
        ("SLUICE_EXTRACT_PROVIDER", "openai"),
        ("SLUICE_PROVIDER_URL", url.as_str()),
        ("SLUICE_EXTRACT_MODEL", "small"),
        ("SLUICE_EMBEDDING_MODEL", "tiny"),
        ("SLUICE_EMBEDDING_DIMENSIONS", dimensions.as_str()),
    ];
    let mut first = installation::worker(&database, 1, &settings).await?;
    let store = operator(&database)?;
    let insert = NewTask {
        payload: json!({ "text": book(CHUNKS) }),
        workspace: Some(WORKSPACE.to_owned()),
        ..NewTask::new(TaskType::Insert, TENANT)
    };
    enqueue(&store, &[insert]).await?;
    reads::wake(&store, "default").await?;
    tokio::time::timeout(Duration::from_secs(60), reached.notified()).await.context("the middle was never reached")?;
    first.kill()?;

    let second = installation::worker(&database, 1, &settings).await?;
    until_none(&database, "select count(*) from sluice.tasks").await?;
    let published = database.number("select count(*) from ingest.chunks").await?;
    ensure!(published == CHUNKS as i64, "{published} of {CHUNKS} chunks were published");
    second.stop().await?;
    store.close().await;
    bed.drop(database).await?;
    let calls = endpoint.calls();
    let again = |chats: bool| {
        let texts: Vec<&str> =
            calls.iter().filter(|call| call.is_chat() == chats).flat_map(|call| call.texts()).collect();
        texts.len() - texts.iter().collect::<HashSet<_>>().len()
    };
    Ok((again(true), again(false)))
}
