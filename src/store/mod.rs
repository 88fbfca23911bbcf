//! All SQL from Rust, behind named functions: one file per thing said to Postgres.
//!
//! `connect` is the way in (a pool with the role's time limits, directly or through a pooler), `error` sorts what goes
//! wrong, `migrate` brings the schema up to this program's version. The functions of the schema, which decide
//! everything, are called in `startup`, `enqueue`, `claim`, `leases`, `ends`, `control`, `lanes`, `upkeep`, `reads`,
//! `status` and `resources`; docs/protocol.md tells what each does.
//! everything, are called in `startup`, `enqueue`, `claim`, `leases`, `ends`, `control`, `lanes`, `upkeep`, `reads` and `status`;
//! docs/protocol.md tells what each does. `ingest` holds what the pipeline reads and writes of its own schema.

pub mod claim;
mod connect;
pub mod control;
pub mod ends;
pub mod enqueue;
mod error;
pub mod ingest;
pub mod lanes;
pub mod leases;
pub mod listen;
pub mod migrate;
pub mod reads;
pub mod requirements;
pub mod resources;
mod session;
pub mod startup;
pub mod status;
pub mod test_effects;
pub mod upkeep;
mod url;
mod wire;

pub use connect::{Database, PoolSettings, Role, Transaction};
pub use error::StoreError;
pub use session::Session;
pub use url::{BadUrl, DatabaseUrl};
