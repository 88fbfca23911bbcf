//! Cancels at every moment of a task's life: it ends as cancelled or completed, as whoever was first says, and nothing
//! that a cancelled attempt wrote is ever seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use sluice::domain::delivery::WakeMode;
use sluice::domain::task::{State, TaskType};
use sluice::store::Role;
use sluice::store::control::CancelOutcome;
use sluice::store::reads::wake;
use sluice::worker::{Context, Done, Handled, Handlers, WorkerSettings};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::bed::{Bed, POOL, effects, insert};
use crate::common::proxy::{Mode, Proxy};
use crate::dice::Dice;
use crate::in_process::{Running, settings};
use crate::until::until;

const CANCELS: usize = 500;
/// As many at once, so that some wait for a slot.
const WAVE: usize = 50;
const SLOTS: u32 = 16;
/// What a handler takes before it writes, and after it.
const WORK: Duration = Duration::from_millis(30);
const PUBLISH: Duration = Duration::from_millis(8);
/// No lease of these tests is to end a task.
const LONG_LEASE: Duration = Duration::from_secs(60);

/// When the cancel is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Moment {
    /// With the enqueueing, when nobody was woken.
    BeforeClaim,
    /// Within a few milliseconds of the wake: before the claim, or between it and the start.
    AroundClaim,
    Running,
    /// The handler has written, and its transaction is open, being completed or committed.
    Publishing,
    AfterEnd,
}

const MOMENTS: [Moment; 5] =
    [Moment::BeforeClaim, Moment::AroundClaim, Moment::Running, Moment::Publishing, Moment::AfterEnd];

/// What the handler does.
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize)]
struct Script {
    /// In a transaction of its own that is published; if not, the worker completes the task as it likes.
    writes: bool,
    /// Goes on until its token fires.
    endless: bool,
}

#[derive(Clone, Copy)]
struct Plan {
    script: Script,
    moment: Moment,
    /// After the moment has come.
    delay: Duration,
}

