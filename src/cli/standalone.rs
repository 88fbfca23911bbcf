//! `sluice standalone`: all of Sluice in one process, for a laptop or a single node.

use std::process::ExitCode;
use std::thread::JoinHandle;

use anyhow::Context;
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::worker::{HandlerArgs, Prepared};
use super::{block_on, operator as cli_operator, worker};
use crate::config::{ClusterArgs, ConfigError, DatabaseArgs, ProcessArgs, WorkerArgs};
use crate::operator::{self, LocalWake};
use crate::store::migrate::{MIGRATIONS, migrate};
use crate::store::{Database, PoolSettings, Role};
use crate::worker::Shutdown;

#[derive(Debug, Args)]
pub struct StandaloneCommand {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    handlers: HandlerArgs,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub fn run(command: StandaloneCommand, cpus: u32) -> anyhow::Result<ExitCode> {
    let StandaloneCommand { database, worker, handlers, process, cluster } = command;
    let process = process.resolve(cpus)?;
    if process.replicas > 1 {
        return Err(ConfigError::StandaloneReplicas.into());
    }
    let database = database.resolve()?;
    let cluster = cluster.resolve(worker.pod_name.clone(), database.clone());
    let url = database.url.clone();
    let prepared = worker::prepare(database, worker, None, handlers, &process)?;
    block_on(async {
        let database = Database::new(url, Role::Migrator, PoolSettings::default());
        let applied = migrate(&database, MIGRATIONS).await;
        database.close().await;
        applied?.iter().for_each(|name| tracing::info!(name, "applied a migration"));
        Ok(ExitCode::SUCCESS)
    })?;
    if !is_cluster_given() {
        tracing::info!("KUBECONFIG is not set: a worker alone, without custom resources");
        return worker::serve(prepared, Shutdown::on_signals, async |_| Ok(ExitCode::SUCCESS));
    }
    let waker = prepared.worker.waker();
    let settings = cli_operator::settings(cluster, Some(LocalWake::new(move || waker.wake())));
    beside_operator(prepared, settings)
}

/// Never the cluster that happens to be the default of whoever runs this: it has to be named.
fn is_cluster_given() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("KUBECONFIG") || is_set("KUBERNETES_SERVICE_HOST")
}

fn beside_operator(prepared: Prepared, settings: operator::Settings) -> anyhow::Result<ExitCode> {
    let (shutdown, stop) = (Shutdown::on_signals()?, CancellationToken::new());
    let operator = operator_thread(settings, stop.clone(), shutdown.clone())?;
    let served = worker::serve(prepared, || Ok(shutdown), async |_| Ok(ExitCode::SUCCESS));
    // To the last: what the worker ended is to be seen in the cluster.
    stop.cancel();
    let operated = operator.join().map_err(|_| anyhow::anyhow!("the operator crashed"))?;
    // Without the operator there is nothing to go on for, and its sentence is the cause.
    operated.and(served)
}

/// With a runtime of its own: a handler that blocks its thread must not cost the Lease.
fn operator_thread(
    settings: operator::Settings,
    stop: CancellationToken,
    worker: Shutdown,
) -> anyhow::Result<JoinHandle<anyhow::Result<ExitCode>>> {
    let body = move || {
        let ended = block_on(async { Ok(operator::run(settings, stop).await.map(|()| ExitCode::SUCCESS)?) });
        worker.drain();
        ended
    };
    std::thread::Builder::new().name("sluice-operator".to_owned()).spawn(body).context("no thread for the operator")
}
