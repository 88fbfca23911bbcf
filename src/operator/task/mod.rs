//! The task controller: a resource asks for a task and shows it.
//!
//! A look is caused by the resource (its watch) or by the row (the mirror), and is the same look: observe the rows, plan
//! what each needs of the other, apply it, write the status. The database speaks for the task throughout; the resource
//! is only believed about what is asked for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kube::ResourceExt;
use tokio_util::sync::CancellationToken;

use super::batch::{Batcher, Limits};
use super::cache::{self, Cache, Change, Follow, Key, strip_metadata};
use super::controller::{self, Fault, Outcome};
use super::events::EventReason;
use super::instrument::Kind;
use super::lane::Counted;
use super::queue::WorkQueue;
use super::write::{StatusWrite, write_status};
use super::{Caches, Context};
use crate::api::ingest_task::State;
use crate::api::{IngestTask, IngestTaskStatus, Time};
use crate::domain::task;
use crate::store::enqueue::{BATCH_MAX, Enqueued, NewTask, enqueue_many};
use crate::store::reads::mirror_ack;

mod admission;
mod admit;
mod apply;
mod entries;
#[cfg(test)]
mod fixture;
mod gone;
mod lanes;
mod mirror;
mod observe;
mod plan;
mod status;
mod sweep;

use admit::admit;
use entries::{Entries, Need};
use observe::Seen;

/// Looks side by side: enough to fill batches, few enough for an API server that is busy.
const LOOKS_AT_ONCE: usize = 64;
/// Of one look: a row that moves each time is looked at again later.
const ROUNDS_MAX: usize = 3;
/// Payloads of a batch; a single one may be as large.
const BATCH_BYTES: usize = 4 * 1_024 * 1_024;
/// What is waited for is known in a moment.
const SHORT_PAUSE: Duration = Duration::from_millis(200);

/// What is known of its kind, whether this process leads or not.
pub struct Cached {
    pub objects: Arc<Cache<IngestTask>>,
    queue: Arc<WorkQueue<Key>>,
    gone: gone::Gone,
    entries: Arc<Entries>,
}

impl Cached {
    #[expect(clippy::new_without_default, reason = "made once, by the operator")]
    pub fn new() -> Self {
        Self {
            objects: Arc::new(Cache::new()),
            queue: Arc::new(WorkQueue::new()),
            gone: gone::Gone::default(),
            entries: Arc::default(),
        }
    }

    pub fn is_synced(&self) -> bool {
        self.objects.is_synced()
    }

    pub async fn synced(&self) {
        self.objects.synced().await;
    }
}

/// What looks work with, for as long as this process leads.
pub struct Shared {
    context: Arc<Context>,
    caches: Arc<Caches>,
    entries: Arc<Entries>,
    looks: Batcher<String, Option<Seen>>,
    enqueues: Batcher<NewTask, Enqueued>,
    acks: Batcher<(i64, i64), ()>,
    /// What a lane allows is known since this process leads.
    lanes_counted: AtomicBool,
}

/// Fills the cache, in followers too, until it is dropped.
pub async fn follow(context: Arc<Context>, caches: Arc<Caches>) {
    let how = Follow {
        client: context.watch_client.clone(),
        kind: Kind::Task,
        namespaces: context.settings.watch_namespaces.clone(),
        strip,
        notice: {
            let (context, caches) = (context.clone(), caches.clone());
            move |change| notice(&context, &caches, change)
        },
        metrics: context.metrics.clone(),
    };
    cache::follow(caches.tasks.objects.clone(), how).await;
}

/// A text that has become a row is not needed any more, and may be most of the object.
fn strip(task: &mut IngestTask) {
    strip_metadata(task);
    let has_row = task.status.as_ref().is_some_and(|status| status.track_id.is_some());
    if let Some(source) = task.spec.source.as_mut().filter(|_| has_row) {
        source.text = source.text.take().map(|_| String::new());
    }
}

