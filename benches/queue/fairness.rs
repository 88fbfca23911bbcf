//! Who gets how much: a tenant that floods, and lanes that wake.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::common::bed::{Bed, Database};
use crate::common::client::Client;
use crate::common::load;
use crate::common::report::{Report, median, percentile};
use crate::pgbench::{self, Length, Load};
use crate::scale::Scale;

const CAP: i32 = 2;
/// Tasks of each small tenant; the flood is nine times all of them together.
const EACH: i64 = 20;
/// How many of them are served before it is counted: every tenant still has work then.
const SERVED_EACH: u32 = 15;
const WANT: u32 = 16;
const CLIENTS: u32 = 8;
const HANDLER_MS: u32 = 5;

/// Jain's index of what 1,000 tenants were served, where one of them has 90 % of all tasks.
pub async fn jain(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let mut indexes = Vec::new();
    for _ in 0..scale.repeats {
        let database = bed.ours().await?;
        load::lanes(&database, 1, scale.tenants, CAP).await?;
        load::tasks(&database, 2, scale.tenants, i64::from(scale.tenants - 1) * EACH).await?;
        load::tasks(&database, 1, 1, i64::from(scale.tenants - 1) * EACH * 9).await?;
        load::workers(&database).await?;
        database.settle().await?;
        let transactions = scale.tenants.unsigned_abs() * SERVED_EACH / WANT / CLIENTS;
        let script = pgbench::ours(WANT, 1, HANDLER_MS);
        Load { script: &script, clients: CLIENTS, length: Length::Transactions(transactions) }.run(bed, &database)?;
        let served: Vec<i64> = sqlx::query_scalar(
            "select count(a.track_id) from sluice.tenant_lanes l left join sluice.tasks_archive a using (lane_id) group by l.lane_id",
        )
        .fetch_all(&database.pool)
        .await?;
        let served: Vec<f64> = served.into_iter().map(|count| count as f64).collect();
        let (sum, squares): (f64, f64) = (served.iter().sum(), served.iter().map(|count| count * count).sum());
        indexes.push(sum * sum / (served.len() as f64 * squares));
        bed.drop(database).await?;
    }
    report.set("jain", median(&indexes));
    Ok(())
}

/// How long a small tenant's task waits for its start, p99, beside the flood ÷ without it.
pub async fn small_wait(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let mut ratios = Vec::new();
    for _ in 0..scale.repeats {
        let with = wait(bed, scale, true).await?;
        let without = wait(bed, scale, false).await?;
        report.progress(format!("a small tenant waits {with:.1} ms beside the flood, {without:.1} ms without (p99)"));
        ratios.push(with / without);
    }
    report.set("small_wait_ratio", median(&ratios));
    Ok(())
}

async fn wait(bed: &Bed, scale: &Scale, flood: bool) -> anyhow::Result<f64> {
    /// Small tenants bring 500 tasks a second: well below what the workers could do.
    const ARRIVALS: i32 = 5;
    const EVERY: Duration = Duration::from_millis(10);
    /// What a wake-up would take; a claimer that found nothing looks again.
    const LOOK_AGAIN: Duration = Duration::from_millis(5);
    const CLAIMERS: usize = 4;

    let database = bed.ours().await?;
    load::lanes(&database, 1, scale.tenants, CAP).await?;
    if flood {
        load::tasks(&database, 1, 1, 9 * i64::from(ARRIVALS) * 100 * scale.claims_secs.cast_signed()).await?;
    }
    database.settle().await?;
    let until = Instant::now() + Duration::from_secs(scale.claims_secs);
    let mut claimers = tokio::task::JoinSet::new();
    for _ in 0..CLAIMERS {
        let mut client = Client::register(&database, "default").await?;
        claimers.spawn(async move {
            while Instant::now() < until + Duration::from_millis(100) {
                let claimed = client.claim(WANT.cast_signed(), 1).await?;
                if claimed.track_ids.is_empty() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                } else {
                    tokio::time::sleep(Duration::from_millis(u64::from(HANDLER_MS))).await;
                    client.complete(&claimed).await?;
                }
            }
            anyhow::Ok(())
        });
    }
    let mut producer = Client::register(&database, "default").await?;
    let mut ticks = tokio::time::interval(EVERY);
    let mut next = 0;
    while Instant::now() < until {
        ticks.tick().await;
        // Each small tenant in turn, never the first, which floods.
        producer.enqueue((next..next + ARRIVALS).map(|n| 2 + n % (scale.tenants - 1))).await?;
        next += ARRIVALS;
    }
    while let Some(claimer) = claimers.join_next().await {
        claimer??;
    }
    let waits: Vec<f64> = sqlx::query_scalar(
        "select extract(epoch from a.started_at - a.created_at)::float8 * 1000
           from sluice.tasks_archive a join sluice.tenant_lanes l using (lane_id) where l.tenant <> 'tenant-1'",
    )
    .fetch_all(&database.pool)
    .await?;
    ensure!(waits.len() * 10 > next as usize * 9, "only {} of {next} small tasks were served", waits.len());
    drop(producer);
    bed.drop(database).await?;
    Ok(percentile(&waits, 0.99))
}

const LANES: i32 = 20;
const CLAIMS: usize = 1_000;
/// More than stay claimed.
const LANE_CAP: i32 = 4;
/// Two turns of each lane.
const WARM_UP: usize = 40;
const WOKEN: &str = "tenant-20";
const RAISED_WEIGHT: i32 = 3;
/// An hour of turns at a hundred tasks a second and lane.
const AN_HOUR: i64 = 3_600 * 100 * 1_000_000;