impl Plan {
    fn draw(dice: &mut Dice) -> Self {
        let moment = *dice.pick(&MOMENTS);
        let writes = moment == Moment::Publishing || dice.roll(2) == 0;
        let endless = moment == Moment::Running && dice.roll(4) == 0;
        let delay = match moment {
            Moment::BeforeClaim | Moment::AfterEnd => Duration::ZERO,
            Moment::AroundClaim => dice.moment(Duration::from_millis(8)),
            Moment::Running => dice.moment(WORK),
            Moment::Publishing => dice.moment(2 * PUBLISH),
        };
        Self { script: Script { writes, endless }, moment, delay }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Point {
    Started,
    Written,
}

/// Where each handler has come to.
#[derive(Clone, Default)]
struct Points(Arc<Mutex<Reached>>);

type Reached = HashMap<(Uuid, Point), Arc<Notify>>;

impl Points {
    fn of(&self, track_id: Uuid, point: Point) -> Arc<Notify> {
        self.0.lock().expect("no panic holds it").entry((track_id, point)).or_default().clone()
    }
}

fn handlers(points: &Points) -> Handlers {
    let points = points.clone();
    Handlers::new().on(TaskType::Insert, move |context: Context| {
        let points = points.clone();
        async move { perform(&points, &context).await }
    })
}

async fn perform(points: &Points, context: &Context) -> Handled {
    let script: Script = context.payload()?;
    let attempt = context.task.attempt;
    points.of(attempt.track_id, Point::Started).notify_one();
    if script.endless {
        context.cancellation().cancelled().await;
    }
    context.unless_stopped(tokio::time::sleep(WORK)).await?;
    if !script.writes {
        return Ok(Done::new());
    }
    let mut transaction = context.begin().await?;
    let effect = sqlx::query("insert into sluice_test_effects (track_id, attempt) values ($1, $2)");
    transaction.execute(effect.bind(attempt.track_id).bind(attempt.number)).await?;
    points.of(attempt.track_id, Point::Written).notify_one();
    // Its token is none of this handler's concern any more: the database decides.
    tokio::time::sleep(PUBLISH).await;
    Ok(Done::new().publish(transaction))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_cancels_at_random_moments_end_as_whoever_was_first_says() {
    let bed = cancel_bed().await;
    let points = Points::default();
    let worker = Running::start(listening(&bed, bed.db.url(Role::Worker)), handlers(&points));
    until_listening(&bed).await;
    cancel_at_random_moments(&bed, &points, 1).await;
    worker.stop().await;
}

/// The session is there and looks well, and nothing that is said in it arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_cancels_that_nobody_hears_of_end_as_whoever_was_first_says() {
    let bed = cancel_bed().await;
    let points = Points::default();
    let proxy = Proxy::start(&bed.db.url(Role::Worker));
    let worker = Running::start(listening(&bed, proxy.url()), handlers(&points));
    until_listening(&bed).await;
    proxy.set(Mode::BlackHole);
    cancel_at_random_moments(&bed, &points, 2).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_cancels_while_listeners_are_killed_all_the_time_end_as_whoever_was_first_says() {
    let bed = cancel_bed().await;
    let points = Points::default();
    let worker = Running::start(listening(&bed, bed.db.url(Role::Worker)), handlers(&points));
    until_listening(&bed).await;
    let enough = CancellationToken::new();
    let (killed, ()) = tokio::join!(kill_listeners(&bed, &enough), async {
        cancel_at_random_moments(&bed, &points, 3).await;
        enough.cancel();
    });
    assert!(killed > 5, "{killed} listeners were killed");
    worker.stop().await;
}

async fn cancel_bed() -> Bed {
    Bed::new(LONG_LEASE).await
}

fn listening(bed: &Bed, listen_url: String) -> WorkerSettings {
    let listen_database = listen_url.parse().expect("a URL");
    WorkerSettings { wake_mode: WakeMode::Bridged, listen_database, ..settings(bed, SLOTS) }
}

async fn until_listening(bed: &Bed) {
    until("the worker listens", async || bed.number(LISTENERS).await > 0).await;
}

const LISTENERS: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'";

async fn kill_listeners(bed: &Bed, enough: &CancellationToken) -> i64 {
    const KILL: &str = "
        select count(pg_terminate_backend(pid)) from pg_stat_activity
         where datname = current_database() and query ilike 'listen%'";
    let mut killed = 0;
    while !enough.is_cancelled() {
        killed += bed.number(KILL).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    killed
}

async fn cancel_at_random_moments(bed: &Bed, points: &Points, seed: u64) {
    let mut dice = Dice::new(seed);
    let mut seen = HashMap::new();
    for _ in 0..CANCELS / WAVE {
        let plans: Vec<_> = (0..WAVE).map(|_| Plan::draw(&mut dice)).collect();
        cancel_wave(bed, points, &plans, &mut seen).await;
    }
    println!("{seen:?}");
    for expected in [
        (Moment::BeforeClaim, State::Cancelled),
        (Moment::AroundClaim, State::Cancelled),
        (Moment::Running, State::Cancelled),
        (Moment::Publishing, State::Cancelled),
        (Moment::AfterEnd, State::Completed),
    ] {
        assert!(seen.contains_key(&expected), "{expected:?} never came");
    }
}

async fn cancel_wave(bed: &Bed, points: &Points, plans: &[Plan], seen: &mut HashMap<(Moment, State), usize>) {
    let tasks: Vec<_> = plans.iter().map(|plan| insert(json!(plan.script))).collect();
    let ids = bed.enqueue_many(&tasks).await;
    let woken = CancellationToken::new();
    let cancels = ids.iter().zip(plans).map(|(id, plan)| cancel_one(bed, points, &woken, *id, *plan));
    let (outcomes, ()) = tokio::join!(join_all(cancels), async {
        // What is to be cancelled before the claim has been, or soon will be.
        wake(&bed.operator, POOL).await.expect("a wake");
        woken.cancel();
    });
    let ended = bed.until_ended(&ids).await;
    let effects = effects(bed).await;
    for (id, plan, outcome) in outcomes {
        let task = &ended[&id];
        let expected = match outcome {
            CancelOutcome::Cancelled | CancelOutcome::Stopping => State::Cancelled,
            CancelOutcome::ConflictCompleted => State::Completed,
            other => panic!("a cancel of {id} {:?} answered {other}", plan.moment),
        };
        assert_eq!((task.state, task.failures, task.lost_leases), (expected, 0, 0), "{:?}: {task:?}", plan.moment);
        let published = expected == State::Completed && plan.script.writes;
        let expected_effects: &[i32] = if published { &[task.attempt] } else { &[] };
        let found = effects.get(&id).map_or(&[][..], Vec::as_slice);
        assert_eq!(found, expected_effects, "{:?}, {outcome}: {task:?}", plan.moment);
        *seen.entry((plan.moment, expected)).or_default() += 1;
    }
}

async fn cancel_one(
    bed: &Bed,
    points: &Points,
    woken: &CancellationToken,
    id: Uuid,
    plan: Plan,
) -> (Uuid, Plan, CancelOutcome) {
    match plan.moment {
        Moment::BeforeClaim => {}
        Moment::AroundClaim => woken.cancelled().await,
        Moment::Running => points.of(id, Point::Started).notified().await,
        Moment::Publishing => points.of(id, Point::Written).notified().await,
        Moment::AfterEnd => until("the task ends", async || bed.state(id).await.is_terminal()).await,
    }
    tokio::time::sleep(plan.delay).await;
    (id, plan, bed.cancel(id).await)
}
