//! Settings of a worker alone.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use uuid::Uuid;

use super::{ValueError, whole};
use crate::domain::task::TaskType;
use crate::store::claim::Attempt;

/// Where and for whom a worker works.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Worker")]
pub struct WorkerArgs {
    /// The pool that is served
    #[arg(long, env = "SLUICE_POOL", default_value = "default", value_name = "NAME", value_parser = parse_pool)]
    pub pool: String,

    /// How long running tasks may go on after the first SIGTERM, in seconds; what still runs then is given back
    #[arg(long, env = "SLUICE_DRAIN_SECS", default_value = "30", value_name = "SECS", value_parser = parse_drain)]
    pub drain_secs: u32,

    /// Connections that handlers share; claims and leases have their own [default: WORKER_THREADS, at most 8]
    #[arg(long, env = "SLUICE_HANDLER_CONNECTIONS", value_name = "N", value_parser = parse_connections)]
    pub handler_connections: Option<u32>,

    /// Where /livez, /readyz and /metrics are served, as in 0.0.0.0:8081 [default: nowhere]
    #[arg(long, env = "SLUICE_HEALTH_LISTEN", value_name = "ADDRESS", value_parser = parse_address)]
    pub health_listen: Option<SocketAddr>,

    /// The pod that this process runs in, for people
    #[arg(long, env = "SLUICE_POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    /// The same pod's uid
    #[arg(long, env = "SLUICE_POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,

    /// Handle tasks as their payload says, for tests of Sluice: `all`, or task types with commas between
    #[arg(long, env = "SLUICE_TEST_HANDLERS", hide = true, value_name = "TYPES", default_missing_value = "all",
          num_args = 0..=1, require_equals = true, value_parser = parse_test_handlers)]
    pub test_handlers: Option<TestHandlers>,
}

/// What the pod of a Job is told.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Worker")]
pub struct AdoptArgs {
    /// Run this one task, which was claimed for a Job, and end
    #[arg(long, value_name = "TRACK_ID", requires = "attempt", value_parser = parse_track_id)]
    pub task: Option<Uuid>,

    /// The attempt that was claimed for the Job
    #[arg(long, value_name = "N", requires = "task", value_parser = parse_attempt)]
    pub attempt: Option<i32>,
}

impl AdoptArgs {
    pub fn resolve(self) -> Option<Attempt> {
        self.task.zip(self.attempt).map(|(track_id, number)| Attempt { track_id, number })
    }
}

/// The types that test handlers are for; empty: all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestHandlers(pub Vec<TaskType>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerProcess {
    pub pool: String,
    pub drain: Duration,
    pub handler_connections: Option<u32>,
    pub health_listen: Option<SocketAddr>,
    pub pod_name: Option<String>,
    pub pod_uid: Option<String>,
    pub test_handlers: Option<TestHandlers>,
}

impl WorkerArgs {
    pub fn resolve(self) -> WorkerProcess {
        let Self { pool, drain_secs, handler_connections, health_listen, pod_name, pod_uid, test_handlers } = self;
        WorkerProcess {
            pool,
            drain: Duration::from_secs(u64::from(drain_secs)),
            handler_connections,
            health_listen,
            pod_name,
            pod_uid,
            test_handlers,
        }
    }
}

/// A day: as long as the longest task may take.
const DRAIN_SECS_MAX: u32 = 86_400;
/// More than a server has.
const CONNECTIONS_MAX: u32 = 1_000;
/// As the schema has it.
const POOL_MAX_CHARS: usize = 253;

fn parse_drain(text: &str) -> Result<u32, ValueError> {
    whole(text, 0, DRAIN_SECS_MAX)
}

fn parse_connections(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, CONNECTIONS_MAX)
}

fn parse_attempt(text: &str) -> Result<i32, ValueError> {
    let number: u32 = whole(text, 1, i32::MAX.unsigned_abs())?;
    i32::try_from(number).map_err(|_| ValueError::Whole { min: 1, max: u64::from(i32::MAX.unsigned_abs()) })
}

fn parse_pool(text: &str) -> Result<String, ValueError> {
    let pool = text.trim();
    if pool.is_empty() || pool.chars().count() > POOL_MAX_CHARS {
        return Err(ValueError::Pool);
    }
    Ok(pool.to_owned())
}

fn parse_address(text: &str) -> Result<SocketAddr, ValueError> {
    text.trim().parse().map_err(|_| ValueError::Address)
}

fn parse_track_id(text: &str) -> Result<Uuid, ValueError> {
    Uuid::parse_str(text.trim()).map_err(|_| ValueError::TrackId)
}

fn parse_test_handlers(text: &str) -> Result<TestHandlers, ValueError> {
    if text.trim() == "all" {
        return Ok(TestHandlers(Vec::new()));
    }
    let types: Result<Vec<_>, _> = text.split(',').map(|name| TaskType::parse(name.trim())).collect();
    types.map(TestHandlers).map_err(ValueError::Type)
}
