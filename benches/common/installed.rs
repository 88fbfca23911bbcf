//! Sluice in a namespace of the benches' own cluster: the definitions, an operator's process, and a client.

use std::path::Path;

use anyhow::Context;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::bed::Database;
use super::cluster::Cluster;
use super::process::{Command, Process};

pub fn sluice(command: &str) -> Command {
    let mut sluice = Command::new(env!("CARGO_BIN_EXE_sluice"));
    sluice.arg(command);
    sluice
}

/// The cluster of this run, with our kinds. It ends with the process.
pub async fn cluster() -> anyhow::Result<(&'static Cluster, Client)> {
    // A client needs one, as the binary does.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::shared();
    let kinds = json!({ "apiVersion": "v1", "kind": "List", "items": sluice::api::all_crds()? });
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename=-"];
    cluster.admin().try_run_with(&apply, &kinds.to_string()).map_err(anyhow::Error::msg)?;
    cluster.admin().run(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    let kubeconfig = Kubeconfig::read_from(cluster.admin().kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok((cluster, Client::try_from(config).context("a client")?))
}

/// A worker with wakes by LISTEN as in a cluster, defaults, and what is said besides.
pub async fn worker(database: &Database, slots: usize, more: &[(&str, &str)]) -> anyhow::Result<Process> {
    let (slots, listener) = (slots.to_string(), database.listener_url());
    let settings = [
        ("WORKER_THREADS", slots.as_str()),
        ("SLUICE_TASK_DELIVERY", "bridged"),
        ("SLUICE_LISTEN_DATABASE_URL", listener.as_str()),
    ];
    let mut worker = Process::start(sluice("worker"), database, &[&settings, more].concat())?;
    worker.registered(database).await?;
    Ok(worker)
}

/// An operator of this namespace alone, which acts by the rights of a kubeconfig.
pub fn operator(kubeconfig: &Path, namespace: &str, database: &Database) -> anyhow::Result<Process> {
    let (kubeconfig, url) = (kubeconfig.to_string_lossy(), database.operator_url());
    let settings = [
        ("KUBECONFIG", kubeconfig.as_ref()),
        ("DATABASE_URL", url.as_str()),
        ("SLUICE_CLUSTER_ID", namespace),
        ("SLUICE_NAMESPACE", namespace),
        ("SLUICE_WATCH_NAMESPACES", namespace),
        ("SLUICE_OPERATOR_LISTEN", "off"),
    ];
    Process::start(sluice("operator"), database, &settings)
}
