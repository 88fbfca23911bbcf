//! Plain ends, many in one statement: what comes while one is on its way goes with the next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Notify;

use super::core::Core;
use super::decide::End;
use super::ending::{self, finish_all, retried};
use super::handler::Done;
use crate::store::claim::Attempt;
use crate::store::ends::{self, CoolDown};
use crate::store::enqueue::BATCH_MAX;

/// While other handlers run, one end waits this long for theirs; alone, it is sent at once.
const GATHER: Duration = Duration::from_millis(1);

type Completion = (Attempt, Option<Value>);

#[derive(Default)]
pub(super) struct Flushing {
    completions: Mutex<Vec<Completion>>,
    releases: Mutex<Vec<(Attempt, String)>>,
    completion_wake: Notify,
    release_wake: Notify,
}

impl Flushing {
    pub fn complete(&self, completions: Vec<Completion>) {
        lock(&self.completions).extend(completions);
        self.completion_wake.notify_one();
    }

    pub fn release(&self, attempt: Attempt, reason: String) {
        lock(&self.releases).push((attempt, reason));
        self.release_wake.notify_one();
    }

    fn take_completions(&self) -> Vec<Completion> {
        let mut waiting = lock(&self.completions);
        let count = waiting.len().min(BATCH_MAX);
        waiting.drain(..count).collect()
    }

    /// Those with the same reason as the first.
    fn take_releases(&self) -> Option<(String, Vec<Attempt>)> {
        let mut waiting = lock(&self.releases);
        let reason = waiting.first()?.1.clone();
        let mut taken = Vec::new();
        waiting.retain(|(attempt, why)| {
            let is_taken = *why == reason && taken.len() < BATCH_MAX;
            if is_taken {
                taken.push(*attempt);
            }
            !is_taken
        });
        Some((reason, taken))
    }
}

pub(super) async fn complete(core: Arc<Core>) {
    let mut was_alone = true;
    loop {
        if core.over.run_until_cancelled(core.flushing.completion_wake.notified()).await.is_none() {
            return;
        }
        if !was_alone && core.held().running() > 0 {
            tokio::time::sleep(GATHER).await;
        }
        loop {
            let batch = core.flushing.take_completions();
            if batch.is_empty() {
                break;
            }
            was_alone = batch.len() == 1;
            complete_batch(&core, batch).await;
            core.publish_counts();
        }
    }
}

async fn complete_batch(core: &Arc<Core>, batch: Vec<Completion>) {
    let started = Instant::now();
    let batch = Arc::new(batch);
    let call = || {
        let batch = Arc::clone(&batch);
        core.ask(move |pools| async move { ends::complete_many(&pools.ends, &batch).await })
    };
    match retried(core, "completing", call).await {
        // The worker is over: their leases run out.
        None => {}
        Some(Ok(answers)) => {
            core.complaints.succeeded("completing");
            let metrics = &core.shared.metrics;
            metrics.flush_tasks.observe(f64::from(u32::try_from(batch.len()).unwrap_or(u32::MAX)));
            metrics.flush_seconds.observe(started.elapsed().as_secs_f64());
            finish_all(core, answers.into_iter().map(|(attempt, outcome)| (attempt, outcome.as_str())));
        }
        // One of them spoils it for the others.
        Some(Err(error)) => {
            tracing::warn!(%error, tasks = batch.len(), "ends could not be written together: each goes by itself");
            for (attempt, result) in batch.iter().cloned() {
                ending::write_alone(core, attempt, End::Complete(Box::new(Done { result, ..Done::new() })), None);
            }
        }
    }
}

pub(super) async fn release(core: Arc<Core>) {
    loop {
        if core.over.run_until_cancelled(core.flushing.release_wake.notified()).await.is_none() {
            return;
        }
        while let Some((reason, attempts)) = core.flushing.take_releases() {
            release_batch(&core, &reason, &attempts).await;
            core.publish_counts();
        }
    }
}

async fn release_batch(core: &Core, reason: &str, attempts: &[Attempt]) {
    let call = || ending::release_call(core, attempts.to_vec(), reason, CoolDown::No);
    match retried(core, "giving tasks back", call).await {
        None => {}
        Some(Ok(answers)) => {
            core.complaints.succeeded("giving tasks back");
            finish_all(core, answers.into_iter().map(|(attempt, outcome)| (attempt, outcome.as_str())));
        }
        Some(Err(error)) => {
            // Their leases run out.
            core.complaints.failed("giving tasks back", &error);
            finish_all(core, attempts.iter().map(|attempt| (*attempt, "unsaid")));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Done {
    /// There is nothing to it but a result.
    pub(super) fn is_plain(&self) -> bool {
        self.document.is_empty() && self.next.is_none() && self.transaction.is_none()
    }
}
