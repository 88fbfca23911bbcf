//! What calls cost where nothing is fast or slow: statements of an idle claimer, buffers under wrong statistics.

use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use crate::common::bed::Bed;
use crate::common::client::Client;
use crate::common::load::{self, Shape};
use crate::common::report::Report;
use crate::scale::Scale;

/// A worker that nobody wakes looks this often.
const POLL: Duration = Duration::from_secs(2);

/// Counts in the server's log, which misses nothing that reached it, and to which only this database's sessions write.
pub async fn idle(bed: &Bed, scale: &Scale) -> anyhow::Result<f64> {
    let database = bed.ours().await?;
    database.execute(format!("alter database {} set log_statement = 'all'", database.name)).await?;
    let database = bed.reopen(database).await?;
    let mut client = Client::register(&database, "default").await?;
    client.claim(1, 1).await?;
    let polls = if scale.quick { 3 } else { 10 };
    let before = bed.statements()?.len();
    let mut ticks = tokio::time::interval(POLL);
    ticks.tick().await;
    for _ in 0..polls {
        ticks.tick().await;
        client.claim(1, 1).await?;
    }
    let counted = bed.statements()?.len() - before;
    drop(client);
    bed.drop(database).await?;
    Ok(counted as f64 / (POLL.as_secs() * polls) as f64)
}

/// The largest number of buffers that one call touched, with statistics taken when the tables were empty: the first calls
/// of a session, and those after the fifth, which have generic plans. EXPLAIN counts what a function's statements touch.
pub async fn buffers(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    const CALLS: usize = 8;
    let database = bed.ours().await?;
    for table in ["tasks", "lane_turns", "tenant_lanes", "tasks_archive_default", "lane_wakes", "workers", "pools"] {
        database.execute(format!("alter table sluice.{table} set (autovacuum_enabled = false)")).await?;
    }
    database.execute("analyze").await?;
    load::shape(&database, Shape { lanes: scale.lanes, cap: 2, rows: 300_000 }).await?;
    let mut client = database.pool.acquire().await?;
    let worker: Uuid = sqlx::query_scalar("select sluice.register_worker()").fetch_one(&mut *client).await?;
    sqlx::raw_sql(
        "prepare claim_few (uuid, bigint) as select track_id, payload from sluice.claim($1, $2, 16);
                   prepare complete_many (uuid[], int[]) as select track_id, outcome from sluice.complete_many($1, $2)",
    )
    .execute(&mut *client)
    .await?;
    let (mut claims, mut completions) = (Vec::new(), Vec::new());
    for call in 0..CALLS {
        let touched = explain(&mut client, &format!("execute claim_few ('{worker}', {call})")).await?;
        let row =
            sqlx::query("select array_agg(track_id)::text, array_agg(attempt)::text from sluice.claim($1, $2, 512, 2)")
                .bind(worker)
                .bind(1_000 + i64::try_from(call)?)
                .fetch_one(&mut *client)
                .await?;
        let (track_ids, attempts): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let ended = explain(&mut client, &format!("execute complete_many ('{track_ids}', '{attempts}')")).await?;
        // The first of a session also reads the catalogue.
        if call > 0 {
            claims.push(touched);
            completions.push(ended);
        }
    }
    report.note(format!("buffers of each call: claim {claims:?}, completion {completions:?}"));
    report.set("claim_buffers", claims.iter().copied().max().context("no call")? as f64);
    report.set("complete_buffers", completions.iter().copied().max().context("no call")? as f64);
    drop(client);
    bed.drop(database).await
}

async fn explain(connection: &mut PgConnection, call: &str) -> anyhow::Result<i64> {
    let sql = format!("explain (analyze, buffers, format json) {call}");
    let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await?;
    let plan: Value = serde_json::from_str(row.try_get_unchecked::<&str, _>(0)?)?;
    let plan = &plan[0]["Plan"];
    let count = |name: &str| plan[name].as_i64().with_context(|| format!("no {name}"));
    Ok(count("Shared Hit Blocks")? + count("Shared Read Blocks")?)
}
