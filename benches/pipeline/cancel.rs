//! From a patch of `spec.cancel` to the token of the handler, in each stage, through a real API server and the operator.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice::api::IngestTask;
use uuid::Uuid;

use crate::common::bed::{Bed, Database};
use crate::common::cluster::Namespace;
use crate::common::installed;
use crate::common::process::{Process, Times, now_us};
use crate::common::report::{Report, median, percentile};
use crate::endpoint::{DIMENSIONS, Endpoint, Reply, good};
use crate::installation::{self, WORKSPACE, until_none};
use crate::scale::Scale;

const SLOTS: usize = 4;
/// It takes its converter longer than any cancel.
const LONG_PDF_PAGES: usize = 20_000;
/// For what takes moments on an idle machine.
const SOON: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Sharing no divisor with anything that comes again and again, so that cancels meet every moment of it.
const STEP: Duration = Duration::from_millis(37);

/// Where a task stands when it is cancelled, and what keeps it there: a long file, an endpoint that hears and says nothing, a
/// graph that somebody else holds.
const STAGES: [&str; 4] = ["converting", "extracting", "embedding", "storing"];

struct Scene {
    database: Database,
    namespace: Namespace<'static>,
    tasks: Api<IngestTask>,
    operator: Process,
    worker: Process,
    folder: tempfile::TempDir,
    _endpoint: Endpoint,
}

/// The clock starts when the patch is sent, which is before the API server can have received it, and stops at the worker's
/// line of the log that its handler is told to stop.
pub async fn end_to_end(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let scene = Scene::new(bed).await?;
    report.progress("a cluster, an operator and a worker are up");
    let mut sent = Vec::new();
    for stage in STAGES {
        sent.push(scene.cancels(stage, scale.cancels).await?);
    }
    let cancelled =
        scene.database.number("select count(*) from sluice.tasks_archive where state <> 'cancelled'").await?;
    ensure!(cancelled == 0, "{cancelled} cancelled tasks ended otherwise");
    let fired = fired(&scene.end(bed).await?);
    let mut worst = 0.0_f64;
    for (stage, sent) in STAGES.iter().zip(&sent) {
        let wait = |(track_id, at): (&Uuid, &u64)| {
            let fired = fired.get(track_id).with_context(|| format!("the worker said nothing of task {track_id}"))?;
            Ok(fired.saturating_sub(*at) as f64 / 1_000.0)
        };
        let waits: Vec<f64> = sent.iter().map(wait).collect::<anyhow::Result<_>>()?;
        let (p99, longest) = (percentile(&waits, 0.99), percentile(&waits, 1.0));
        let (p50, number) = (median(&waits), waits.len());
        report.note(format!(
            "cancel while {stage}: p50 {p50:.0} ms, p99 {p99:.0} ms, longest {longest:.0} ms of {number}"
        ));
        worst = worst.max(p99);
    }
    report.set("cancel_e2e_p99_ms", worst);
    Ok(())
}

