//! Whether and when work is tried again: back-off, budgets, cool-downs.

use std::time::Duration;

use super::failure::FailureClass;

/// Attempts that a handler may fail, unless the task says otherwise.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 3;
/// A task that outlives this many workers is likely what kills them.
pub const LOST_LEASES_MAX: u32 = 5;
/// Timeouts in a row without progress: the next one would end the same way.
pub const TIMEOUTS_MAX: u32 = 3;
/// After this many retries by hand, somebody should look at the document.
pub const MANUAL_RETRIES_MAX: u32 = 3;

pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);
pub const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Spreads a burst of failures without making a wait unrecognisable.
pub const JITTER_MAX_PERMILLE: u32 = 250;

/// Pauses of a lane whose provider says 429, by how often in a row; the last one repeats.
pub const COOL_DOWNS: [Duration; 4] =
    [Duration::from_secs(30), Duration::from_secs(60), Duration::from_secs(120), Duration::from_secs(300)];

/// The longest that a provider may ask a lane to rest: a broken clock must not stop a tenant for a day.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Whether a budget allows another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Again,
    Final,
}

/// What follows an attempt that did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    TryAgain,
    Fail(FailureClass),
}

impl Next {
    pub const fn verdict(self) -> Verdict {
        match self {
            Next::TryAgain => Verdict::Again,
            Next::Fail(_) => Verdict::Final,
        }
    }
}

/// A task's counters, the attempt that just ended included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureCounts {
    pub failures: u32,
    pub max_attempts: u32,
    pub timeouts_in_a_row: u32,
}

/// What follows when a handler fails. The circuit breaker goes first: it says more than a spent budget.
pub const fn after_failure(class: FailureClass, counts: FailureCounts) -> Next {
    let FailureCounts { failures, max_attempts, timeouts_in_a_row } = counts;
    if class.is_timeout() && timeouts_in_a_row >= TIMEOUTS_MAX {
        Next::Fail(FailureClass::CircuitBreaker)
    } else if class.is_permanent() || failures >= max_attempts {
        Next::Fail(class)
    } else {
        Next::TryAgain
    }
}

/// The row's count of timeouts after an attempt that failed with `class`.
pub const fn timeouts_in_a_row(before: u32, class: FailureClass, progressed: bool) -> u32 {
    if class.is_timeout() && !progressed { before.saturating_add(1) } else { 0 }
}

/// What follows when a lease runs out; `lost_leases` includes this one.
pub const fn after_lost_lease(lost_leases: u32, auto_resume: bool) -> Next {
    if !auto_resume {
        Next::Fail(FailureClass::Interrupted)
    } else if lost_leases >= LOST_LEASES_MAX {
        Next::Fail(FailureClass::WorkerLost)
    } else {
        Next::TryAgain
    }
}

/// Whether a retry by hand is allowed after `retries` earlier ones.
pub const fn manual_retry(retries: u32) -> Verdict {
    if retries < MANUAL_RETRIES_MAX { Verdict::Again } else { Verdict::Final }
}

/// The wait before the next attempt: min(1 s · 2^n, 60 s), n = failures before the one that just happened, plus
/// `jitter_permille` of it, at most [`JITTER_MAX_PERMILLE`]. Whole milliseconds.
pub fn backoff(failures_before: u32, jitter_permille: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures_before).unwrap_or(u32::MAX);
    let wait = BACKOFF_FIRST.saturating_mul(factor).min(BACKOFF_MAX);
    wait + wait * jitter_permille.min(JITTER_MAX_PERMILLE) / 1_000
}

