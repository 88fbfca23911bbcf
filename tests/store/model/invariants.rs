//! Invariants 1 to 4 of the design, from two looks at the database and without the model; what may be claimed (1 and 5)
//! is looked at with each claim.

use super::compare::{Seen, SeenTask};

/// What a step may not have done.
pub fn check(before: &Seen, after: &Seen) -> Result<(), String> {
    for (lane, (running, cap)) in &after.lanes {
        let (running_before, cap_before) = before.lanes.get(lane).copied().unwrap_or((0, *cap));
        let is_over =
            cap_before.is_some_and(|cap| *running > i64::from(cap)) && cap.is_some_and(|cap| *running > i64::from(cap));
        if is_over && *running > running_before {
            return Err(format!("lane {lane} went from {running_before} to {running} running, above its cap"));
        }
    }
    for (id, now) in &after.tasks {
        let Some(was) = before.tasks.get(id) else { continue };
        check_task(was, now).map_err(|what| format!("task {id} {what}: {was:?} became {now:?}"))?;
    }
    for (id, was) in &before.tasks {
        if !after.tasks.contains_key(id) && !matches!(was.state.as_str(), "completed" | "failed" | "cancelled") {
            return Err(format!("task {id} was {} and is gone", was.state));
        }
    }
    Ok(())
}

fn check_task(was: &SeenTask, now: &SeenTask) -> Result<(), &'static str> {
    let is_retried = now.retries == was.retries + 1 && now.state == "pending";
    if now.attempt < was.attempt || now.attempt > was.attempt + 1 {
        return Err("went back or skipped an attempt");
    }
    if now.retries != was.retries && !is_retried {
        return Err("was retried to something else than pending");
    }
    match was.state.as_str() {
        "completed" if now.whole != was.whole => Err("changed after it completed"),
        "failed" | "cancelled" if now.whole != was.whole && !is_retried => {
            Err("changed after it ended, without a retry")
        }
        "stopping" if !matches!(now.state.as_str(), "stopping" | "cancelled") => Err("was to be cancelled"),
        _ if was.cancel_asked && !now.cancel_asked && !is_retried => Err("forgot its cancel"),
        _ => Ok(()),
    }
}
