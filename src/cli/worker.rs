//! `sluice worker`: one process of a pool.

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::config::{
    AdoptArgs, DatabaseArgs, DatabaseSettings, ProcessArgs, ProcessSettings, ProviderArgs, SourceArgs, TestHandlers,
    WorkerArgs, WorkerProcess, environment,
};
use crate::http::probes::{self, Probes};
use crate::ingest::{self, ConvertSettings, SourceSettings, StoreVariables};
use crate::store::claim::Attempt;
use crate::store::status::{TaskStatus, task_status};
use crate::store::{Database, PoolSettings, Role};
use crate::worker::test_handlers::test_handlers;
use crate::worker::{Adopted, Ended, Health, Shutdown, Unready, Worker, WorkerSettings};

#[derive(Debug, Args)]
pub struct WorkerCommand {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    worker: WorkerArgs,
    #[command(flatten)]
    adopt: AdoptArgs,
    #[command(flatten)]
    handlers: HandlerArgs,
    #[command(flatten)]
    process: ProcessArgs,
}

/// What the handlers of the pipeline are told.
#[derive(Debug, Args)]
pub(super) struct HandlerArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    provider: ProviderArgs,
}

pub fn run(command: WorkerCommand, cpus: u32) -> anyhow::Result<ExitCode> {
    let WorkerCommand { database, worker, adopt, handlers, process } = command;
    let process = process.resolve(cpus)?;
    let database = database.resolve()?;
    let (url, adopt) = (database.url.clone(), adopt.resolve());
    let prepared = prepare(database, worker, adopt, handlers, &process)?;
    serve(prepared, Shutdown::on_signals, async |ended| match (ended.adopted, adopt) {
        (Some(Adopted::NotThere), Some(attempt)) => not_there(url, attempt).await,
        _ => Ok(ExitCode::SUCCESS),
    })
}

/// A worker, and where it says how it is.
pub(super) struct Prepared {
    pub worker: Worker,
    health_listen: Option<SocketAddr>,
}

pub(super) fn prepare(
    database: DatabaseSettings,
    worker: WorkerArgs,
    adopt: Option<Attempt>,
    handlers: HandlerArgs,
    process: &ProcessSettings,
) -> anyhow::Result<Prepared> {
    let worker = worker.resolve();
    if let Some(clamp) = &process.capacity.clamp {
        tracing::warn!(%clamp, "fewer slots and lower caps than asked for");
    }
    let handlers = match &worker.test_handlers {
        Some(TestHandlers(types)) => test_handlers(types),
        None => {
            let HandlerArgs { source, provider } = handlers;
            let convert = ConvertSettings::new(source.converter, source.converter_memory_mib);
            let SourceArgs { file_root, allowed_networks, .. } = source;
            let stores = StoreVariables::new(environment());
            let endpoint = provider.resolve(process.extract_provider.as_ref())?;
            ingest::handlers(SourceSettings { file_root, allowed_networks, stores }, convert, endpoint)?
        }
    };
    let health_listen = worker.health_listen;
    let settings = settings(database, worker, adopt, process);
    Ok(Prepared { worker: Worker::new(settings, handlers), health_listen })
}

/// Until it is told to end; then what `finish` says.
pub(super) fn serve(
    prepared: Prepared,
    shutdown: impl FnOnce() -> std::io::Result<Shutdown>,
    finish: impl AsyncFnOnce(Ended) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let Prepared { worker, health_listen } = prepared;
    if let Some(address) = health_listen {
        let listener = TcpListener::bind(address).with_context(|| format!("nothing can listen on {address}"))?;
        tracing::info!(address = %listener.local_addr()?, "probes and metrics");
        probes::serve(listener, Arc::new(WorkerProbes::new(&worker)))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async { finish(worker.run(shutdown()?).await?).await });
    // A handler that blocks its thread for ever must not keep the process.
    runtime.shutdown_background();
    result
}

fn settings(
    database: DatabaseSettings,
    worker: WorkerProcess,
    adopt: Option<Attempt>,
    process: &ProcessSettings,
) -> WorkerSettings {
    let WorkerProcess { pool, drain, handler_connections, health_listen: _, pod_name, pod_uid, test_handlers: _ } =
        worker;
    let mut settings = WorkerSettings::new(database.url, process.capacity.slots);
    settings.listen_database = database.listen_url;
    settings.pool = pool;
    settings.drain = drain;
    settings.wake_mode = process.wake_mode;
    settings.lease = process.lease_ttl;
    settings.handler_connections = handler_connections.unwrap_or(settings.handler_connections);
    settings.pod_name = pod_name;
    settings.pod_uid = pod_uid;
    settings.adopt = adopt;
    settings
}

/// What the row says of an attempt that was not there to be taken.
async fn not_there(url: crate::store::DatabaseUrl, attempt: Attempt) -> anyhow::Result<ExitCode> {
    let database = Database::new(url, Role::Worker, PoolSettings { max_connections: 1, ..PoolSettings::default() });
    let status = task_status(&database, attempt.track_id).await?;
    match status {
        Some(status) if is_over(&status, attempt.number) => {
            tracing::info!(track_id = %attempt.track_id, attempt = attempt.number, state = %status.state, "the attempt is over");
            Ok(ExitCode::SUCCESS)
        }
        Some(_) => anyhow::bail!("attempt {} of task {} is another worker's", attempt.number, attempt.track_id),
        None => anyhow::bail!("there is no task {}", attempt.track_id),
    }
}

fn is_over(status: &TaskStatus, attempt: i32) -> bool {
    status.attempt > attempt || !status.state.is_running()
}

struct WorkerProbes {
    health: Health,
    registry: Registry,
}

impl WorkerProbes {
    fn new(worker: &Worker) -> Self {
        let mut registry = Registry::default();
        worker.register_metrics(&mut registry);
        Self { health: worker.health(), registry }
    }
}

impl Probes for WorkerProbes {
    fn live(&self) -> Result<(), &'static str> {
        if self.health.is_live() { Ok(()) } else { Err("the worker's own loops do not turn") }
    }

    fn ready(&self) -> Result<(), &'static str> {
        self.health.readiness().map_err(|unready| match unready {
            Unready::Starting => "it is not registered yet",
            Unready::Drained => "it is drained and idle",
            Unready::Ending => "it was told to end and is idle",
        })
    }

    fn metrics(&self) -> Result<String, fmt::Error> {
        self.health.refresh_metrics();
        let mut metrics = String::new();
        text::encode(&mut metrics, &self.registry)?;
        Ok(metrics)
    }
}
