//! The definitions on a real API server, and a client that is quick enough for hundreds of questions.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Kubectl, Namespace};

pub const API_VERSION: &str = "sluice.dev/v1alpha1";

/// What `sluice crds` prints.
pub fn printed() -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice")).arg("crds").env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The shared cluster, with the definitions in force. A warning of the API server is an error here.
pub fn installed() -> &'static Cluster {
    static INSTALLED: OnceLock<&Cluster> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let cluster = Cluster::shared();
        let apply = ["apply", "--server-side", "--force-conflicts", "--warnings-as-errors", "--filename=-"];
        cluster.admin().try_run_with(&apply, &printed()).unwrap();
        cluster.admin().run(&[
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd/ingesttasks.sluice.dev",
            "crd/tenantlanes.sluice.dev",
            "crd/workerpools.sluice.dev",
        ]);
        cluster
    })
}

/// A namespace, and a client in it.
pub struct Bed {
    pub namespace: Namespace<'static>,
    client: Client,
}

/// Why the API server refused something.
#[derive(Debug)]
pub struct Refusal {
    pub message: String,
    /// Paths of the fields that are wrong.
    pub fields: Vec<String>,
}

/// The ways to change a resource; each is what some tool does.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// `kubectl patch --type=merge`, and `kubectl edit`.
    Merge,
    /// `kubectl replace`.
    Replace,
    /// `kubectl apply --server-side`, by whoever made it.
    Apply,
}

impl Way {
    pub const ALL: [Way; 3] = [Way::Merge, Way::Replace, Way::Apply];
}

const MANAGER: &str = "gitops";

impl Bed {
    pub async fn new(purpose: &str) -> Self {
        let cluster = installed();
        let client = client(cluster.admin()).await;
        Self { namespace: cluster.namespace(purpose), client }
    }

    /// Asks whether this could be made.
    pub async fn try_create(&self, object: &Value) -> Result<Value, Refusal> {
        self.create(object, true).await
    }

    /// Makes it by server-side apply.
    pub async fn apply(&self, object: &Value) -> Value {
        self.patch(object, &Patch::Apply(object), false).await.unwrap()
    }

    /// Asks whether a stored object could become this one.
    pub async fn try_change(&self, stored: &Value, wanted: &Value, way: Way) -> Result<Value, Refusal> {
        match way {
            Way::Merge => {
                let patch = json!({ "spec": merge_patch(&stored["spec"], &wanted["spec"]) });
                self.patch(stored, &Patch::Merge(&patch), true).await
            }
            Way::Apply => self.patch(stored, &Patch::Apply(wanted), true).await,
            Way::Replace => {
                let mut whole = wanted.clone();
                whole["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
                let api = self.api(&whole);
                let parameters = PostParams { dry_run: true, ..PostParams::default() };
                let object: DynamicObject = serde_json::from_value(whole.clone()).unwrap();
                answer(api.replace(name(&whole), &parameters, &object).await)
            }
        }
    }

    pub async fn write_status(&self, stored: &Value, status: &Value) -> Result<Value, Refusal> {
        let patch = json!({ "status": status });
        let answered =
            self.api(stored).patch_status(name(stored), &PatchParams::default(), &Patch::Merge(&patch)).await;
        answer(answered)
    }

    async fn create(&self, object: &Value, dry_run: bool) -> Result<Value, Refusal> {
        let parameters = PostParams { dry_run, ..PostParams::default() };
        let parsed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        answer(self.api(object).create(&parameters, &parsed).await)
    }

    async fn patch(&self, object: &Value, patch: &Patch<&Value>, dry_run: bool) -> Result<Value, Refusal> {
        let manager = PatchParams { dry_run, field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        answer(self.api(object).patch(name(object), &manager, patch).await)
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let kind = object["kind"].as_str().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("sluice.dev", "v1alpha1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace.name, &resource)
    }
}

impl Refusal {
    pub fn names(&self, field: &str) -> bool {
        self.fields.iter().any(|path| path == field)
    }
}

async fn client(kubectl: &Kubectl) -> Client {
    let command = kubectl.command(&["config", "view", "--raw"]).stderr(Stdio::inherit()).output().unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&String::from_utf8(command.stdout).unwrap()).unwrap();
    // Installed twice by two tests of this process is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn answer(answer: kube::Result<DynamicObject>) -> Result<Value, Refusal> {
    match answer {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(refusal(&status)),
        Err(error) => panic!("the API server did not answer: {error}"),
    }
}

fn refusal(status: &Status) -> Refusal {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    Refusal { message: status.message.clone(), fields: causes.map(|cause| cause.field.clone()).collect() }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// What `kubectl edit` sends: null for what is to go.
fn merge_patch(from: &Value, to: &Value) -> Value {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
            let kept = to
                .iter()
                .map(|(key, value)| (key.clone(), merge_patch(&from.get(key).cloned().unwrap_or_default(), value)));
            Value::Object(gone.chain(kept).collect())
        }
        _ => to.clone(),
    }
}

/// The least that the API server takes.
pub fn minimal(kind: &str) -> Value {
    let spec = match kind {
        "IngestTask" => json!({ "type": "Insert", "source": { "text": "hello" } }),
        "TenantLane" => json!({ "class": "ingest" }),
        "WorkerPool" => json!({ "template": {} }),
        other => panic!("there is no kind {other}"),
    };
    json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": { "name": "minimal" }, "spec": spec })
}

/// Every field set.
pub fn full(kind: &str) -> Value {
    let spec = match kind {
        "IngestTask" => json!({
            "type": "PdfProcessing", "tenant": "acme", "workspace": "main", "source": { "url": "s3://acme/a.pdf" },
            "priority": 5, "suspend": false, "cancel": true, "retries": 2, "maxAttempts": 3, "timeoutSeconds": 600,
            "idempotencyKey": "a", "exclusiveKey": "b", "ttlSecondsAfterFinished": 60, "deletionPolicy": "Retain",
        }),
        "TenantLane" => json!({
            "tenant": "acme", "class": "ingest", "maxRunning": 4, "weight": 2, "policy": "Hold",
            "policyReason": "maintenance", "pool": "default", "allowedSources": ["s3://acme/", "https://acme.example/"],
            "mirror": { "policy": "Active", "limit": 10 },
        }),
        "WorkerPool" => json!({
            "mode": "Deployment", "delivery": "bridged", "minReplicas": 1, "maxReplicas": 5, "threads": 4,
            "scaleDownDelaySeconds": 30, "drainSeconds": 60, "provider": "builtin",
            "template": { "spec": { "containers": [{ "name": "worker", "image": "sluice", "anything": [1, null] }] } },
        }),
        other => panic!("there is no kind {other}"),
    };
    json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": { "name": "full" }, "spec": spec })
}

pub const KINDS: [&str; 3] = ["IngestTask", "TenantLane", "WorkerPool"];
