//! Faults at random over eight workers: whatever comes, every task ends right, no late attempt changes a row, and no cap
//! is broken. The write-ahead log is the witness.

use std::collections::HashSet;
use std::time::Duration;

use nix::sys::signal::Signal;
use private_postgres::Options;
use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::State;
use sluice::store::Role;
use sluice::store::control::CancelOutcome;
use sluice::store::enqueue::NewTask;
use sqlx::{Connection, PgConnection};
use tokio::time::Instant;
use uuid::Uuid;

use crate::bed::{Bed, effects, insert};
use crate::common::proxy::{Mode, Proxy};
use crate::common::wal::Witness;
use crate::dice::Dice;
use crate::process::{Process, Settings};
use crate::until::{until, until_within};

const WORKERS: usize = 8;
const TENANTS: u64 = 6;
const FAULTS: usize = 14;
const SOAK_FAULTS: usize = 200;
/// Tasks that wait or run, so that every fault meets some.
const BACKLOG: i64 = 60;
/// Long enough that a busy machine renews in time; the faults last for three.
const LEASE: Duration = Duration::from_secs(2);
/// While tasks end, how long it takes is the machine's affair; nothing that heals takes so long.
const STANDSTILL: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_over_eight_workers_lose_no_task_and_break_no_cap() {
    faults(FAULTS, 7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make soak"]
async fn two_hundred_random_faults_over_eight_workers_lose_no_task_and_break_no_cap() {
    faults(SOAK_FAULTS, u64::from(std::process::id())).await;
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL, and another one in its place.
    Kill,
    /// SIGSTOP for three leases.
    Freeze,
    /// SIGTERM, and another one in its place.
    Terminate,
    Cut,
    Delay,
    BlackHole,
    Refuse,
    /// The server ends sessions of workers.
    EndSessions,
    FillConnections,
    Restart,
    Crash,
}

/// The quick ones first: a short run takes each of them once, and the rest at random.
const KINDS: [Fault; 11] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::Terminate,
    Fault::Cut,
    Fault::Delay,
    Fault::BlackHole,
    Fault::Refuse,
    Fault::EndSessions,
    Fault::FillConnections,
    Fault::Restart,
    Fault::Crash,
];

/// A worker behind a network of its own.
struct Station {
    proxy: Proxy,
    settings: Settings,
    process: Process,
    /// When the fault that it has is over.
    until: Option<Instant>,
}

impl Station {
    fn new(bed: &Bed) -> Self {
        let proxy = Proxy::start(&bed.db.url(Role::Worker));
        let settings = Process::settings(bed, 4).set("DATABASE_URL", proxy.url()).set("SLUICE_DRAIN_SECS", 1);
        let process = Process::start(&settings);
        Self { proxy, settings, process, until: None }
    }

    fn mend(&mut self) {
        self.until = None;
        self.proxy.set(Mode::Pass);
        self.process.signal(Signal::SIGCONT);
    }

    /// What a supervisor does: a worker that met a fault before it served ended with a sentence, and is started again.
    fn keep_running(&mut self) {
        if !self.process.is_running() {
            assert!(!self.is_serving(), "it gave up while it served:\n{}", self.process.log());
            self.process = Process::start(&self.settings);
        }
    }

    fn is_serving(&self) -> bool {
        self.process.log().contains("serving")
    }

    /// A worker that serves is told to end, and does so well.
    async fn terminate(&mut self) {
        self.mend();
        until_within(STANDSTILL, "the worker serves", async || {
            self.keep_running();
            self.is_serving()
        })
        .await;
        self.process.signal(Signal::SIGTERM);
        assert_eq!(self.process.end().await.code(), Some(0), "{}", self.process.log());
    }
}

struct Turmoil {
    bed: Bed,
    stations: Vec<Station>,
    dice: Dice,
    enqueued: Vec<Uuid>,
    /// What a cancel was accepted of.
    cancelled: HashSet<Uuid>,
}

async fn faults(number: usize, seed: u64) {
    let bed = Bed::private(LEASE, Options::fast().setting("max_connections", "140")).await;
    let Some(mut witness) = Witness::new(bed.db.admin(), "random faults over eight workers").await else { return };
    for tenant in 0..TENANTS {
        bed.set_cap(&tenant_name(tenant), 2 + u32::try_from(tenant).expect("small")).await;
    }
    let stations = (0..WORKERS).map(|_| Station::new(&bed)).collect();
    let mut turmoil = Turmoil { bed, stations, dice: Dice::new(seed), enqueued: Vec::new(), cancelled: HashSet::new() };

    for n in 0..number {
        turmoil.keep_backlog().await;
        let fault = KINDS.get(n).copied().unwrap_or_else(|| *turmoil.dice.pick(&KINDS));
        println!("fault {n}: {fault:?}");
        turmoil.strike(fault).await;
        turmoil.cancel_some().await;
        turmoil.mend_what_is_over();
        turmoil.stations.iter_mut().for_each(Station::keep_running);
        witness.read().await;
        let pause = turmoil.dice.moment(Duration::from_millis(400));
        tokio::time::sleep(pause).await;
    }
    turmoil.stations.iter_mut().for_each(Station::mend);
    turmoil.settle().await;
    let replay = witness.finish().await;
    println!(
        "{} tasks, {} attempts, {} claims that filled their lane, {} cancelled",
        replay.enqueued,
        replay.attempts(),
        replay.filled,
        turmoil.cancelled.len()
    );
    assert!(replay.filled > 0, "a run that puts the caps to the test");
}

fn tenant_name(number: u64) -> String {
    format!("tenant-{number}")
}

impl Turmoil {
    async fn keep_backlog(&mut self) {
        let live = self.bed.number("select count(*) from sluice.tasks").await;
        if live >= BACKLOG {
            return;
        }
        let tasks: Vec<_> = (0..BACKLOG)
            .map(|_| NewTask {
                tenant: tenant_name(self.dice.roll(TENANTS)),
                ..insert(
                    json!({ "handler": "count", "before_ms": self.dice.roll(400), "inside_ms": self.dice.roll(60) }),
                )
            })
            .collect();
        self.enqueued.extend(self.bed.enqueue_many(&tasks).await);
    }

    async fn strike(&mut self, fault: Fault) {
        let place = usize::try_from(self.dice.roll(WORKERS as u64)).expect("small");
        let station = &mut self.stations[place];
        let over = Instant::now() + 3 * LEASE;
        match fault {
            Fault::Kill => {
                station.process.signal(Signal::SIGKILL);
                station.process = Process::start(&station.settings);
            }
            Fault::Terminate => {
                station.terminate().await;
                station.process = Process::start(&station.settings);
            }
            Fault::Freeze => {
                station.process.signal(Signal::SIGSTOP);
                station.until = Some(over);
            }
            Fault::Cut => station.proxy.cut(),
            Fault::Delay => {
                station.proxy.set(Mode::Delay(Duration::from_millis(20 + self.dice.roll(200))));
                station.until = Some(over);
            }
            Fault::BlackHole => {
                station.proxy.set(Mode::BlackHole);
                station.until = Some(over);
            }
            Fault::Refuse => {
                station.proxy.set(Mode::Refuse);
                station.proxy.cut();
                station.until = Some(over);
            }
            Fault::EndSessions => self.end_sessions().await,
            Fault::FillConnections => self.fill_connections().await,
            Fault::Restart => tokio::task::block_in_place(|| self.bed.db.server().restart().expect("a restart")),
            Fault::Crash => tokio::task::block_in_place(|| {
                self.bed.db.server().kill().expect("a crash");
                self.bed.db.server().start_again().expect("a recovery");
            }),
        }
    }

    async fn end_sessions(&self) {
        const KILL: &str = "
            select count(pg_terminate_backend(pid)) from (
              select pid from pg_stat_activity where application_name like 'sluice worker%' order by random() limit 10) s";
        self.bed.number(KILL).await;
    }

    /// For a second; what the workers have is theirs, and some of it is taken from them.
    async fn fill_connections(&self) {
        let url = self.bed.db.url(Role::Reader);
        let mut others = Vec::new();
        for _ in 0..2 {
            while let Ok(connection) = PgConnection::connect(&url).await {
                others.push(connection);
            }
            self.end_sessions().await;
        }
        tokio::time::sleep(LEASE).await;
        for connection in others {
            // Its session may have ended.
            let _ = connection.close().await;
        }
        const LEFT: &str = "select count(*) from pg_stat_activity where application_name not like 'sluice worker%'";
        until("there is room for us again", async || self.bed.number(LEFT).await < 40).await;
    }

    /// Some that wait, some that run.
    async fn cancel_some(&mut self) {
        const LIVE: &str = "select track_id from sluice.tasks order by random() limit 4";
        let live: Vec<Uuid> = sqlx::query_scalar(LIVE).fetch_all(self.bed.db.admin()).await.expect("live tasks");
        for id in live {
            match self.bed.cancel(id).await {
                CancelOutcome::Cancelled | CancelOutcome::Stopping | CancelOutcome::Unchanged => {
                    self.cancelled.insert(id);
                }
                CancelOutcome::ConflictCompleted => {}
                other => panic!("a cancel of {id} answered {other}"),
            }
        }
    }

    fn mend_what_is_over(&mut self) {
        let now = Instant::now();
        for station in self.stations.iter_mut().filter(|station| station.until.is_some_and(|until| until < now)) {
            station.mend();
        }
    }

    async fn until_all_have_ended(&mut self) {
        let (mut left, mut since) = (i64::MAX, Instant::now());
        loop {
            let now = self.bed.number("select count(*) from sluice.tasks").await;
            if now == 0 {
                return;
            }
            if now < left {
                (left, since) = (now, Instant::now());
            }
            assert!(
                since.elapsed() < STANDSTILL,
                "no task has ended for {STANDSTILL:?}:\n{}",
                self.what_is_left().await
            );
            self.stations.iter_mut().for_each(Station::keep_running);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// For whoever has to find out why.
    async fn what_is_left(&self) -> String {
        const LEFT: &str = "
            select coalesce(string_agg(line, E'\\n'), 'nothing') from (
              (select concat_ws(' ', t.track_id, t.state, 'ready', t.ready, 'lane', t.lane_id, 'attempt', t.attempt, 'lost', t.lost_leases,
                                'lease', t.lease_until, 'due', t.available_at, 'worker', t.worker_id) as line from sluice.tasks t limit 20)
              union all
              select concat_ws(' ', 'lane', l.lane_id, 'cap', l.cap, 'full', l.is_full, 'empty', l.is_empty, 'held', l.is_held,
                               'served', l.served, 'oldest', l.oldest) from sluice.lane_turns l
              union all
              select concat_ws(' ', 'session', a.pid, a.state, a.wait_event, now() - a.state_change, left(a.query, 80))
                from pg_stat_activity a where a.datname = current_database() and a.state <> 'idle') s";
        sqlx::query_scalar(LEFT).fetch_one(self.bed.db.admin()).await.expect("what is left")
    }

    /// Everything ends, and as it should.
    async fn settle(&mut self) {
        self.until_all_have_ended().await;
        for station in &mut self.stations {
            station.terminate().await;
        }
        let effects = effects(&self.bed).await;
        let mut lost = 0;
        for ids in self.enqueued.chunks(1_000) {
            let tasks = self.bed.tasks(ids).await;
            for id in ids {
                let task = &tasks[id];
                let expected = match task.failure_class {
                    // Whoever loses five workers ends for it.
                    Some(FailureClass::WorkerLost) if task.lost_leases >= 5 => State::Failed,
                    _ if self.cancelled.contains(id) => State::Cancelled,
                    _ => State::Completed,
                };
                assert_eq!((task.state, task.failures), (expected, 0), "{task:?}");
                lost += usize::from(expected == State::Failed);
                let published: &[i32] = if expected == State::Completed { &[task.attempt] } else { &[] };
                assert_eq!(effects.get(id).map_or(&[][..], Vec::as_slice), published, "{task:?}");
            }
        }
        assert!(lost * 10 <= self.enqueued.len(), "{lost} of {} tasks lost five workers each", self.enqueued.len());
    }
}