fn notice(context: &Context, caches: &Caches, change: Change<IngestTask>) {
    let tasks = &caches.tasks;
    match change {
        Change::Applied(task) => {
            let observed = task.status.as_ref().and_then(|status| status.observed_generation);
            let is_edited = observed.is_some() && observed != task.metadata.generation;
            let asks_to_stop = task.spec.cancel == Some(true) || plan::is_being_deleted(&task);
            match asks_to_stop && (is_edited || plan::is_being_deleted(&task)) {
                true if !context.leadership.is_held() => {}
                true => {
                    tasks.entries.cancel_seen(task.metadata.uid.as_deref().unwrap_or_default());
                    tasks.queue.add_urgent(Key::of(&*task));
                }
                false => tasks.queue.add(Key::of(&*task)),
            }
        }
        // A follower's leader sees the same; what nobody saw, the janitor finds.
        Change::Gone(task) => {
            if context.leadership.is_held() {
                tasks.gone.add(&task);
            }
        }
        Change::Unreadable(unreadable) => {
            tracing::warn!(key = %unreadable.key, problem = unreadable.problem, "a stored IngestTask does not parse");
            context.events.publish_unreadable::<IngestTask>(Kind::Task, &unreadable);
        }
    }
}

/// Acts until `stop`; called each time that this process begins to lead, with the caches filled.
pub async fn run(context: Arc<Context>, caches: Arc<Caches>, stop: CancellationToken) {
    let shared = Arc::new(Shared::new(context.clone(), caches.clone()));
    let queue = caches.tasks.queue.clone();
    queue.open();
    shared.look_at_all();
    for unreadable in caches.tasks.objects.unreadable() {
        context.events.publish_unreadable::<IngestTask>(Kind::Task, &unreadable);
    }
    let look = {
        let shared = shared.clone();
        move |key| reconcile(shared.clone(), key)
    };
    tokio::join!(
        controller::run(&context, Kind::Task, queue, LOOKS_AT_ONCE, stop.clone(), look),
        mirror::run(shared.clone(), stop.clone()),
        gone::run(shared.clone(), stop.clone()),
        sweep::run(shared.clone(), stop.clone()),
        lanes::run(shared, stop),
    );
}

impl Shared {
    fn new(context: Arc<Context>, caches: Arc<Caches>) -> Self {
        let (database, cluster) = (context.database.clone(), context.cluster.clone());
        let looks = Batcher::start(
            Limits { items: 500, bytes: usize::MAX, calls: 2 },
            |_: &String| 1,
            move |uids: Arc<Vec<String>>| {
                let (database, cluster) = (database.clone(), cluster.clone());
                async move { observe::see(&database, &cluster, &uids).await }
            },
        );
        let (waking, lanes) = (context.clone(), caches.clone());
        let enqueues = Batcher::start(
            Limits { items: 200, bytes: BATCH_BYTES, calls: 2 },
            |task: &NewTask| task.payload.to_string().len(),
            move |tasks: Arc<Vec<NewTask>>| {
                let (context, lanes) = (waking.clone(), lanes.clone());
                async move {
                    let enqueued = enqueue_many(&context.database, &tasks).await?;
                    for pool in pools_of(&lanes, &tasks) {
                        context.wake(&pool).await;
                    }
                    Ok(enqueued)
                }
            },
        );
        let database = context.database.clone();
        let acks = Batcher::start(
            Limits { items: BATCH_MAX, bytes: usize::MAX, calls: 1 },
            |_: &(i64, i64)| 1,
            move |written: Arc<Vec<(i64, i64)>>| {
                let database = database.clone();
                async move { mirror_ack(&database, &written).await.map(|_| vec![(); written.len()]) }
            },
        );
        let entries = caches.tasks.entries.clone();
        Self { context, caches, entries, looks, enqueues, acks, lanes_counted: AtomicBool::new(false) }
    }

    /// Forgets what is known of the rows.
    fn look_at_all(&self) {
        self.entries.clear();
        self.caches.tasks.objects.keys().into_iter().for_each(|key| self.caches.tasks.queue.add(key));
    }

    fn counted(&self) -> Arc<Counted> {
        self.caches.lanes.counted().borrow().clone()
    }
}

