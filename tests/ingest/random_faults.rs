//! Faults at random over two workers with documents in every stage: each document ends right without anyone's help, published
//! exactly once, and no late attempt changes a row.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use private_postgres::Options;
use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::enqueue::NewTask;
use tokio::time::Instant;
use uuid::Uuid;

use crate::bed::{Bed, Process, TENANT, book, task, upload};
use crate::common::pdf::pdf;
use crate::dice::Dice;
use crate::folder::Folder;
use crate::full_disk::FullDisk;

const FAULTS: usize = 6;
const SOAK_FAULTS: usize = 200;
/// Documents under way, so that every fault meets some.
const BACKLOG: i64 = 12;
const CHUNKS: usize = 60;
const PAGES: usize = 300;
/// Of the bed's pool; what lasts, lasts for three.
const LEASE: Duration = Duration::from_secs(2);
/// While tasks end, how long it takes is the machine's affair; nothing that heals takes so long.
const STANDSTILL: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_come_through_random_faults_and_are_published_once() {
    faults(FAULTS, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make soak"]
async fn documents_come_through_two_hundred_random_faults_and_are_published_once() {
    faults(SOAK_FAULTS, u64::from(std::process::id())).await;
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGSTOP for three leases.
    Freeze,
    /// SIGKILL, and another one in its place.
    Kill,
    /// What the kernel does to a converter when memory is at an end.
    KillConverter,
    /// The tables of the pipeline cannot grow, for a lease.
    FillDisk,
    Restart,
    Crash,
}

/// A short run takes each once.
const KINDS: [Fault; 6] =
    [Fault::Freeze, Fault::KillConverter, Fault::FillDisk, Fault::Kill, Fault::Restart, Fault::Crash];

struct Turmoil {
    bed: Bed,
    folder: Folder,
    disk: Option<FullDisk>,
    workers: Vec<Process>,
    /// When the fault that a worker, or the disk, has is over.
    frozen_until: Option<(usize, Instant)>,
    full_until: Option<Instant>,
    dice: Dice,
    roots: Vec<Uuid>,
}

async fn faults(number: usize, seed: u64) {
    let folder = Folder::new();
    let words: Vec<_> = (0..PAGES).map(|page| format!("In Bern, Ada{page} met Grace.")).collect();
    fs::write(folder.path("long.pdf"), pdf(&words)).expect("a file");
    let mut bed = Bed::private(Options::fast()).await;
    bed.sources.file_root = Some(folder.0.clone());
    let disk = FullDisk::under(&mut bed, &["artifacts", "chunks", "embeddings", "provenance"]).await;
    let workers = vec![bed.work_in_process(), bed.work_in_process()];
    let dice = Dice::new(seed);
    let mut turmoil =
        Turmoil { bed, folder, disk, workers, frozen_until: None, full_until: None, dice, roots: Vec::new() };
    for n in 0..number {
        turmoil.keep_backlog().await;
        let pause = turmoil.dice.moment(Duration::from_millis(600));
        tokio::time::sleep(pause).await;
        let fault = KINDS.get(n).copied().unwrap_or_else(|| *turmoil.dice.pick(&KINDS));
        println!("fault {n}: {fault:?}");
        turmoil.strike(fault).await;
        turmoil.mend(Instant::now());
        turmoil.keep_running();
    }
    turmoil.settle().await;
}

impl Turmoil {
    async fn keep_backlog(&mut self) {
        let live = self.bed.number("select count(*) from sluice.tasks").await;
        let url = format!("file://{}/long.pdf", self.folder.0.display());
        for _ in live..BACKLOG {
            let work = match self.dice.roll(2) {
                0 => upload(TENANT, &book(CHUNKS)),
                _ => task(TaskType::PdfProcessing, TENANT, json!({ "url": url })),
            };
            // A converter may be killed more often than a document is tried by default.
            let root = NewTask { document_id: Some(Uuid::new_v4()), max_attempts: Some(100), ..work };
            self.roots.push(self.bed.enqueue(root).await);
        }
    }

    async fn strike(&mut self, fault: Fault) {
        let place = usize::try_from(self.dice.roll(self.workers.len() as u64)).expect("few");
        match fault {
            Fault::Freeze if self.frozen_until.is_none() => {
                self.workers[place].signal(Signal::SIGSTOP);
                self.frozen_until = Some((place, Instant::now() + 3 * LEASE));
            }
            Fault::Kill => {
                self.workers[place].kill();
                self.workers[place] = self.bed.work_in_process();
                self.frozen_until = self.frozen_until.filter(|(frozen, _)| *frozen != place);
            }
            Fault::KillConverter => self.workers[place].kill_a_child(),
            Fault::FillDisk => {
                if let Some(disk) = &self.disk {
                    disk.fill();
                    self.full_until = Some(Instant::now() + LEASE);
                }
            }
            Fault::Restart => tokio::task::block_in_place(|| self.bed.db.server().restart().expect("a restart")),
            Fault::Crash => tokio::task::block_in_place(|| {
                self.bed.db.server().kill().expect("a crash");
                self.bed.db.server().start_again().expect("a recovery");
            }),
            // One is frozen: the other one goes on.
            Fault::Freeze => {}
        }
    }

    fn mend(&mut self, now: Instant) {
        if let Some((place, until)) = self.frozen_until
            && until <= now
        {
            self.workers[place].signal(Signal::SIGCONT);
            self.frozen_until = None;
        }
        if self.full_until.is_some_and(|until| until <= now) {
            self.full_until = None;
            self.disk.iter().for_each(FullDisk::make_room);
        }
    }

    /// What a supervisor does: a worker that met a fault before it served ended with a sentence.
    fn keep_running(&mut self) {
        for worker in &mut self.workers {
            if !worker.is_running() {
                *worker = self.bed.work_in_process();
            }
        }
    }

    async fn settle(&mut self) {
        let (mut left, mut since) = (i64::MAX, Instant::now());
        while left > 0 {
            self.mend(Instant::now());
            self.keep_running();
            let now = self.bed.number("select count(*) from sluice.tasks").await;
            if now != left {
                (left, since) = (now, Instant::now());
            }
            assert!(since.elapsed() < STANDSTILL, "{left} tasks are left, and none has ended for {STANDSTILL:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if let Some((_, until)) = self.frozen_until {
            tokio::time::sleep_until(until).await;
            self.mend(until);
        }
        // Time enough for what a thawed worker still has to say.
        tokio::time::sleep(LEASE).await;
        let mut lost = 0;
        for root in &self.roots {
            lost += usize::from(!self.is_published_once(*root).await);
        }
        let log = self.bed.db.server().directory().join("postgres.log");
        let refused = fs::read_to_string(log).expect("the server's log").matches("No space left on device").count();
        println!("{} documents, {lost} of which lost five workers; {refused} writes to a full disk", self.roots.len());
        assert!(lost * 10 <= self.roots.len(), "{lost} of {} documents lost five workers", self.roots.len());
        self.bed.assert_graph_is_whole().await;
    }

    /// `false`: a task of it has lost five workers, and has ended for that.
    async fn is_published_once(&self, root: Uuid) -> bool {
        let first = self.bed.task(root).await;
        let insert = if first.state == State::Completed { Some(self.bed.follow_on(root).await) } else { None };
        for task in [Some(&first), insert.as_ref()].into_iter().flatten() {
            let is_lost = task.failure_class == Some(FailureClass::WorkerLost) && task.lost_leases >= 5;
            if is_lost {
                return false;
            }
            let told = (task.task_type, &task.failure_class, &task.error, task.attempt);
            assert_eq!(task.state, State::Completed, "{told:?}");
        }
        let insert = insert.expect("the first is completed");
        let document = insert.document.expect("a document").document_id;
        let whole = format!(
            "select count(*) from ingest.document_versions v
              where v.document_id = '{document}' and v.track_id = '{}' and v.attempt = {}
                and v.chunks = (select count(*) from ingest.chunks c where c.document_id = v.document_id)
                and v.chunks = (select count(*) from ingest.embeddings e where e.version_id = v.version_id)
                and 1 = (select count(*) from ingest.contents c where c.document_id = v.document_id)",
            insert.track_id, insert.attempt
        );
        assert_eq!(self.bed.number(&whole).await, 1, "{document}");
        true
    }
}
