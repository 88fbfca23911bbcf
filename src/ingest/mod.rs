//! The pipeline: what the worker's handlers do with documents. docs/pipeline.md tells what each stage writes.
//!
//! `source` reads what a task names, `convert` makes text of PDFs, `chunk` cuts it, a `provider` extracts and embeds, `publish` makes a
//! generation of it; each file of `handlers` is one task type.

pub mod chunk;
mod convert;
mod graph;
mod handlers;
mod http;
mod provider;
mod publish;
mod retry_after;
mod source;
mod stages;
mod sweeping;
pub mod text;

pub use convert::ConvertSettings;
pub use handlers::handlers;
pub use source::{SourceSettings, StoreVariables};
