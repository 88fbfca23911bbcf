//! How much is too much: levels of the queue and of the store, their thresholds, and what to do about them.

use super::closed_set::closed_set;

closed_set! {
    /// In rising order.
    pub enum Level("pressure level") {
        Normal = "normal",
        Elevated = "elevated",
        Critical = "critical",
    }
}

closed_set! {
    pub enum OperatorAction("operator action") {
        None = "none",
        WatchQueueDepth = "watch_queue_depth",
        AddWorkers = "add_workers",
        WatchDatabasePool = "watch_database_pool",
        EnlargeDatabasePoolOrReduceIngest = "enlarge_database_pool_or_reduce_ingest",
        InspectCompensationQuarantine = "inspect_compensation_quarantine",
    }
}

fn level<T: PartialOrd>(value: T, warn: T, critical: T) -> Level {
    if value >= critical {
        Level::Critical
    } else if value >= warn {
        Level::Elevated
    } else {
        Level::Normal
    }
}

/// Thresholds of pending rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueThresholds {
    warn: u64,
    critical: u64,
}

impl QueueThresholds {
    pub const WARN_DEFAULT: u64 = 100;
    const CRITICAL_DEFAULT_MIN: u64 = 500;

    /// Unset critical is five times warn and at least 500; in any case it lies above warn.
    pub fn new(warn: Option<u64>, critical: Option<u64>) -> Self {
        let warn = warn.unwrap_or(Self::WARN_DEFAULT);
        let critical = critical.unwrap_or_else(|| warn.saturating_mul(5).max(Self::CRITICAL_DEFAULT_MIN));
        Self { warn, critical: critical.max(warn.saturating_add(1)) }
    }

    pub const fn warn(self) -> u64 {
        self.warn
    }

    pub const fn critical(self) -> u64 {
        self.critical
    }

    pub fn level(self, pending: u64) -> Level {
        level(pending, self.warn, self.critical)
    }

    pub fn operator_action(self, pending: u64) -> OperatorAction {
        match self.level(pending) {
            Level::Normal => OperatorAction::None,
            Level::Elevated => OperatorAction::WatchQueueDepth,
            Level::Critical => OperatorAction::AddWorkers,
        }
    }
}

/// A share from 0 to 1 in exact millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a share: allowed are decimals from 0 to 1 with up to six places, such as 0.75")]
pub struct NotAShare;

impl Share {
    const WHOLE: u32 = 1_000_000;

    pub const fn from_percent(percent: u8) -> Self {
        let percent = if percent > 100 { 100 } else { percent };
        Share(percent as u32 * (Self::WHOLE / 100))
    }

    pub fn parse(text: &str) -> Result<Self, NotAShare> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 6 {
            return Err(NotAShare);
        }
        let whole: u32 = whole.parse().map_err(|_| NotAShare)?;
        let decimals: u32 = format!("{decimals:0<6}").parse().map_err(|_| NotAShare)?;
        let millionths = whole.checked_mul(Self::WHOLE).and_then(|whole| whole.checked_add(decimals));
        millionths.filter(|share| *share <= Self::WHOLE).map(Share).ok_or(NotAShare)
    }

    /// `part` of `whole`, rounded down; an empty whole is not used at all.
    pub fn of(part: u32, whole: u32) -> Self {
        let millionths = (u64::from(part) * u64::from(Self::WHOLE)).checked_div(u64::from(whole)).unwrap_or(0);
        Share(u32::try_from(millionths).unwrap_or(Self::WHOLE).min(Self::WHOLE))
    }

    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }
}

/// Thresholds of the store: use of the connection pool, and compensations in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreThresholds {
    pub pool_warn: Share,
    pub pool_critical: Share,
    pub quarantine_warn: u64,
    pub quarantine_critical: u64,
}

impl StoreThresholds {
    pub const DEFAULT: StoreThresholds = StoreThresholds {
        pool_warn: Share::from_percent(75),
        pool_critical: Share::from_percent(90),
        quarantine_warn: 1,
        quarantine_critical: 5,
    };
}

/// What is measured of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreUse {
    pub pool_size: u32,
    pub pool_idle: u32,
    /// Not yet dealt with.
    pub quarantined: u64,
}

impl StoreUse {
    pub fn pool_utilization(self) -> Share {
        Share::of(self.pool_size.saturating_sub(self.pool_idle), self.pool_size)
    }

    /// The worse of the two levels; while it is critical, the process is not ready.
    pub fn level(self, thresholds: StoreThresholds) -> Level {
        self.pool_level(thresholds).max(self.quarantine_level(thresholds))
    }

    /// What helps against the worse of the two; quarantine goes first, since it does not pass by itself.
    pub fn operator_action(self, thresholds: StoreThresholds) -> OperatorAction {
        let quarantine = self.quarantine_level(thresholds);
        match self.pool_level(thresholds).max(quarantine) {
            Level::Normal => OperatorAction::None,
            worst if worst == quarantine => OperatorAction::InspectCompensationQuarantine,
            Level::Elevated => OperatorAction::WatchDatabasePool,
            Level::Critical => OperatorAction::EnlargeDatabasePoolOrReduceIngest,
        }
    }

