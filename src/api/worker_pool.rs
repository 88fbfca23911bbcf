//! WorkerPool: the workers that serve lanes, and how many of them there are.

#![expect(clippy::duplicated_attributes, reason = "columns of one type are no mistake")]

use kube::CustomResource;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::conditions::Condition;
use super::schema::NO_NUL;

pub const MIN_REPLICAS_DEFAULT: u32 = 0;
pub const MAX_REPLICAS_DEFAULT: u32 = 1;
pub const SCALE_DOWN_DELAY_DEFAULT_SECS: u32 = 300;
pub const DRAIN_DEFAULT_SECS: u32 = 60;

/// What is asked for.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "WorkerPool",
    plural = "workerpools",
    shortname = "wpool",
    category = "sluice",
    annotation("helm.sh/resource-policy", "keep"),
    namespaced,
    status = "WorkerPoolStatus",
    derive = "PartialEq",
    doc = "A set of workers that serve lanes. It lives in the operator's namespace; the operator scales its workers to the work that the lanes permit.",
    selectable = ".spec.mode",
    selectable = ".spec.delivery",
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".status.replicas",
        description = "Workers that there are"
    ),
    printcolumn(
        name = "Ready",
        type_ = "integer",
        json_path = ".status.readyReplicas",
        description = "Those that are ready"
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desiredReplicas",
        description = "Workers that there should be"
    ),
    printcolumn(
        name = "Max",
        type_ = "integer",
        json_path = ".spec.maxReplicas",
        description = "The most there may be"
    ),
    printcolumn(
        name = "Demand",
        type_ = "integer",
        json_path = ".status.demand",
        description = "Tasks that run, or could run under the caps of their lanes"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.summary",
        description = "Why there are so many, in one line"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode", priority = 1),
    printcolumn(name = "Delivery", type_ = "string", json_path = ".spec.delivery", priority = 1),
    printcolumn(name = "Draining", type_ = "integer", json_path = ".status.draining", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct WorkerPoolSpec {
    /// Deployment runs workers that take one task after another; Job starts one pod for each attempt, for heavy or
    /// isolated work. Deployment if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PoolMode>,

    /// How workers learn of new work: local wakes only its own process, bridged and notify_only listen to Postgres. All
    /// of them also poll. local if it is not set, which allows one replica at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,

    /// The fewest workers there may be; 0 if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub min_replicas: Option<u32>,

    /// The most workers there may be; 1 if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub max_replicas: Option<u32>,

    /// How many tasks one worker runs at once; if it is not set, the worker's processors decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<u32>,

    /// How long demand must stay lower before workers go, in seconds; 300 if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub scale_down_delay_seconds: Option<u32>,

    /// How long a worker that is told to end may finish what it runs, in seconds; it gives back the rest. 60 if it is
    /// not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_seconds: Option<u32>,

    /// Name of the provider that extracts, such as builtin, openai, ollama or lmstudio. A local one (ollama, lmstudio)
    /// bounds the caps of the pool's lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NO_NUL))]
    pub provider: Option<String>,

    /// The pods of the workers, as in a Deployment: metadata and spec. The operator tries it with a dry run, and says
    /// TemplateValid=False if Kubernetes refuses it.
    #[schemars(schema_with = "open_object")]
    pub template: Map<String, Value>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolMode {
    #[default]
    Deployment,
    Job,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    #[default]
    Local,
    Bridged,
    NotifyOnly,
}

/// Written by the operator.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkerPoolStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,

    /// Workers that there are; in mode Job, Jobs that have not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub replicas: Option<u32>,

    /// Those that are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub ready_replicas: Option<u32>,

    /// Workers that there should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub desired_replicas: Option<u32>,

    /// Workers that take no new work and will go when they are idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub draining: Option<u32>,

    /// Tasks that run, stop, or could start under the caps of their lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub demand: Option<u64>,

    /// Tasks with a worker, the stopping ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub running: Option<u64>,

    /// Why there are so many workers, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub summary: Option<String>,

    /// DeliveryRule, TemplateValid and Scaled; and Ready, Reconciling and Stalled for tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn spec_rules() -> Vec<Rule> {
    vec![
        Rule::new(
            "!has(self.maxReplicas) || self.maxReplicas <= 1 || (has(self.delivery) && self.delivery != 'local')",
        )
        .message(
            "more than one replica cannot run with delivery local, which wakes only its own process: set delivery to \
             bridged or notify_only, or maxReplicas to 1",
        )
        .field_path(".maxReplicas"),
        Rule::new("!has(self.minReplicas) || self.minReplicas <= (has(self.maxReplicas) ? self.maxReplicas : 1)")
            .message("minReplicas must not be above maxReplicas, which is 1 if it is not set")
            .field_path(".minReplicas"),
    ]
}

/// Kubernetes checks it when the Deployment is made; a copy of its schema here would be of one version only.
fn open_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
