//! PdfProcessing: turns a PDF into the markdown of a document, and an Insert follows.

use serde_json::json;

use super::place;
use crate::domain::failure::FailureClass;
use crate::domain::status::PdfStatus;
use crate::domain::task::TaskType;
use crate::ingest::convert::{self, ConvertSettings, Converted};
use crate::ingest::source::{self, FILE_MAX_BYTES, SourcePayload, Sources};
use crate::store::enqueue::NewTask;
use crate::store::ingest::contents::{self, NewContent};
use crate::worker::{Context, DocumentUpdate, Done, Handled, Handler, NotDone};

pub struct PdfProcessing {
    pub sources: Sources,
    pub convert: ConvertSettings,
}

impl Handler for PdfProcessing {
    async fn handle(&self, context: Context) -> Handled {
        let payload: SourcePayload = context.payload()?;
        let document_id = source::document_id(&context.task, payload.document_id)?;
        let Some(url) = payload.url.as_deref().filter(|_| payload.text.is_none()) else {
            return Err(NotDone::failed(FailureClass::InvalidDocument, "a PDF needs a place: set url, and no text"));
        };
        context.reporter().document(DocumentUpdate::new().pdf_status(PdfStatus::Processing)).stage("converting");
        let file = self.sources.open(&context, url, FILE_MAX_BYTES).await?;
        let Converted { pages, markdown } = convert::convert(&context, &self.convert, file).await?;
        let title = payload.title_of(&markdown).or_else(|| source::file_stem(url));

        let mut transaction = context.begin().await?;
        let content = NewContent {
            document_id,
            title: title.as_deref(),
            source: url,
            markdown: &markdown,
            track_id: context.task.attempt.track_id,
        };
        let content_id = contents::insert(&mut transaction, &place(&context), content).await?;
        let mut insert = NewTask::new(TaskType::Insert, context.task.tenant.clone());
        insert.payload = json!({ "contentId": content_id });
        let document = DocumentUpdate::new().pdf_status(PdfStatus::Completed).pages(pages);
        let result = json!({
            "document_id": document_id, "content_id": content_id, "pages": pages, "bytes": markdown.len(),
        });
        Ok(Done::new().with_result(result).with_document(document).then(insert).publish(transaction))
    }
}
