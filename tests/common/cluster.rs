//! A real Kubernetes for tests: one cluster per test run, a namespace per test.
//!
//! The cluster comes from `tests/cluster` and ends with the process that started the tests, so that all test binaries of
//! a run share it. `KUBECONFIG` names another cluster instead; what only our own can do (faults, the audit log, images)
//! is then missing, and a test that needs it says so with [`Cluster::own`] and is skipped.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use serde_json::Value;

/// How long the API server may take for what it does at once on an idle machine.
const AT_ONCE: Duration = Duration::from_secs(60);

/// The cluster that the tests of this run share.
pub struct Cluster {
    kubectl: Kubectl,
    own: Option<OwnCluster>,
}

/// What only a cluster of our own can do.
pub struct OwnCluster {
    binary: PathBuf,
    dir: PathBuf,
    audit_log: PathBuf,
    ends_with_value: bool,
}

/// A kubectl that acts as one user.
#[derive(Clone)]
pub struct Kubectl {
    program: PathBuf,
    args: Vec<String>,
    kubeconfig: PathBuf,
}

/// A request that the API server has answered.
pub struct AuditEvent {
    pub user: String,
    pub verb: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// RFC 3339 with microseconds, in UTC: compares as text.
    pub received_at: String,
    /// The same, of the answer.
    pub answered_at: String,
    pub code: u64,
}

impl Cluster {
    /// The cluster of this run; the first to ask starts it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| match env::var_os("KUBECONFIG") {
            Some(kubeconfig) => Self::given(kubeconfig.into()),
            None => Self::start(),
        })
    }

    fn given(kubeconfig: PathBuf) -> Self {
        Self { kubectl: Kubectl { program: "kubectl".into(), args: Vec::new(), kubeconfig }, own: None }
    }

    fn start() -> Self {
        // Test binaries of one run have one parent, and go one after the other or side by side.
        let run = std::os::unix::process::parent_id();
        Self::up(env::temp_dir().join(format!("cluster-of-tests-{run}")), run, false)
    }

    /// One that no other test sees, for what changes a cluster as a whole; it ends with the value. Nothing where `KUBECONFIG`
    /// names a cluster.
    pub fn private(purpose: &str) -> Option<Self> {
        if env::var_os("KUBECONFIG").is_some() {
            eprintln!("skipped: {purpose} needs a cluster of its own, and KUBECONFIG names another");
            return None;
        }
        let own = process::id();
        Some(Self::up(env::temp_dir().join(format!("cluster-for-{purpose}-{own}")), own, true))
    }

    fn up(dir: PathBuf, with: u32, ends_with_value: bool) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster");
        let built = Command::new(sources.join("build.sh")).stderr(Stdio::inherit()).output().expect("sh runs build.sh");
        assert!(built.status.success(), "the cluster was not built; the reason is above");
        let binary = PathBuf::from(String::from_utf8_lossy(&built.stdout).trim());
        let mut own = OwnCluster { binary: binary.clone(), dir, audit_log: PathBuf::new(), ends_with_value };
        own.run(&["up", "--reuse", "--with", &with.to_string()]);
        let status: Value = serde_json::from_str(&own.run(&["status", "--json"])).expect("status is JSON");
        let path = |field: &str| PathBuf::from(status[field].as_str().unwrap_or_default());
        let kubectl = Kubectl { program: binary, args: vec!["kubectl".into()], kubeconfig: path("kubeconfig") };
        own.audit_log = path("audit_log");
        Self { kubectl, own: Some(own) }
    }

    /// Our own cluster, or nothing after having said that the test is skipped and why.
    pub fn own(&self, needs: &str) -> Option<&OwnCluster> {
        if self.own.is_none() {
            let test = thread::current().name().unwrap_or("this test").to_owned();
            eprintln!("skipped: {test} needs {needs}, which the cluster in KUBECONFIG does not give");
        }
        self.own.as_ref()
    }

    pub fn admin(&self) -> &Kubectl {
        &self.kubectl
    }

    /// A kubectl for any user and groups.
    pub fn user(&self, user: &str, groups: &[&str]) -> Kubectl {
        match &self.own {
            Some(own) => own.user(user, groups, None),
            None => {
                let mut kubectl = self.kubectl.clone();
                kubectl.args.push(format!("--as={user}"));
                kubectl.args.extend(groups.iter().map(|group| format!("--as-group={group}")));
                kubectl
            }
        }
    }

    /// A namespace of the test's own. It goes with the value; if the test fails, its logs and events are kept.
    pub fn namespace(&self, purpose: &str) -> Namespace<'_> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{purpose}-{}-{number}", process::id());
        self.kubectl.run(&["create", "namespace", &name]);
        let namespace = Namespace { cluster: self, name };
        // Pods are refused until their account is there.
        namespace.wait("serviceaccount/default", AT_ONCE, |_| true);
        namespace
    }
}

