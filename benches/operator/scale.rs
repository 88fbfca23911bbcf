//! How many and how long: what the figures are measured with, or a tenth of it for a look (`QUICK=1`).

use std::time::Duration;

pub struct Scale {
    pub quick: bool,
    pub tenants: usize,
    /// Resources that come as fast as the API server takes them.
    pub tasks: usize,
    /// Of those, as many again with nobody to serve them: what the API server itself can do.
    pub bare: usize,
    pub running: usize,
    pub cancels: usize,
    /// Twenty a second.
    pub changes: usize,
    pub pools: usize,
    pub lanes: usize,
    /// Of each pool, from nothing and back. A pod that never came to work is given a minute before it goes.
    pub rounds: usize,
    pub live: usize,
    pub idle: Duration,
}

impl Scale {
    pub fn from_environment() -> Self {
        if std::env::var_os("QUICK").is_some_and(|value| value != "0" && !value.is_empty()) {
            Self {
                quick: true,
                tenants: 100,
                tasks: 1_500,
                bare: 500,
                running: 10,
                cancels: 10,
                changes: 100,
                pools: 10,
                lanes: 20,
                rounds: 1,
                live: 1_000,
                idle: Duration::from_secs(6),
            }
        } else {
            Self {
                quick: false,
                tenants: 1_000,
                tasks: 50_000,
                bare: 5_000,
                running: 100,
                cancels: 100,
                changes: 1_200,
                pools: 20,
                lanes: 200,
                rounds: 3,
                live: 10_000,
                idle: Duration::from_secs(60),
            }
        }
    }
}
