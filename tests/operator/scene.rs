//! A namespace with an operator of its own, and a worker's hands on the database behind it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use private_postgres::{Options, Server};
use serde_json::{Value, json};
use sluice::api::{IngestTask, IngestTaskStatus, TenantLane};
use sluice::domain::lane::Cap;
use sluice::store::claim::{Attempt, Claim, ClaimRequest, claim};
use sluice::store::ends::complete;
use sluice::store::lanes::{WorkerPoolSettings, set_pool};
use sluice::store::leases::{DocumentChange, NewWorker, register_worker};
use sluice::store::status::{TaskStatus, task_status};
use sluice::store::{Database, Role};
use uuid::Uuid;

use crate::common::cluster::{AuditEvent, Cluster, Namespace, OwnCluster};
use crate::common::postgres::TestDb;

/// For what takes moments on an idle machine.
pub const SOON: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);
pub const NOTHING: DocumentChange<'_> = DocumentChange { status: None, stage: None, pdf_status: None, pages: None };

/// All that an operator of one namespace may do: no cluster-wide right is among it.
const ROLE: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator}
rules:
- {apiGroups: [sluice.dev], resources: [ingesttasks], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [sluice.dev], resources: [tenantlanes, workerpools], verbs: [get, list, watch]}
- {apiGroups: [sluice.dev], resources: [ingesttasks/status, tenantlanes/status, workerpools/status], verbs: [patch]}
- {apiGroups: [""], resources: [configmaps, namespaces], verbs: [get]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, patch]}
- {apiGroups: [apps], resources: [deployments, replicasets], verbs: [get, list, watch, create, patch, update, delete]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch, patch]}
- {apiGroups: [batch], resources: [jobs], verbs: [get, list, watch, create, patch, delete]}
"#;

pub struct Scene {
    pub cluster: &'static Cluster,
    pub db: Arc<TestDb>,
    /// In the role of a worker.
    pub worker: Database,
    /// In the role of the operator, for what else somebody could ask of the database.
    pub operator_role: Database,
    pub worker_id: Uuid,
    pub namespace: Namespace<'static>,
    pub client: Client,
    pub tasks: Api<IngestTask>,
    pub lanes: Api<TenantLane>,
    /// The user that the operator acts as.
    user: String,
    kubeconfig: PathBuf,
    /// As the operator is told.
    cluster_id: String,
    operator: Option<Operator>,
    sequence: AtomicI64,
}

/// A process that ends in order, and has said nothing of missing rights, when it is dropped.
pub struct Operator {
    process: Child,
    log: PathBuf,
    is_refused_for_a_moment: bool,
}

impl Scene {
    /// With the operator running; `None` where the cluster is not our own.
    pub async fn new(purpose: &str) -> Option<Self> {
        Self::with_operator(Cluster::shared(), purpose, TestDb::new().await).await
    }

    /// Where definitions may be changed: that disturbs every watch and request of their kind for seconds.
    pub async fn of_changing_kinds(purpose: &str) -> Option<Self> {
        static CHANGING: OnceLock<Option<Cluster>> = OnceLock::new();
        let cluster = CHANGING.get_or_init(|| Cluster::private("kinds")).as_ref()?;
        Self::with_operator(cluster, purpose, TestDb::new().await).await
    }

    /// Where the control plane may be stopped.
    pub async fn of_outages(purpose: &str) -> Option<Self> {
        static AWAY: OnceLock<Option<Cluster>> = OnceLock::new();
        let cluster = AWAY.get_or_init(|| Cluster::private("outages")).as_ref()?;
        Self::with_operator(cluster, purpose, TestDb::new().await).await
    }

    /// With a database server that the test may stop.
    pub async fn with_private_server(purpose: &str) -> Option<Self> {
        Self::with_operator(Cluster::shared(), purpose, TestDb::private(Options::fast()).await).await
    }

    pub async fn without_operator(purpose: &str) -> Option<Self> {
        Self::prepare(Cluster::shared(), purpose, Arc::new(TestDb::new().await)).await
    }

    /// An operator of another namespace on this one's database, and in its cluster if the id is the same.
    pub async fn neighbour(&self, purpose: &str, cluster_id: &str) -> Self {
        let scene = Self::prepare(self.cluster, purpose, Arc::clone(&self.db)).await;
        let mut scene = Self { cluster_id: cluster_id.to_owned(), ..scene.expect("the cluster is our own") };
        scene.start_operator();
        scene
    }

