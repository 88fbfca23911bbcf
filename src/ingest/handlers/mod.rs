//! One file a task type.

mod deletion;
mod insert;
mod knowledge_injection;
mod pdf_processing;
mod reindex;
mod scan;
mod upload;
mod workspace_wipe;

use std::sync::Arc;

use serde_json::json;

use super::convert::{ConvertSettings, Converters};
use super::provider::Provider;
use super::source::{SourceSettings, Sources};
use super::sweeping::Sweeper;
use crate::domain::provider::Endpoint;
use crate::domain::task::TaskType;
use crate::store::enqueue::NewTask;
use crate::store::ingest::Place;
use crate::store::ingest::contents::{self, NewContent};
use crate::worker::{Context, Done, Handled, Handlers};

/// All that there are; a task of another type fails as `unsupported_type`. Without an endpoint, `builtin` extracts and embeds.
pub fn handlers(
    sources: SourceSettings,
    convert: ConvertSettings,
    endpoint: Option<Endpoint>,
) -> anyhow::Result<Handlers> {
    let sources = Sources::new(sources)?;
    let provider = Arc::new(Provider::new(endpoint)?);
    let sweeper = Arc::new(Sweeper::default());
    Ok(Handlers::new()
        .on(
            TaskType::PdfProcessing,
            pdf_processing::PdfProcessing { sources: sources.clone(), converters: Converters::new(convert) },
        )
        .on(TaskType::Upload, upload::Upload { sources: sources.clone() })
        .on(TaskType::Scan, scan::Scan { sources: sources.clone() })
        .on(
            TaskType::Insert,
            insert::Insert { sources: sources.clone(), sweeper: Arc::clone(&sweeper), provider: Arc::clone(&provider) },
        )
        .on(TaskType::Reindex, reindex::Reindex { provider })
        .on(TaskType::KnowledgeInjection, knowledge_injection::KnowledgeInjection { sources })
        .on(TaskType::Deletion, deletion::Deletion { sweeper })
        .on(TaskType::WorkspaceWipe, workspace_wipe::WorkspaceWipe))
}

fn place(context: &Context) -> Place {
    Place::new(&context.task.tenant, context.task.workspace.as_deref())
}

/// The end of a task that took a text in: its document's newest content, and the Insert that goes on with it.
async fn taken_in(context: &Context, content: NewContent<'_>, pages: Option<u32>) -> Handled {
    let mut transaction = context.begin().await?;
    let content_id = contents::insert(&mut transaction, &place(context), content).await?;
    let mut insert = NewTask::new(TaskType::Insert, context.task.tenant.clone());
    insert.payload = json!({ "contentId": content_id });
    let (document_id, bytes) = (content.document_id, content.markdown.len());
    let mut result = json!({ "document_id": document_id, "content_id": content_id, "bytes": bytes });
    if let Some(pages) = pages {
        result["pages"] = json!(pages);
    }
    Ok(Done::new().with_result(result).then(insert).publish(transaction))
}
