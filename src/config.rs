//! Settings: read once from flags and environment, then typed values.
//!
//! A flag wins over its variable. Every `SLUICE_X` is also read as `EDGEQUAKE_X`; the `SLUICE_` name wins. An empty
//! variable counts as unset, as templates like to leave them.

use std::str::FromStr;

use clap::Args;
use tracing_subscriber::filter::Targets;

use crate::domain::UnknownName;
use crate::domain::delivery::{BootRefused, LeaseOutOfRange, LeaseTtl, WakeMode, check_boot};
use crate::domain::lane::{Cap, Capacity, CapacityRequest, ExtractProvider};
use crate::domain::pressure::{QueueThresholds, Share, StoreThresholds};
use crate::domain::provider::ProviderKind;
use crate::store::DatabaseUrl;

mod names;
mod operator;
mod provider;
mod source;
mod worker;

pub use names::{explain_bad_value, with_other_names};
pub use operator::{ClusterArgs, Listen, OperatorArgs, OperatorSettings};
pub use provider::ProviderArgs;
pub use source::{SourceArgs, environment};
pub use worker::{AdoptArgs, TestHandlers, WorkerArgs, WorkerProcess};

/// Where Postgres is.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Database")]
pub struct DatabaseArgs {
    /// Postgres, as `postgres://user:password@host/database`; may lead through pgbouncer
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL",
          value_parser = DatabaseUrl::from_str)]
    pub database_url: Option<DatabaseUrl>,

    /// Postgres for LISTEN, if DATABASE_URL leads through a transaction pooler [default: DATABASE_URL]
    #[arg(long, env = "SLUICE_LISTEN_DATABASE_URL", hide_env_values = true, value_name = "URL",
          value_parser = DatabaseUrl::from_str)]
    pub listen_database_url: Option<DatabaseUrl>,
}

impl DatabaseArgs {
    pub fn resolve(self) -> Result<DatabaseSettings, ConfigError> {
        let url = self.database_url.ok_or(ConfigError::NoDatabase)?;
        let listen_url = self.listen_database_url.unwrap_or_else(|| url.clone());
        Ok(DatabaseSettings { url, listen_url })
    }
}

#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    pub url: DatabaseUrl,
    pub listen_url: DatabaseUrl,
}

/// What is logged, and how.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// `text` or `json`, one line per event, on standard error
    #[arg(long, env = "SLUICE_LOG_FORMAT", default_value = "text", value_name = "FORMAT",
          value_parser = LogFormat::parse, global = true)]
    pub log_format: LogFormat,

    /// What is logged, as in `info` or `sluice=debug,warn`; RUST_LOG is read as well
    #[arg(long, env = "SLUICE_LOG", default_value = "info", value_name = "FILTER",
          value_parser = parse_filter, global = true)]
    pub log: Targets,
}

crate::domain::closed_set! {
    pub enum LogFormat("log format") {
        Text = "text",
        Json = "json",
    }
}

/// How processes learn of work, and how long they hold it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Delivery")]
pub struct DeliveryArgs {
    /// The most processes that there may be at once
    #[arg(long, env = "SLUICE_REPLICAS", default_value = "1", value_name = "N", value_parser = parse_replicas)]
    pub replicas: u32,

    /// How a worker is woken: `local`, `bridged` or `notify_only`; more than one replica needs one of the latter
    #[arg(long, env = "SLUICE_TASK_DELIVERY", default_value = "local", value_name = "MODE",
          value_parser = WakeMode::parse)]
    pub task_delivery: WakeMode,

    /// How long a task stays with a worker that is not heard of, in seconds, at least 30; a worker whose pool says otherwise
    /// does not start [default: as the pool says, which is 120 unless it is changed]
    #[arg(long, env = "SLUICE_TASK_LEASE_TTL_SECS", value_name = "SECS", value_parser = parse_lease)]
    pub task_lease_ttl_secs: Option<LeaseTtl>,

    /// Whether interrupted tasks go on by themselves; if not, they fail and wait for a retry by hand
    #[arg(long, env = "SLUICE_STARTUP_AUTO_RESUME", default_value = "on", value_name = "SWITCH", value_parser = parse_switch,
          action = clap::ArgAction::Set)]
    pub startup_auto_resume: bool,

    /// The timeout of every task, in seconds, between 60 and 86400 [default: by the document's pages]
    #[arg(long, env = "TASK_PROCESSING_TIMEOUT_SECS", value_name = "SECS", value_parser = parse_count)]
    pub task_processing_timeout_secs: Option<u64>,
}

