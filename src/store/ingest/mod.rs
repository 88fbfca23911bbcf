//! Schema `ingest`: contents that came in, artifacts that were paid for, and generations that readers see.
//!
//! Every statement names tenant and workspace: an id alone opens nothing.

pub mod artifacts;
pub mod contents;
pub mod publish;
pub mod removal;

/// Whose, and where: what the graph of one workspace belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    pub tenant: String,
    /// Empty if the task named none.
    pub workspace: String,
}

impl Place {
    pub fn new(tenant: &str, workspace: Option<&str>) -> Self {
        Self { tenant: tenant.to_owned(), workspace: workspace.unwrap_or_default().to_owned() }
    }
}
