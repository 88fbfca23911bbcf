//! The objects that run a pool's workers, built from its template.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::spec::PoolSpec;
use crate::domain::delivery::WakeMode;
use crate::store::claim::Attempt;

/// On all that belongs to a pool; the value is the pool's name, or a part of it and a hash if that is too long.
pub const POOL_LABEL: &str = "sluice.dev/pool";
/// The whole name, for people.
pub const POOL_ANNOTATION: &str = "sluice.dev/pool-name";
/// On a Deployment: what it was last made of, so that a look need not compare what the API server has filled in.
pub const MADE_OF_ANNOTATION: &str = "sluice.dev/made-of";
/// On a Job: its attempt.
pub const TRACK_ANNOTATION: &str = "sluice.dev/track-id";
pub const ATTEMPT_ANNOTATION: &str = "sluice.dev/attempt";

const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "sluice-operator");
/// Of labels and of the names that labels are made from.
const NAME_MAX: usize = 63;
/// Room for what a ReplicaSet and a Pod append.
const WORKLOAD_NAME_MAX: usize = 46;
const HEALTH_PORT: u16 = 8081;
/// On top of the drain: what a worker needs to give back and to end.
const GRACE_MARGIN_SECS: u32 = 15;
/// A Job that has ended can be looked at for so long.
const JOB_TTL_SECS: u32 = 600;

/// The pool's name where a label or an object's name must fit: cut and told apart by a hash.
pub fn short_name(pool: &str, max: usize) -> String {
    let is_label = |name: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        ends(name.chars().next())
            && ends(name.chars().last())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if pool.len() <= max && is_label(pool) {
        return pool.to_owned();
    }
    let hash = hex(&Sha256::digest(pool.as_bytes()), 10);
    let kept = max - hash.len() - 1;
    let plain = pool.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let head: String = plain.take(kept).collect();
    let head = head.trim_matches('-');
    if head.is_empty() { format!("p-{hash}") } else { format!("{head}-{hash}") }
}

pub fn pool_label(pool: &str) -> String {
    short_name(pool, NAME_MAX)
}

/// The Deployment's, and the service's of nobody: pods are found by their label.
pub fn workload_name(pool: &str) -> String {
    format!("sluice-{}", short_name(pool, WORKLOAD_NAME_MAX))
}

/// Track id and attempt, so that no attempt has two.
pub fn job_name(attempt: Attempt) -> String {
    format!("{}-{}", attempt.track_id, attempt.number)
}

pub fn owner(pool: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "sluice.dev/v1alpha1".to_owned(),
        kind: "WorkerPool".to_owned(),
        name: pool.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        // It would need a right of its own, and nothing waits for it.
        block_owner_deletion: Some(false),
    }
}

/// The Deployment as it should be, to be applied. What it is made of is in an annotation; the replicas are not part of it.
pub fn deployment(spec: &PoolSpec, owner: &OwnerReference, replicas: u32) -> Value {
    let template = pod_template(spec, None);
    let strategy = match spec.delivery {
        // Never two processes that each would only wake themselves.
        WakeMode::Local => json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } }),
        WakeMode::Bridged | WakeMode::NotifyOnly => {
            json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })
        }
    };
    let body = json!({
        "selector": { "matchLabels": { POOL_LABEL: pool_label(&spec.name) } },
        "strategy": strategy,
        "revisionHistoryLimit": 3,
        "template": template,
    });
    let made_of = hex(&Sha256::digest(body.to_string().as_bytes()), 16);
    let mut deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": workload_name(&spec.name),
            "labels": labels(&spec.name),
            "annotations": { POOL_ANNOTATION: spec.name, MADE_OF_ANNOTATION: made_of },
            "ownerReferences": [owner],
        },
        "spec": body,
    });
    deployment["spec"]["replicas"] = json!(replicas);
    deployment
}

/// What a Deployment says that it is made of.
pub fn made_of(deployment: &Value) -> &str {
    deployment["metadata"]["annotations"][MADE_OF_ANNOTATION].as_str().unwrap_or_default()
}

/// Whether the Deployment says all that is wanted, its replicas aside; what others added to it does not matter.
pub fn holds(held: &Deployment, wanted: &Value) -> bool {
    let Ok(held) = serde_json::to_value(&held.spec) else { return false };
    let fields = wanted["spec"].as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "replicas").all(|(name, wanted)| contains(&held[name], wanted))
}

fn contains(held: &Value, wanted: &Value) -> bool {
    match (held, wanted) {
        (Value::Object(held), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| match held.get(name) {
            Some(held) => contains(held, wanted),
            // The API server leaves out what is empty.
            None => matches!(wanted, Value::Null) || wanted.as_object().is_some_and(Map::is_empty),
        }),
        (Value::Array(held), Value::Array(wanted)) => {
            held.len() == wanted.len() && held.iter().zip(wanted).all(|(held, wanted)| contains(held, wanted))
        }
        (held, wanted) => held == wanted,
    }
}

