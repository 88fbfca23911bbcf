//! A PostgreSQL server of one's own for a run of tests, benches or a demo: started in about a second as an
//! unprivileged user, on a free port and a unix socket, and gone afterwards, also after a `kill -9` of the run.

mod binaries;
mod error;
mod pgbouncer;
mod server;
mod supervisor;

pub use binaries::{Binaries, MINIMUM_VERSION};
pub use error::{Error, Result};
pub use pgbouncer::{PgBouncer, PgBouncerOptions};
pub use server::{Options, Server};
