//! A database with short leases, a worker with the real handlers, and what they published.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_postgres::Options;
use serde_json::{Value, json};
use sluice::domain::delivery::WakeMode;
use sluice::domain::lane::{Cap, Class};
use sluice::domain::task::{State, TaskType};
use sluice::ingest::{ConvertSettings, SourceSettings};
use sluice::store::enqueue::{Enqueued, NewTask, enqueue};
use sluice::store::lanes::{LaneSettings, Setting, WorkerPoolSettings, set_lane, set_pool};
use sluice::store::status::{TaskStatus, task_statuses};
use sluice::store::{Database, Role};
use sluice::worker::{Ended, Pace, Shutdown, WorkerError, WorkerSettings, run};
use sqlx::{AssertSqlSafe, Row};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::common::postgres::TestDb;

pub const TENANT: &str = "acme";
pub const WORKSPACE: &str = "library";
/// Long enough for a loaded machine; a condition that will come has come long before.
const DEADLINE: Duration = Duration::from_secs(60);
/// A tenth of the usual one, so that tests need not wait.
const PACE: Duration = Duration::from_millis(200);
const SLOTS: u32 = 4;

pub struct Bed {
    pub db: TestDb,
    pub operator: Database,
    /// What its workers may read.
    pub sources: SourceSettings,
    pub convert: ConvertSettings,
}

/// Of a worker in the test's own process; given back when it is dropped.
pub struct Running {
    shutdown: Shutdown,
    ended: JoinHandle<Result<Ended, WorkerError>>,
}

impl Running {
    /// What it still runs is given back first.
    pub async fn stop(self) {
        self.shutdown.give_back();
        self.ended.await.expect("it does not panic").expect("it ends well");
    }
}

/// A real `sluice worker`, killed with this value.
pub struct Process(Child);

impl Process {
    /// SIGKILL: it can say nothing any more.
    pub fn kill(&mut self) {
        self.0.kill().expect("a child that was not waited for");
        self.0.wait().expect("it has ended");
    }
}

impl Process {
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).expect("a child that was not waited for has its pid");
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("a child can be waited for").is_none()
    }

    /// Programs that it has started and that still run, by name.
    pub fn children(&self) -> Vec<String> {
        self.live_children().into_iter().map(|(_, name)| name).collect()
    }

    /// One of them, if there is one; SIGKILL.
    pub fn kill_a_child(&self) {
        if let Some((pid, _)) = self.live_children().first() {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }

    fn live_children(&self) -> Vec<(i32, String)> {
        let entries = std::fs::read_dir("/proc").expect("a Linux");
        let stats = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        stats.filter_map(|stat| child_of(&stat, self.0.id())).collect()
    }
}

