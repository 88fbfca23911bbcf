//! What a claim of 16 costs where the queue is large, where its heads wait, and where much has ended.

use std::time::{Duration, Instant};

use crate::common::bed::{Bed, Database};
use crate::common::client::Client;
use crate::common::load;
use crate::common::report::{Report, median, percentile};
use crate::scale::Scale;

const WANT: i32 = 16;
const QUANTUM: i32 = 1;
const OPEN_LANES: i32 = 10;
/// Room enough that no open lane is ever full.
const OPEN_CAP: i32 = 100;
const FULL_CAP: i32 = 2;
const SMALL_ROWS: i64 = 1_000;
/// Plans, caches and the first page images after the checkpoint are not what is asked for.
const WARM_UP: usize = 50;
const TURN: Duration = Duration::from_secs(1);
/// How often a process does the upkeep.
const UPKEEP_EVERY: Duration = Duration::from_secs(1);

/// All lanes but ten full ÷ ten lanes with 1,000 rows.
pub async fn growth(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let large = bed.ours().await?;
    load::lanes(&large, 1, OPEN_LANES, OPEN_CAP).await?;
    load::lanes(&large, OPEN_LANES + 1, scale.lanes, FULL_CAP).await?;
    load::tasks(&large, 1, scale.lanes, scale.rows).await?;
    load::running(&large, OPEN_LANES + 1, scale.lanes, FULL_CAP).await?;
    large.settle().await?;
    report.progress(format!("loaded {} rows in {} lanes", scale.rows, scale.lanes));
    let small = small(bed).await?;
    let (ratio, p99) = compare(scale, report, &large, &small, false).await?;
    report.set("claim_growth", ratio);
    report.set("claim_p99_ms", p99);
    bed.drop(large).await?;
    bed.drop(small).await
}

/// Rows that back off before the head of each of ten lanes ÷ without.
pub async fn delayed_head(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let delayed = bed.ours().await?;
    load::lanes(&delayed, 1, OPEN_LANES, OPEN_CAP).await?;
    load::delayed(&delayed, OPEN_LANES, scale.delayed_each).await?;
    load::tasks(&delayed, 1, OPEN_LANES, SMALL_ROWS).await?;
    delayed.settle().await?;
    report.progress(format!("loaded {} delayed rows before each of {OPEN_LANES} heads", scale.delayed_each));
    let small = small(bed).await?;
    let (ratio, _) = compare(scale, report, &delayed, &small, false).await?;
    report.set("delayed_head_ratio", ratio);
    bed.drop(delayed).await?;
    bed.drop(small).await
}

/// Ended rows that wait for `retain`, which runs meanwhile ÷ with none of both. The rows are in the default partition, so
/// that `retain` must delete them in batches: the hard case, as a partition of its own goes at once.
pub async fn terminal(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let ended = small(bed).await?;
    load::ended(&ended, OPEN_LANES, scale.ended).await?;
    ended.settle().await?;
    report.progress(format!("loaded {} ended rows", scale.ended));
    let small = small(bed).await?;
    let (ratio, _) = compare(scale, report, &ended, &small, true).await?;
    report.set("terminal_ratio", ratio);
    bed.drop(ended).await?;
    bed.drop(small).await
}

async fn small(bed: &Bed) -> anyhow::Result<Database> {
    let small = bed.ours().await?;
    load::lanes(&small, 1, OPEN_LANES, OPEN_CAP).await?;
    load::tasks(&small, 1, OPEN_LANES, SMALL_ROWS).await?;
    small.settle().await?;
    Ok(small)
}

/// The median ratio of the p99, and the median p99 of the first. Both take turns of a second, so that what else the machine
/// does meets both.
async fn compare(
    scale: &Scale,
    report: &Report,
    these: &Database,
    those: &Database,
    retain: bool,
) -> anyhow::Result<(f64, f64)> {
    let (mut ratios, mut p99s) = (Vec::new(), Vec::new());
    for _ in 0..scale.repeats {
        these.checkpoint().await?;
        let (mut first, mut second) = (Side::new(these).await?, Side::new(those).await?);
        for _ in 0..scale.claims_secs {
            let upkeep = retain.then(|| tokio::spawn(keep_up(these.pool.clone())));
            let claimed = first.claims(TURN).await;
            if let Some(upkeep) = upkeep {
                upkeep.abort();
            }
            claimed?;
            second.claims(TURN).await?;
        }
        let (slow, fast) = (percentile(&first.times, 0.99), percentile(&second.times, 0.99));
        report.progress(format!(
            "claim p99 {slow:.2} ms ÷ {fast:.2} ms; p50 {:.2} ms ÷ {:.2} ms; {} and {} claims",
            median(&first.times),
            median(&second.times),
            first.times.len(),
            second.times.len()
        ));
        ratios.push(slow / fast);
        p99s.push(slow);
    }
    Ok((median(&ratios), median(&p99s)))
}

/// Claims one after the other. Before the next, another session, whose commits do not wait, completes what was claimed and
/// replaces it.
struct Side {
    client: Client,
    replacer: Client,
    /// Of each claim with its commit, in ms.
    times: Vec<f64>,
}

impl Side {
    async fn new(database: &Database) -> anyhow::Result<Self> {
        let client = Client::register(database, "default").await?;
        let mut replacer = Client::register(database, "default").await?;
        replacer.commit_asynchronously().await?;
        let mut side = Self { client, replacer, times: Vec::new() };
        for _ in 0..WARM_UP {
            side.claim().await?;
        }
        side.times.clear();
        Ok(side)
    }

    async fn claims(&mut self, turn: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + turn;
        while Instant::now() < until {
            self.claim().await?;
        }
        Ok(())
    }

    async fn claim(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let claimed = self.client.claim(WANT, QUANTUM).await?;
        self.times.push(started.elapsed().as_secs_f64() * 1_000.0);
        anyhow::ensure!(claimed.track_ids.len() == WANT as usize, "a claim came back with {}", claimed.track_ids.len());
        self.replacer.complete(&claimed).await?;
        self.replacer.refill(&claimed).await?;
        Ok(())
    }
}

async fn keep_up(pool: sqlx::PgPool) -> anyhow::Result<()> {
    loop {
        sqlx::query("select what from sluice.retain()").fetch_all(&pool).await?;
        tokio::time::sleep(UPKEEP_EVERY).await;
    }
}