/// One pod for one attempt, which no second pod runs.
pub fn job(spec: &PoolSpec, owner: &OwnerReference, attempt: Attempt) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(attempt),
            "labels": labels(&spec.name),
            "annotations": {
                POOL_ANNOTATION: spec.name,
                TRACK_ANNOTATION: attempt.track_id.to_string(),
                ATTEMPT_ANNOTATION: attempt.number.to_string(),
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            // A pod that is only on its way out must not be replaced.
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": JOB_TTL_SECS,
            "template": pod_template(spec, Some(attempt)),
        },
    })
}

fn labels(pool: &str) -> Value {
    json!({
        "app.kubernetes.io/name": "sluice-worker",
        MANAGED_BY.0: MANAGED_BY.1,
        POOL_LABEL: pool_label(pool),
    })
}

/// A part of the template that is not what it should be is left as it is, for the API server to say so.
fn pod_template(spec: &PoolSpec, attempt: Option<Attempt>) -> Value {
    let mut template = spec.template.clone();
    if let Some(metadata) = object(&mut template, "metadata") {
        if let (Some(labels), Value::Object(ours)) = (object(metadata, "labels"), labels(&spec.name)) {
            labels.extend(ours);
        }
        if let Some(annotations) = object(metadata, "annotations") {
            annotations.insert(POOL_ANNOTATION.to_owned(), json!(spec.name));
        }
    }
    if let Some(pod) = object(&mut template, "spec") {
        let grace_secs = spec.drain_secs.saturating_add(GRACE_MARGIN_SECS);
        pod.insert("terminationGracePeriodSeconds".to_owned(), json!(grace_secs));
        // Workers never talk to Kubernetes; who needs the token says so in the template.
        pod.entry("automountServiceAccountToken").or_insert(json!(false));
        if attempt.is_some() {
            pod.insert("restartPolicy".to_owned(), json!("Never"));
        }
        let containers = pod.entry("containers").or_insert_with(|| json!([{ "name": "worker" }]));
        if let Some(Value::Object(worker)) = containers.as_array_mut().and_then(|containers| containers.first_mut()) {
            complete_container(worker, spec, attempt);
        }
    }
    Value::Object(template)
}

/// The template's first container is the worker; what is ours wins over what it says.
fn complete_container(worker: &mut Map<String, Value>, spec: &PoolSpec, attempt: Option<Attempt>) {
    let mut args = match worker.get("args") {
        Some(Value::Array(args)) => args.clone(),
        Some(_) => return, // the API server says what is wrong with it
        None if worker.contains_key("command") => Vec::new(),
        None => vec![json!("worker")],
    };
    if let Some(attempt) = attempt {
        args.push(json!(format!("--task={}", attempt.track_id)));
        args.push(json!(format!("--attempt={}", attempt.number)));
    }
    if !args.is_empty() {
        worker.insert("args".to_owned(), Value::Array(args));
    }

    let ours = environment(spec);
    let theirs = match worker.get("env") {
        Some(Value::Array(env)) => env.clone(),
        Some(_) => return,
        None => Vec::new(),
    };
    let is_ours = |variable: &Value| ours.iter().any(|our| our["name"] == variable["name"]);
    let mut env: Vec<_> = theirs.into_iter().filter(|variable| !is_ours(variable)).collect();
    env.extend(ours);
    worker.insert("env".to_owned(), Value::Array(env));

    if attempt.is_none() {
        let probe = |path: &str, period: u32, failures: u32| {
            json!({
                "httpGet": { "path": path, "port": HEALTH_PORT },
                "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
            })
        };
        // Quick to see an idle, drained worker; a scale-down waits for it.
        worker.entry("readinessProbe").or_insert_with(|| probe("/readyz", 1, 2));
        worker.entry("livenessProbe").or_insert_with(|| probe("/livez", 10, 6));
    }
}

fn environment(spec: &PoolSpec) -> Vec<Value> {
    let plain = |name: &str, value: String| json!({ "name": name, "value": value });
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    let mut env = vec![
        plain("SLUICE_POOL", spec.name.clone()),
        // The most there may be, never the number that runs now: that would make each scaling a rollout.
        plain("SLUICE_REPLICAS", spec.limits.max_replicas.max(1).to_string()),
        plain("SLUICE_TASK_DELIVERY", spec.delivery.to_string()),
        plain("SLUICE_DRAIN_SECS", spec.drain_secs.to_string()),
        plain("SLUICE_HEALTH_LISTEN", format!("0.0.0.0:{HEALTH_PORT}")),
        field("SLUICE_POD_NAME", "metadata.name"),
        field("SLUICE_POD_UID", "metadata.uid"),
    ];
    env.extend(spec.threads.map(|threads| plain("WORKER_THREADS", threads.to_string())));
    env.extend(spec.provider.clone().map(|provider| plain("SLUICE_EXTRACT_PROVIDER", provider)));
    env
}

/// The object of that name, made if there is none.
fn object<'v>(fields: &'v mut Map<String, Value>, name: &str) -> Option<&'v mut Map<String, Value>> {
    fields.entry(name).or_insert_with(|| json!({})).as_object_mut()
}

fn hex(bytes: &[u8], length: usize) -> String {
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests;
