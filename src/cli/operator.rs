//! `sluice operator`: the Kubernetes side, in a process of its own.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{OperatorArgs, OperatorSettings};
use crate::operator::{self, LocalWake};

/// Where a pod finds the namespace of its service account.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

pub(super) async fn run(args: OperatorArgs) -> anyhow::Result<ExitCode> {
    let settings = settings(args.resolve()?, None);
    operator::run(settings, shutdown_on_signal()?).await?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn settings(settings: OperatorSettings, local_wake: Option<LocalWake>) -> operator::Settings {
    let OperatorSettings { database, cluster_id, namespace, watch_namespaces, pod_name, listen } = settings;
    let of_pod = || std::fs::read_to_string(POD_NAMESPACE).ok().map(|name| name.trim().to_owned());
    let process = uuid::Uuid::new_v4().simple();
    operator::Settings {
        database: database.url,
        listen_database: database.listen_url,
        cluster: cluster_id,
        namespace: namespace.or_else(of_pod).unwrap_or_else(|| "default".to_owned()),
        watch_namespaces,
        // A pod's name may come back with another process.
        identity: pod_name.map_or_else(|| process.to_string(), |pod| format!("{pod}_{process}")),
        listen,
        local_wake,
    }
}

/// SIGTERM and Ctrl-C end the process in order.
fn shutdown_on_signal() -> anyhow::Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let told = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        told.cancel();
    });
    Ok(shutdown)
}
