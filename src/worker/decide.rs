//! Decisions of the runtime: how much, how long, and what an attempt's end is.

use std::time::Duration;

use serde_json::Value;

use super::handler::{Done, NotDone, StopCause};
use super::text::RESULT_MAX_BYTES;
use crate::domain::delivery::LeaseTtl;
use crate::domain::failure::FailureClass;
use crate::domain::task::TaskType;
use crate::store::ends::CoolDown;
use crate::store::enqueue::BATCH_MAX;

/// Ends that wait for the database before nothing more is claimed, for each slot: one batch is written while the next is
/// claimed and a third one runs.
const ENDING_PER_SLOT: usize = 2;
const ENDING_MIN: usize = 64;
/// Of a claim's tasks, those of one lane in one turn: small enough that turns change, large enough that a full pool is
/// served in few of them.
const TURNS_PER_CLAIM: u32 = 8;
const QUANTUM_MAX: u32 = 32;
/// Below it, a claim costs about the same whatever it brings.
const HALF_MIN: u32 = 128;
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// How many tasks to claim. A slot is taken while a handler runs; what has ended and is not written yet takes none, but
/// too much of it stops the claims: the database does not keep up.
pub fn want(slots: u32, occupied: usize, ending: usize) -> u32 {
    let slots_count = usize::try_from(slots).unwrap_or(usize::MAX);
    if ending >= slots_count.saturating_mul(ENDING_PER_SLOT).max(ENDING_MIN) {
        return 0;
    }
    let free = slots_count.saturating_sub(occupied);
    u32::try_from(free).unwrap_or(slots).min(claim_size(slots))
}

/// The most that one claim takes: of many slots a half, so that one half runs while the other is claimed.
pub fn claim_size(slots: u32) -> u32 {
    slots.min((slots / 2).max(HALF_MIN)).min(u32::try_from(BATCH_MAX).unwrap_or(u32::MAX))
}

pub fn quantum(want: u32) -> u32 {
    (want / TURNS_PER_CLAIM).clamp(1, QUANTUM_MAX)
}

/// Two heartbeats may fail before a lease does. The floor of long leases would lose a short one.
pub fn heartbeat_interval(lease_secs: u32) -> Duration {
    match LeaseTtl::from_secs(lease_secs) {
        Ok(lease) => lease.heartbeat_interval(),
        Err(_) => Duration::from_secs(u64::from(lease_secs)) / 3,
    }
}

/// How long an answer of the database is waited for. Its own limit is 30 s; but two heartbeats must fit into a lease, and a
/// busy machine is no dead network.
pub fn answer_limit(lease_secs: u32) -> Duration {
    (Duration::from_secs(u64::from(lease_secs)) / 3).clamp(Duration::from_secs(6), Duration::from_secs(20))
}

/// How long before the end of its lease a handler is told to stop: what is left for it to do so.
pub fn lease_margin(lease: Duration) -> Duration {
    lease / 6
}

/// How long a handler may take to stop before it is aborted. A lease that ends must find it gone; who was cancelled keeps
/// its lease for one lease at most.
pub fn stop_grace(cause: StopCause, lease: Duration, grace: Duration) -> Duration {
    match cause {
        StopCause::Cancel | StopCause::Drain | StopCause::Timeout | StopCause::Shutdown => grace.min(lease / 2),
        StopCause::Lost | StopCause::LeaseOver => grace.min(lease_margin(lease) / 2),
    }
}

/// Between four fifths and all of `interval`, so that a fleet's claims spread; `share` is from 0 to 1.
pub fn jittered(interval: Duration, share: f64) -> Duration {
    interval.mul_f64(0.2f64.mul_add(-share.clamp(0.0, 1.0), 1.0))
}

/// The pause before the next try after `failures` in a row, of which half is spread.
pub fn retry_pause(failures: u32, max: Duration, share: f64) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = RETRY_FIRST.saturating_mul(factor).min(max);
    pause.mul_f64(0.5f64.mul_add(-share.clamp(0.0, 1.0), 1.0))
}

/// What a handler came to.
pub enum Answer {
    Done(Done),
    NotDone(NotDone),
    Panicked(String),
    /// Its future was dropped, or is given up.
    Aborted,
}

