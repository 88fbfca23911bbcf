//! A generation: written in one transaction, the one that completes its task.
//!
//! Chunks, vectors and provenance first, under a version that nobody knows yet; then, with the graph's lock held until the
//! commit, the old generation goes, and the new one with its entities and relations is there.

use uuid::Uuid;

use super::Place;
use super::artifacts::ArtifactKey;
use super::removal::{Dropped, dropped};
use crate::store::claim::Attempt;
use crate::store::connect::Transaction;
use crate::store::error::StoreError;
use crate::store::wire;

/// Rows of one statement: a round trip is little beside them, and each statement stays far below its time limit.
pub const ROWS_MAX: usize = 5_000;

/// The ordinal of what was given and found in no chunk.
pub const GIVEN: i32 = -1;

/// Which document is written, and under which number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub place: Place,
    pub document_id: Uuid,
    pub version_id: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRow<'a> {
    pub ordinal: i32,
    pub heading: &'a str,
    pub content: &'a str,
    pub start_char: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProvenanceRow {
    /// Of an entity or a relation.
    pub item_id: Uuid,
    pub ordinal: i32,
    pub mentions: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityRow {
    pub entity_id: Uuid,
    pub name: String,
    pub name_key: String,
    pub kind: String,
    pub description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationRow {
    pub relation_id: Uuid,
    pub source_id: Uuid,
    pub target_id: Uuid,
    pub kind: String,
    pub description: Option<String>,
}

/// How a generation was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VersionRow<'a> {
    /// `None`: given facts, no text.
    pub content_id: Option<i64>,
    pub title: Option<&'a str>,
    pub chunker: Option<&'a str>,
    pub extractor: Option<&'a str>,
    pub embedder: Option<&'a str>,
    pub chunks: u32,
}

/// Whose word a description is: what was given holds over what was found, and the newest of what was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Given,
    Found,
}

pub async fn new_version(transaction: &mut Transaction) -> Result<i64, StoreError> {
    let row = transaction.fetch_one(sqlx::query("select nextval('ingest.version_ids') as version_id")).await?;
    wire::column(&row, "version_id")
}

pub async fn insert_chunks(
    transaction: &mut Transaction,
    target: &Target,
    chunks: &[ChunkRow<'_>],
) -> Result<(), StoreError> {
    let Target { place, document_id, version_id } = target;
    let statement = sqlx::query(
        "insert into ingest.chunks (version_id, document_id, tenant, workspace, ordinal, heading, content, start_char)
         select $1, $2, $3, $4, u.ordinal, u.heading, u.content, u.start_char
           from unnest($5::int[], $6::text[], $7::text[], $8::int[]) u (ordinal, heading, content, start_char)",
    )
    .bind(version_id)
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(chunks.iter().map(|chunk| chunk.ordinal).collect::<Vec<_>>())
    .bind(chunks.iter().map(|chunk| chunk.heading).collect::<Vec<_>>())
    .bind(chunks.iter().map(|chunk| chunk.content).collect::<Vec<_>>())
    .bind(chunks.iter().map(|chunk| chunk.start_char).collect::<Vec<_>>());
    transaction.execute(statement).await.map(drop)
}

/// The vectors of chunks by the keys of their artifacts, copied inside the database. Answers how many were there.
pub async fn insert_embeddings(
    transaction: &mut Transaction,
    target: &Target,
    model: &str,
    chunks: &[(i32, ArtifactKey)],
) -> Result<u64, StoreError> {
    let Target { place, document_id, version_id } = target;
    let (ordinals, keys): (Vec<_>, Vec<_>) = chunks.iter().map(|(ordinal, key)| (*ordinal, key.to_vec())).unzip();
    let statement = sqlx::query(
        "insert into ingest.embeddings (version_id, ordinal, tenant, workspace, model, embedding)
         select $1, u.ordinal, $3, $4, $5, a.embedding
           from unnest($6::int[], $7::bytea[]) u (ordinal, artifact_key)
           join ingest.artifacts a on a.document_id = $2 and a.kind = 'embedding' and a.artifact_key = u.artifact_key
          where a.tenant = $3 and a.workspace = $4",
    )
    .bind(version_id)
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(model)
    .bind(ordinals)
    .bind(keys);
    transaction.execute(statement).await
}

pub async fn insert_provenance(
    transaction: &mut Transaction,
    version_id: i64,
    rows: &[ProvenanceRow],
) -> Result<(), StoreError> {
    let statement = sqlx::query(
        "insert into ingest.provenance (version_id, item_id, ordinal, mentions)
         select $1, u.item_id, u.ordinal, u.mentions from unnest($2::uuid[], $3::int[], $4::int[]) u (item_id, ordinal, mentions)",
    )
    .bind(version_id)
    .bind(rows.iter().map(|row| row.item_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.ordinal).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.mentions).collect::<Vec<_>>());
    transaction.execute(statement).await.map(drop)
}

/// Whether the graph of the place is this transaction's until its end. Never waits: ask again, and hear cancels between.
pub async fn try_lock_graph(transaction: &mut Transaction, place: &Place) -> Result<bool, StoreError> {
    let statement =
        sqlx::query("select ingest.try_lock_graph($1, $2) as locked").bind(&place.tenant).bind(&place.workspace);
    wire::column(&transaction.fetch_one(statement).await?, "locked")
}

