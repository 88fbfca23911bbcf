//! A worker's two calls from Rust, prepared once: what a figure is timed around, and what graphile_worker is compared with.

use anyhow::Context;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::bed::Database;
use super::load::PAYLOAD;

/// All that a worker reads of a claimed task.
const CLAIM: &str = "select track_id, attempt, type, tenant, workspace, document_id, payload, timeout_secs, lease_secs, failures \
                     from sluice.claim($1, $2, $3, $4, false)";
const FLUSH: &str = "select from sluice.flush()";
const COMPLETE: &str = "select count(*) from sluice.complete_many($1, $2)";
/// As many new tasks in the same lanes, so that a cell's state does not drift.
const REFILL: &str = "insert into sluice.tasks (track_id, id, lane_id, type, payload)
                      select sluice._uuid_v7(), nextval('sluice.task_ids'), a.lane_id, 'insert', a.payload
                        from sluice.tasks_archive a where a.track_id = any ($1)";

pub struct Client {
    connection: PgConnection,
    worker: Uuid,
    sequence: i64,
}

#[derive(Default)]
pub struct Claimed {
    pub track_ids: Vec<Uuid>,
    pub attempts: Vec<i32>,
    pub tenants: Vec<String>,
}

impl Client {
    pub async fn register(database: &Database, pool: &str) -> anyhow::Result<Self> {
        // Its own for good: what it sets must not come back with it to the pool.
        let mut connection = database.pool.acquire().await?.detach();
        let worker =
            sqlx::query_scalar("select sluice.register_worker($1)").bind(pool).fetch_one(&mut connection).await?;
        Ok(Self { connection, worker, sequence: 0 })
    }

    /// For what is not timed.
    pub async fn commit_asynchronously(&mut self) -> anyhow::Result<()> {
        sqlx::query("set synchronous_commit = off").execute(&mut self.connection).await?;
        Ok(())
    }

    pub async fn claim(&mut self, want: i32, quantum: i32) -> anyhow::Result<Claimed> {
        self.sequence += 1;
        let rows = sqlx::query(CLAIM)
            .bind(self.worker)
            .bind(self.sequence)
            .bind(want)
            .bind(quantum)
            .fetch_all(&mut self.connection)
            .await
            .context("claim")?;
        if !rows.is_empty() {
            sqlx::query(FLUSH).execute(&mut self.connection).await.context("flush")?;
        }
        let mut claimed = Claimed::default();
        for row in &rows {
            claimed.track_ids.push(row.try_get(0)?);
            claimed.attempts.push(row.try_get(1)?);
            claimed.tenants.push(row.try_get(3)?);
        }
        Ok(claimed)
    }

    pub async fn complete(&mut self, claimed: &Claimed) -> anyhow::Result<i64> {
        if claimed.track_ids.is_empty() {
            return Ok(0);
        }
        sqlx::query_scalar(COMPLETE)
            .bind(&claimed.track_ids)
            .bind(&claimed.attempts)
            .fetch_one(&mut self.connection)
            .await
            .context("complete")
    }

    pub async fn refill(&mut self, claimed: &Claimed) -> anyhow::Result<()> {
        sqlx::query(REFILL).bind(&claimed.track_ids).execute(&mut self.connection).await.context("refill")?;
        Ok(())
    }

    /// One call of `enqueue_many` with a task for each of the tenants.
    pub async fn enqueue(&mut self, tenants: impl IntoIterator<Item = i32>) -> anyhow::Result<()> {
        let tasks = tasks_of(tenants);
        let created: i64 =
            sqlx::query_scalar("select count(*) from sluice.enqueue_many($1::jsonb) where outcome = 'created'")
                .bind(tasks)
                .fetch_one(&mut self.connection)
                .await
                .context("enqueue")?;
        anyhow::ensure!(created > 0, "enqueue_many created nothing");
        Ok(())
    }
}

/// The argument of `enqueue_many`, as text: how it travels is no part of what is measured.
pub fn tasks_of(tenants: impl IntoIterator<Item = i32>) -> String {
    let tasks: Vec<String> = tenants
        .into_iter()
        .map(|tenant| format!(r#"{{"type":"insert","tenant":"tenant-{tenant}","payload":{PAYLOAD}}}"#))
        .collect();
    format!("[{}]", tasks.join(","))
}