/// What is said to the database.
pub enum End {
    Complete(Box<Done>),
    Fail {
        class: FailureClass,
        message: String,
    },
    Release {
        reason: String,
        cool_down: CoolDown,
    },
    /// What was cancelled has stopped.
    Stopped,
    /// Nothing: it is not ours to end.
    Nothing,
}

/// A handler's word counts as long as the database may take it: it fences what comes too late, and turns the end of what
/// was cancelled into `cancelled`.
pub fn end_of(task_type: TaskType, timeout_secs: u32, cause: Option<StopCause>, answer: Answer) -> End {
    use StopCause::{Cancel, Drain, LeaseOver, Lost, Shutdown, Timeout};
    let failed = |class, message: String| End::Fail { class, message };
    match (cause, answer) {
        (Some(Lost), _) => End::Nothing,
        (_, Answer::Done(done)) => completed(done),
        (Some(Cancel), _) => End::Stopped,
        (_, Answer::Panicked(message)) => failed(FailureClass::Unknown, format!("the handler panicked: {message}")),
        (_, Answer::NotDone(NotDone::RateLimited { reason, retry_after_secs })) => {
            End::Release { reason, cool_down: CoolDown::Lanes { retry_after_secs } }
        }
        (_, Answer::NotDone(NotDone::Failed { class, message }))
            if class.is_permanent() && class != FailureClass::Cancelled =>
        {
            failed(class, message)
        }
        (Some(Timeout), Answer::NotDone(_) | Answer::Aborted) => {
            failed(timeout_class(task_type), format!("it took longer than {timeout_secs} s"))
        }
        (Some(Drain), Answer::NotDone(_) | Answer::Aborted) => released("its lane is drained"),
        (Some(Shutdown), Answer::NotDone(_) | Answer::Aborted) => released("its worker ends"),
        (Some(LeaseOver), Answer::NotDone(_) | Answer::Aborted) => released("its lease could not be renewed"),
        (None, Answer::NotDone(NotDone::Failed { class: FailureClass::Cancelled, message })) => {
            failed(FailureClass::Unknown, format!("only a cancel cancels; the handler said so: {message}"))
        }
        (None, Answer::NotDone(NotDone::Failed { class, message })) => failed(class, message),
        (None, Answer::NotDone(NotDone::GiveBack { reason })) => End::Release { reason, cool_down: CoolDown::No },
        (None, Answer::NotDone(NotDone::Stopped)) => {
            failed(FailureClass::Unknown, "the handler stopped, and nobody had asked it to".to_owned())
        }
        (None, Answer::Aborted) => released("its handler was dropped"),
    }
}

fn released(reason: &str) -> End {
    End::Release { reason: reason.to_owned(), cool_down: CoolDown::No }
}

fn completed(done: Done) -> End {
    let bytes = done.result.as_ref().map_or(0, json_bytes);
    if bytes > RESULT_MAX_BYTES {
        let message = format!("its result has {bytes} bytes of JSON, and at most {RESULT_MAX_BYTES} are kept");
        return End::Fail { class: FailureClass::Unknown, message };
    }
    End::Complete(Box::new(done))
}

pub fn timeout_class(task_type: TaskType) -> FailureClass {
    match task_type {
        TaskType::PdfProcessing => FailureClass::TimeoutPhaseConvert,
        TaskType::Insert
        | TaskType::Upload
        | TaskType::Scan
        | TaskType::Reindex
        | TaskType::KnowledgeInjection
        | TaskType::Deletion
        | TaskType::WorkspaceWipe => FailureClass::TimeoutPhaseExtract,
    }
}

/// About what it takes as text, without making the text.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(json_bytes).sum::<usize>() + 2,
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + 4 + json_bytes(value)).sum::<usize>() + 2,
    }
}

/// Why a worker should not get work, for `/readyz`; only ability, never load. Who holds leases is always ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unready {
    Starting,
    /// Scaled down, and idle.
    Drained,
    /// Told to end, and idle.
    Ending,
}

pub fn readiness(is_registered: bool, is_draining: bool, is_closing: bool, held: u64) -> Result<(), Unready> {
    if held > 0 {
        Ok(())
    } else if is_closing {
        Err(Unready::Ending)
    } else if !is_registered {
        Err(Unready::Starting)
    } else if is_draining {
        Err(Unready::Drained)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
