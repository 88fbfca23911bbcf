//! How long and how often: what the figures are measured with, or a fraction of it for a look (`QUICK=1`).

use std::time::Duration;

pub struct Scale {
    pub quick: bool,
    pub repeats: usize,
    /// Of one contestant's no-ops.
    pub no_op: Duration,
    /// More than anyone gets through in that time.
    pub no_op_rows: i64,
    pub stream: Duration,
    /// Of cancels; each is a slot's worth.
    pub cancel_rounds: usize,
    pub idle: Duration,
}

impl Scale {
    pub fn from_environment() -> Self {
        if std::env::var_os("QUICK").is_some_and(|value| value != "0" && !value.is_empty()) {
            Self {
                quick: true,
                repeats: 1,
                no_op: Duration::from_secs(1),
                no_op_rows: 150_000,
                stream: Duration::from_secs(3),
                cancel_rounds: 1,
                idle: Duration::from_secs(6),
            }
        } else {
            Self {
                quick: false,
                repeats: 3,
                no_op: Duration::from_secs(6),
                no_op_rows: 900_000,
                stream: Duration::from_secs(30),
                cancel_rounds: 10,
                idle: Duration::from_secs(120),
            }
        }
    }
}