    /// Of `with_private_server`.
    pub fn server(&mut self) -> &mut Server {
        Arc::get_mut(&mut self.db).expect("no neighbour has it").server()
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    async fn with_operator(cluster: &'static Cluster, purpose: &str, db: TestDb) -> Option<Self> {
        let mut scene = Self::prepare(cluster, purpose, Arc::new(db)).await?;
        scene.start_operator();
        Some(scene)
    }

    async fn prepare(cluster: &'static Cluster, purpose: &str, db: Arc<TestDb>) -> Option<Self> {
        let own = cluster.own("a user of its own and the audit log")?;
        // A client needs one, as the binary does.
        let _ = rustls::crypto::ring::default_provider().install_default();
        install_kinds(cluster);
        let namespace = cluster.namespace(purpose);
        let user = format!("operator-of-{}", namespace.name);
        namespace.apply(ROLE);
        namespace.kubectl(&["create", "rolebinding", "operator", "--role=operator", &format!("--user={user}")]);
        let kubeconfig = own.user(&user, &[], None).kubeconfig().to_owned();
        let client = client(cluster.admin().kubeconfig()).await;
        let (worker, operator_role) = (db.worker(), db.operator());
        let uncapped = WorkerPoolSettings {
            ingest_cap: Some(Cap::NONE),
            lifecycle_cap: Some(Cap::NONE),
            ..WorkerPoolSettings::default()
        };
        set_pool(&operator_role, "default", uncapped, None).await.expect("the pool");
        let worker_id = register(&worker).await;
        Some(Self {
            cluster,
            tasks: Api::namespaced(client.clone(), &namespace.name),
            lanes: Api::namespaced(client.clone(), &namespace.name),
            db,
            worker,
            operator_role,
            worker_id,
            // Unique, and the same for the next process.
            cluster_id: namespace.name.clone(),
            namespace,
            client,
            user,
            kubeconfig,
            operator: None,
            sequence: AtomicI64::new(0),
        })
    }

    pub fn own(&self) -> &'static OwnCluster {
        self.cluster.own("the audit log").expect("the scene asked for it")
    }

    pub fn start_operator(&mut self) {
        self.operator = Some(self.another_operator());
    }

    /// All of Sluice in one process, with the right to migrate.
    pub fn start_standalone(&mut self) {
        self.operator = Some(self.spawn("standalone", Role::Migrator));
    }

    /// Beside the one that runs.
    pub fn another_operator(&self) -> Operator {
        self.spawn("operator", Role::Operator)
    }

    /// The first one, on lines of its own: `line` to the API server, and this URL to the database.
    pub fn start_operator_through(&mut self, line: Option<&str>, database: Option<String>) {
        let kubeconfig = match line {
            Some(line) => self.own().user(&self.user, &[], Some(line)).kubeconfig().to_owned(),
            None => self.kubeconfig.clone(),
        };
        let database = database.unwrap_or_else(|| self.db.url(Role::Operator));
        self.operator = Some(self.spawn_on("operator", &kubeconfig, &database));
    }

    fn spawn(&self, command: &str, role: Role) -> Operator {
        self.spawn_on(command, &self.kubeconfig, &self.db.url(role))
    }

    fn spawn_on(&self, command: &str, kubeconfig: &Path, database: &str) -> Operator {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let log = directory.join(format!("{}-{}.log", self.user, Uuid::new_v4().simple()));
        let process = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg(command)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("DATABASE_URL", database)
            .env("SLUICE_CLUSTER_ID", &self.cluster_id)
            .env("SLUICE_NAMESPACE", &self.namespace.name)
            .env("SLUICE_WATCH_NAMESPACES", &self.namespace.name)
            .env("SLUICE_OPERATOR_LISTEN", "off")
            .env("SLUICE_LOG", "info,sluice=debug")
            .stderr(File::create(&log).expect("a log"))
            .spawn()
            .expect("the operator starts");
        Operator { process, log, is_refused_for_a_moment: false }
    }

    /// By SIGTERM, so that the Lease is free for the next one.
    pub fn stop_operator(&mut self) {
        self.operator = None;
    }

    pub async fn create(&self, name: &str, spec: Value) -> IngestTask {
        self.try_create(name, spec).await.unwrap_or_else(|error| panic!("{name} is refused: {error}"))
    }