impl Scene {
    async fn new(bed: &Bed) -> anyhow::Result<Self> {
        let (cluster, client) = installed::cluster().await?;
        let namespace = cluster.namespace("bench-pipeline");
        let tasks = Api::namespaced(client, &namespace.name);

        let database = installation::database(bed, None).await?;
        // As an admin: rights cost it no time.
        let operator = installed::operator(cluster.admin().kubeconfig(), &namespace.name, &database)?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("long.pdf"), long_pdf())?;
        let endpoint = Endpoint::start(|call| match call.text() {
            text if text.contains(if call.is_chat() { "extracting" } else { "embedding" }) => Reply::Silent,
            _ => good(call),
        })
        .await;
        let (url, dimensions, root) = (endpoint.url(), DIMENSIONS.to_string(), folder.path().to_string_lossy());
        let settings = [
            ("SLUICE_FILE_ROOT", root.as_ref()),
            ("SLUICE_EXTRACT_PROVIDER", "openai"),
            ("SLUICE_PROVIDER_URL", url.as_str()),
            ("SLUICE_EXTRACT_MODEL", "small"),
            ("SLUICE_EMBEDDING_MODEL", "tiny"),
            ("SLUICE_EMBEDDING_DIMENSIONS", dimensions.as_str()),
        ];
        let worker = installation::worker(&database, SLOTS, &settings).await?;
        namespace.apply(&lane(folder.path()));
        let unset = "select count(*) - 1 from sluice.tenant_lanes where allowed_sources <> '{}'";
        until_none(&database, unset).await?;
        Ok(Self { database, namespace, tasks, operator, worker, folder, _endpoint: endpoint })
    }

    /// One after the other; answers when each was asked for.
    async fn cancels(&self, stage: &str, number: usize) -> anyhow::Result<Times> {
        let mut holder = self.database.pool.begin().await?;
        if stage == "storing" {
            let lock = sqlx::query("select ingest.try_lock_graph($1, $2)").bind(&self.namespace.name).bind(WORKSPACE);
            lock.execute(&mut *holder).await?;
        }
        let mut sent = Times::new();
        for n in 0..number {
            let name = format!("{stage}-{n}");
            self.create(&name, stage).await?;
            let track_id = self.running(stage).await?;
            tokio::time::sleep(STEP * u32::try_from(n % 7)?).await;
            sent.insert(track_id, now_us());
            let patch = Patch::Merge(json!({ "spec": { "cancel": true } }));
            self.tasks.patch(&name, &PatchParams::default(), &patch).await?;
            until_none(&self.database, "select count(*) from sluice.tasks").await?;
        }
        holder.rollback().await?;
        Ok(sent)
    }

    async fn create(&self, name: &str, stage: &str) -> anyhow::Result<()> {
        let spec = match stage {
            "converting" => {
                let url = format!("file://{}/long.pdf", self.folder.path().display());
                json!({ "type": "PdfProcessing", "workspace": WORKSPACE, "source": { "url": url } })
            }
            _ => {
                json!({ "type": "Insert", "workspace": WORKSPACE, "source": { "text": format!("It waits while {stage}.") } })
            }
        };
        let object = json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "IngestTask", "metadata": { "name": name }, "spec": spec,
        });
        self.tasks.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// The one task, as soon as the stage is told.
    async fn running(&self, stage: &str) -> anyhow::Result<Uuid> {
        let begun = Instant::now();
        loop {
            let running = "select track_id from sluice.tasks where state = 'processing' and stage = $1";
            let found = sqlx::query_scalar(running).bind(stage).fetch_optional(&self.database.pool).await?;
            if let Some(track_id) = found {
                return Ok(track_id);
            }
            ensure!(begun.elapsed() < SOON, "no task is {stage} after {SOON:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Answers the worker's log.
    async fn end(self, bed: &Bed) -> anyhow::Result<String> {
        let log = self.worker.stop().await?.log;
        self.operator.stop().await?;
        bed.drop(self.database).await?;
        Ok(log)
    }
}

fn lane(folder: &Path) -> String {
    format!(
        "apiVersion: sluice.dev/v1alpha1
kind: TenantLane
metadata: {{name: ingest}}
spec: {{class: ingest, maxRunning: 0, allowedSources: [\"file://{}/\"]}}",
        folder.display()
    )
}

fn long_pdf() -> Vec<u8> {
    crate::pdf::pdf(&(0..LONG_PDF_PAGES).map(|page| format!("On page {page} a ship leaves.")).collect::<Vec<_>>())
}

/// When each task's handler was told to stop, by the worker's log.
fn fired(log: &str) -> Times {
    let told = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        if line["message"] != "the handler is told to stop" || line["cause"] != "cancel" {
            return None;
        }
        let at: DateTime<Utc> = line["timestamp"].as_str()?.parse().ok()?;
        let track_id = line["span"]["track_id"].as_str()?.parse().ok()?;
        Some((track_id, u64::try_from(at.timestamp_micros()).ok()?))
    };
    log.lines().filter_map(told).collect()
}
