//! Insert: chunk, extract, embed and publish what an upload or a convert took in, or the text that came with it.

use std::sync::Arc;

use uuid::Uuid;

use super::place;
use crate::domain::failure::FailureClass;
use crate::ingest::provider::Provider;
use crate::ingest::source::{self, SourcePayload, Sources};
use crate::ingest::stages::{self, Work};
use crate::ingest::sweeping::Sweeper;
use crate::store::ingest::contents::{self, Content, NewContent};
use crate::worker::{Context, Handled, Handler, NotDone};

pub struct Insert {
    pub sources: Sources,
    pub sweeper: Arc<Sweeper>,
    pub provider: Arc<Provider>,
}

impl Handler for Insert {
    async fn handle(&self, context: Context) -> Handled {
        self.sweeper.sweep_if_due(context.database()).await;
        let payload: SourcePayload = context.payload()?;
        let (place, document_id) = (place(&context), source::document_id(&context.task, payload.document_id)?);
        if let Some(given) = payload.given_text(&context, &self.sources).await? {
            keep(&context, document_id, &given).await?;
        }
        let content = contents::find(context.database(), &place, document_id, payload.content_id).await?;
        let Some(content) = content else {
            let message = "there is no content of the document: it was deleted, or never taken in; upload it";
            return Err(NotDone::failed(FailureClass::DocumentDeleted, message));
        };
        source::check_content(&content.markdown)?;
        let work = Work { place, document_id, content, embedding_stage: "embedding" };
        stages::ingest(&context, &self.provider, work).await
    }
}

/// Nobody sees it before it is published. A later attempt finds it as the newest content, and adds no other.
async fn keep(context: &Context, document_id: Uuid, given: &source::GivenText) -> Result<(), NotDone> {
    let place = place(context);
    let newest = contents::find(context.database(), &place, document_id, None).await?;
    if newest.is_some_and(|Content { markdown, title, .. }| markdown == given.markdown && title == given.title) {
        return Ok(());
    }
    let content = NewContent {
        document_id,
        title: given.title.as_deref(),
        source: &given.source,
        markdown: &given.markdown,
        track_id: context.task.attempt.track_id,
    };
    contents::insert(context.database(), &place, content).await?;
    Ok(())
}
