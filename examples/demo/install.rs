//! From a cluster and a database to Sluice with two tenants and a pool, as docs/install.md does it by hand.

use std::path::Path;

use anyhow::Result;

use crate::cluster::{Cluster, SYSTEM};
use crate::database::PodUrls;
use crate::documents::{Document, TENANTS};

const TENANTS_MANIFEST: &str = include_str!("1-tenants.yaml");
const POOL_MANIFEST: &str = include_str!("2-pool.yaml");

pub fn install(cluster: &Cluster, repository: &Path, urls: &PodUrls) -> Result<()> {
    let secrets = [
        ("sluice-migrations", &urls.migrations),
        ("sluice-database", &urls.operator),
        ("sluice-worker-database", &urls.worker),
    ];
    let secrets = secrets.map(|(name, url)| {
        format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {SYSTEM}}}\nstringData: {{url: \"{url}\"}}\n"
        )
    });
    cluster.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SYSTEM}}}\n{}", secrets.concat()))?;
    let chart = |name: &str| repository.join("charts").join(name).display().to_string();
    cluster.helm(&["install", "sluice-crds", &chart("sluice-crds"), "--namespace", SYSTEM], "{}")?;
    let (name, tag) = cluster.image.rsplit_once(':').unwrap_or((&cluster.image, "latest"));
    let values = format!(
        "image: {{repository: \"{name}\", tag: \"{tag}\"}}\n\
         replicas: 1\n\
         database: {{existingSecret: sluice-database}}\n\
         migrations: {{database: {{existingSecret: sluice-migrations}}}}\n"
    );
    cluster.helm(&["install", "sluice", &chart("sluice"), "--namespace", SYSTEM, "--timeout=120s"], &values)?;
    cluster.kubectl(&["rollout", "status", "deployment/sluice", "--namespace", SYSTEM, "--timeout=120s"])?;
    Ok(())
}

/// Tasks that come before their lane would be refused: a lane says which files may be read.
pub fn apply_tenants_and_pool(cluster: &Cluster, documents: &Path) -> Result<()> {
    cluster.apply(TENANTS_MANIFEST)?;
    let documents = documents.display().to_string();
    cluster.apply(&POOL_MANIFEST.replace("${IMAGE}", &cluster.image).replace("${DOCUMENTS}", &documents))?;
    for tenant in TENANTS {
        let lane = ["wait", "tenantlane/ingest", "--namespace", tenant, "--for=condition=Ready", "--timeout=30s"];
        cluster.kubectl(&lane)?;
    }
    cluster.kubectl(&[
        "wait",
        "workerpool/default",
        "--namespace",
        SYSTEM,
        "--for=condition=Ready",
        "--timeout=30s",
    ])?;
    Ok(())
}

pub fn submit(cluster: &Cluster, documents: &[Document]) -> Result<()> {
    let manifests: Vec<String> = documents.iter().map(Document::manifest).collect();
    cluster.apply(&manifests.join("---\n")).map(drop)
}

pub fn cancel(cluster: &Cluster, (tenant, name): (&str, &str)) -> Result<()> {
    let patch = r#"--patch={"spec":{"cancel":true}}"#;
    cluster.kubectl(&["patch", "ingesttask", name, "--namespace", tenant, "--type=merge", patch]).map(drop)
}
