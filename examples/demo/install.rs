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

/// In the demo's own cluster an image is one program, and the converter is another, which has to come beside it.
const CONVERTER_MOUNT: &str = "        - name: converter
          mountPath: /usr/local/bin/sluice-convert
          readOnly: true
";
const CONVERTER_VOLUME: &str = "      - name: converter
        hostPath:
          path: ${CONVERTER}
          type: File
";

/// Tasks that come before their lane would be refused: a lane says which files may be read.
pub fn apply_tenants_and_pool(cluster: &Cluster, documents: &Path, converter: &Path) -> Result<()> {
    cluster.apply(TENANTS_MANIFEST)?;
    cluster.apply(&pool(&cluster.image, documents, cluster.is_own().then_some(converter)))?;
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

fn pool(image: &str, documents: &Path, converter: Option<&Path>) -> String {
    let manifest = POOL_MANIFEST.replace("${IMAGE}", image).replace("${DOCUMENTS}", &documents.display().to_string());
    let Some(converter) = converter else { return manifest };
    let beside = |list: &str, item: &str, manifest: &str| manifest.replacen(list, &format!("{list}{item}"), 1);
    let manifest = beside("        volumeMounts:\n", CONVERTER_MOUNT, &manifest);
    let volume = CONVERTER_VOLUME.replace("${CONVERTER}", &converter.display().to_string());
    beside("      volumes:\n", &volume, &manifest)
}

pub fn submit(cluster: &Cluster, documents: &[Document]) -> Result<()> {
    let manifests: Vec<String> = documents.iter().map(Document::manifest).collect();
    cluster.apply(&manifests.join("---\n")).map(drop)
}

pub fn cancel(cluster: &Cluster, (tenant, name): (&str, &str)) -> Result<()> {
    let patch = r#"--patch={"spec":{"cancel":true}}"#;
    cluster.kubectl(&["patch", "ingesttask", name, "--namespace", tenant, "--type=merge", patch]).map(drop)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn mounts(converter: Option<&Path>) -> Vec<String> {
        let manifest = pool("i:1", Path::new("/d"), converter);
        let pool: Value = serde_saphyr::from_str(&manifest).expect("YAML");
        let pod = &pool["spec"]["template"]["spec"];
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        assert_eq!(mounts.len(), pod["volumes"].as_array().expect("volumes").len());
        mounts.iter().map(|mount| mount["mountPath"].as_str().expect("a path").to_owned()).collect()
    }

    #[test]
    fn converter_is_mounted_where_the_image_has_none() {
        assert_eq!(mounts(None), ["/documents", "/tmp"]);
        assert_eq!(mounts(Some(Path::new("/c"))), ["/usr/local/bin/sluice-convert", "/documents", "/tmp"]);
    }
}