/// Those that serve the lanes of what may start at once.
fn pools_of(caches: &Caches, tasks: &[NewTask]) -> std::collections::BTreeSet<String> {
    let counted = caches.lanes.counted().borrow().clone();
    let startable = tasks.iter().filter(|task| !task.suspended);
    let pool = |task: &NewTask| {
        let lane = counted.lane(&task.tenant, task.task_type.class());
        lane.map_or_else(|| super::lane::DEFAULT_POOL.to_owned(), |lane| lane.pool.clone())
    };
    startable.map(pool).collect()
}

async fn reconcile(shared: Arc<Shared>, key: Key) -> Result<Outcome, Fault> {
    if !shared.context.leadership.is_held() {
        return Err(Fault::Stale);
    }
    // What is gone is dealt with elsewhere, since there may be nothing left to look at.
    let Some(task) = shared.caches.tasks.objects.get(&key) else { return Ok(Outcome::Done) };
    if let Need::Rest(left) = shared.entries.need(&task) {
        return Ok(left.map_or(Outcome::Done, Outcome::Again));
    }
    let looked = look(&shared, (*task).clone()).await;
    if let Err(fault) = &looked
        && fault.is_database_away()
    {
        say_database_away(&shared, &task).await?;
    }
    looked
}

async fn look(shared: &Shared, mut task: IngestTask) -> Result<Outcome, Fault> {
    let uid = task.uid().unwrap_or_default();
    let mut retried = None;
    for _ in 0..ROUNDS_MAX {
        let Some(seen) = shared.looks.ask(uid.clone()).await? else { return admit(shared, task).await };
        let now = chrono::Utc::now();
        let plan = plan::plan(&plan::Facts { task: &task, seen: &seen, retried, now });
        if plan.fate != plan::Fate::Keep && plan.steps.is_empty() {
            match settle_fate(shared, &task, plan.fate).await? {
                Some(settled) => task = settled,
                None => return Ok(Outcome::Done),
            }
            continue;
        }
        let applied = apply::apply(shared, &task, &seen, &plan.steps).await?;
        if applied.has_retried {
            retried = task.spec.retries;
        }
        if applied.has_moved {
            continue;
        }
        return show(shared, &task, &seen, &plan).await;
    }
    Ok(Outcome::Again(SHORT_PAUSE))
}

/// `None`: it is gone, or will be looked at when its going is seen.
async fn settle_fate(shared: &Shared, task: &IngestTask, fate: plan::Fate) -> Result<Option<IngestTask>, Fault> {
    let settled = apply::settle_fate(shared, task, fate).await?;
    let is_going = fate == plan::Fate::RemoveFinalizer && plan::is_being_deleted(task);
    let Some(mut settled) = settled.filter(|_| !is_going) else { return Ok(None) };
    strip_metadata(&mut settled);
    shared.caches.tasks.objects.put(settled.clone());
    Ok(Some(settled))
}

/// Writes what the row says, and acknowledges its revision.
async fn show(shared: &Shared, task: &IngestTask, seen: &Seen, plan: &plan::Plan) -> Result<Outcome, Fault> {
    let uid = task.uid().unwrap_or_default();
    let speaker = seen.speaker();
    let counted = shared.counted();
    let lane = speaker.and_then(|speaker| counted.lane(&speaker.tenant, speaker.class));
    let is_served = speaker.is_none_or(|speaker| !counted.unserved.contains(&speaker.pool));
    let mut wanted = status::of_row(&status::Facts {
        generation: task.metadata.generation,
        before: task.status.as_ref(),
        seen,
        lane,
        is_served,
        ignored: plan.ignored.as_ref(),
        observed_retries: plan.observed_retries,
        wants_cancel: task.spec.cancel == Some(true),
    });
    if let Some(held) = &task.status {
        // A revision alone is nothing that anybody could see.
        let same = IngestTaskStatus { observed_rev: held.observed_rev, ..wanted.clone() };
        if same == *held {
            wanted = same;
        } else if let Some(pause) = shared.entries.progress_pause(&uid).filter(|_| is_only_progress(held, &wanted)) {
            return Ok(Outcome::Again(pause));
        }
    }
    let written = write(shared, task, &wanted).await?;
    shared.entries.acknowledged(&uid, seen.resource.rev, &shared.context.metrics);
    if seen.resource.mirrored_rev < seen.resource.rev {
        shared.acks.tell((seen.resource.mirror_id, seen.resource.rev));
    }
    shared.entries.settle(&written, plan.again);
    // Whoever looked through the tasks of a lane that changed meanwhile has found this one without its new status.
    if let Some(speaker) = speaker.filter(|speaker| speaker.state == task::State::Pending)
        && !lanes::says_the_same(&speaker.tenant, speaker.class, &counted, &shared.counted())
    {
        shared.entries.unsettle(&uid);
        return Ok(Outcome::Again(SHORT_PAUSE));
    }
    Ok(plan.again.map_or(Outcome::Done, Outcome::Again))
}

