//! What the converter says to the worker: one JSON object a line. Both are built from this file.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// How many there are; comes first.
    Pages(u32),
    /// The next page, as markdown.
    Page(String),
    /// Nothing follows.
    Done,
    /// Nothing follows.
    Failed { problem: Problem, message: String },
}

/// Why a file cannot be converted; the same file will never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    Password,
    NoPages,
    Invalid,
}
