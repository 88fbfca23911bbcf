//! Deletion: removes a document and what only it supports, whole or not at all.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::place;
use crate::ingest::sweeping::Sweeper;
use crate::ingest::{publish, source};
use crate::store::ingest::removal::{self, Dropped};
use crate::worker::{Context, Done, Handled, Handler};

pub struct Deletion {
    pub sweeper: Arc<Sweeper>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Payload {
    document_id: Option<Uuid>,
}

impl Handler for Deletion {
    async fn handle(&self, context: Context) -> Handled {
        self.sweeper.sweep_if_due(context.database()).await;
        let payload: Payload = context.payload()?;
        let (place, document_id) = (place(&context), source::document_id(&context.task, payload.document_id)?);
        context.check()?;
        context.reporter().stage("cleaning");
        let mut transaction = context.begin().await?;
        publish::lock_graph(&context, &mut transaction, &place).await?;
        let dropped = removal::drop_document(&mut transaction, &place, document_id).await?;
        context.check()?;
        let Dropped { contents, versions, chunks, entities, relations, artifacts } = dropped;
        let result = json!({
            "document_id": document_id, "contents": contents, "versions": versions, "chunks": chunks,
            "entities": entities, "relations": relations, "artifacts": artifacts,
        });
        Ok(Done::new().with_result(result).publish(transaction))
    }
}