impl OwnCluster {
    /// Runs a command of the cluster's, such as a fault: `["kill", "kube-apiserver"]`.
    pub fn run(&self, args: &[&str]) -> String {
        let output =
            Command::new(&self.binary).args(args).env("CLUSTER_DIR", &self.dir).output().expect("cluster runs");
        succeeded(&format!("cluster {}", args.join(" ")), output)
    }

    /// All of its state, as that of etcd.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// Says which program an image name stands for.
    pub fn load(&self, image: &str, binary: impl AsRef<Path>) {
        self.run(&["load", &format!("{image}={}", binary.as_ref().display())]);
    }

    /// A kubectl for any user and groups; `through` names a line of its own, which `net` breaks.
    pub fn user(&self, user: &str, groups: &[&str], through: Option<&str>) -> Kubectl {
        let mut args = vec!["kubeconfig", "--user", user];
        groups.iter().for_each(|group| args.extend(["--group", group]));
        through.iter().for_each(|line| args.extend(["--through", line]));
        let text = self.run(&args);
        // In the cluster's directory, so that it goes with the cluster.
        let file = format!("{user}-{}-{}.kubeconfig", through.unwrap_or("direct"), process::id());
        let kubeconfig = self.dir.join("clients").join(file.replace(['/', ':'], "-"));
        fs::write(&kubeconfig, text).expect("the state directory can be written");
        Kubectl { program: self.binary.clone(), args: vec!["kubectl".into()], kubeconfig }
    }

    /// Every request that the API server has answered so far, oldest first.
    pub fn audit(&self) -> Vec<AuditEvent> {
        let log = fs::read_to_string(&self.audit_log).expect("the audit log can be read");
        // The last line may be half written.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).map(|event| AuditEvent::of(&event)).collect()
    }
}

impl Drop for OwnCluster {
    fn drop(&mut self) {
        if self.ends_with_value {
            let _ = Command::new(&self.binary).arg("down").env("CLUSTER_DIR", &self.dir).output();
        }
    }
}

impl AuditEvent {
    fn of(event: &Value) -> Self {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            user: text("/user/username"),
            verb: text("/verb"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            received_at: text("/requestReceivedTimestamp"),
            answered_at: text("/stageTimestamp"),
            code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        }
    }
}

impl Kubectl {
    /// For a process or a client that is to act as this user.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).args(args).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// helm, on the same cluster and as the same user.
    pub fn helm(&self, args: &[&str]) -> Command {
        let is_ours = self.args.first().is_some_and(|verb| verb == "kubectl");
        let mut command = Command::new(if is_ours { self.program.as_path() } else { Path::new("helm") });
        command.args(is_ours.then_some("helm")).args(args).env("KUBECONFIG", &self.kubeconfig).stdin(Stdio::null());
        command
    }

    /// Must succeed; gives what was printed.
    pub fn run(&self, args: &[&str]) -> String {
        self.try_run(args).unwrap_or_else(|error| panic!("{error}"))
    }

    /// May be refused; the error has kubectl's words.
    pub fn try_run(&self, args: &[&str]) -> Result<String, String> {
        outcome(&format!("kubectl {}", args.join(" ")), self.command(args).output().expect("kubectl runs"))
    }

    /// The same with something to read: `["apply", "--filename=-"]`.
    pub fn try_run_with(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        // A kubectl that refuses early closes its input; its words say why.
        let _ = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
        outcome(&format!("kubectl {}", args.join(" ")), child.wait_with_output().expect("kubectl ends"))
    }
}

/// A namespace of one test's own.
pub struct Namespace<'c> {
    cluster: &'c Cluster,
    pub name: String,
}

