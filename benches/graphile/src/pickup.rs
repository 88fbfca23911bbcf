//! How soon a handler starts after its job was added, at the rate that our worker is measured with.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use graphile_worker::{IntoTaskHandlerResult, JobSpec, TaskHandler, Worker, WorkerContext, WorkerOptions, WorkerUtils};
use serde::{Deserialize, Serialize};

use crate::{SCHEMA, connect};

/// As our side of it: 1,000 jobs a second, and more slots than are ever busy.
const EACH: u64 = 5;
const EVERY: Duration = Duration::from_millis(5);
const CONCURRENCY: usize = 64;
/// For the last ones to start.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Serialize, Deserialize)]
struct Timed {
    source: String,
    number: u64,
}

#[derive(Clone, Debug, Default)]
struct Started(Arc<Mutex<HashMap<u64, Instant>>>);

impl Started {
    fn with<T>(&self, use_it: impl FnOnce(&mut HashMap<u64, Instant>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TaskHandler for Timed {
    const IDENTIFIER: &'static str = "timed";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        let now = Instant::now();
        if let Some(started) = context.get_ext::<Started>() {
            started.with(|started| started.insert(self.number, now));
        }
        Ok::<(), String>(())
    }
}

/// From the answer of `add_jobs` to the first line of the handler, in milliseconds.
pub async fn measure(length: Duration) -> anyhow::Result<()> {
    let pool = connect(40).await?;
    let utils = WorkerUtils::new(pool.clone(), SCHEMA);
    utils.migrate().await?;
    let started = Started::default();
    let worker = Arc::new(worker(&pool, started.clone()).await?);
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await }
    });
    let spec = JobSpec::default();
    let mut added = HashMap::new();
    let mut ticks = tokio::time::interval(EVERY);
    let began = Instant::now();
    let until = began + length;
    let mut next = 0;
    while Instant::now() < until {
        ticks.tick().await;
        let jobs: Vec<_> = (next..next + EACH).map(|number| (timed(number), &spec)).collect();
        utils.add_jobs(&jobs).await?;
        let now = Instant::now();
        added.extend((next..next + EACH).map(|number| (number, now)));
        next += EACH;
    }
    let rate = (added.len() as f64 / began.elapsed().as_secs_f64()).round();
    let waited = Instant::now();
    while started.with(|started| started.len()) < added.len() && waited.elapsed() < LIMIT {
        tokio::time::sleep(EVERY).await;
    }
    worker.request_shutdown();
    running.await??;
    let mut waits = Vec::new();
    for (number, at) in &added {
        let start = started.with(|started| started.get(number).copied()).context("a job did not start")?;
        waits.push(start.saturating_duration_since(*at).as_secs_f64() * 1_000.0);
    }
    waits.sort_by(f64::total_cmp);
    let rank = |percent: usize| waits[(waits.len() * percent).div_ceil(100).max(1) - 1];
    let answer = serde_json::json!({
        "jobs_per_s": rate, "p50_ms": rank(50), "p99_ms": rank(99), "longest_ms": rank(100),
    });
    println!("{answer}");
    Ok(())
}

/// Without the local queue, which is for throughput: each notification fetches one job at once.
async fn worker(pool: &sqlx::PgPool, started: Started) -> anyhow::Result<Worker> {
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .schema(SCHEMA)
        .concurrency(CONCURRENCY)
        .poll_interval(Duration::from_secs(2))
        .add_extension(started)
        .define_job::<Timed>()
        .init()
        .await?;
    Ok(worker)
}

fn timed(number: u64) -> Timed {
    Timed { source: "payload-0123456789-0123456789".to_owned(), number }
}
