//! A namespace with an operator of its own and a database behind it; what it wrote stands in the API server's audit log.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice::api::IngestTask;
use sluice::store::Database as Store;

use crate::common::asking;
use crate::common::bed::{Bed, Database};
use crate::common::cluster::{AuditEvent, Cluster, Kubectl, Namespace};
use crate::common::installed;
use crate::common::process::Process;

/// For what is measured in moments, and for the last of many.
const LIMIT: Duration = Duration::from_secs(900);
/// Requests of whoever creates resources, at once.
const CREATORS: usize = 24;

pub struct Stand {
    pub database: Database,
    pub store: Store,
    pub namespace: Namespace<'static>,
    pub client: Client,
    pub tasks: Api<IngestTask>,
    cluster: &'static Cluster,
    /// Whom the operator acts as.
    account: Kubectl,
    user: String,
}

impl Stand {
    /// With a pool without caps, in a namespace that speaks for these tenants and for itself.
    pub async fn new(bed: &Bed, purpose: &str, tenants: usize) -> anyhow::Result<Self> {
        let (cluster, client) = installed::cluster().await?;
        let own =
            cluster.own("the audit log").context("`make bench-operator` measures its own cluster: unset KUBECONFIG")?;
        let namespace = cluster.namespace(&format!("bench-{purpose}"));
        let tenants = serde_json::to_string(&(0..tenants).map(tenant).collect::<Vec<_>>())?;
        let annotated = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": namespace.name, "annotations": { "sluice.dev/tenants": tenants } },
        });
        namespace.apply(&annotated.to_string());
        let user = format!("operator-of-{}", namespace.name);
        let account = own.user(&user, &["system:masters"], None);
        let database = bed.ours().await?;
        let store = asking::operator(&database)?;
        asking::uncap(&store, None).await?;
        let tasks = Api::namespaced(client.clone(), &namespace.name);
        Ok(Self { database, store, namespace, client, tasks, cluster, account, user })
    }

    pub fn operator(&self) -> anyhow::Result<Process> {
        installed::operator(self.account.kubeconfig(), &self.namespace.name, &self.database)
    }

    /// That handles tasks as their text says.
    pub async fn worker(&self, slots: usize) -> anyhow::Result<Process> {
        // Some of its tasks would run for longer than anybody waits.
        let more = [("SLUICE_TEST_HANDLERS", "all"), ("SLUICE_DRAIN_SECS", "1")];
        installed::worker(&self.database, slots, &more).await
    }

    /// As fast as the API server takes them.
    pub async fn create_all(
        &self,
        numbers: std::ops::Range<usize>,
        object: impl Fn(usize) -> Value,
    ) -> anyhow::Result<()> {
        let create = |number| {
            let task = serde_json::from_value(object(number));
            async move { anyhow::Ok(self.tasks.create(&PostParams::default(), &task?).await?) }
        };
        stream::iter(numbers.map(create)).buffer_unordered(CREATORS).try_for_each(async |_| Ok(())).await
    }

    pub async fn patch(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.tasks.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits for a number of the database, looking so seldom that it costs what is measured nothing.
    pub async fn until(&self, what: &str, sql: &'static str, is_right: impl Fn(i64) -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let number = self.database.number(sql).await?;
            if is_right(number) {
                return Ok(());
            }
            ensure!(begun.elapsed() < LIMIT, "waited {LIMIT:?} for {what}: {sql} says {number}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Every row, live or ended, is shown as it is.
    pub async fn until_shown(&self, tasks: usize) -> anyhow::Result<()> {
        // What has changed is counted a moment later.
        let shown = "select case when exists (select from sluice.mirror_dirty) then 0
                            else (select count(*) from sluice.mirrors where rev = mirrored_rev) end";
        self.until("all to be shown", shown, |count| usize::try_from(count).is_ok_and(|count| count >= tasks)).await
    }

    /// Says which program an image name stands for.
    pub fn load(&self, image: &str, program: &str) -> anyhow::Result<()> {
        self.cluster.own("images").context("a cluster of its own")?.load(image, program);
        Ok(())
    }

    /// Each of so many Deployments wants as many pods.
    pub async fn until_scaled(&self, deployments: usize, replicas: i32) -> anyhow::Result<()> {
        let (begun, api) = (Instant::now(), Api::<Deployment>::namespaced(self.client.clone(), &self.namespace.name));
        loop {
            let all = api.list(&ListParams::default()).await?;
            let wants = |deployment: &Deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas);
            if all.items.iter().filter(|deployment| wants(deployment) == Some(replicas)).count() == deployments {
                return Ok(());
            }
            ensure!(begun.elapsed() < LIMIT, "waited {LIMIT:?} for {deployments} Deployments of {replicas} pods");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What the operator wrote, its Lease aside, oldest first.
    pub fn writes(&self) -> anyhow::Result<Vec<AuditEvent>> {
        let is_read = |verb: &str| ["get", "list", "watch"].contains(&verb);
        let mut events = self.audit()?;
        events.retain(|event| event.user == self.user && event.resource != "leases" && !is_read(&event.verb));
        Ok(events)
    }

    /// What anybody did in the namespace.
    pub fn audit(&self) -> anyhow::Result<Vec<AuditEvent>> {
        let own = self.cluster.own("the audit log").context("a cluster of its own")?;
        let mut events = own.audit();
        events.retain(|event| event.namespace == self.namespace.name);
        Ok(events)
    }

    pub async fn end(self, bed: &Bed) -> anyhow::Result<()> {
        self.store.close().await;
        bed.drop(self.database).await
    }
}

pub fn tenant(number: usize) -> String {
    format!("tenant-{number}")
}

/// An insert whose text says how long it takes.
pub fn sleeping(name: &str, tenant: Option<String>, ms: u64) -> Value {
    let text = json!({ "handler": "sleep", "ms": ms }).to_string();
    json!({
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "IngestTask",
        "metadata": { "name": name },
        "spec": { "type": "Insert", "tenant": tenant, "source": { "text": text } },
    })
}

/// Milliseconds between a moment of the audit log and one of this process: both are of one machine's clock.
pub fn between(from: DateTime<Utc>, to: DateTime<Utc>) -> f64 {
    (to - from).num_microseconds().unwrap_or(i64::MAX) as f64 / 1_000.0
}

pub fn moment(text: &str) -> anyhow::Result<DateTime<Utc>> {
    text.parse().with_context(|| format!("{text:?} is no time"))
}
