//! What users write: the three kinds of `sluice.dev`, their schemas and the rules that the API server enforces.

pub mod conditions;
pub mod ingest_task;
mod schema;
pub mod tenant_lane;
mod time;
pub mod worker_pool;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use conditions::{Condition, ConditionStatus};
pub use ingest_task::{IngestTask, IngestTaskSpec, IngestTaskStatus};
pub use schema::{SchemaError, plain_json};
pub use tenant_lane::{TenantLane, TenantLaneSpec, TenantLaneStatus};
pub use time::Time;
pub use worker_pool::{WorkerPool, WorkerPoolSpec, WorkerPoolStatus};

pub const GROUP: &str = "sluice.dev";
pub const VERSION: &str = "v1alpha1";

/// On a namespace: the tenants that it may name besides its own, as JSON: `["a","b"]`, or `["*"]` for any.
pub const TENANTS_ANNOTATION: &str = "sluice.dev/tenants";

/// Of tenants, workspaces and pools, in characters.
pub const NAME_MAX_CHARS: usize = 253;
/// What a status says in one line.
pub const SUMMARY_MAX_CHARS: usize = 512;
/// Of a failure. With all other texts at their limits too, a status stays under 16 KiB.
pub const FAILURE_MESSAGE_MAX_BYTES: usize = 3_072;
/// What we write; the schema allows what Kubernetes itself allows.
pub const CONDITION_MESSAGE_MAX_BYTES: usize = 512;

/// The definitions to be installed, exactly as `crds/` has them.
pub fn all_crds() -> Result<Vec<CustomResourceDefinition>, SchemaError> {
    use kube::CustomResourceExt;
    [IngestTask::crd(), TenantLane::crd(), WorkerPool::crd()].into_iter().map(schema::finish).collect()
}