/// How long a lane rests when its provider says 429, after `cool_downs` earlier ones in a row: at least as long as the
/// provider asked for, within reason.
pub fn cool_down(cool_downs: u32, retry_after: Option<Duration>) -> Duration {
    let index = usize::try_from(cool_downs).unwrap_or(usize::MAX).min(COOL_DOWNS.len() - 1);
    COOL_DOWNS[index].max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(failures: u32, timeouts_in_a_row: u32) -> FailureCounts {
        FailureCounts { failures, max_attempts: MAX_ATTEMPTS_DEFAULT, timeouts_in_a_row }
    }

    #[test]
    fn the_third_failure_is_the_last_by_default() {
        let class = FailureClass::ProviderUnavailable;
        assert_eq!(after_failure(class, counts(1, 0)), Next::TryAgain);
        assert_eq!(after_failure(class, counts(2, 0)), Next::TryAgain);
        assert_eq!(after_failure(class, counts(3, 0)), Next::Fail(class));
        assert_eq!(after_failure(class, counts(u32::MAX, 0)), Next::Fail(class));
    }

    #[test]
    fn a_permanent_class_fails_at_once_and_any_other_is_tried_again() {
        for class in FailureClass::ALL {
            let expected = if class.is_permanent() { Next::Fail(*class) } else { Next::TryAgain };
            assert_eq!(after_failure(*class, counts(1, 1)), expected, "{class}");
        }
    }

    #[test]
    fn three_timeouts_in_a_row_open_the_circuit_whatever_the_budget() {
        let patient = FailureCounts { failures: 3, max_attempts: 100, timeouts_in_a_row: 3 };
        for class in FailureClass::ALL.iter().filter(|class| class.is_timeout()) {
            assert_eq!(after_failure(*class, patient), Next::Fail(FailureClass::CircuitBreaker));
            assert_eq!(after_failure(*class, counts(3, 3)), Next::Fail(FailureClass::CircuitBreaker));
            assert_eq!(after_failure(*class, counts(2, 2)), Next::TryAgain);
        }
    }

    #[test]
    fn progress_or_another_failure_breaks_a_row_of_timeouts() {
        let timeout = FailureClass::TimeoutPhaseExtract;
        assert_eq!(timeouts_in_a_row(2, timeout, false), 3);
        assert_eq!(timeouts_in_a_row(2, timeout, true), 0);
        assert_eq!(timeouts_in_a_row(2, FailureClass::Unknown, false), 0);
        assert_eq!(timeouts_in_a_row(u32::MAX, timeout, false), u32::MAX);
    }

    #[test]
    fn the_fifth_lost_lease_is_the_last() {
        for lost_leases in 1..=4 {
            assert_eq!(after_lost_lease(lost_leases, true), Next::TryAgain);
        }
        for lost_leases in [5, 6, u32::MAX] {
            assert_eq!(after_lost_lease(lost_leases, true), Next::Fail(FailureClass::WorkerLost));
        }
    }

    #[test]
    fn without_auto_resume_an_interrupted_task_fails() {
        assert_eq!(after_lost_lease(1, false), Next::Fail(FailureClass::Interrupted));
        assert_eq!(after_lost_lease(5, false).verdict(), Verdict::Final);
    }

    #[test]
    fn a_task_is_retried_by_hand_three_times() {
        let verdicts = [0, 1, 2, 3, u32::MAX].map(manual_retry);
        let expected = [Verdict::Again, Verdict::Again, Verdict::Again, Verdict::Final, Verdict::Final];
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn backoff_doubles_from_one_second_to_sixty() {
        for (failures_before, secs) in
            [(0, 1), (1, 2), (2, 4), (3, 8), (4, 16), (5, 32), (6, 60), (31, 60), (32, 60), (u32::MAX, 60)]
        {
            assert_eq!(backoff(failures_before, 0), Duration::from_secs(secs), "{failures_before}");
        }
    }

    #[test]
    fn a_lane_cools_down_longer_each_time_up_to_five_minutes() {
        let secs = [0, 1, 2, 3, 4, u32::MAX].map(|cool_downs| cool_down(cool_downs, None).as_secs());
        assert_eq!(secs, [30, 60, 120, 300, 300, 300]);
    }

    #[test]
    fn a_lane_rests_as_long_as_its_provider_asks_within_an_hour() {
        for (asked_secs, rest_secs) in [(0, 30), (29, 30), (31, 31), (3_600, 3_600), (86_400, 3_600)] {
            let rest = cool_down(0, Some(Duration::from_secs(asked_secs)));
            assert_eq!(rest.as_secs(), rest_secs, "{asked_secs}");
        }
    }

    proptest! {
        #[test]
        fn jitter_adds_at_most_a_quarter(failures_before: u32, jitter_permille: u32) {
            let plain = backoff(failures_before, 0);
            let jittered = backoff(failures_before, jitter_permille);
            prop_assert!(plain <= jittered && jittered <= plain + plain / 4);
        }
    }
}