/// Pid and name of a live process of this parent, by its line of proc(5).
fn child_of(stat: &str, parent: u32) -> Option<(i32, String)> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let is_live = fields.next() != Some("Z");
    let is_its_child = is_live && fields.next()?.parse() == Ok(parent);
    Some((pid.parse().ok()?, name.to_owned())).filter(|_| is_its_child)
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Bed {
    /// Its pool has short leases and no caps.
    pub async fn new() -> Self {
        Self::on(TestDb::new().await).await
    }

    /// On a server of its own, to be stopped.
    pub async fn private(options: Options) -> Self {
        Self::on(TestDb::private(options).await).await
    }

    async fn on(db: TestDb) -> Self {
        let operator = db.operator();
        let settings = WorkerPoolSettings {
            ingest_cap: Some(Cap::NONE),
            lifecycle_cap: Some(Cap::NONE),
            lease_secs: Some(2),
            ..WorkerPoolSettings::default()
        };
        set_pool(&operator, "default", settings, None).await.expect("the pool's settings");
        let convert = ConvertSettings { program: converter(), memory_mib: 1_024 };
        Self { db, operator, sources: SourceSettings::default(), convert }
    }

    pub fn work(&self) -> Running {
        let url = self.db.url(Role::Worker).parse().expect("a URL");
        let pace = Pace { poll: PACE, watch: PACE, upkeep: PACE, ..Pace::default() };
        let settings = WorkerSettings { wake_mode: WakeMode::Local, pace, ..WorkerSettings::new(url, SLOTS) };
        let shutdown = Shutdown::new();
        let handlers = sluice::ingest::handlers(self.sources.clone(), self.convert.clone(), None).expect("handlers");
        let ended = tokio::spawn(run(settings, handlers, shutdown.clone()));
        Running { shutdown, ended }
    }

    pub fn work_in_process(&self) -> Process {
        self.work_with(&[])
    }

    /// With more of its environment.
    pub fn work_with(&self, environment: &[(&str, &str)]) -> Process {
        self.work_saying(environment, Stdio::inherit())
    }

    /// And with its log in a place of its own.
    pub fn work_saying(&self, environment: &[(&str, &str)], log: Stdio) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.arg("worker").env_clear().env("DATABASE_URL", self.db.url(Role::Worker));
        command.env("WORKER_THREADS", SLOTS.to_string()).env("SLUICE_LOG", "warn");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.envs(environment.iter().copied());
        let networks: Vec<_> = self.sources.allowed_networks.iter().map(ToString::to_string).collect();
        command.env("SLUICE_ALLOWED_NETWORKS", networks.join(","));
        command.envs(self.sources.file_root.iter().map(|root| ("SLUICE_FILE_ROOT", root)));
        Process(command.spawn().expect("the binary was built for this test"))
    }

    /// What the tenant's lane lets its tasks read.
    pub async fn allow(&self, sources: &[&str]) {
        let sources = sources.iter().map(|source| (*source).to_owned()).collect();
        let settings = LaneSettings { allowed_sources: Setting::To(sources), ..LaneSettings::default() };
        set_lane(&self.operator, TENANT, Class::Ingest, &settings, None).await.expect("the lane");
    }

    pub async fn enqueue(&self, task: NewTask) -> Uuid {
        match enqueue(&self.operator, &task).await.expect("an answer") {
            Enqueued::Created { track_id } => track_id,
            other => panic!("{other:?}"),
        }
    }

    pub async fn task(&self, id: Uuid) -> TaskStatus {
        task_statuses(&self.operator, &[id]).await.expect("an answer").pop().expect("a task")
    }

    pub async fn until_ended(&self, id: Uuid) -> TaskStatus {
        self.until("the task ends", async || self.task(id).await.state.is_terminal()).await;
        self.task(id).await
    }

    /// Enqueues it, and waits for its end.
    pub async fn done(&self, task: NewTask) -> TaskStatus {
        let id = self.enqueue(task).await;
        self.until_ended(id).await
    }

    /// The insert that follows an upload, at its end.
    pub async fn follow_on(&self, upload: Uuid) -> TaskStatus {
        let sql = format!("select count(*) from sluice.task_status where parent_id = '{upload}'");
        self.until("the follow-on is there", async || self.number(&sql).await == 1).await;
        let sql = format!("select track_id from sluice.task_status where parent_id = '{upload}'");
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(self.db.admin()).await.expect("a follow-on");
        self.until_ended(row.get(0)).await
    }

    /// Uploads a text, waits until it is published, and answers its document.
    pub async fn published(&self, tenant: &str, text: &str) -> Uuid {
        let uploaded = self.done(upload(tenant, text)).await;
        assert_eq!(uploaded.state, State::Completed, "{:?}", uploaded.error);
        let inserted = self.follow_on(uploaded.track_id).await;
        assert_eq!(inserted.state, State::Completed, "{:?}", inserted.error);
        inserted.document.expect("a document").document_id
    }

    /// As a superuser, one number.
    pub async fn number(&self, sql: &str) -> i64 {
        sqlx::query(AssertSqlSafe(sql)).fetch_one(self.db.admin()).await.expect(sql).get(0)
    }

    /// As a superuser, one column of text, sorted.
    pub async fn texts(&self, sql: &str) -> BTreeSet<String> {
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(self.db.admin()).await.expect(sql);
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// As a superuser.
    pub async fn arrange(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self.db.admin()).await.expect(sql);
    }

    /// Rows of a table of schema `ingest` that belong to a tenant.
    pub async fn rows_of(&self, table: &str, tenant: &str) -> i64 {
        self.number(&format!("select count(*) from ingest.{table} where tenant = '{tenant}'")).await
    }

    /// Everything of the graph has its support, and everything supported is there.
    pub async fn assert_graph_is_whole(&self) {
        let wrong = self
            .texts(
                "select 'entity without support: ' || e.name from ingest.entities e
                  where not exists (select from ingest.provenance p where p.item_id = e.entity_id)
                 union select 'relation without support' from ingest.relations r
                  where not exists (select from ingest.provenance p where p.item_id = r.relation_id)
                 union select 'relation without an end' from ingest.relations r
                  where not exists (select from ingest.entities e where e.entity_id = r.source_id and e.tenant = r.tenant)
                     or not exists (select from ingest.entities e where e.entity_id = r.target_id and e.tenant = r.tenant)
                 union select 'support of nothing' from ingest.provenance p
                  where not exists (select from ingest.entities e where e.entity_id = p.item_id)
                    and not exists (select from ingest.relations r where r.relation_id = p.item_id)
                 union select 'support by nothing' from ingest.provenance p
                  where not exists (select from ingest.document_versions v where v.version_id = p.version_id)
                 union select 'chunk of no generation' from ingest.chunks c
                  where not exists (select from ingest.document_versions v where v.version_id = c.version_id)
                 union select 'vector of no chunk' from ingest.embeddings e
                  where not exists (select from ingest.chunks c where c.version_id = e.version_id and c.ordinal = e.ordinal)",
            )
            .await;
        assert_eq!(wrong, BTreeSet::new());
    }

    /// Polls until the condition holds.
    pub async fn until<F: AsyncFnMut() -> bool>(&self, what: &str, mut condition: F) {
        let deadline = Instant::now() + DEADLINE;
        while !condition().await {
            assert!(Instant::now() < deadline, "it never came: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub fn task(task_type: TaskType, tenant: &str, payload: Value) -> NewTask {
    NewTask { payload, workspace: Some(WORKSPACE.to_owned()), ..NewTask::new(task_type, tenant) }
}

pub fn upload(tenant: &str, text: &str) -> NewTask {
    task(TaskType::Upload, tenant, json!({ "text": text }))
}

pub fn on(task_type: TaskType, tenant: &str, document_id: Uuid) -> NewTask {
    NewTask { document_id: Some(document_id), ..task(task_type, tenant, json!({})) }
}

/// Where the build leaves it, beside the other program.
fn converter() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_sluice")).with_file_name("sluice-convert");
    assert!(program.exists(), "the converter is not built: cargo build --workspace");
    program
}

/// Markdown that makes so many chunks, each with words of its own.
pub fn book(chunks: usize) -> String {
    let chapter = |number: usize| {
        format!(
            "# Chapter {number}\n\n{}",
            format!("In Bern, Ada{number} met Grace{number} and said word{number}. ").repeat(8)
        )
    };
    (0..chunks).map(chapter).collect::<Vec<_>>().join("\n\n")
}

/// One number of a task's result.
pub fn counted(task: &TaskStatus, what: &str) -> u64 {
    let result = task.result.as_ref().expect("a result");
    result[what].as_u64().unwrap_or_else(|| panic!("no {what} in {result}"))
}
