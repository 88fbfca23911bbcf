//! A generation out of artifacts, in the transaction that completes the task.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::chunk::CHUNKER;
use super::graph::Graph;
use super::provider::{Extraction, Provider};
use super::stages::{Made, Work, report_share};
use crate::domain::failure::FailureClass;
use crate::store::Transaction;
use crate::store::ingest::publish::{self as store, ChunkRow, Origin, ROWS_MAX, Standing, Target, VersionRow};
use crate::store::ingest::{Place, artifacts};
use crate::worker::{Context, Done, Handled, NotDone};

/// Of chunks with all that was made of them; bounds what is in memory at once.
const BATCH_CHUNKS: usize = 500;
/// Between two tries to get a graph that another publishes into.
const LOCK_PAUSE: Duration = Duration::from_millis(20);
const STORING: (f64, f64) = (0.85, 0.99);

/// The answer completes the task and makes the generation visible, both or neither.
pub async fn publish(
    context: &Context,
    provider: &Provider,
    work: &Work,
    made: &[Made<'_>],
    mut counts: Value,
) -> Handled {
    let mut transaction = context.begin().await?;
    let version_id = store::new_version(&mut transaction).await?;
    let target = Target { place: work.place.clone(), document_id: work.document_id, version_id };
    let mut graph = Graph::default();
    for (done, batch) in made.chunks(BATCH_CHUNKS).enumerate() {
        context.check()?;
        write_batch(&mut transaction, provider, &target, &mut graph, batch).await?;
        report_share(context, ((done + 1) * BATCH_CHUNKS).min(made.len()), made.len(), STORING);
    }

    lock_graph(context, &mut transaction, &work.place).await?;
    match store::standing(&mut transaction, &target, work.content.content_id).await? {
        Standing::Free => {}
        Standing::ContentGone => {
            let message = "the document was deleted while it was ingested: upload it again if it is wanted";
            return Err(NotDone::failed(FailureClass::DocumentDeleted, message));
        }
        Standing::Outdated => {
            transaction.rollback().await?;
            context.reporter().message("a newer content of the document is published already");
            counts["outdated"] = json!(true);
            return Ok(Done::new().with_result(counts));
        }
    }
    let (entities, relations) = write_graph(&mut transaction, &target, graph, Origin::Found).await?;
    let version = VersionRow {
        content_id: Some(work.content.content_id),
        title: work.content.title.as_deref(),
        chunker: Some(CHUNKER),
        extractor: Some(provider.extractor.name()),
        embedder: Some(provider.embedder.name()),
        chunks: u32::try_from(made.len())?,
    };
    store::insert_version(&mut transaction, &target, context.task.attempt, version).await?;
    let keys: Vec<_> = made.iter().flat_map(|made| [made.extraction_key, made.embedding_key]).collect();
    store::drop_outdated(&mut transaction, &target, work.content.content_id, &keys).await?;
    context.check()?;
    counts["entities"] = json!(entities);
    counts["relations"] = json!(relations);
    counts["document_id"] = json!(work.document_id);
    Ok(Done::new().with_result(counts).publish(transaction))
}

/// Waits for the graph of a place, and hears a cancel meanwhile. Taken last, for a short time: one publishes into a graph
/// at once.
pub async fn lock_graph(context: &Context, transaction: &mut Transaction, place: &Place) -> Result<(), NotDone> {
    while !store::try_lock_graph(transaction, place).await? {
        context.unless_stopped(tokio::time::sleep(LOCK_PAUSE)).await?;
    }
    Ok(())
}

/// The lock is held: the old generation goes, and the entities and relations of the new one are there. Answers their
/// numbers.
pub async fn write_graph(
    transaction: &mut Transaction,
    target: &Target,
    graph: Graph,
    origin: Origin,
) -> Result<(usize, usize), NotDone> {
    store::drop_generation(transaction, target).await?;
    let (entities, relations) = graph.into_rows();
    for rows in entities.chunks(ROWS_MAX) {
        store::insert_entities(transaction, &target.place, rows, origin).await?;
    }
    for rows in relations.chunks(ROWS_MAX) {
        store::insert_relations(transaction, &target.place, rows, origin).await?;
    }
    Ok((entities.len(), relations.len()))
}

async fn write_batch(
    transaction: &mut Transaction,
    provider: &Provider,
    target: &Target,
    graph: &mut Graph,
    batch: &[Made<'_>],
) -> Result<(), NotDone> {
    let Target { place, document_id, version_id } = target;
    let mut rows = Vec::with_capacity(batch.len());
    for Made { ordinal, chunk, .. } in batch {
        let start_char = i32::try_from(chunk.start_char)?;
        rows.push(ChunkRow { ordinal: *ordinal, heading: &chunk.heading, content: chunk.content, start_char });
    }
    store::insert_chunks(transaction, target, &rows).await?;

    let keys: Vec<_> = batch.iter().map(|made| (made.ordinal, made.embedding_key)).collect();
    let copied = store::insert_embeddings(transaction, target, provider.embedder.name(), &keys).await?;
    if copied != u64::try_from(batch.len())? {
        return Err(artifact_gone());
    }

    let keys: Vec<_> = batch.iter().map(|made| made.extraction_key).collect();
    let extractions = artifacts::extractions(&mut *transaction, place, *document_id, &keys).await?;
    let mut provenance = Vec::new();
    for Made { ordinal, extraction_key, .. } in batch {
        let extraction = Extraction::deserialize(extractions.get(extraction_key).ok_or_else(artifact_gone)?)?;
        provenance.extend(graph.add(place, *ordinal, &extraction));
    }
    for rows in provenance.chunks(ROWS_MAX) {
        store::insert_provenance(transaction, *version_id, rows).await?;
    }
    Ok(())
}

/// A deletion, or a newer content that was published, took what this attempt has made: the next one finds out which.
fn artifact_gone() -> NotDone {
    NotDone::failed(FailureClass::Interrupted, "what was made of the document went away while it was stored")
}
