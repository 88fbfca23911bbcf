//! Upload: takes text or markdown in as a document, and an Insert follows.

use serde_json::json;

use super::place;
use crate::domain::failure::FailureClass;
use crate::domain::task::TaskType;
use crate::ingest::source::{self, SourcePayload, Sources};
use crate::store::enqueue::NewTask;
use crate::store::ingest::contents::{self, NewContent};
use crate::worker::{Context, Done, Handled, Handler, NotDone};

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
        let mut transaction = context.begin().await?;
        let content_id = contents::insert(&mut transaction, &place(&context), content).await?;
        let mut insert = NewTask::new(TaskType::Insert, context.task.tenant.clone());
        insert.payload = json!({ "contentId": content_id });
        let result = json!({ "document_id": document_id, "content_id": content_id, "bytes": given.markdown.len() });
        Ok(Done::new().with_result(result).then(insert).publish(transaction))
    }
}
