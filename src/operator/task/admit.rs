//! A resource without a task: makes one, or says why not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::ResourceExt;

use super::admission::{self, Admission, Refusal};
use super::{SHORT_PAUSE, Shared, created_at, observe, plan, settle_fate, status, write};
use crate::api::IngestTask;
use crate::api::conditions::Reason;
use crate::operator::cache::Key;
use crate::operator::controller::{Fault, Outcome};
use crate::store::enqueue::{Enqueued, NewTask};
use crate::store::resources::{MirrorOutcome, mirror_task};

/// A key is taken: its end is not told by a watch.
const KEY_PAUSE: Duration = Duration::from_secs(5);

pub(super) async fn admit(shared: &Shared, task: IngestTask) -> Result<Outcome, Fault> {
    let mut task = task;
    match plan::fate_without_task(&task) {
        plan::Fate::Keep => {}
        fate => match settle_fate(shared, &task, fate).await? {
            Some(settled) => task = settled,
            None => return Ok(Outcome::Done),
        },
    }
    // It is going, and has nothing that could run.
    if plan::is_being_deleted(&task) {
        return Ok(Outcome::Done);
    }
    if task.status.as_ref().is_some_and(|status| status.track_id.is_some()) {
        let wanted = status::expired(task.status.as_ref(), task.metadata.generation);
        let written = write(shared, &task, &wanted).await?;
        shared.entries.settle(&written, None);
        return Ok(Outcome::Done);
    }
    match decide(shared, &task).await? {
        Decision::Made => {
            // Its row tells the mirror, which looks again; a resource that went meanwhile was not seen to have one.
            let key = Key::of(&task);
            if shared.caches.tasks.objects.get(&key).is_none_or(|held| held.uid() != task.uid()) {
                shared.caches.tasks.gone.add(&task);
            }
            Ok(Outcome::Again(SHORT_PAUSE))
        }
        Decision::NotYet => Ok(Outcome::Again(SHORT_PAUSE)),
        Decision::Refused(refusal) => {
            let created_at = created_at(&task);
            let wanted = status::refused(task.status.as_ref(), task.metadata.generation, created_at, &refusal);
            let written = write(shared, &task, &wanted).await?;
            shared.entries.settle(&written, refusal.again);
            Ok(refusal.again.map_or(Outcome::Done, Outcome::Again))
        }
    }
}

enum Decision {
    Made,
    /// What it depends on is not known yet.
    NotYet,
    Refused(Refusal),
}

async fn decide(shared: &Shared, task: &IngestTask) -> Result<Decision, Fault> {
    let Shared { context, caches, .. } = shared;
    let (tenant, class) = (admission::tenant(task), admission::class(task));
    let namespace = task.namespace().unwrap_or_default();
    if let Err(why) = caches.lanes.grants.check(&context.client, &namespace, tenant).await? {
        return Ok(Decision::Refused(Refusal::waiting(Reason::TenantNotAllowed, why)));
    }
    if !shared.lanes_counted.load(Ordering::Relaxed) {
        return Ok(Decision::NotYet);
    }
    let counted = shared.counted();
    let lane = counted.lane(tenant, class);
    let facts = admission::Facts {
        cluster: &context.cluster,
        allowed_sources: lane.map_or(&[], |lane| &lane.allowed_sources),
        content: observe::content(context, task).await?,
        document: observe::document(context, task).await?,
    };
    if !context.leadership.is_held() {
        return Err(Fault::Stale);
    }
    let (new, resource) = match admission::admit(task, facts) {
        Admission::Refused(refusal) => return Ok(Decision::Refused(refusal)),
        Admission::Enqueue(new) => (*new, task.uid().unwrap_or_default()),
        Admission::Mirror { resource, track_id, tenant } => {
            return Ok(match mirror_task(&context.database, &resource, track_id, &tenant).await? {
                MirrorOutcome::Mirrored | MirrorOutcome::Existing => Decision::Made,
                MirrorOutcome::Taken => Decision::Refused(Refusal::final_(
                    Reason::ResourceRecreated,
                    "the task of spec.source.trackId is shown by another resource",
                )),
                MirrorOutcome::NotFound => Decision::Refused(Refusal::final_(
                    Reason::TaskNotFound,
                    format!("tenant {tenant} has no task {track_id}, or its retention is over"),
                )),
            });
        }
    };
    enqueue(shared, new, resource).await
}

/// One task for each resource, whatever happened before.
async fn enqueue(shared: &Shared, new: NewTask, uid: String) -> Result<Decision, Fault> {
    Ok(match shared.enqueues.ask(new).await? {
        Enqueued::Created { .. } => Decision::Made,
        // By this resource before, whose status was not written, or by another one.
        Enqueued::Existing { track_id } => match shared.looks.ask(uid).await? {
            Some(_) => Decision::Made,
            None => Decision::Refused(Refusal::final_(
                Reason::Duplicate,
                format!("the idempotencyKey has its task already: {track_id}"),
            )),
        },
        Enqueued::ConflictIdempotency { track_id, message } => Decision::Refused(Refusal::final_(
            Reason::IdempotencyConflict,
            format!("{message}; its task is {track_id}"),
        )),
        Enqueued::ConflictActive { message, .. } => Decision::Refused(Refusal {
            again: Some(KEY_PAUSE),
            ..Refusal::final_(Reason::ExclusiveKeyActive, message)
        }),
        Enqueued::Invalid { message } => Decision::Refused(Refusal::final_(Reason::Invalid, message)),
    })
}
