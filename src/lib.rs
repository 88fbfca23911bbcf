//! Sluice: document ingestion through custom resources, with Postgres as the single source of truth.

#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a panic loses an attempt or a reconcile pass: say what went wrong instead"
    )
)]
#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "counts and ids come from the database: a silent wrap would be a wrong decision"
)]
#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "output belongs to `cli`; everything else goes through the log"
)]

pub mod api;
pub mod cli;
pub mod config;
pub mod domain;
pub mod http;
pub mod ingest;
pub mod operator;
pub mod store;
pub mod telemetry;
pub mod worker;
