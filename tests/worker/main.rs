//! The worker's runtime, in this process and as real ones, against a real Postgres: whatever happens, it holds its
//! leases, obeys a cancel, loses nothing when it dies, and is never killed by its own handlers.

mod adoption;
mod bad_input;
mod bed;
mod begins;
mod cancels;
#[path = "../common/mod.rs"]
mod common;
mod deaths;
mod dice;
mod drains;
mod handlers;
mod http;
mod in_process;
mod leases;
mod outages;
mod probes;
mod process;
mod smoke;
mod turmoil;
mod until;