/// How much runs at once.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Capacity")]
pub struct CapacityArgs {
    /// Tasks that one worker process runs at once [default: 4 per CPU]
    #[arg(long, env = "WORKER_THREADS", value_name = "N", value_parser = parse_slots)]
    pub worker_threads: Option<u32>,

    /// Ingest tasks of one tenant that run at once; 0 = no cap [default: three quarters of WORKER_THREADS]
    #[arg(long, env = "MAX_TASKS_PER_TENANT", value_name = "N", value_parser = parse_cap)]
    pub max_tasks_per_tenant: Option<Cap>,

    /// Lifecycle tasks of one tenant that run at once; 0 = no cap [default: as for ingest; 4 with a local provider]
    #[arg(long, env = "MAX_LIFECYCLE_TASKS_PER_TENANT", value_name = "N", value_parser = parse_cap)]
    pub max_lifecycle_tasks_per_tenant: Option<Cap>,

    /// Who extracts: builtin (or none), openai (any endpoint that speaks its protocol), ollama, lmstudio; a local one
    /// (ollama, lmstudio) bounds all of the above
    #[arg(long, env = "SLUICE_EXTRACT_PROVIDER", value_name = "NAME")]
    pub extract_provider: Option<String>,

    /// Who extracts, if SLUICE_EXTRACT_PROVIDER is not set
    #[arg(long, env = "SLUICE_DEFAULT_EXTRACT_PROVIDER", value_name = "NAME")]
    pub default_extract_provider: Option<String>,

    /// Who extracts, if neither of the above is set
    #[arg(long, env = "SLUICE_DEFAULT_LLM_PROVIDER", value_name = "NAME")]
    pub default_llm_provider: Option<String>,

    /// Who extracts, if none of the above is set
    #[arg(long, env = "SLUICE_LLM_PROVIDER", value_name = "NAME")]
    pub llm_provider: Option<String>,

    /// Lifts the bounds of a local provider
    #[arg(long, env = "SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY", default_value = "off", default_missing_value = "on",
          value_name = "SWITCH", value_parser = parse_switch, action = clap::ArgAction::Set, num_args = 0..=1)]
    pub allow_local_high_concurrency: bool,
}

impl CapacityArgs {
    fn provider(&self) -> Option<ExtractProvider> {
        let chain =
            [&self.extract_provider, &self.default_extract_provider, &self.default_llm_provider, &self.llm_provider];
        ExtractProvider::resolve(chain.map(Option::as_deref))
    }

    fn resolve(self, cpus: u32) -> Capacity {
        let extract_provider = self.provider();
        Capacity::resolve(CapacityRequest {
            cpus,
            slots: self.worker_threads,
            ingest_cap: self.max_tasks_per_tenant,
            lifecycle_cap: self.max_lifecycle_tasks_per_tenant,
            extract_provider,
            allow_local_high_concurrency: self.allow_local_high_concurrency,
        })
    }
}

/// When to call for help.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Thresholds")]
pub struct ThresholdArgs {
    /// Pending tasks from which the queue is elevated
    #[arg(long, env = "SLUICE_QUEUE_PENDING_WARN", value_name = "N", value_parser = parse_count)]
    #[arg(default_value = "100")]
    pub queue_pending_warn: u64,

    /// Pending tasks from which the queue is critical [default: 5 times the above, at least 500]
    #[arg(long, env = "SLUICE_QUEUE_PENDING_CRITICAL", value_name = "N", value_parser = parse_count)]
    pub queue_pending_critical: Option<u64>,

