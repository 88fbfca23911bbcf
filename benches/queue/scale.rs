//! How big and how long: the figures' own definitions, or a tenth of them for a look (`QUICK=1`).

pub struct Scale {
    pub quick: bool,
    pub repeats: usize,
    pub lanes: i32,
    /// Pending rows of the large side of `claim_growth`.
    pub rows: i64,
    /// Delayed rows at the head of each of ten lanes.
    pub delayed_each: i64,
    /// Ended rows that wait for `retain`.
    pub ended: i64,
    pub cell_secs: u32,
    pub claims_secs: u64,
    pub pinned_secs: u64,
    pub graphile_rows: i64,
    pub tenants: i32,
}

impl Scale {
    pub fn from_environment() -> Self {
        if std::env::var_os("QUICK").is_some_and(|value| value != "0" && !value.is_empty()) {
            Self {
                quick: true,
                repeats: 1,
                lanes: 1_000,
                rows: 200_000,
                delayed_each: 15_000,
                ended: 50_000,
                cell_secs: 1,
                claims_secs: 1,
                pinned_secs: 6,
                graphile_rows: 80_000,
                tenants: 1_000,
            }
        } else {
            Self {
                quick: false,
                repeats: 3,
                lanes: 10_000,
                rows: 10_000_000,
                delayed_each: 1_000_000,
                ended: 5_000_000,
                cell_secs: 6,
                claims_secs: 5,
                pinned_secs: 120,
                graphile_rows: 500_000,
                tenants: 1_000,
            }
        }
    }
}