    pub async fn try_create(&self, name: &str, spec: Value) -> Result<IngestTask, kube::Error> {
        let object = json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "IngestTask", "metadata": { "name": name }, "spec": spec,
        });
        self.tasks.create(&PostParams::default(), &serde_json::from_value(object).expect("a task")).await
    }

    /// An insert of its own, once the database has it.
    pub async fn accepted(&self, name: &str) -> Uuid {
        self.accepted_with(name, json!({})).await
    }

    pub async fn accepted_with(&self, name: &str, more: Value) -> Uuid {
        let mut spec = json!({ "type": "Insert", "source": { "text": "hello" } });
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.create(name, spec).await;
        self.track(name).await
    }

    pub async fn track(&self, name: &str) -> Uuid {
        let status = self.wait(name, |status| status.track_id.is_some()).await;
        status.track_id.expect("it has one").parse().expect("a UUID")
    }

    pub async fn patch(&self, name: &str, spec: Value) {
        let patch = json!({ "spec": spec });
        self.tasks.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("the patch is taken");
    }

    pub async fn delete(&self, name: &str) {
        self.tasks.delete(name, &DeleteParams::default()).await.expect("it is deleted");
    }

    pub async fn get(&self, name: &str) -> Option<IngestTask> {
        self.tasks.get_opt(name).await.expect("an answer")
    }

    /// Waits until the status is as it should be, and of the newest spec.
    pub async fn wait(&self, name: &str, is_so: impl Fn(&IngestTaskStatus) -> bool) -> IngestTaskStatus {
        let begun = Instant::now();
        loop {
            let task = self.get(name).await.unwrap_or_else(|| panic!("{name} is not there"));
            let status = task.status.clone().unwrap_or_default();
            if status.observed_generation == task.metadata.generation && is_so(&status) {
                return status;
            }
            self.check(begun, || format!("{name} is not as it should be: {status:#?}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub async fn wait_state(&self, name: &str, state: sluice::api::ingest_task::State) -> IngestTaskStatus {
        self.wait(name, |status| status.state == Some(state)).await
    }

    /// Waits until a condition has this status and reason.
    pub async fn wait_condition(&self, name: &str, type_: &str, status: &str, reason: &str) -> IngestTaskStatus {
        self.wait(name, |now| condition(now, type_).is_some_and(|(s, r)| s == status && r == reason)).await
    }

    pub async fn wait_gone(&self, name: &str) {
        self.until(&format!("{name} is still there"), async || self.get(name).await.is_none()).await;
    }

    pub async fn row(&self, track_id: Uuid) -> TaskStatus {
        task_status(&self.operator_role, track_id).await.expect("an answer").expect("the row")
    }

    pub async fn wait_row(&self, track_id: Uuid, is_so: impl Fn(&TaskStatus) -> bool) -> TaskStatus {
        let begun = Instant::now();
        loop {
            let row = self.row(track_id).await;
            if is_so(&row) {
                return row;
            }
            self.check(begun, || format!("the row is not as it should be: {row:#?}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub async fn until(&self, otherwise: &str, is_so: impl AsyncFn() -> bool) {
        let begun = Instant::now();
        while !is_so().await {
            self.check(begun, || otherwise.to_owned());
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn check(&self, begun: Instant, otherwise: impl FnOnce() -> String) {
        assert!(begun.elapsed() < SOON, "after {SOON:?}, {}\nthe operator says:\n{}", otherwise(), self.log());
    }

    pub fn log(&self) -> String {
        let log =
            self.operator.as_ref().and_then(|operator| fs::read_to_string(&operator.log).ok()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Claims all there is, and answers this task's attempt.
    pub async fn run(&self, track_id: Uuid) -> Attempt {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let request = ClaimRequest { worker_id: self.worker_id, sequence, want: 1_000, quantum: 1_000 };
        for _ in 0..20 {
            match claim(&self.worker, request).await.expect("a claim") {
                Claim::Tasks(tasks) => {
                    let mine = tasks.into_iter().map(|task| task.attempt).find(|a| a.track_id == track_id);
                    if let Some(attempt) = mine {
                        return attempt;
                    }
                }
                Claim::Unregistered => panic!("the worker is registered"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{track_id} could not be claimed: {:#?}", self.row(track_id).await);
    }

    pub async fn finish(&self, track_id: Uuid) {
        let attempt = self.run(track_id).await;
        complete(&self.worker, attempt, None, NOTHING).await.expect("an answer");
    }

    /// The lease of a running attempt ends now.
    pub async fn expire_lease(&self, track_id: Uuid) {
        sqlx::query("update sluice.tasks set lease_until = now() - interval '1 second' where track_id = $1")
            .bind(track_id)
            .execute(self.db.admin())
            .await
            .expect("the lease");
    }

    pub async fn count_rows(&self) -> i64 {
        sqlx::query_scalar("select (select count(*) from sluice.tasks) + (select count(*) from sluice.tasks_archive)")
            .fetch_one(self.db.admin())
            .await
            .expect("a count")
    }

    /// Writes of the operator in this namespace, its Lease aside.
    pub fn writes(&self) -> Vec<AuditEvent> {
        let is_write = |event: &AuditEvent| !["get", "list", "watch"].contains(&event.verb.as_str());
        let events = self.own().audit().into_iter();
        events.filter(|event| event.user == self.user && event.resource != "leases" && is_write(event)).collect()
    }

    /// Writes about one task, its events included.
    pub fn writes_about(&self, name: &str) -> usize {
        self.writes().iter().filter(|event| event.name == name && event.resource == "ingesttasks").count()
    }
}

impl Scene {
    /// A signal for the operator, such as `STOP`.
    pub fn signal(&self, signal: &str) {
        self.operator.as_ref().expect("it runs").signal(signal);
    }

    /// For an API server that was started again: until it has read its roles, it refuses everything.
    pub fn expect_refusals(&mut self) {
        self.operator.as_mut().expect("it runs").is_refused_for_a_moment = true;
    }

    /// It dies, and gives nothing back.
    pub fn kill_operator(&mut self) {
        let mut operator = self.operator.take().expect("it runs");
        operator.process.kill().expect("it is killed");
        operator.process.wait().expect("it is gone");
        std::mem::forget(operator);
    }
}

impl Operator {
    pub fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let status = Command::new("kill").args([&format!("-{signal}"), &pid]).status().expect("kill runs");
        assert!(status.success());
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // A process that stands still hears nothing.
        for signal in ["-CONT", "-TERM"] {
            let _ = Command::new("kill").arg(signal).arg(self.process.id().to_string()).status();
        }
        let begun = Instant::now();
        let ended = loop {
            match self.process.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if begun.elapsed() < SOON => std::thread::sleep(PAUSE),
                Ok(None) | Err(_) => break None,
            }
        };
        if ended.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        if std::thread::panicking() {
            return;
        }
        assert!(ended.is_some_and(|status| status.success()), "the operator did not end in order: {ended:?}");
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        // A namespace that goes takes nothing new, whatever one may do there.
        let is_bad = |line: &&str| {
            let is_refusal = line.contains("orbidden") && !line.contains("because it is being terminated");
            (is_refusal && !self.is_refused_for_a_moment) || line.contains("panicked")
        };
        let forbidden: Vec<&str> = log.lines().filter(is_bad).collect();
        assert!(forbidden.is_empty(), "{}", forbidden.join("\n"));
        let _ = fs::remove_file(&self.log);
    }
}

pub fn condition<'s>(status: &'s IngestTaskStatus, type_: &str) -> Option<(String, &'s str)> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((format!("{:?}", found.status), found.reason.as_str()))
}

async fn register(worker: &Database) -> Uuid {
    let worker_row = NewWorker {
        pool: "default",
        slots: 1_000,
        version: None,
        pod_name: None,
        pod_uid: None,
        stands_for_pool: false,
        worker_id: None,
    };
    register_worker(worker, &worker_row).await.expect("a worker")
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

/// Once for a test binary; another one may do the same.
/// Once in each cluster: applied again, what is there already would be looked at again too.
fn install_kinds(cluster: &Cluster) {
    static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    // Whoever comes meanwhile waits.
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !done.insert(cluster.admin().kubeconfig().to_owned()) {
        return;
    }
    let crds = sluice::api::all_crds().expect("the definitions");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": crds });
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename=-"];
    cluster.admin().try_run_with(&apply, &list.to_string()).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<String> = crds.iter().map(|crd| format!("crd/{}", crd.name_any())).collect();
    let mut wait = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    wait.extend(names.iter().map(String::as_str));
    cluster.admin().run(&wait);
}
