//! graphile_worker at its best beside ours: `add ROWS CLIENTS`, then `drain SECONDS`; or `pickup SECONDS`. Each one line of JSON.

mod pickup;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext, WorkerOptions, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const SCHEMA: &str = "graphile_worker";
/// Jobs of one `add_jobs`, as many as our `enqueue_many` takes.
const ADD_BATCH: usize = 1_000;
/// How often the drain looks at its counter.
const TICK: Duration = Duration::from_millis(2);

/// The settings of a drain. `Tuning::BEST` won over those that README.md lists; the environment tries others.
struct Tuning {
    workers: usize,
    concurrency: usize,
    queue_size: usize,
    queue_count: usize,
    completion_delay_ms: u64,
}

impl Tuning {
    const BEST: Self = Self { workers: 2, concurrency: 16, queue_size: 4_000, queue_count: 1, completion_delay_ms: 1 };

    fn from_environment() -> anyhow::Result<Self> {
        fn read<T: std::str::FromStr>(name: &str, otherwise: T) -> anyhow::Result<T> {
            match std::env::var(name) {
                Ok(text) => text.parse().ok().with_context(|| format!("{name} must be a number")),
                Err(_) => Ok(otherwise),
            }
        }
        Ok(Self {
            workers: read("WORKERS", Self::BEST.workers)?,
            concurrency: read("CONCURRENCY", Self::BEST.concurrency)?,
            queue_size: read("QUEUE_SIZE", Self::BEST.queue_size)?,
            queue_count: read("QUEUE_COUNT", Self::BEST.queue_count)?,
            completion_delay_ms: read("COMPLETION_DELAY_MS", Self::BEST.completion_delay_ms)?,
        })
    }
}

/// As wide as the payload that our rows carry.
#[derive(Clone, Serialize, Deserialize)]
struct NoOp {
    source: String,
}

#[derive(Clone, Debug)]
struct Done(Arc<AtomicU64>);

impl TaskHandler for NoOp {
    const IDENTIFIER: &'static str = "no_op";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(done) = context.get_ext::<Done>() {
            done.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["add", rows, clients] => add(rows.parse()?, clients.parse()?).await,
        ["drain", seconds] => drain(Duration::from_secs(seconds.parse()?), &Tuning::from_environment()?).await,
        ["pickup", seconds] => pickup::measure(Duration::from_secs(seconds.parse()?)).await,
        _ => bail!("usage: DATABASE_URL=… graphile-bench add ROWS CLIENTS | drain SECONDS | pickup SECONDS"),
    }
}

/// Adds jobs with the fastest call of the library, batches of 1,000, from several clients at once.
async fn add(rows: usize, clients: usize) -> anyhow::Result<()> {
    let pool = connect(u32::try_from(clients)?).await?;
    WorkerUtils::new(pool.clone(), SCHEMA).migrate().await?;
    // Registers the task, and warms each client's statement.
    let warm = WorkerUtils::new(pool.clone(), SCHEMA);
    warm.add_jobs(&batch(&JobSpec::default(), 1)).await?;

    let started = Instant::now();
    let mut adders = tokio::task::JoinSet::new();
    let left = Arc::new(AtomicU64::new((rows / ADD_BATCH) as u64));
    for _ in 0..clients {
        let utils = WorkerUtils::new(pool.clone(), SCHEMA);
        let left = Arc::clone(&left);
        adders.spawn(async move {
            let spec = JobSpec::default();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                utils.add_jobs(&batch(&spec, ADD_BATCH)).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(adder) = adders.join_next().await {
        adder??;
    }
    let elapsed = started.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "rows": rows, "rows_per_s": (rows as f64 / elapsed).round() }));
    Ok(())
}

/// Runs no-op jobs until the time is over or none is left. A job counts when its handler has run: that its row may
/// still wait for the last batch of deletes is in the library's favour.
async fn drain(limit: Duration, tuning: &Tuning) -> anyhow::Result<()> {
    let pool = connect(u32::try_from(20 * tuning.workers)?).await?;
    let (pending,): (i64,) =
        sqlx::query_as("select count(*) from graphile_worker._private_jobs").fetch_one(&pool).await?;
    let pending = u64::try_from(pending)?;
    let done = Done(Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for _ in 0..tuning.workers {
        workers.push(Arc::new(worker(&pool, tuning, done.clone()).await?));
    }
    let started = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for worker in &workers {
        let worker = Arc::clone(worker);
        running.spawn(async move { worker.run().await });
    }
    while started.elapsed() < limit && done.0.load(Ordering::Relaxed) < pending {
        tokio::time::sleep(TICK).await;
    }
    let elapsed = started.elapsed().as_secs_f64();
    let jobs = done.0.load(Ordering::Relaxed);
    for worker in &workers {
        worker.request_shutdown();
    }
    while let Some(worker) = running.join_next().await {
        worker??;
    }
    println!("{}", serde_json::json!({ "jobs": jobs, "jobs_per_s": (jobs as f64 / elapsed).round() }));
    Ok(())
}

async fn worker(pool: &PgPool, tuning: &Tuning, done: Done) -> anyhow::Result<Worker> {
    let queue = LocalQueueConfig::default().with_size(tuning.queue_size).with_queue_count(tuning.queue_count);
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .schema(SCHEMA)
        .concurrency(tuning.concurrency)
        .poll_interval(Duration::from_millis(5))
        .complete_job_batch_delay(Duration::from_millis(tuning.completion_delay_ms))
        .local_queue(queue)
        .add_extension(done)
        .define_job::<NoOp>()
        .init()
        .await?;
    Ok(worker)
}

fn batch(spec: &JobSpec, size: usize) -> Vec<(NoOp, &JobSpec)> {
    (0..size).map(|_| (NoOp { source: "payload-0123456789-0123456789".to_owned() }, spec)).collect()
}

async fn connect(connections: u32) -> anyhow::Result<PgPool> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL must name a database of its own")?;
    Ok(PgPoolOptions::new().max_connections(connections).connect(&url).await?)
}
