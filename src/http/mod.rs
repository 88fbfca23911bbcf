//! What others ask this process over HTTP.

pub mod probes;
