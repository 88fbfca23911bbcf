//! The store against a real Postgres: one module for each thing that is said to it.

#[path = "../common/mod.rs"]
mod common;
mod connect;
mod documents;
mod enqueue;
mod error;
mod failures;
mod grants;
mod input;
mod lanes;
mod leases;
mod migrate;
mod mirrors;
mod model;
mod protocol;
mod queue;
mod resources;
mod retention;
mod transitions;
mod traps;
mod wal;
