//! The pipeline on a real worker and a real Postgres: what goes in comes out once, whole, and only where it belongs.

mod bed;
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "it has more sides than are thrown")]
#[path = "../worker/dice.rs"]
mod dice;
mod documentation;
mod documents;
mod endpoint;
mod facts;
mod flood;
mod folder;
mod full_disk;
mod gate;
mod grants;
mod https;
mod isolation;
mod object_server;
mod objects;
mod pdf;
mod provider;
mod provider_failures;
mod random_cancels;
mod random_faults;
mod resume;
mod scan;
mod speed;
mod stops;
mod sweep;
