//! What becomes of the tasks of resources that are gone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::ResourceExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Shared;
use super::plan::{CANCEL_BY_DELETION, asked_by, retains};
use crate::api::IngestTask;
use crate::operator::context::Context;
use crate::operator::controller::Fault;
use crate::store::control::{Request, Scope, cancel_linked};
use crate::store::resources::forget_resources;

/// What was seen to go and is not dealt with yet; more of them the janitor finds.
const WAITING_MAX: usize = 50_000;
const AT_ONCE: usize = 100;
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Gone {
    waiting: Mutex<VecDeque<Departed>>,
    added: Notify,
}

/// A resource that is there no more.
#[derive(Clone, Debug)]
pub struct Departed {
    pub uid: String,
    /// Who it was, for the history.
    pub name: String,
    /// The task goes on.
    pub retains: bool,
}

impl Gone {
    pub fn add(&self, task: &IngestTask) {
        let departed = Departed { uid: task.uid().unwrap_or_default(), name: asked_by(task), retains: retains(task) };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < WAITING_MAX {
            waiting.push_back(departed);
            self.added.notify_one();
        }
    }

    fn take(&self) -> Vec<Departed> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(AT_ONCE);
        waiting.drain(..count).collect()
    }

    fn put_back(&self, departed: Vec<Departed>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        departed.into_iter().rev().for_each(|one| waiting.push_front(one));
    }
}

pub async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let gone = &shared.caches.tasks.gone;
    while !stop.is_cancelled() {
        let departed = gone.take();
        if departed.is_empty() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = gone.added.notified() => {}
            }
            continue;
        }
        if let Err(fault) = bury(&shared, &departed).await {
            tracing::debug!(%fault, "tasks of deleted resources are looked at again");
            gone.put_back(departed);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// Cancels what is to be cancelled, and then forgets the resources: in this order, so that a failure between the two is
/// made good by doing both again.
async fn bury(shared: &Shared, departed: &[Departed]) -> Result<(), Fault> {
    let asked = departed.iter().map(|one| shared.looks.ask(one.uid.clone()));
    let mut known = Vec::new();
    for (one, seen) in departed.iter().zip(futures::future::try_join_all(asked).await?) {
        shared.entries.forget(&one.uid);
        let Some(seen) = seen else { continue };
        // The database knows of a policy that the last object that was seen did not have.
        if !(one.retains || seen.resource.retains) && seen.is_active() {
            cancel(&shared.context, seen.resource.track_id, &one.name).await?;
        }
        known.push(one.uid.clone());
    }
    if !known.is_empty() {
        forget_resources(&shared.context.database, &shared.context.cluster, &known).await?;
    }
    Ok(())
}

pub async fn cancel(context: &Context, track_id: Uuid, by: &str) -> Result<(), Fault> {
    if !context.leadership.is_held() {
        return Err(Fault::Stale);
    }
    let request = Request { by: Some(by), reason: Some(CANCEL_BY_DELETION) };
    cancel_linked(&context.database, track_id, request, Scope::default()).await?;
    Ok(())
}