/// The share of the next 1,000 claims that a lane gets after it woke ÷ its fair share.
pub async fn woken(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let mut shares = Vec::new();
    for wake in [Wake::Resumed, Wake::CapRaised, Wake::WeightRaised, Wake::Moved] {
        let mut of_this = Vec::new();
        for _ in 0..scale.repeats {
            of_this.push(woken_share(bed, wake).await?);
        }
        let share = median(&of_this);
        report.note(format!("share of a lane that was {}: {share:.3}", wake.name()));
        shares.push(share);
    }
    report.set("woken_share_min", percentile(&shares, 0.0));
    report.set("woken_share_max", percentile(&shares, 1.0));
    Ok(())
}

#[derive(Clone, Copy)]
enum Wake {
    Resumed,
    CapRaised,
    WeightRaised,
    Moved,
}

impl Wake {
    fn name(self) -> &'static str {
        match self {
            Self::Resumed => "resumed",
            Self::CapRaised => "given a higher cap",
            Self::WeightRaised => "given more weight",
            Self::Moved => "moved to a younger pool",
        }
    }

    /// What lets the lane sleep while the others go on.
    fn sleep(self) -> &'static str {
        match self {
            Self::Resumed => "select sluice.hold_lane('tenant-20', 'ingest', 'hold')",
            Self::CapRaised => "select sluice.set_lane('tenant-20', 'ingest', '{\"max_running\": 1}')",
            Self::WeightRaised => "select 1",
            Self::Moved => "select sluice.set_pool('younger', '{\"ingest_cap\": 4}')",
        }
    }

    fn wake(self) -> String {
        match self {
            Self::Resumed => "select sluice.hold_lane('tenant-20', 'ingest', 'none')".to_owned(),
            Self::CapRaised => "select sluice.set_lane('tenant-20', 'ingest', '{\"max_running\": 4}')".to_owned(),
            Self::WeightRaised => {
                format!("select sluice.set_lane('tenant-20', 'ingest', '{{\"weight\": {RAISED_WEIGHT}}}')")
            }
            Self::Moved => "select sluice.set_lane('tenant-20', 'ingest', '{\"pool\": \"younger\"}')".to_owned(),
        }
    }

    fn fair_share(self) -> f64 {
        let weight = if matches!(self, Self::WeightRaised) { RAISED_WEIGHT } else { 1 };
        f64::from(weight) / f64::from(LANES - 1 + weight)
    }
}

async fn woken_share(bed: &Bed, wake: Wake) -> anyhow::Result<f64> {
    let database = bed.ours().await?;
    load::lanes(&database, 1, LANES, LANE_CAP).await?;
    load::tasks(&database, 1, LANES, i64::from(LANES) * 500).await?;
    database.settle().await?;
    let mut client = register(&database, "default").await?;
    serve(&mut client, WARM_UP).await?;
    database.execute(wake.sleep()).await?;
    serve(&mut client, WARM_UP).await?;
    if matches!(wake, Wake::CapRaised) {
        // One task of its runs all the time, so the lane is full.
        while client.claim(1, 1).await?.tenants != [WOKEN] {}
        serve(&mut client, WARM_UP).await?;
    }
    match wake {
        // The lane's own turn is the old one; all that it is compared with has gone on.
        Wake::Resumed | Wake::CapRaised => go_on(&database, "lane_id <> 20").await?,
        Wake::WeightRaised => {}
        Wake::Moved => {
            // The others are the young ones: they begin where a new pool does.
            go_on(&database, "true").await?;
            database
                .execute(
                    "update sluice.tenant_lanes set pool_id = (select pool_id from sluice.pools where pool = 'younger') where tenant <> 'tenant-20';
                     update sluice.lane_turns set vtime = 0, pool_id = (select pool_id from sluice.pools where pool = 'younger') where lane_id <> 20",
                )
                .await?;
            client = register(&database, "younger").await?;
            serve(&mut client, WARM_UP).await?;
        }
    }
    serve(&mut client, WARM_UP).await?;
    database.execute(wake.wake()).await?;
    let share = serve(&mut client, CLAIMS).await? as f64 / CLAIMS as f64;
    drop(client);
    bed.drop(database).await?;
    Ok(share / wake.fair_share())
}

/// Who gets the next claim is no matter of how fast a commit reaches the disk.
async fn register(database: &Database, pool: &str) -> anyhow::Result<Client> {
    let mut client = Client::register(database, pool).await?;
    client.commit_asynchronously().await?;
    Ok(client)
}

/// An hour of service to the lanes that `which` names.
async fn go_on(database: &Database, which: &str) -> anyhow::Result<()> {
    database
        .execute(format!(
            "update sluice.lane_turns set vtime = vtime + {AN_HOUR} where {which};
             update sluice.pools set vfloor = vfloor + {AN_HOUR} where pool = 'default'"
        ))
        .await
}

/// Claims one task at a time, and says how many of them were the lane's that wakes.
async fn serve(client: &mut Client, claims: usize) -> anyhow::Result<usize> {
    let mut count = 0;
    for _ in 0..claims {
        let claimed = client.claim(1, 1).await?;
        ensure!(claimed.track_ids.len() == 1, "a claim found nothing");
        count += usize::from(claimed.tenants[0] == WOKEN);
        client.complete(&claimed).await?;
    }
    Ok(count)
}