impl Namespace<'_> {
    /// kubectl as the admin, in this namespace.
    pub fn kubectl(&self, args: &[&str]) -> String {
        self.cluster.kubectl.run(&self.inside(args))
    }

    /// kubectl as someone else, in this namespace.
    pub fn kubectl_as(&self, user: &Kubectl, args: &[&str]) -> Result<String, String> {
        user.try_run(&self.inside(args))
    }

    pub fn apply(&self, manifest: &str) {
        self.try_apply(manifest).unwrap_or_else(|error| panic!("{error}"));
    }

    /// May be refused, by a rule or by RBAC.
    pub fn try_apply(&self, manifest: &str) -> Result<String, String> {
        self.cluster.kubectl.try_run_with(&self.inside(&["apply", "--server-side", "--filename=-"]), manifest)
    }

    /// An object as `kind/name`, or nothing.
    pub fn get(&self, object: &str) -> Option<Value> {
        let text = self.kubectl(&["get", object, "--ignore-not-found", "--output=json"]);
        (!text.is_empty()).then(|| serde_json::from_str(&text).expect("an object is JSON"))
    }

    /// Waits until the object `kind/name` is there and as it should be.
    pub fn wait(&self, object: &str, limit: Duration, condition: impl Fn(&Value) -> bool) -> Value {
        self.watch(object, limit, |kind, seen| kind != "DELETED" && condition(seen))
    }

    /// Waits until the object `kind/name` is gone.
    pub fn wait_gone(&self, object: &str, limit: Duration) {
        let (begun, pause) = (Instant::now(), Duration::from_millis(200));
        while self.get(object).is_some() {
            assert!(begun.elapsed() < limit, "{object} in {} is still there after {limit:?}", self.name);
            thread::sleep(pause);
        }
    }

    /// Reads what the API server says of one object until the condition holds. A watch that ends is begun again.
    fn watch(&self, object: &str, limit: Duration, condition: impl Fn(&str, &Value) -> bool) -> Value {
        let deadline = Instant::now() + limit;
        let (kind, name) = object.split_once('/').expect("an object is named as kind/name");
        let field = format!("--field-selector=metadata.name={name}");
        let args = ["get", kind, &field, "--watch", "--output-watch-events", "--output=json"];
        let mut last = Value::Null;
        loop {
            let mut command = self.cluster.kubectl.command(&self.inside(&args));
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("kubectl runs");
            let output = child.stdout.take().expect("stdout is piped");
            let (sender, events) = channel();
            let reader = thread::spawn(move || {
                for event in serde_json::Deserializer::from_reader(output).into_iter::<Value>().map_while(Result::ok) {
                    if sender.send(event).is_err() {
                        break;
                    }
                }
            });
            let found = loop {
                match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(mut event) => {
                        last = event["object"].take();
                        if condition(event["type"].as_str().unwrap_or_default(), &last) {
                            break true;
                        }
                    }
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break false,
                }
            };
            let _ = child.kill();
            let _ = child.wait();
            let _ = reader.join();
            if found {
                return last;
            }
            assert!(
                Instant::now() < deadline,
                "{object} in {} is not as it should be after {limit:?}; its last status: {:#}",
                self.name,
                last["status"]
            );
            // The API server may be away for a moment; starting kubectl again is pause enough.
        }
    }

    fn inside<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let mut all = vec!["--namespace", self.name.as_str()];
        all.extend(args);
        all
    }

    /// Objects, events and logs of all pods, for whoever has to find out why a test failed.
    fn collect(&self) -> String {
        let ask = |args: &[&str]| self.cluster.kubectl.try_run(&self.inside(args)).unwrap_or_else(|error| error);
        let mut text = String::new();
        for args in [
            vec!["get", "all,configmaps", "--output=wide"],
            vec!["get", "events", "--sort-by=.metadata.creationTimestamp"],
            vec!["describe", "pods"],
        ] {
            let _ = write!(text, "== kubectl {}\n{}\n", args.join(" "), ask(&args));
        }
        for pod in ask(&["get", "pods", "--output=name"]).lines() {
            let _ = write!(text, "== logs of {pod}\n{}\n", ask(&["logs", "--all-containers", "--prefix", pod]));
            let earlier = ask(&["logs", "--all-containers", "--prefix", "--previous", pod]);
            if !earlier.contains("not found") {
                let _ = write!(text, "== logs of {pod} before its last restart\n{earlier}\n");
            }
        }
        text
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cluster/failures");
            let file = dir.join(format!("{}.txt", self.name));
            match fs::create_dir_all(&dir).and_then(|()| fs::write(&file, self.collect())) {
                Ok(()) => eprintln!("objects, events and logs of the test are in {}", file.display()),
                Err(error) => eprintln!("objects, events and logs of the test could not be kept: {error}"),
            }
        }
        let _ = self.cluster.kubectl.try_run(&["delete", "namespace", &self.name, "--wait=false"]);
    }
}

fn succeeded(what: &str, output: Output) -> String {
    outcome(what, output).unwrap_or_else(|error| panic!("{error}"))
}

fn outcome(what: &str, output: Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{what}: {}: {}", output.status, text(&output.stderr).trim()))
}
