//! How workers learn of new work, how long they hold it, and which settings a process refuses to start with.
//!
//! Correctness is claim and lease in every mode; a wake only saves waiting.

use std::time::Duration;

use super::closed_set::closed_set;

closed_set! {
    pub enum WakeMode("delivery") {
        /// Wakes inside the process.
        Local = "local",
        /// Listens to Postgres, and wakes inside the process.
        Bridged = "bridged",
        /// Only listens to Postgres.
        NotifyOnly = "notify_only",
    }
}

impl WakeMode {
    pub const fn wakes_in_process(self) -> bool {
        match self {
            WakeMode::Local | WakeMode::Bridged => true,
            WakeMode::NotifyOnly => false,
        }
    }

    pub const fn listens(self) -> bool {
        match self {
            WakeMode::Bridged | WakeMode::NotifyOnly => true,
            WakeMode::Local => false,
        }
    }
}

/// Every mode polls: a lost notification costs this much and no more.
pub const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// More than one process, but each would only wake itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{replicas} replicas cannot run with delivery `local`, which wakes only its own process: \
     set SLUICE_TASK_DELIVERY to `bridged` or `notify_only`, or SLUICE_REPLICAS to 1"
)]
pub struct BootRefused {
    pub replicas: u32,
}

/// The boot rule, for every process and for the pool that starts them. `replicas` is the most there may be
/// (`maxReplicas`), never the number that runs now.
pub const fn check_boot(replicas: u32, mode: WakeMode) -> Result<(), BootRefused> {
    match mode {
        WakeMode::Local if replicas > 1 => Err(BootRefused { replicas }),
        WakeMode::Local | WakeMode::Bridged | WakeMode::NotifyOnly => Ok(()),
    }
}

/// How long a claim holds without a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTtl(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a lease of {0} s is out of range: allowed are {min} to {max} seconds",
    min = LeaseTtl::MIN_SECS,
    max = LeaseTtl::MAX_SECS
)]
pub struct LeaseOutOfRange(u32);

impl LeaseTtl {
    pub const DEFAULT: LeaseTtl = LeaseTtl(120);
    /// Below it, one slow database failover loses every lease.
    pub const MIN_SECS: u32 = 30;
    /// Above it, the work of a dead worker would wait for a day.
    pub const MAX_SECS: u32 = 86_400;
    const HEARTBEAT_MIN: Duration = Duration::from_secs(5);

    pub fn from_secs(secs: u32) -> Result<Self, LeaseOutOfRange> {
        match secs {
            Self::MIN_SECS..=Self::MAX_SECS => Ok(LeaseTtl(secs)),
            _ => Err(LeaseOutOfRange(secs)),
        }
    }

    pub const fn secs(self) -> u32 {
        self.0
    }

    /// Two heartbeats may fail before the lease does.
    pub fn heartbeat_interval(self) -> Duration {
        (Duration::from_secs(u64::from(self.0)) / 3).max(Self::HEARTBEAT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_wakes_as_its_name_says() {
        let rows = [("local", true, false), ("bridged", true, true), ("notify_only", false, true)];
        assert_eq!(rows.len(), WakeMode::ALL.len());
        for (name, in_process, listens) in rows {
            let mode = WakeMode::parse(name).unwrap();
            assert_eq!(mode.as_str(), name);
            assert_eq!((mode.wakes_in_process(), mode.listens()), (in_process, listens), "{name}");
        }
    }

    #[test]
    fn any_other_mode_is_refused() {
        for name in ["", "Local", "notify-only", "channel"] {
            let error = WakeMode::parse(name).unwrap_err().to_string();
            assert!(error.contains("local, bridged, notify_only"), "{error}");
        }
    }

    #[test]
    fn several_replicas_with_local_delivery_do_not_boot() {
        for mode in WakeMode::ALL {
            for replicas in [0, 1, 2, u32::MAX] {
                let refused = replicas > 1 && *mode == WakeMode::Local;
                let expected = if refused { Err(BootRefused { replicas }) } else { Ok(()) };
                assert_eq!(check_boot(replicas, *mode), expected, "{replicas} {mode}");
            }
        }
    }

    #[test]
    fn a_refused_boot_says_what_to_set_in_one_sentence() {
        let sentence = BootRefused { replicas: 3 }.to_string();
        assert_eq!(
            sentence,
            "3 replicas cannot run with delivery `local`, which wakes only its own process: \
             set SLUICE_TASK_DELIVERY to `bridged` or `notify_only`, or SLUICE_REPLICAS to 1"
        );
    }

    #[test]
    fn a_heartbeat_comes_every_third_of_the_lease() {
        assert_eq!(LeaseTtl::DEFAULT.heartbeat_interval(), Duration::from_secs(40));
        assert_eq!(LeaseTtl::from_secs(30).unwrap().heartbeat_interval(), Duration::from_secs(10));
        assert_eq!(LeaseTtl::from_secs(86_400).unwrap().heartbeat_interval(), Duration::from_secs(28_800));
    }

    #[test]
    fn heartbeats_are_at_least_five_seconds_apart() {
        assert_eq!(LeaseTtl(6).heartbeat_interval(), Duration::from_secs(5));
    }

    #[test]
    fn leases_last_from_thirty_seconds_to_a_day() {
        for secs in [0, 29, 86_401, u32::MAX] {
            assert_eq!(LeaseTtl::from_secs(secs), Err(LeaseOutOfRange(secs)));
        }
        assert_eq!(LeaseTtl::from_secs(30).map(LeaseTtl::secs), Ok(30));
        assert_eq!(LeaseTtl::from_secs(86_400).map(LeaseTtl::secs), Ok(86_400));
    }
}