fn is_only_progress(held: &IngestTaskStatus, wanted: &IngestTaskStatus) -> bool {
    let quiet = IngestTaskStatus {
        observed_rev: held.observed_rev,
        progress: held.progress,
        summary: held.summary.clone(),
        ..wanted.clone()
    };
    quiet == *held
}

/// The object with its new status, which the cache has then too.
async fn write(shared: &Shared, task: &IngestTask, wanted: &IngestTaskStatus) -> Result<IngestTask, Fault> {
    let mut object = task.clone();
    match write_status(&shared.context, Kind::Task, task, &task.status, wanted).await? {
        StatusWrite::Unchanged => {}
        StatusWrite::Written(written) => {
            object = *written;
            strip(&mut object);
            shared.caches.tasks.objects.put(object.clone());
            shared.entries.wrote(object.metadata.uid.as_deref().unwrap_or_default());
            publish(shared, task, wanted);
        }
    }
    Ok(object)
}

/// Only of what a person should know of, once each time that it comes to be so.
fn publish(shared: &Shared, task: &IngestTask, wanted: &IngestTaskStatus) {
    let before = task.status.as_ref();
    let note = wanted.summary.as_deref().unwrap_or_default();
    let reason_of = |status: Option<&IngestTaskStatus>| {
        let accepted = status?.conditions.iter().find(|condition| condition.type_ == "Accepted")?;
        (accepted.status == crate::api::ConditionStatus::False).then(|| accepted.reason.clone())
    };
    let came = |state| wanted.state == Some(state) && before.and_then(|status| status.state) != Some(state);
    let reason = if reason_of(Some(wanted)).is_some_and(|reason| reason_of(before) != Some(reason)) {
        EventReason::Refused
    } else if came(State::Failed) {
        EventReason::Failed
    } else if came(State::Cancelled) && task.spec.cancel != Some(true) {
        EventReason::Cancelled
    } else {
        return;
    };
    shared.context.events.publish(Kind::Task, task, reason, note);
}

/// Only where somebody waits for the database: what has settled stays as it is.
async fn say_database_away(shared: &Shared, task: &IngestTask) -> Result<(), Fault> {
    let observed = task.status.as_ref().and_then(|status| status.observed_generation);
    let is_waiting = observed != task.metadata.generation;
    // A finalizer waits no longer than it says, whatever the database does; the janitor does the rest.
    let is_over = plan::stop_limit(task).is_some_and(|limit| chrono::Utc::now() >= limit);
    if is_over && plan::has_finalizer(task) {
        settle_fate(shared, task, plan::Fate::RemoveFinalizer).await?;
        return Ok(());
    }
    if is_waiting {
        let wanted = status::without_database(task.status.as_ref(), task.metadata.generation, created_at(task));
        write(shared, task, &wanted).await?;
    }
    Ok(())
}

fn created_at(task: &IngestTask) -> Time {
    let seconds = task.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
    Time::from(chrono::DateTime::from_timestamp(seconds, 0).unwrap_or(chrono::DateTime::UNIX_EPOCH))
}