    /// Use of the database pool from which the store is elevated
    #[arg(long, env = "SLUICE_DB_POOL_UTIL_WARN", default_value = "0.75", value_name = "SHARE",
          value_parser = Share::parse)]
    pub db_pool_util_warn: Share,

    /// Use of the database pool from which the store is critical
    #[arg(long, env = "SLUICE_DB_POOL_UTIL_CRITICAL", default_value = "0.90", value_name = "SHARE",
          value_parser = Share::parse)]
    pub db_pool_util_critical: Share,

    /// Compensations in quarantine from which the store is elevated
    #[arg(long, env = "SLUICE_COMPENSATION_QUARANTINE_WARN", value_name = "N", value_parser = parse_count)]
    #[arg(default_value = "1")]
    pub compensation_quarantine_warn: u64,

    /// Compensations in quarantine from which the store is critical
    #[arg(long, env = "SLUICE_COMPENSATION_QUARANTINE_CRITICAL", value_name = "N", value_parser = parse_count)]
    #[arg(default_value = "5")]
    pub compensation_quarantine_critical: u64,
}

/// All that a worker's process is told.
#[derive(Clone, Debug, Args)]
pub struct ProcessArgs {
    #[command(flatten)]
    pub delivery: DeliveryArgs,
    #[command(flatten)]
    pub capacity: CapacityArgs,
    #[command(flatten)]
    pub thresholds: ThresholdArgs,
}

impl ProcessArgs {
    /// Applies the rules that span settings; `cpus` is what this process may use.
    pub fn resolve(self, cpus: u32) -> Result<ProcessSettings, ConfigError> {
        let DeliveryArgs {
            replicas,
            task_delivery,
            task_lease_ttl_secs,
            startup_auto_resume,
            task_processing_timeout_secs,
        } = self.delivery;
        let ThresholdArgs {
            queue_pending_warn,
            queue_pending_critical,
            db_pool_util_warn,
            db_pool_util_critical,
            compensation_quarantine_warn,
            compensation_quarantine_critical,
        } = self.thresholds;
        check_boot(replicas, task_delivery)?;
        Ok(ProcessSettings {
            replicas,
            wake_mode: task_delivery,
            lease_ttl: task_lease_ttl_secs,
            auto_resume: startup_auto_resume,
            timeout_override_secs: task_processing_timeout_secs,
            extract_provider: self.capacity.provider(),
            capacity: self.capacity.resolve(cpus),
            queue: QueueThresholds::new(Some(queue_pending_warn), queue_pending_critical),
            store: StoreThresholds {
                pool_warn: db_pool_util_warn,
                pool_critical: db_pool_util_critical,
                quarantine_warn: compensation_quarantine_warn,
                quarantine_critical: compensation_quarantine_critical,
            },
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    pub replicas: u32,
    pub wake_mode: WakeMode,
    /// What the pool's must be; `None`: whatever it is.
    pub lease_ttl: Option<LeaseTtl>,
    pub auto_resume: bool,
    /// As given; the document profile clamps it.
    pub timeout_override_secs: Option<u64>,
    pub capacity: Capacity,
    /// As it is called; nobody looked yet whether there is such a one.
    pub extract_provider: Option<ExtractProvider>,
    pub queue: QueueThresholds,
    pub store: StoreThresholds,
}

/// Settings that parse, and still cannot hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("DATABASE_URL is not set: it must be a URL such as postgres://user:password@host/database")]
    NoDatabase,
    #[error(transparent)]
    Boot(#[from] BootRefused),
    #[error(
        "SLUICE_REPLICAS is more than 1, and standalone is all of Sluice in one process: leave it unset, or run `sluice worker` and \
         `sluice operator`"
    )]
    StandaloneReplicas,
    #[error("SLUICE_EXTRACT_PROVIDER, or what stands for it: {0}")]
    Provider(#[source] UnknownName),
    #[error("the provider is {0}, and no model is named: set SLUICE_EXTRACT_MODEL, SLUICE_EMBEDDING_MODEL or both")]
    NoModel(ProviderKind),
    #[error(
        "SLUICE_EMBEDDING_DIMENSIONS is not set: it must be how many numbers a vector of SLUICE_EMBEDDING_MODEL has"
    )]
    NoDimensions,
    #[error("both SLUICE_PROVIDER_API_KEY and SLUICE_PROVIDER_API_KEY_FILE are set: set one of them")]
    TwoKeys,
}

