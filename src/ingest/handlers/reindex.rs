//! Reindex: makes a new generation of the newest content of a document. The old one is read until then.

use std::sync::Arc;

use super::place;
use crate::domain::failure::FailureClass;
use crate::ingest::provider::Provider;
use crate::ingest::source::{self, SourcePayload};
use crate::ingest::stages::{self, Work};
use crate::store::ingest::contents;
use crate::worker::{Context, Handled, Handler, NotDone};

pub struct Reindex {
    pub provider: Arc<Provider>,
}

impl Handler for Reindex {
    async fn handle(&self, context: Context) -> Handled {
        let payload: SourcePayload = context.payload()?;
        if payload.has_text() {
            let message = "a reindex is about a document that is there: use Upload for a new text";
            return Err(NotDone::failed(FailureClass::InvalidDocument, message));
        }
        let (place, document_id) = (place(&context), source::document_id(&context.task, payload.document_id)?);
        let Some(content) = contents::find(context.database(), &place, document_id, payload.content_id).await? else {
            let message = "there is no document with this id in this tenant and workspace, or it was deleted";
            return Err(NotDone::failed(FailureClass::DocumentDeleted, message));
        };
        let work = Work { place, document_id, content, embedding_stage: "re_embedding" };
        stages::ingest(&context, &self.provider, work).await
    }
}
