//! Carries out what the plan says: calls to the database, and writes of the resource itself.

use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Shared;
use super::observe::Seen;
use super::plan::{FINALIZER, Fate, Step, asked_by};
use crate::api::IngestTask;
use crate::operator::cache::Key;
use crate::operator::context::{Context, FIELD_MANAGER};
use crate::operator::controller::Fault;
use crate::operator::instrument::{ApiWrite, Kind};
use crate::operator::write::is_gone_or_changed;
use crate::store::control::{
    CancelOutcome, PriorityOutcome, Request, ResumeOutcome, RetryOutcome, Scope, SuspendOutcome, cancel_linked, resume,
    retry, set_priority, suspend,
};
use crate::store::resources::set_retains;

/// Any tenant: whose task it is was asked when it was made.
const ANY: Scope<'_> = Scope { tenant: None, workspace: None };

/// What became of the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// A row is not as it was seen: look again.
    pub has_moved: bool,
    /// A retry was granted.
    pub has_retried: bool,
}

pub async fn apply(shared: &Shared, task: &IngestTask, seen: &Seen, steps: &[Step]) -> Result<Applied, Fault> {
    let Context { database, cluster, .. } = &*shared.context;
    let root = seen.resource.track_id;
    let by = asked_by(task);
    let mut applied = Applied::default();
    for step in steps {
        if !shared.context.leadership.is_held() {
            return Err(Fault::Stale);
        }
        let has_moved = match step {
            Step::Cancel { reason } => {
                let request = Request { by: Some(&by), reason: Some(reason) };
                let outcomes = cancel_linked(database, root, request, ANY).await?;
                shared.entries.cancelled(&seen.resource.uid, &shared.context.metrics);
                // It may have ended meanwhile, or be as it was asked to be: both are to be seen.
                let unchanged = |(_, outcome): &(_, CancelOutcome)| *outcome == CancelOutcome::Unchanged;
                !outcomes.iter().all(unchanged)
            }
            Step::Retry => match retry(database, root, Some(&by), ANY).await? {
                (_, RetryOutcome::Pending) => {
                    applied.has_retried = true;
                    wake_lane(shared, seen).await;
                    true
                }
                (_, RetryOutcome::Active | RetryOutcome::Completed | RetryOutcome::MaxRetriesExceeded) => true,
                // Another task has its exclusive key, or its retention is over: nothing to be done now.
                (_, RetryOutcome::ConflictActive | RetryOutcome::NotFound) => false,
            },
            Step::Suspend(track_id) => match suspend(database, *track_id, Some(&by), ANY).await? {
                SuspendOutcome::Suspended | SuspendOutcome::Refused => true,
                SuspendOutcome::Unchanged | SuspendOutcome::NotFound => false,
            },
            Step::Resume(track_id) => match resume(database, *track_id, Some(&by), ANY).await? {
                ResumeOutcome::Resumed => {
                    wake_lane(shared, seen).await;
                    true
                }
                ResumeOutcome::Refused => true,
                ResumeOutcome::Unchanged | ResumeOutcome::NotFound => false,
            },
            Step::SetPriority { track_id, priority } => {
                match set_priority(database, *track_id, *priority, ANY).await? {
                    PriorityOutcome::Changed | PriorityOutcome::Refused => true,
                    PriorityOutcome::Unchanged | PriorityOutcome::NotFound => false,
                }
            }
            Step::SetRetains(retains) => {
                set_retains(database, cluster, &seen.resource.uid, *retains).await?;
                true
            }
        };
        applied.has_moved |= has_moved;
    }
    Ok(applied)
}

async fn wake_lane(shared: &Shared, seen: &Seen) {
    if let Some(speaker) = seen.speaker() {
        shared.context.wake(&speaker.pool).await;
    }
}

/// Brings the resource itself to its fate. Answers it as it is now, if it is still there.
pub async fn settle_fate(shared: &Shared, task: &IngestTask, fate: Fate) -> Result<Option<IngestTask>, Fault> {
    let context = &shared.context;
    if !context.leadership.is_held() {
        return Err(Fault::Stale);
    }
    let Key { namespace, name } = Key::of(task);
    let api: Api<IngestTask> = Api::namespaced(context.client.clone(), &namespace);
    let mut finalizers = task.finalizers().to_vec();
    match fate {
        Fate::Keep => return Ok(Some(task.clone())),
        Fate::Delete => {
            let preconditions = Preconditions { uid: task.uid(), resource_version: task.resource_version() };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            context.metrics.wrote(Kind::Task, ApiWrite::Delete);
            return match api.delete(&name, &params).await {
                Ok(_) => Ok(None),
                Err(error) if is_gone_or_changed(&error) => Err(Fault::Stale),
                Err(error) => Err(error.into()),
            };
        }
        Fate::AddFinalizer => finalizers.push(FINALIZER.to_owned()),
        Fate::RemoveFinalizer => finalizers.retain(|finalizer| finalizer != FINALIZER),
    }
    let patch = json!({ "metadata": {
        "uid": task.uid(), "resourceVersion": task.resource_version(), "finalizers": finalizers,
    } });
    context.metrics.wrote(Kind::Task, ApiWrite::Finalizer);
    match api.patch(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(&patch)).await {
        Ok(task) => Ok(Some(task)),
        Err(error) if is_gone_or_changed(&error) => Err(Fault::Stale),
        Err(error) => Err(error.into()),
    }
}
