//! What goes: a document as a whole, a workspace, and what late attempts left of documents that are gone.

use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::Place;
use crate::store::connect::Transaction;
use crate::store::error::StoreError;
use crate::store::session::Session;
use crate::store::wire;

/// Rows that went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    pub contents: u32,
    pub versions: u32,
    pub chunks: u32,
    /// Those that no other document supports.
    pub entities: u32,
    pub relations: u32,
    pub artifacts: u32,
}

/// The transaction holds the graph's lock.
pub async fn drop_document(
    transaction: &mut Transaction,
    place: &Place,
    document_id: Uuid,
) -> Result<Dropped, StoreError> {
    let statement = sqlx::query(
        "select contents, versions, chunks, entities, relations, artifacts from ingest.drop_document($1, $2, $3)",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace);
    dropped(&transaction.fetch_one(statement).await?)
}

/// Documents of a place of which something is there, at most `limit`.
pub async fn documents(mut session: impl Session, place: &Place, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    let statement = sqlx::query(
        "(select document_id from ingest.document_versions where tenant = $1 and workspace = $2 limit $3)
         union (select document_id from ingest.contents where tenant = $1 and workspace = $2 limit $3)
         union (select document_id from ingest.artifacts where tenant = $1 and workspace = $2 limit $3)
         limit $3",
    )
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(i64::from(limit));
    wire::rows(&session.fetch_all(statement).await?, |row| wire::column(row, "document_id"))
}

/// How many documents of a place have something here.
pub async fn count_documents(mut session: impl Session, place: &Place) -> Result<u64, StoreError> {
    let statement = sqlx::query(
        "select count(*) as documents
           from (select document_id from ingest.document_versions where tenant = $1 and workspace = $2
                 union select document_id from ingest.contents where tenant = $1 and workspace = $2
                 union select document_id from ingest.artifacts where tenant = $1 and workspace = $2) d",
    )
    .bind(&place.tenant)
    .bind(&place.workspace);
    wire::count(&session.fetch_one(statement).await?, "documents")
}

/// Documents whose leftovers went, and those that resisted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub swept: u32,
    pub quarantined: u32,
}

/// Takes away what late attempts left of deleted documents, at most `limit` documents.
pub async fn sweep(mut session: impl Session, limit: u32) -> Result<Swept, StoreError> {
    let statement = sqlx::query("select swept, quarantined from ingest.sweep($1)").bind(wire::int(limit));
    let row = session.fetch_one(statement).await?;
    Ok(Swept { swept: wire::small_count(&row, "swept")?, quarantined: wire::small_count(&row, "quarantined")? })
}

pub(super) fn dropped(row: &PgRow) -> Result<Dropped, StoreError> {
    Ok(Dropped {
        contents: wire::small_count(row, "contents")?,
        versions: wire::small_count(row, "versions")?,
        chunks: wire::small_count(row, "chunks")?,
        entities: wire::small_count(row, "entities")?,
        relations: wire::small_count(row, "relations")?,
        artifacts: wire::small_count(row, "artifacts")?,
    })
}
