//! Content to chunks, extractions and vectors: in batches, each kept as soon as it is paid for, with a look at the
//! cancellation between two.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::chunk::{Chunk, chunk};
use super::provider::{Answered, Provider, Spending};
use super::publish;
use crate::domain::failure::FailureClass;
use crate::store::ingest::Place;
use crate::store::ingest::artifacts::{self, ArtifactKey, ArtifactKind};
use crate::store::ingest::contents::Content;
use crate::worker::{Context, Handled, NotDone};

/// Above what the largest content gives; so that numbers of chunks fit everywhere.
const CHUNKS_MAX: usize = 200_000;

/// What is ingested.
pub struct Work {
    pub place: Place,
    pub document_id: Uuid,
    pub content: Content,
    /// As people see it: `embedding`, or `re_embedding` of a document that had vectors.
    pub embedding_stage: &'static str,
}

/// A chunk with the keys of what was made of it.
pub struct Made<'a> {
    pub ordinal: i32,
    pub chunk: Chunk<'a>,
    pub extraction_key: ArtifactKey,
    pub embedding_key: ArtifactKey,
}

/// Parts of the whole that the stages take, for one bar from 0 to 1.
const CHUNKED: f64 = 0.05;
const EXTRACTED: f64 = 0.45;
const EMBEDDED: f64 = 0.85;

/// All stages; the answer publishes.
pub async fn ingest(context: &Context, provider: &Provider, work: Work) -> Handled {
    context.check()?;
    let reporter = context.reporter();
    reporter.stage("chunking").progress(0.0);
    let made = make_chunks(&work.content.markdown, provider)?;
    let mut spending = Spending::begin(context, provider).await?;
    context.check()?;

    reporter.stage("extracting").progress(CHUNKED).message(format!("{} chunks", made.len()));
    let extracted = extract(context, provider, &mut spending, &work, &made).await?;

    reporter.stage(work.embedding_stage).progress(EXTRACTED);
    let embedded = embed(context, provider, &mut spending, &work, &made).await?;

    reporter.stage("storing").progress(EMBEDDED);
    let counts = json!({ "chunks": made.len(), "extracted": extracted, "embedded": embedded });
    publish::publish(context, provider, &work, &made, counts).await
}

/// The share of `made` that is done, on the way from one part of the bar to the next.
pub fn report_share(context: &Context, done: usize, of: usize, (from, to): (f64, f64)) {
    let share = |number: usize| u32::try_from(number).map_or(f64::MAX, f64::from);
    context.reporter().progress(from + (to - from) * share(done) / share(of.max(1)));
}

fn make_chunks<'a>(markdown: &'a str, provider: &Provider) -> Result<Vec<Made<'a>>, NotDone> {
    let (extractor, embedder) = (provider.extractor.name(), provider.embedder.name());
    let chunks = chunk(markdown);
    if chunks.len() > CHUNKS_MAX {
        let message = format!("the text makes {} chunks, at most {CHUNKS_MAX} are taken: split it", chunks.len());
        return Err(NotDone::failed(FailureClass::DocumentTooLarge, message));
    }
    let numbered = (0..).zip(chunks);
    Ok(numbered
        .map(|(ordinal, chunk)| {
            let text = chunk.in_context();
            let (extraction_key, embedding_key) = (key(extractor, &text), key(embedder, &text));
            Made { ordinal, chunk, extraction_key, embedding_key }
        })
        .collect())
}

/// Model and parameters stand in the model's name; with the text, they are all that an artifact depends on.
fn key(model: &str, text: &str) -> ArtifactKey {
    let mut hash = Sha256::new();
    hash.update(model);
    hash.update([0]);
    hash.update(text);
    hash.finalize().into()
}

/// Answers how many chunks were not paid for yet.
async fn extract(
    context: &Context,
    provider: &Provider,
    spending: &mut Spending,
    work: &Work,
    made: &[Made<'_>],
) -> Result<usize, NotDone> {
    let Work { place, document_id, .. } = work;
    let (database, extractor) = (context.database(), &provider.extractor);
    let known = artifacts::keys(database, place, *document_id, ArtifactKind::Extraction).await?;
    let missing: Vec<_> = made.iter().filter(|made| !known.contains(&made.extraction_key)).collect();
    for (done, batch) in missing.chunks(extractor.batch()).enumerate() {
        context.check()?;
        let texts: Vec<_> = batch.iter().map(|made| made.chunk.in_context()).collect();
        spending.allow(extractor.estimate(&texts))?;
        let answers = context.unless_stopped(extractor.extract(&texts)).await?;
        let mut paid: Vec<(ArtifactKey, Value)> = Vec::with_capacity(batch.len());
        let mut failure = None;
        for (made, Answered { usage, result }) in batch.iter().zip(answers) {
            spending.add(context, usage);
            match result {
                Ok(extraction) => paid.push((made.extraction_key, serde_json::to_value(extraction)?)),
                Err(why) => failure = failure.or(Some(why)),
            }
        }
        // Also beside one that failed: the next attempt does not ask for these again.
        artifacts::insert_extractions(database, place, *document_id, extractor.name(), &paid).await?;
        failure.map_or(Ok(()), Err)?;
        report_share(context, (done + 1) * extractor.batch(), missing.len(), (CHUNKED, EXTRACTED));
    }
    context.check()?;
    Ok(missing.len())
}

/// The same for vectors.
async fn embed(
    context: &Context,
    provider: &Provider,
    spending: &mut Spending,
    work: &Work,
    made: &[Made<'_>],
) -> Result<usize, NotDone> {
    let Work { place, document_id, .. } = work;
    let (database, embedder) = (context.database(), &provider.embedder);
    let known = artifacts::keys(database, place, *document_id, ArtifactKind::Embedding).await?;
    let missing: Vec<_> = made.iter().filter(|made| !known.contains(&made.embedding_key)).collect();
    for (done, batch) in missing.chunks(embedder.batch()).enumerate() {
        context.check()?;
        let texts: Vec<_> = batch.iter().map(|made| made.chunk.in_context()).collect();
        spending.allow(embedder.estimate(&texts))?;
        let Answered { usage, result } = context.unless_stopped(embedder.embed(&texts)).await?;
        spending.add(context, usage);
        let paid: Vec<_> = batch.iter().map(|made| made.embedding_key).zip(result?).collect();
        artifacts::insert_embeddings(database, place, *document_id, embedder.name(), embedder.dimensions(), &paid)
            .await?;
        report_share(context, (done + 1) * embedder.batch(), missing.len(), (EXTRACTED, EMBEDDED));
    }
    context.check()?;
    Ok(missing.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_model_and_text() {
        let keys = [key("a", "b"), key("ab", ""), key("a", "c"), key("b", "b")];
        for (position, one) in keys.iter().enumerate() {
            assert!(!keys[position + 1..].contains(one), "{position}");
        }
    }

    #[test]
    fn chunks_are_numbered_from_zero_and_know_their_keys() {
        let text = format!("# A\n\n{}\n\n# B\n\n{}", "one two. ".repeat(100), "three four. ".repeat(80));
        let made = make_chunks(&text, &Provider::new(None).unwrap()).unwrap();

        assert_eq!(made.iter().map(|made| made.ordinal).collect::<Vec<_>>(), [0, 1]);
        assert_ne!(made[0].extraction_key, made[0].embedding_key);
        assert_ne!(made[0].embedding_key, made[1].embedding_key);
    }
}
