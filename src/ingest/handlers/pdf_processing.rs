//! PdfProcessing: turns a PDF into the markdown of a document, and an Insert follows.

use super::taken_in;
use crate::domain::failure::FailureClass;
use crate::domain::status::PdfStatus;
use crate::ingest::convert::{self, Converted, Converters};
use crate::ingest::source::{self, FILE_MAX_BYTES, SourcePayload, Sources};
use crate::store::ingest::contents::NewContent;
use crate::worker::{Context, DocumentUpdate, Handled, Handler, NotDone};

pub struct PdfProcessing {
    pub sources: Sources,
    pub converters: Converters,
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
        let Converted { pages, markdown } = convert::convert(&context, &self.converters, file).await?;
        let title = payload.title_of(&markdown).or_else(|| source::file_stem(url));

        let content = NewContent {
            document_id,
            title: title.as_deref(),
            source: url,
            markdown: &markdown,
            track_id: context.task.attempt.track_id,
        };
        let document = DocumentUpdate::new().pdf_status(PdfStatus::Completed).pages(pages);
        Ok(taken_in(&context, content, Some(pages)).await?.with_document(document))
    }
}