    fn pool_level(self, thresholds: StoreThresholds) -> Level {
        level(self.pool_utilization(), thresholds.pool_warn, thresholds.pool_critical)
    }

    fn quarantine_level(self, thresholds: StoreThresholds) -> Level {
        level(self.quarantined, thresholds.quarantine_warn, thresholds.quarantine_critical)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queue_thresholds_default_to_100_and_500() {
        let thresholds = QueueThresholds::new(None, None);
        assert_eq!((thresholds.warn(), thresholds.critical()), (100, 500));
    }

    #[test]
    fn critical_follows_warn_and_stays_above_it() {
        let rows = [
            (Some(50), None, 500),
            (Some(100), None, 500),
            (Some(101), None, 505),
            (Some(0), None, 500),
            (None, Some(250), 250),
            (None, Some(100), 101),
            (Some(1_000), Some(10), 1_001),
            (Some(u64::MAX), None, u64::MAX),
            (Some(u64::MAX), Some(0), u64::MAX),
        ];
        for (warn, critical, expected) in rows {
            assert_eq!(QueueThresholds::new(warn, critical).critical(), expected, "{warn:?} {critical:?}");
        }
    }

    #[test]
    fn the_queue_rises_through_its_levels_at_the_thresholds() {
        let thresholds = QueueThresholds::new(None, None);
        let rows = [
            (0, Level::Normal, "none"),
            (99, Level::Normal, "none"),
            (100, Level::Elevated, "watch_queue_depth"),
            (499, Level::Elevated, "watch_queue_depth"),
            (500, Level::Critical, "add_workers"),
            (u64::MAX, Level::Critical, "add_workers"),
        ];
        for (pending, level, action) in rows {
            assert_eq!(thresholds.level(pending), level, "{pending}");
            assert_eq!(thresholds.operator_action(pending).as_str(), action, "{pending}");
        }
    }

    fn store(pool_size: u32, pool_idle: u32, quarantined: u64) -> StoreUse {
        StoreUse { pool_size, pool_idle, quarantined }
    }

    #[test]
    fn the_store_is_as_bad_as_its_worse_half() {
        let rows = [
            (store(100, 26, 0), Level::Normal, "none"),
            (store(100, 25, 0), Level::Elevated, "watch_database_pool"),
            (store(100, 11, 0), Level::Elevated, "watch_database_pool"),
            (store(100, 10, 0), Level::Critical, "enlarge_database_pool_or_reduce_ingest"),
            (store(100, 100, 1), Level::Elevated, "inspect_compensation_quarantine"),
            (store(100, 100, 4), Level::Elevated, "inspect_compensation_quarantine"),
            (store(100, 100, 5), Level::Critical, "inspect_compensation_quarantine"),
            (store(100, 0, 1), Level::Critical, "enlarge_database_pool_or_reduce_ingest"),
            (store(100, 25, 5), Level::Critical, "inspect_compensation_quarantine"),
            (store(100, 0, 5), Level::Critical, "inspect_compensation_quarantine"),
            (store(0, 0, 0), Level::Normal, "none"),
            (store(4, 9, 0), Level::Normal, "none"),
            (store(u32::MAX, 0, u64::MAX), Level::Critical, "inspect_compensation_quarantine"),
        ];
        for (store, level, action) in rows {
            assert_eq!(store.level(StoreThresholds::DEFAULT), level, "{store:?}");
            assert_eq!(store.operator_action(StoreThresholds::DEFAULT).as_str(), action, "{store:?}");
        }
    }

    #[test]
    fn shares_parse_exactly() {
        let rows =
            [("0", 0), ("1", 1_000_000), ("1.0", 1_000_000), ("0.75", 750_000), ("0.9", 900_000), ("0.000001", 1)];
        for (text, millionths) in rows {
            assert_eq!(Share::parse(text), Ok(Share(millionths)), "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-0.5",
            "1.000001",
            "2",
            "75",
            "75%",
            "0,75",
            "0.1234567",
            "1e-1",
            "NaN",
            "99999999999",
        ] {
            assert_eq!(Share::parse(text), Err(NotAShare), "{text}");
        }
    }

    #[test]
    fn levels_are_ordered_by_severity() {
        assert!(Level::Normal < Level::Elevated && Level::Elevated < Level::Critical);
    }

    proptest! {
        #[test]
        fn more_pending_is_never_less_pressure(warn: Option<u64>, critical: Option<u64>, one: u64, other: u64) {
            let thresholds = QueueThresholds::new(warn, critical);
            let (less, more) = (one.min(other), one.max(other));
            prop_assert!(thresholds.level(less) <= thresholds.level(more));
        }

        #[test]
        fn a_share_is_at_most_the_whole(part: u32, whole: u32) {
            let share = Share::of(part, whole);
            prop_assert!(share <= Share::from_percent(100));
            prop_assert!((0.0..=1.0).contains(&share.as_f64()));
        }
    }
}
