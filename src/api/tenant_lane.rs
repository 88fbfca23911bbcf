//! TenantLane: the limits of one lane, and what its work does.

#![expect(clippy::duplicated_attributes, reason = "columns of one type are no mistake")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::schema::{self, NO_NUL};

/// Of `pool`.
pub const POOL_DEFAULT: &str = "default";
/// Of `mirror.limit`.
pub const MIRROR_LIMIT_DEFAULT: u32 = 100;

/// What is asked for.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "TenantLane",
    plural = "tenantlanes",
    shortname = "tlane",
    category = "sluice",
    annotation("helm.sh/resource-policy", "keep"),
    namespaced,
    status = "TenantLaneStatus",
    derive = "PartialEq",
    doc = "The limits of one lane: all work of one tenant and one class. Without such a resource a lane has its pool's defaults.",
    selectable = ".spec.tenant",
    selectable = ".spec.class",
    selectable = ".spec.pool",
    selectable = ".status.tenant",
    printcolumn(name = "Tenant", type_ = "string", json_path = ".status.tenant", description = "Whose lane it is"),
    printcolumn(name = "Class", type_ = "string", json_path = ".spec.class", description = "ingest or lifecycle"),
    printcolumn(
        name = "Max",
        type_ = "integer",
        json_path = ".status.effectiveMaxRunning",
        description = "How many tasks may run at once; 0 is no cap"
    ),
    printcolumn(
        name = "Running",
        type_ = "integer",
        json_path = ".status.running",
        description = "Tasks with a worker"
    ),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.pending",
        description = "Tasks without a worker, the parked ones included"
    ),
    printcolumn(
        name = "Parked",
        type_ = "integer",
        json_path = ".status.parked",
        description = "Tasks that could run, but may not: the lane is full, held or resting"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.summary",
        description = "What the lane does or waits for, in one line"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Policy", type_ = "string", json_path = ".spec.policy", priority = 1),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool", priority = 1),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::immutable(&["class"], &["tenant"])))]
pub struct TenantLaneSpec {
    /// Whose lane this is; the namespace's name if it is not set. Any other tenant must be in the namespace's annotation
    /// sluice.dev/tenants. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NO_NUL))]
    pub tenant: Option<String>,

    /// Which of the tenant's two lanes: ingest (all that takes documents in) or lifecycle (Deletion, WorkspaceWipe).
    /// Neither blocks the other. Cannot be changed.
    pub class: LaneClass,

    /// How many tasks may run at once, over all workers; 0 is no cap. The pool's default if it is not set. Lowering it
    /// stops nothing that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_running: Option<u32>,

    /// How many turns this lane gets for one of another lane of its pool; 1 if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: Option<u32>,

    /// None lets work start; Hold starts nothing new; HoldAndDrain also takes running work back to pending. None if it
    /// is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<LanePolicy>,

    /// Why the lane is held; shown wherever its tasks wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = NO_NUL))]
    pub policy_reason: Option<String>,

    /// Name of the WorkerPool that serves the lane; default if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NO_NUL))]
    pub pool: Option<String>,

    /// What the tasks of the lane may read: each url must begin with one of these. Without any: https, and neither files nor buckets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 100),
        inner(length(min = 1, max = 2048), regex(pattern = r"^(s3|gs|az|https|file)://[^\x00]*$")),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub allowed_sources: Option<Vec<String>>,

    /// Whether tasks that were born outside Kubernetes get a resource of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<LaneMirror>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum LaneClass {
    Ingest,
    Lifecycle,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LanePolicy {
    #[default]
    None,
    Hold,
    HoldAndDrain,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LaneMirror {
    /// Active makes an IngestTask for each task that has not ended, None makes none. None if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<MirrorPolicy>,

    /// How many there may be at once; 100 if it is not set. More tasks than that are only in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10_000))]
    pub limit: Option<u32>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MirrorPolicy {
    #[default]
    None,
    Active,
}

/// Written by the operator, from the lane's row and its tasks.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TenantLaneStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,

    /// Whose lane it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub tenant: Option<String>,

    /// The cap that holds; 0 is no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub effective_max_running: Option<u32>,

    /// Why it is not the one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub effective_reason: Option<String>,

    /// Tasks with a worker that are not stopping.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub running: Option<u64>,

    /// Tasks that a worker was told to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub stopping: Option<u64>,

    /// Tasks without a worker: parked, suspended and backing off included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub pending: Option<u64>,

    /// Pending tasks that could run, but may not: the lane is full, held or resting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub parked: Option<u64>,

    /// Pending tasks that somebody suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub suspended: Option<u64>,

    /// Pending tasks that wait for their next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub backing_off: Option<u64>,

    /// Failed tasks that are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub failed: Option<u64>,

    /// Tasks that ended well since the lane was last without work.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub completed_since_idle: Option<u64>,

    /// What the lane does or waits for, and why, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub summary: Option<String>,

    /// Accepted and Held; and Ready, Reconciling and Stalled for tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
