//! Decisions: plain data and pure functions; no async, no clock, no I/O.
//!
//! Whoever calls these has read the facts and will act on the answer; time, jitter and counts are arguments.

mod closed_set;

pub mod delivery;
pub mod failure;
pub mod lane;
pub mod pressure;
pub mod provider;
pub mod retry;
pub mod scaling;
pub mod source;
pub mod status;
pub mod task;
pub mod timeout;

pub use closed_set::UnknownName;
pub(crate) use closed_set::closed_set;
