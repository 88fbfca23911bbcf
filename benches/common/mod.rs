//! What the benchmarks stand on: a server, loaded databases, a bare client, graphile_worker's program and the report.
#![allow(dead_code, reason = "each bench uses a part of it")]

pub mod asking;
pub mod bed;
pub mod cells;
pub mod client;
#[path = "../../tests/common/cluster.rs"]
pub mod cluster;
pub mod graphile;
pub mod installed;
pub mod load;
pub mod process;
pub mod report;
