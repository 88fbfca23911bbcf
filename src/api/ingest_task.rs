//! IngestTask: one task, what it is to do, and where it stands.

#![expect(clippy::duplicated_attributes, reason = "columns of one type are no mistake")]

use kube::CustomResource;
use kube::core::Rule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::schema::{self, NO_NUL, UUID};
use super::tenant_lane::LaneClass;
use super::time::Time;

/// Of `source.text`, in characters; a payload may have 1 MiB.
pub const TEXT_MAX_CHARS: usize = 1_048_576;
/// Of `status.children`.
pub const CHILDREN_MAX: usize = 16;

/// What is asked for.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "IngestTask",
    plural = "ingesttasks",
    shortname = "igt",
    category = "sluice",
    annotation("helm.sh/resource-policy", "keep"),
    namespaced,
    status = "IngestTaskStatus",
    derive = "PartialEq",
    doc = "One task: a document to convert, to take in, to index again or to delete. The database runs it; this resource asks for it and shows it.",
    selectable = ".spec.type",
    selectable = ".spec.tenant",
    selectable = ".status.tenant",
    selectable = ".status.class",
    selectable = ".status.pool",
    selectable = ".status.state",
    selectable = ".status.uiPhase",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type", description = "What it does"),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.displayStatus",
        description = "Where its document stands"
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.uiPhase",
        description = "idle, running, stopping or terminal"
    ),
    printcolumn(
        name = "Progress",
        type_ = "integer",
        json_path = ".status.progress",
        description = "Percent of the stage that is done"
    ),
    printcolumn(
        name = "Why",
        type_ = "string",
        json_path = ".status.summary",
        description = "What it does or waits for, in one line"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".status.tenant", priority = 1),
    printcolumn(name = "Pool", type_ = "string", json_path = ".status.pool", priority = 1),
    printcolumn(name = "Attempt", type_ = "integer", json_path = ".status.attempt", priority = 1),
    printcolumn(name = "Worker", type_ = "string", json_path = ".status.worker", priority = 1),
    printcolumn(name = "Document", type_ = "string", json_path = ".status.documentId", priority = 1),
    printcolumn(name = "Track", type_ = "string", json_path = ".status.trackId", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct IngestTaskSpec {
    /// What to do. PdfProcessing converts a PDF and then inserts it; Insert chunks, extracts, embeds and stores a
    /// document; Upload takes text in as a document and then inserts it; Scan walks a prefix and takes in what is new or
    /// changed; Reindex indexes a document again; KnowledgeInjection adds given facts to the graph; Deletion removes a
    /// document; WorkspaceWipe removes a workspace. Cannot be changed.
    #[serde(rename = "type")]
    pub task_type: TaskType,

    /// Whose work this is; the namespace's name if it is not set. Any other tenant must be in the namespace's annotation
    /// sluice.dev/tenants. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NO_NUL))]
    pub tenant: Option<String>,

    /// The tenant's workspace that the document belongs to. A WorkspaceWipe needs it. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NO_NUL))]
    pub workspace: Option<String>,

    /// Where the content is: exactly one of its fields. Reindex and Deletion need a documentId, Scan a url; only a
    /// WorkspaceWipe has no source. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,

    /// Higher goes first within the lane; 0 if it is not set. A change matters while the task is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: Option<i32>,

    /// While true, the task is not started. Running work goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// True cancels the task and what follows from it. It is final: taking it back changes nothing, which a condition
    /// then says; only a higher value of retries starts the task again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<bool>,

    /// Counts retries by hand: raise it, and a failed or cancelled task runs again, at most three times. The first value
    /// that is seen starts nothing, and a lower one changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub retries: Option<u32>,

    /// How many attempts may fail before the task does; 3 if it is not set. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: Option<u32>,

    /// How long an attempt may take, in seconds; if it is not set, the document's pages decide. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: Option<u32>,

    /// Work that is asked for twice under one key of the tenant is done once; the second resource says Duplicate. Cannot
    /// be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = NO_NUL))]
    pub idempotency_key: Option<String>,

    /// At most one task of the tenant is active under one key. Cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = NO_NUL))]
    pub exclusive_key: Option<String>,

    /// The resource is deleted this long after its end; if it is not set, it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 315_360_000))]
    pub ttl_seconds_after_finished: Option<u32>,

    /// What the deletion of this resource does to work that has not ended: Cancel cancels it, CancelAndWait also keeps
    /// the resource until the worker has stopped, Retain lets it go on. Cancel if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskType {
    PdfProcessing,
    Insert,
    Upload,
    Scan,
    Reindex,
    KnowledgeInjection,
    Deletion,
    WorkspaceWipe,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeletionPolicy {
    #[default]
    Cancel,
    CancelAndWait,
    Retain,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = source_rules()))]
pub struct Source {
    /// Where to read from: an s3, gs, az, https or file URL. It must begin with one of the lane's allowedSources.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^(s3|gs|az|https|file)://[^\x00]+$"))]
    pub url: Option<String>,

    /// The content itself, at most 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_048_576))]
    pub text: Option<String>,

    /// A key of a ConfigMap in this namespace, read once, when the task is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeyRef>,

    /// A document that the tenant has already, as a UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36), regex(pattern = UUID))]
    pub document_id: Option<String>,