/// A value that does not parse; says what is allowed, and leaves naming it to the caller.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ValueError {
    #[error("allowed are whole numbers from {min} to {max}")]
    Whole { min: u64, max: u64 },
    #[error("allowed are 1, true, yes, on and 0, false, no, off")]
    Switch,
    #[error(
        "allowed are a level (error, warn, info, debug, trace) and parts such as sluice=debug, with commas between"
    )]
    Filter,
    #[error("allowed are a namespace's name: up to 63 lower case letters, digits and hyphens")]
    Namespace,
    #[error("allowed are 1 to 253 characters")]
    Cluster,
    #[error("allowed are an address with a port, such as 0.0.0.0:8081, and `off`")]
    Listen,
    #[error(transparent)]
    Lease(#[from] LeaseOutOfRange),
    #[error("it must be an absolute path, such as /data/documents")]
    Directory,
    #[error("it must be the absolute path of a program, such as /usr/local/bin/sluice-convert")]
    Program,
    #[error("allowed are networks with their length, such as 10.1.0.0/16, with commas between")]
    Network,
    #[error("it must be an http or https URL without user, password and query, such as https://host/v1")]
    ProviderUrl,
    #[error("a key is printable ASCII without spaces")]
    Key,
    #[error("it must be the absolute path of a file, such as /etc/sluice/provider/key")]
    KeyFile,
    #[error("a model's name has 1 to 200 characters")]
    Model,
    #[error("allowed are amounts from 0 on, such as 0.15")]
    Amount,
    #[error("a pool's name has 1 to 253 characters")]
    Pool,
    #[error("it must be an address and a port, such as 0.0.0.0:8081")]
    Address,
    #[error("it must be a track id, such as 01890a5d-ac96-774b-bcce-b302099a8057")]
    TrackId,
    #[error(transparent)]
    Type(#[from] UnknownName),
}

/// Far more than a cluster would run; keeps sums of all replicas' slots small.
const REPLICAS_MAX: u32 = 10_000;
/// Each slot may hold a document in memory.
const SLOTS_MAX: u32 = 10_000;
/// What an SQL integer holds.
const CAP_MAX: u32 = i32::MAX as u32;

fn whole<T: TryFrom<u64> + Into<u64> + Copy>(text: &str, min: T, max: T) -> Result<T, ValueError> {
    let range = min.into()..=max.into();
    let error = || ValueError::Whole { min: min.into(), max: max.into() };
    let number: u64 = text.trim().parse().map_err(|_| error())?;
    if !range.contains(&number) {
        return Err(error());
    }
    T::try_from(number).map_err(|_| error())
}

fn parse_replicas(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, REPLICAS_MAX)
}

fn parse_slots(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, SLOTS_MAX)
}

fn parse_count(text: &str) -> Result<u64, ValueError> {
    whole(text, 0, u64::MAX)
}

fn parse_cap(text: &str) -> Result<Cap, ValueError> {
    whole(text, 0, CAP_MAX).map(Cap::new)
}

fn parse_lease(text: &str) -> Result<LeaseTtl, ValueError> {
    Ok(LeaseTtl::from_secs(whole(text, 0, u32::MAX)?)?)
}

fn parse_switch(text: &str) -> Result<bool, ValueError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(ValueError::Switch),
    }
}

fn parse_filter(text: &str) -> Result<Targets, ValueError> {
    Targets::from_str(text).map_err(|_| ValueError::Filter)
}

#[cfg(test)]
mod tests;
