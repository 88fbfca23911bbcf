//! What came in, as markdown.

use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::Place;
use crate::store::error::StoreError;
use crate::store::session::Session;
use crate::store::wire;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewContent<'a> {
    pub document_id: Uuid,
    pub title: Option<&'a str>,
    /// Where it came from, for people.
    pub source: &'a str,
    pub markdown: &'a str,
    /// The task that took it in.
    pub track_id: Uuid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// A newer content has a higher one.
    pub content_id: i64,
    pub title: Option<String>,
    pub markdown: String,
}

/// Answers the content's id.
pub async fn insert(mut session: impl Session, place: &Place, content: NewContent<'_>) -> Result<i64, StoreError> {
    let NewContent { document_id, title, source, markdown, track_id } = content;
    let statement = sqlx::query(
        "insert into ingest.contents (document_id, tenant, workspace, title, source, markdown, content_hash, track_id)
         values ($1, $2, $3, $4, $5, $6, sha256(convert_to($6, 'UTF8')), $7)
         returning content_id",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(wire::optional_text(title))
    .bind(wire::text(source))
    .bind(wire::text(markdown))
    .bind(track_id);
    wire::column(&session.fetch_one(statement).await?, "content_id")
}

/// The newest content of a document; with `content_id`, that one, if it is the document's.
pub async fn find(
    mut session: impl Session,
    place: &Place,
    document_id: Uuid,
    content_id: Option<i64>,
) -> Result<Option<Content>, StoreError> {
    let statement = sqlx::query(
        "select content_id, title, markdown from ingest.contents
          where document_id = $1 and tenant = $2 and workspace = $3 and ($4::bigint is null or content_id = $4)
          order by content_id desc limit 1",
    )
    .bind(document_id)
    .bind(&place.tenant)
    .bind(&place.workspace)
    .bind(content_id);
    session.fetch_all(statement).await?.first().map(content).transpose()
}

fn content(row: &PgRow) -> Result<Content, StoreError> {
    Ok(Content {
        content_id: wire::column(row, "content_id")?,
        title: wire::column(row, "title")?,
        markdown: wire::column(row, "markdown")?,
    })
}