/// What stands against publishing a content; asked with the graph's lock held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Free,
    /// The content is gone: its document was deleted.
    ContentGone,
    /// A newer content of the document is published.
    Outdated,
}

pub async fn standing(transaction: &mut Transaction, target: &Target, content_id: i64) -> Result<Standing, StoreError> {
    let Target { place, document_id, version_id: _ } = target;
    let statement = sqlx::query(
        "select exists (select from ingest.contents c
                         where c.content_id = $4 and c.document_id = $1 and c.tenant = $2 and c.workspace = $3) as is_there,
                exists (select from ingest.document_versions v
                         where v.document_id = $1 and v.tenant = $2 and v.workspace = $3 and v.content_id > $4) as is_outdated",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(content_id);
    let row = transaction.fetch_one(statement).await?;
    Ok(match (wire::column(&row, "is_there")?, wire::column(&row, "is_outdated")?) {
        (_, true) => Standing::Outdated,
        (false, false) => Standing::ContentGone,
        (true, false) => Standing::Free,
    })
}

/// The lock is held. Takes the old generation back, and what only it supported.
pub async fn drop_generation(transaction: &mut Transaction, target: &Target) -> Result<Dropped, StoreError> {
    let Target { place, document_id, version_id: _ } = target;
    let statement = sqlx::query(
        "select 0 as contents, versions, chunks, entities, relations, 0 as artifacts
           from ingest.drop_generation($1, $2, $3)",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace);
    dropped(&transaction.fetch_one(statement).await?)
}

/// The lock is held, and the old generation is dropped: this is the flip.
pub async fn insert_version(
    transaction: &mut Transaction,
    target: &Target,
    attempt: Attempt,
    version: VersionRow<'_>,
) -> Result<(), StoreError> {
    let Target { place, document_id, version_id } = target;
    let VersionRow { content_id, title, chunker, extractor, embedder, chunks } = version;
    let statement = sqlx::query(
        "insert into ingest.document_versions (version_id, document_id, tenant, workspace, content_id, title, chunker,
                                               extractor, embedder, chunks, track_id, attempt)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(version_id)
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(content_id)
    .bind(wire::optional_text(title))
    .bind(chunker)
    .bind(extractor)
    .bind(embedder)
    .bind(wire::int(chunks))
    .bind(attempt.track_id)
    .bind(attempt.number);
    transaction.execute(statement).await.map(drop)
}

/// The lock is held. Those that are there stay as they are, but for a description, which only given facts have.
pub async fn insert_entities(
    transaction: &mut Transaction,
    place: &Place,
    rows: &[EntityRow],
    origin: Origin,
) -> Result<(), StoreError> {
    let statement = sqlx::query(
        "insert into ingest.entities as e (entity_id, tenant, workspace, name, name_key, kind, description)
         select u.entity_id, $1, $2, u.name, u.name_key, u.kind, u.description
           from unnest($3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[]) u (entity_id, name, name_key, kind, description)
         on conflict (entity_id) do update set description = excluded.description, kind = excluded.kind
          where excluded.description is not null and ($8 or e.description is null)",
    )
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(rows.iter().map(|row| row.entity_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| wire::text(&row.name)).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| wire::text(&row.name_key)).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| wire::text(&row.kind)).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| wire::optional_text(row.description.as_deref())).collect::<Vec<_>>())
    .bind(origin == Origin::Given);
    transaction.execute(statement).await.map(drop)
}

/// The lock is held. As for entities.
pub async fn insert_relations(
    transaction: &mut Transaction,
    place: &Place,
    rows: &[RelationRow],
    origin: Origin,
) -> Result<(), StoreError> {
    let statement = sqlx::query(
        "insert into ingest.relations as r (relation_id, tenant, workspace, source_id, target_id, kind, description)
         select u.relation_id, $1, $2, u.source_id, u.target_id, u.kind, u.description
           from unnest($3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::text[]) u (relation_id, source_id, target_id, kind, description)
         on conflict (relation_id) do update set description = excluded.description
          where excluded.description is not null and ($8 or r.description is null)",
    )
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(rows.iter().map(|row| row.relation_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.source_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.target_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| wire::text(&row.kind)).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| wire::optional_text(row.description.as_deref())).collect::<Vec<_>>())
    .bind(origin == Origin::Given);
    transaction.execute(statement).await.map(drop)
}

/// Older contents of the document, and artifacts that this generation was not made of.
pub async fn drop_outdated(
    transaction: &mut Transaction,
    target: &Target,
    content_id: i64,
    keys: &[ArtifactKey],
) -> Result<(), StoreError> {
    let Target { place, document_id, version_id: _ } = target;
    let statement = sqlx::query("select from ingest.drop_outdated($1, $2, $3, $4, $5)")
        .bind(document_id)
        .bind(&place.tenant)
        .bind(&place.workspace)
        .bind(content_id)
        .bind(keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>());
    transaction.execute(statement).await.map(drop)
}
