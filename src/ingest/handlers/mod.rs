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

use super::convert::ConvertSettings;
use super::source::{SourceSettings, Sources};
use super::sweeping::Sweeper;
use crate::domain::task::TaskType;
use crate::store::ingest::Place;
use crate::worker::{Context, Handlers};

/// All that there are; a task of another type fails as `unsupported_type`.
pub fn handlers(sources: SourceSettings, convert: ConvertSettings) -> anyhow::Result<Handlers> {
    let sources = Sources::new(sources)?;
    let sweeper = Arc::new(Sweeper::default());
    Ok(Handlers::new()
        .on(TaskType::PdfProcessing, pdf_processing::PdfProcessing { sources: sources.clone(), convert })
        .on(TaskType::Upload, upload::Upload { sources: sources.clone() })
        .on(TaskType::Scan, scan::Scan { sources: sources.clone() })
        .on(TaskType::Insert, insert::Insert { sources: sources.clone(), sweeper: Arc::clone(&sweeper) })
        .on(TaskType::Reindex, reindex::Reindex)
        .on(TaskType::KnowledgeInjection, knowledge_injection::KnowledgeInjection { sources })
        .on(TaskType::Deletion, deletion::Deletion { sweeper })
        .on(TaskType::WorkspaceWipe, workspace_wipe::WorkspaceWipe))
}

fn place(context: &Context) -> Place {
    Place::new(&context.task.tenant, context.task.workspace.as_deref())
}