    /// A task of the tenant that exists already, as a UUID: this resource shows and cancels it, and makes no other.
    /// The operator writes it for tasks that were born outside Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36), regex(pattern = UUID))]
    pub track_id: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeyRef {
    /// Name of the ConfigMap.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub name: String,

    /// Key in its data.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Written by the operator, from the task's row. Nothing in it depends on the clock.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IngestTaskStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,

    /// The revision of the row that this status shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_rev: Option<i64>,

    /// The value of spec.retries that was last acted upon.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub observed_retries: Option<u32>,

    /// The task's public id. A resource that has one never makes another task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36), regex(pattern = UUID))]
    pub track_id: Option<String>,

    /// Whose work it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub tenant: Option<String>,

    /// Which of the tenant's two lanes it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<LaneClass>,

    /// The pool that serves its lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub pool: Option<String>,

    /// State of the task's own row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,

    /// Where the document stands: the stage it is in, or how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub display_status: Option<String>,

    /// What a user interface should show: idle, running, stopping or terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ui_phase: Option<UiPhase>,

    /// What the worker says it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub stage: Option<String>,

    /// Percent of the stage that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub progress: Option<u32>,

    /// Number of the newest attempt; 0 before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub attempt: Option<u32>,

    /// How often it was started again by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub retries: Option<u32>,

    /// The worker that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub worker: Option<String>,

    /// The document that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36), regex(pattern = UUID))]
    pub document_id: Option<String>,

    /// Tasks that follow from this one, the newest first, at most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["trackId"]))]
    pub children: Vec<Child>,

    /// How many tasks follow from this one, by state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children_counts: Option<ChildrenCounts>,

    /// When the newest attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// What it does or waits for, and why, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub summary: Option<String>,

    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,

    /// Accepted, LanePermitted, Running, Stopping, Succeeded and SpecIgnored; and Ready, Reconciling and Stalled for tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Pending,
    Processing,
    Stopping,
    Completed,
    Failed,
    Cancelled,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "lowercase")]
pub enum UiPhase {
    Idle,
    Running,
    Stopping,
    Terminal,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Child {
    /// The task's public id.
    #[schemars(length(max = 36), regex(pattern = UUID))]
    pub track_id: String,

    /// What it does.
    #[serde(rename = "type")]
    pub task_type: TaskType,

    /// State of its row.
    pub state: State,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ChildrenCounts {
    /// Not started, or waiting for another attempt.
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub pending: u64,

    /// With a worker, those that are stopping included.
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub running: u64,

    /// Ended well.
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub completed: u64,

    /// Failed.
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub failed: u64,

    /// Cancelled.
    #[schemars(range(min = 0, max = 1_000_000_000_000_i64))]
    pub cancelled: u64,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What kind of failure it was, such as no_text_layer; a closed set.
    #[schemars(length(max = 64))]
    pub class: String,

    /// What the handler said, cut to a few KiB.
    #[schemars(length(max = 4096))]
    pub message: String,

    /// What to do about it, such as fix_document.
    #[schemars(length(max = 64))]
    pub recommended_action: String,
}

fn spec_rules() -> Vec<Rule> {
    let optional = ["tenant", "workspace", "source", "maxAttempts", "timeoutSeconds", "idempotencyKey", "exclusiveKey"];
    let mut rules = schema::immutable(&["type"], &optional);
    rules.extend([
        Rule::new("self.type == 'WorkspaceWipe' || has(self.source)")
            .message("this type needs a source: set one of url, text, configMapKeyRef and documentId")
            .field_path(".source"),
        Rule::new("self.type != 'WorkspaceWipe' || has(self.workspace)")
            .message("a WorkspaceWipe needs the workspace that it removes")
            .field_path(".workspace"),
        Rule::new("self.type != 'WorkspaceWipe' || !has(self.source) || has(self.source.trackId)")
            .message("a WorkspaceWipe has no source: it removes the whole workspace")
            .field_path(".source"),
        Rule::new(
            "!(self.type in ['Reindex', 'Deletion']) || !has(self.source) || has(self.source.documentId) || \
             has(self.source.trackId)",
        )
        .message("Reindex and Deletion are about a document that is there already: set documentId")
        .field_path(".source"),
        Rule::new("self.type != 'Scan' || !has(self.source) || has(self.source.url) || has(self.source.trackId)")
            .message("a Scan walks a prefix: set url")
            .field_path(".source"),
        Rule::new("self.type != 'PdfProcessing' || !has(self.source) || !has(self.source.text)")
            .message("a PDF is not a text: set url, configMapKeyRef or documentId")
            .field_path(".source"),
        Rule::new(
            "!(self.type in ['Upload', 'KnowledgeInjection']) || !has(self.source) || !has(self.source.documentId)",
        )
        .message("this type takes in new content: set url, text or configMapKeyRef")
        .field_path(".source"),
    ]);
    rules
}

fn source_rules() -> Vec<Rule> {
    let members = ["url", "text", "configMapKeyRef", "documentId", "trackId"];
    let count = members.map(|member| format!("(has(self.{member}) ? 1 : 0)")).join(" + ");
    vec![
        Rule::new(format!("{count} == 1"))
            .message("exactly one of url, text, configMapKeyRef, documentId and trackId must be set"),
        Rule::new("!has(self.url) || !self.url.matches('^[a-z0-9]+://[^/?#]*@')")
            .message("a url must not carry credentials; give them to the worker in a Secret")
            .field_path(".url"),
    ]
}
