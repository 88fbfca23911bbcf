//! A generation that is published, beside a COPY of the very same rows into the very same tables.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use serde_json::json;
use sluice::domain::task::TaskType;
use sluice::store::enqueue::NewTask;
use sluice::store::{Database as Store, reads};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use uuid::Uuid;

use crate::common::asking::{enqueue, operator};
use crate::common::bed::{Bed, Database};
use crate::common::report::{Report, median};
use crate::installation::{self, TENANT, WORKSPACE, book, until_none};
use crate::scale::Scale;

const CHUNKS: usize = 2_000;
/// All that a publish writes.
const TABLES: [&str; 6] = ["chunks", "embeddings", "provenance", "entities", "relations", "document_versions"];

pub async fn compare(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let database = installation::database(bed, None).await?;
    let worker = installation::worker(&database, 1, &[]).await?;
    let store = operator(&database)?;
    let insert = NewTask { payload: json!({ "text": book(CHUNKS) }), ..task(TaskType::Insert) };
    let document_id = insert.document_id.context("a document")?;
    enqueue(&store, &[insert]).await?;
    reads::wake(&store, "default").await?;
    until_none(&database, "select count(*) from sluice.tasks").await?;
    let published = database.number("select count(*) from ingest.chunks").await?;
    ensure!(published == CHUNKS as i64, "{published} of {CHUNKS} chunks were published");

    let rows = read(&database).await?;
    let mut ratios = Vec::new();
    for _ in 0..scale.repeats.max(2) {
        take_back(&database, document_id).await?;
        let (copy, count) = copy(&database, &rows).await?;
        take_back(&database, document_id).await?;
        let publish = publish(&database, &store, document_id).await?;
        report.note(format!(
            "{count} rows of {CHUNKS} chunks: published in {:.0} ms, from the claim to the end; copied in {:.0} ms",
            publish.as_secs_f64() * 1e3,
            copy.as_secs_f64() * 1e3
        ));
        ratios.push(copy.as_secs_f64() / publish.as_secs_f64());
    }
    report.set("publish_ratio", median(&ratios));
    worker.stop().await?;
    store.close().await;
    bed.drop(database).await
}

fn task(task_type: TaskType) -> NewTask {
    NewTask {
        workspace: Some(WORKSPACE.to_owned()),
        document_id: Some(Uuid::new_v4()),
        ..NewTask::new(task_type, TENANT)
    }
}

/// The rows of all tables, as COPY gives them.
async fn read(database: &Database) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut connection = database.pool.acquire().await?;
    for table in TABLES {
        let pieces: Vec<_> =
            connection.copy_out_raw(&format!("copy ingest.{table} to stdout")).await?.try_collect().await?;
        all.push(pieces.concat());
    }
    Ok(all)
}

/// The generation goes; what was paid for it stays. Both contestants begin with the same tables.
async fn take_back(database: &Database, document_id: Uuid) -> anyhow::Result<()> {
    database.execute(format!("select from ingest.drop_generation('{document_id}', '{TENANT}', '{WORKSPACE}')")).await?;
    for table in TABLES {
        let left: i64 = sqlx::query_scalar(AssertSqlSafe(format!("select count(*) from ingest.{table}")))
            .fetch_one(&database.pool)
            .await?;
        ensure!(left == 0, "{left} rows are left in {table}");
    }
    database.settle().await
}

/// In one transaction, as it is published.
async fn copy(database: &Database, rows: &[Vec<u8>]) -> anyhow::Result<(Duration, u64)> {
    let mut connection = database.pool.acquire().await?;
    let (started, mut count) = (Instant::now(), 0);
    let mut transaction = connection.begin().await?;
    for (table, rows) in TABLES.iter().zip(rows) {
        let mut copy = transaction.copy_in_raw(&format!("copy ingest.{table} from stdin")).await?;
        copy.send(rows.as_slice()).await?;
        count += copy.finish().await?;
    }
    transaction.commit().await?;
    Ok((started.elapsed(), count))
}

/// A reindex that finds everything paid for, from its claim until its end is seen: what is left is to cut the text and to
/// publish.
async fn publish(database: &Database, store: &Store, document_id: Uuid) -> anyhow::Result<Duration> {
    let reindex = NewTask { document_id: Some(document_id), ..task(TaskType::Reindex) };
    let track_id = enqueue(store, &[reindex]).await?[0];
    reads::wake(store, "default").await?;
    until_none(database, "select count(*) from sluice.tasks").await?;
    // Not its `finished_at`: that is when the publishing transaction began.
    let row = sqlx::query(
        "select clock_timestamp(), started_at, coalesce((result->>'extracted')::int + (result->>'embedded')::int, -1), error
           from sluice.task_status where track_id = $1",
    );
    let row = database.pool.fetch_one(row.bind(track_id)).await?;
    let (seen, began): (DateTime<Utc>, DateTime<Utc>) = (row.try_get(0)?, row.try_get(1)?);
    let (paid, error): (i32, Option<String>) = (row.try_get(2)?, row.try_get(3)?);
    ensure!(paid == 0, "a reindex that had to publish alone made {paid} artifacts: {error:?}");
    Ok((seen - began).to_std()?)
}
