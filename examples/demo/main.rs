//! `make demo`: from nothing to documents of two tenants in Postgres, shown while it happens, and back to nothing.

mod cluster;
mod database;
mod documents;
mod install;
mod screen;
mod summary;
mod tools;
mod view;
mod watching;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cluster::Cluster;
use crate::database::Database;
use crate::documents::{Document, LONG, collect, is_pdf, write_long};
use crate::screen::{Screen, print_line};
use crate::summary::{Outcome, table};
use crate::tools::{apart, end_all};
use crate::view::End;
use crate::watching::{Watch, count_running};

/// Of a shell that was interrupted.
const INTERRUPTED: u8 = 130;

/// Runs Sluice from end to end on this machine.
#[derive(Parser)]
struct Arguments {
    /// End when all is done, with one line of JSON
    #[arg(long)]
    once: bool,

    /// The directory of the PDFs (or, without PDFs, the markdown) to ingest
    #[arg(long, env = "DOCS", value_name = "DIR")]
    documents: Option<PathBuf>,

    /// A Postgres to make a database in [default: a private server]
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,

    /// A cluster to install in [default: a private one]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// What the nodes of that cluster pull
    #[arg(long, env = "IMAGE", value_name = "IMAGE")]
    image: Option<String>,
}

/// What has to be removed at the end, whenever that is.
#[derive(Default)]
struct Made {
    /// Where the workers read.
    scratch: OnceLock<TempDir>,
    cluster: OnceLock<Arc<Cluster>>,
    database: OnceLock<Arc<Database>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("demo: a crypto provider was installed twice");
        return ExitCode::FAILURE;
    }
    // Its end waits for what still starts, so that it is removed too.
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo: no threads can be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(show(arguments))
}

