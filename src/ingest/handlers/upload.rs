//! Upload: takes text or markdown in as a document, and an Insert follows.

use super::taken_in;
use crate::domain::failure::FailureClass;
use crate::ingest::source::{self, SourcePayload, Sources};
use crate::store::ingest::contents::NewContent;
use crate::worker::{Context, Handled, Handler, NotDone};

pub struct Upload {
    pub sources: Sources,
}

impl Handler for Upload {
    async fn handle(&self, context: Context) -> Handled {
        let payload: SourcePayload = context.payload()?;
        let document_id = source::document_id(&context.task, payload.document_id)?;
        let Some(given) = payload.given_text(&context, &self.sources).await? else {
            let message = "an upload needs a content: set text or url";
            return Err(NotDone::failed(FailureClass::InvalidDocument, message));
        };
        context.check()?;
        context.reporter().stage("preprocessing");
        let content = NewContent {
            document_id,
            title: given.title.as_deref(),
            source: &given.source,
            markdown: &given.markdown,
            track_id: context.task.attempt.track_id,
        };
        taken_in(&context, content, None).await
    }
}
