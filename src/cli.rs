//! The command line: subcommands, and the exit codes they end with.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what a command prints is its result")]

mod crds;
mod operator;
mod standalone;
mod uninstall;
mod worker;

use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{
    ConfigError, DatabaseArgs, LogArgs, OperatorArgs, ProcessArgs, ProcessSettings, explain_bad_value, with_other_names,
};
use crate::domain::delivery::LeaseTtl;
use crate::store::migrate::MIGRATIONS;
use crate::store::requirements::Finding;
use crate::store::{Database, PoolSettings, Role, migrate, requirements};
use crate::telemetry;
use crate::worker::WorkerError;

/// `EX_CONFIG` of sysexits(3): starting again does not help until a setting is changed.
const EXIT_CONFIG: u8 = 78;

/// Document ingestion through custom resources, with Postgres as the single source of truth
#[derive(Debug, Parser)]
#[command(name = "sluice", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the settings that hold in this environment, or what is wrong with them
    Settings(Box<ProcessArgs>),

    /// Take tasks of a pool and work on them, until SIGTERM
    Worker(Box<worker::WorkerCommand>),

    /// Keep custom resources and the database in step, until SIGTERM
    Operator(Box<OperatorArgs>),

    /// Bring the schema up to date, then run a worker, and the operator if KUBECONFIG names a cluster, in this one process
    Standalone(Box<standalone::StandaloneCommand>),

    /// Bring the database's schema up to this version; any number may run at once
    Migrate(Box<MigrateArgs>),

    /// Print the definitions of the custom resources: `sluice crds | kubectl apply --server-side -f -`
    Crds(crds::CrdsArgs),

    /// End the operator and take its finalizers off all IngestTasks, so that nothing waits for one that is gone
    Uninstall(uninstall::UninstallArgs),
}

#[derive(Debug, Args)]
struct MigrateArgs {
    /// Change nothing: say what is missing and which server settings are too small; ends with 1 if there is any
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    database: DatabaseArgs,
}

/// Runs what the arguments and the environment of this process say.
pub fn run() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if let Err(error) = telemetry::init(&cli.log) {
        eprintln!("sluice: {error}");
        return ExitCode::FAILURE;
    }
    match execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sluice: {error:#}");
            if is_setting(&error) { ExitCode::from(EXIT_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}

/// Nothing is gained by starting again as it is.
fn is_setting(error: &anyhow::Error) -> bool {
    error.is::<ConfigError>() || error.downcast_ref::<WorkerError>().is_some_and(WorkerError::is_setting)
}

fn parse() -> Result<Cli, ExitCode> {
    let mut command = with_other_names(Cli::command());
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    parsed.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        if let Some(sentence) = explain_bad_value(&error, &command) {
            eprintln!("sluice: {sentence}");
            return ExitCode::from(EXIT_CONFIG);
        }
        // Nothing is left to be done if the terminal is gone.
        let _ = error.print();
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Settings(args) => {
            let settings = args.resolve(available_cpus())?;
            if let Some(clamp) = &settings.capacity.clamp {
                tracing::warn!(%clamp, "caps are lower than asked for");
            }
            print_settings(&settings);
            Ok(ExitCode::SUCCESS)
        }
        Command::Worker(command) => worker::run(*command, available_cpus()),
        Command::Crds(args) => crds::run(&args),
        Command::Operator(args) => block_on(operator::run(*args)),
        Command::Standalone(command) => standalone::run(*command, available_cpus()),
        Command::Uninstall(args) => block_on(uninstall::run(args)),
        Command::Migrate(args) => {
            let MigrateArgs { check, database } = *args;
            let database = database.resolve()?;
            block_on(async {
                let database = Database::new(database.url, Role::Migrator, PoolSettings::default());
                let result = if check { check_schema(&database).await } else { migrate_schema(&database).await };
                database.close().await;
                result
            })
        }
    }
}

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}

async fn migrate_schema(database: &Database) -> anyhow::Result<ExitCode> {
    for name in migrate::migrate(database, MIGRATIONS).await? {
        println!("applied {name}");
    }
    println!("the schema is up to date");
    Ok(ExitCode::SUCCESS)
}

async fn check_schema(database: &Database) -> anyhow::Result<ExitCode> {
    let missing = migrate::missing(database, MIGRATIONS).await?;
    let findings = requirements::check(database).await?;
    for name in &missing {
        println!("missing: {name}");
    }
    for finding in &findings {
        match finding {
            Finding::TooSmall(sentence) => println!("too small: {sentence}"),
            Finding::Note(sentence) => println!("note: {sentence}"),
        }
    }
    let is_too_small = findings.iter().any(|finding| matches!(finding, Finding::TooSmall(_)));
    if missing.is_empty() && !is_too_small {
        println!("the schema is up to date, and the server suits it");
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

fn available_cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

fn print_settings(settings: &ProcessSettings) {
    let ProcessSettings {
        replicas,
        wake_mode,
        lease_ttl,
        auto_resume,
        timeout_override_secs,
        capacity,
        extract_provider: _,
        queue,
        store,
    } = settings;
    let lease = lease_ttl.unwrap_or(LeaseTtl::DEFAULT);
    let timeout = timeout_override_secs.map_or_else(|| "by pages".to_owned(), |secs| format!("{secs} s"));
    println!("replicas                 {replicas}");
    println!("delivery                 {wake_mode}");
    println!("lease                    {} s, heartbeat every {} s", lease.secs(), lease.heartbeat_interval().as_secs());
    println!("interrupted tasks        {}", if *auto_resume { "go on" } else { "fail" });
    println!("timeout                  {timeout}");
    println!("slots                    {}", capacity.slots);
    println!("ingest cap per tenant    {}", capacity.ingest_cap);
    println!("lifecycle cap per tenant {}", capacity.lifecycle_cap);
    if let Some(clamp) = &capacity.clamp {
        println!("clamped                  {clamp}");
    }
    println!("pending, elevated from   {}", queue.warn());
    println!("pending, critical from   {}", queue.critical());
    println!("pool use, elevated from  {}", store.pool_warn.as_f64());
    println!("pool use, critical from  {}", store.pool_critical.as_f64());
    println!("quarantine, elevated from {}", store.quarantine_warn);
    println!("quarantine, critical from {}", store.quarantine_critical);
}