async fn show(arguments: Arguments) -> ExitCode {
    let mut screen = Screen::new();
    let made = Made::default();
    let once = arguments.once;
    let Ok(mut interrupts) = Interrupts::new() else {
        eprintln!("demo: signals cannot be heard");
        return ExitCode::FAILURE;
    };
    let shown = tokio::select! {
        shown = run(arguments, &made, &mut screen) => Some(shown),
        () = interrupts.next() => None,
    };
    let code = match &shown {
        Some(Ok(outcome)) => {
            if !once {
                screen.say("\nAll of it runs until Ctrl-C, which removes it.");
                interrupts.next().await;
            }
            if outcome.problem().is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Some(Err(_)) => ExitCode::FAILURE,
        None => ExitCode::from(INTERRUPTED),
    };
    screen.keep();
    screen.step("removing everything");
    end_all();
    let removed = made.remove().await;
    // Last, so that nothing hides it.
    match shown {
        Some(Ok(outcome)) => {
            if let Some(problem) = outcome.problem() {
                eprintln!("demo: {problem}");
            }
            if once {
                print_line(&Outcome { time: screen.elapsed(), ..outcome }.json());
            }
        }
        Some(Err(error)) => eprintln!("demo: {error:#}"),
        None => eprintln!("demo: interrupted"),
    }
    match removed {
        Ok(()) => code,
        Err(error) => {
            eprintln!("demo: not all was removed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments, made: &Made, screen: &mut Screen) -> Result<Outcome> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
    let scratch = tempfile::Builder::new().prefix("sluice-demo.").tempdir().context("no temporary directory")?;
    let scratch = made.scratch.get_or_init(|| scratch);
    let documents = gather(&arguments, &repository, scratch, screen).await?;
    let (cluster, database, urls) = start(arguments, &repository, made, screen).await?;

    screen.step("installing the charts sluice-crds and sluice");
    let (own, place) = (Arc::clone(&cluster), repository.clone());
    apart(move || install::install(&own, &place, &urls)).await?;
    screen.step("two tenants, acme and globex, with a lane each, and a pool of workers");
    let (own, folder) = (Arc::clone(&cluster), folder(scratch));
    let converter = built("sluice-convert")?;
    apart(move || install::apply_tenants_and_pool(&own, &folder, &converter)).await?;
    let mut watch = Watch::start(&cluster.client().await?);
    watch.until_no_workers(screen).await?;
    let most = count_running(Arc::clone(&database));

    let tasks = documents.len();
    screen.step(&format!("submitting {tasks} documents as IngestTasks"));
    let own = Arc::clone(&cluster);
    apart(move || install::submit(&own, &documents)).await?;
    watch.until_ended(screen, &cluster, tasks).await?;
    screen.step("every task has ended; the workers go when they have been idle for 3 s");
    watch.until_no_workers(screen).await?;

    let rows = database.ingested().await?;
    let view = &watch.view;
    let outcome = Outcome {
        tasks,
        completed: view.count(End::Completed),
        published: rows.len(),
        time: screen.elapsed(),
        cancel: watch.cancel,
        max_running: most.lock().map_err(|_| anyhow!("the counter broke"))?.clone(),
        caps: view.caps(),
        workers: view.workers.clone(),
        surprises: view.surprises(LONG),
    };
    screen.keep();
    tell(screen, &outcome, &table(&rows));
    tell_more(screen, &cluster.shell_line(scratch.path())?, &database);
    Ok(outcome)
}

/// Copies, since workers are another user and may not see where the originals are.
async fn gather(arguments: &Arguments, repository: &Path, scratch: &TempDir, screen: &Screen) -> Result<Vec<Document>> {
    let examples = repository.join("examples/documents");
    let from = arguments.documents.clone().unwrap_or_else(|| examples.clone());
    let into = folder(scratch);
    screen.step(&format!("taking documents from {}, and writing two long ones", from.display()));
    apart(move || {
        fs::create_dir(&into)?;
        for directory in [into.as_path(), into.parent().unwrap_or(&into)] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
        }
        let mut documents = collect(&from, &into)?;
        let has_pdf = documents.iter().any(|document| is_pdf(&document.file));
        documents.extend(write_long(&examples, &into, has_pdf)?);
        Ok(documents)
    })
    .await
}

fn folder(scratch: &TempDir) -> PathBuf {
    scratch.path().join("documents")
}

/// Both at once.
async fn start(
    arguments: Arguments,
    repository: &Path,
    made: &Made,
    screen: &Screen,
) -> Result<(Arc<Cluster>, Arc<Database>, database::PodUrls)> {
    let Arguments { once: _, documents: _, database_url, kubeconfig, image } = arguments;
    let cluster = match (kubeconfig, image, &database_url) {
        (None, _, _) => {
            let program = built("sluice")?;
            let directory = env::temp_dir().join(format!("sluice-demo-cluster-{}", std::process::id()));
            let repository = repository.to_owned();
            screen.step("starting Postgres and a Kubernetes cluster");
            tokio::spawn(apart(move || Cluster::start(&repository, directory, &program)))
        }
        (Some(kubeconfig), Some(image), Some(_)) => {
            screen.step(&format!("taking the cluster of {}", kubeconfig.display()));
            tokio::spawn(apart(move || Cluster::given(kubeconfig, image)))
        }
        (Some(_), _, _) => bail!(
            "KUBECONFIG is set, so set IMAGE, which its nodes can pull, and DATABASE_URL, which its pods and this machine reach"
        ),
    };
    let database = Database::start(database_url).await;
    let cluster = Arc::new(cluster.await??);
    let _ = made.cluster.set(Arc::clone(&cluster));
    let mut database = database?;
    screen.step("Postgres and Kubernetes are there");
    let host = if cluster.is_own() {
        let own = Arc::clone(&cluster);
        Some((apart(move || own.node_address()).await?, database.bridge().await?))
    } else {
        None
    };
    let prepared = database.prepare(host).await;
    let database = Arc::new(database);
    let _ = made.database.set(Arc::clone(&database));
    Ok((cluster, database, prepared?))
}

/// Beside this program's directory.
fn built(name: &str) -> Result<PathBuf> {
    let own = env::current_exe()?;
    let program = own.parent().and_then(Path::parent).map(|directory| directory.join(name)).unwrap_or_default();
    if !program.is_file() {
        bail!("{} is not built: run `make demo`", program.display());
    }
    Ok(program)
}

fn tell(screen: &Screen, outcome: &Outcome, table: &str) {
    screen.say(&format!("\n{table}"));
    for (tenant, cap) in &outcome.caps {
        let most = outcome.max_running.get(tenant).copied().unwrap_or_default();
        screen.say(&format!("{tenant}: at most {most} ran at once, under a cap of {cap}"));
    }
    if let Some(cancel) = outcome.cancel {
        screen.say(&format!("{}/{}: cancelled {} ms after it was asked", LONG.0, LONG.1, cancel.as_millis()));
    }
    screen.say(&format!("workers: {}", outcome.way_of_workers()));
}

fn tell_more(screen: &Screen, shell_line: &str, database: &Database) {
    let (tenant, name) = LONG;
    screen.say(&format!(
        "\nTry next, in another shell after `{shell_line}`:\n\n\
         kubectl get ingesttasks,tenantlanes --all-namespaces --watch\n\
         kubectl --namespace {tenant} patch ingesttask {name} --type=merge --patch '{{\"spec\":{{\"cancel\":false,\"retries\":1}}}}'\n\
         psql '{}' --command \"select tenant, heading, content from ingest.chunks where \
         to_tsvector('simple', content) @@ websearch_to_tsquery('simple', 'lease fence') limit 5\"",
        database.url
    ));
}

impl Made {
    async fn remove(&self) -> Result<()> {
        let cluster = match self.cluster.get() {
            Some(cluster) => {
                let cluster = Arc::clone(cluster);
                apart(move || cluster.remove()).await
            }
            None => Ok(()),
        };
        let database = match self.database.get() {
            Some(database) => database.remove().await,
            None => Ok(()),
        };
        cluster.and(database)
    }
}

/// Ctrl-C, a polite kill, a terminal that was closed.
struct Interrupts([Signal; 3]);

impl Interrupts {
    fn new() -> std::io::Result<Self> {
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]))
    }

    async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
