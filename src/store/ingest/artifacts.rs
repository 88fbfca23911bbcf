//! What a stage has paid for, kept for later attempts: one row a chunk, added and never changed.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use uuid::Uuid;

use super::Place;
use crate::domain::closed_set;
use crate::store::connect::Database;
use crate::store::error::StoreError;
use crate::store::session::Session;
use crate::store::wire;

closed_set! {
    pub enum ArtifactKind("kind of artifact") {
        Extraction = "extraction",
        Embedding = "embedding",
    }
}

/// A hash of model, parameters and text.
pub type ArtifactKey = [u8; 32];

/// Those of a document that are there.
pub async fn keys(
    mut session: impl Session,
    place: &Place,
    document_id: Uuid,
    kind: ArtifactKind,
) -> Result<HashSet<ArtifactKey>, StoreError> {
    let statement = sqlx::query(
        "select artifact_key from ingest.artifacts
          where document_id = $1 and kind = $2 and tenant = $3 and workspace = $4",
    )
    .bind(document_id)
    .bind(kind.as_str())
    .bind(&place.tenant)
    .bind(&place.workspace);
    session.fetch_all(statement).await?.iter().map(key).collect()
}

pub async fn insert_extractions(
    database: &Database,
    place: &Place,
    document_id: Uuid,
    model: &str,
    made: &[(ArtifactKey, Value)],
) -> Result<(), StoreError> {
    let (keys, values): (Vec<_>, Vec<_>) = made.iter().map(|(key, value)| (key.to_vec(), wire::json(value))).unzip();
    let statement = sqlx::query(
        "insert into ingest.artifacts (document_id, kind, artifact_key, tenant, workspace, model, extraction)
         select $1, 'extraction', u.artifact_key, $2, $3, $4, u.extraction
           from unnest($5::bytea[], $6::jsonb[]) u (artifact_key, extraction)
         on conflict do nothing",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(model)
    .bind(keys)
    .bind(values);
    database.execute(statement).await.map(drop)
}

/// Each vector has `dimensions` numbers; they travel as one row of numbers, which the statement cuts.
pub async fn insert_embeddings(
    database: &Database,
    place: &Place,
    document_id: Uuid,
    model: &str,
    dimensions: u32,
    made: &[(ArtifactKey, Vec<f32>)],
) -> Result<(), StoreError> {
    let keys: Vec<_> = made.iter().map(|(key, _)| key.to_vec()).collect();
    let numbers: Vec<f32> = made.iter().flat_map(|(_, vector)| vector.iter().copied()).collect();
    let statement = sqlx::query(
        "insert into ingest.artifacts (document_id, kind, artifact_key, tenant, workspace, model, embedding)
         select $1, 'embedding', u.artifact_key, $2, $3, $4, ($5::real[])[(u.n - 1) * $6 + 1 : u.n * $6]
           from unnest($7::bytea[]) with ordinality u (artifact_key, n)
         on conflict do nothing",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(model)
    .bind(numbers)
    .bind(wire::int(dimensions))
    .bind(keys);
    database.execute(statement).await.map(drop)
}

/// The extractions with these keys; one that is gone is not in the answer.
pub async fn extractions(
    mut session: impl Session,
    place: &Place,
    document_id: Uuid,
    wanted: &[ArtifactKey],
) -> Result<HashMap<ArtifactKey, Value>, StoreError> {
    let statement = sqlx::query(
        "select artifact_key, extraction from ingest.artifacts
          where document_id = $1 and kind = 'extraction' and tenant = $2 and workspace = $3 and artifact_key = any ($4)",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(wanted.iter().map(|key| key.to_vec()).collect::<Vec<_>>());
    let rows = session.fetch_all(statement).await?;
    rows.iter().map(|row| Ok((key(row)?, wire::column(row, "extraction")?))).collect()
}

fn key(row: &sqlx::postgres::PgRow) -> Result<ArtifactKey, StoreError> {
    let bytes: &[u8] = wire::column(row, "artifact_key")?;
    bytes.try_into().map_err(|_| wire::not_understood(&"an artifact's key has not 32 bytes"))
}
