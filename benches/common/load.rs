//! Fills a database with lanes and tasks by set-based SQL, as wide as real rows and without their history.

use super::bed::Database;

/// Below this, dropping indexes and making them again costs more than it saves.
const INDEX_LATER_ROWS: i64 = 1_000_000;
pub const NO_CAP: i32 = i32::MAX;
pub const PAYLOAD: &str = r#"{"source":"payload-0123456789-0123456789"}"#;

#[derive(Clone, Copy)]
pub struct Shape {
    pub lanes: i32,
    pub cap: i32,
    /// Ready tasks, spread over the lanes in turn.
    pub rows: i64,
}

/// The lanes and pending tasks of a shape, and the workers that pgbench's clients claim for.
pub async fn shape(database: &Database, shape: Shape) -> anyhow::Result<()> {
    lanes(database, 1, shape.lanes, shape.cap).await?;
    tasks(database, 1, shape.lanes, shape.rows).await?;
    workers(database).await
}

pub async fn lanes(database: &Database, first: i32, last: i32, cap: i32) -> anyhow::Result<()> {
    let asked = if cap == NO_CAP { 0 } else { cap };
    database
        .execute(format!(
            "insert into sluice.tenant_lanes (tenant, class, pool_id, max_running, effective_max_running)
             select 'tenant-' || g, 'ingest', 1, {asked}, {asked} from generate_series({first}, {last}) g;
             insert into sluice.lane_turns (lane_id, pool_id, cap, weight, vtime)
             select lane_id, 1, {cap}, 1, 0 from sluice.tenant_lanes
              where tenant in (select 'tenant-' || g from generate_series({first}, {last}) g);"
        ))
        .await
}

/// `rows` ready tasks over the lanes `first` to `last`, one after the other.
pub async fn tasks(database: &Database, first: i32, last: i32, rows: i64) -> anyhow::Result<()> {
    tasks_into(database, "sluice.tasks", first, last, rows).await
}

/// The same into another table with those columns.
pub async fn tasks_into(database: &Database, table: &str, first: i32, last: i32, rows: i64) -> anyhow::Result<()> {
    let count = last - first + 1;
    insert(
        database,
        table,
        rows,
        &format!(
            "insert into {table} (track_id, id, lane_id, type, payload)
             select sluice._uuid_v7(), nextval('sluice.task_ids'), {first} + g % {count}, 'insert', '{PAYLOAD}'
               from generate_series(0::bigint, {rows} - 1) g"
        ),
    )
    .await
}

/// Tasks that wait for a retry an hour from now, before all others of their lane.
pub async fn delayed(database: &Database, lanes: i32, each: i64) -> anyhow::Result<()> {
    let rows = i64::from(lanes) * each;
    insert(
        database,
        "sluice.tasks",
        rows,
        &format!(
            "insert into sluice.tasks (track_id, id, lane_id, type, priority, ready, available_at, failures, attempt, payload)
             select sluice._uuid_v7(), nextval('sluice.task_ids'), 1 + g % {lanes}, 'insert', 1, false,
                    now() + interval '1 hour' + g * interval '1 ms', 1, 1, '{PAYLOAD}'
               from generate_series(0::bigint, {rows} - 1) g"
        ),
    )
    .await
}

/// Fills the lanes `first` to `last` up to their cap with tasks that a worker of another world holds.
pub async fn running(database: &Database, first: i32, last: i32, cap: i32) -> anyhow::Result<()> {
    database
        .execute(format!(
            "insert into sluice.tasks (track_id, id, lane_id, type, payload, state, ready, leased, attempt, worker_id,
                                       claim_sequence, claim_number, started_at, lease_until, deadline)
             select sluice._uuid_v7(), nextval('sluice.task_ids'), l, 'insert', '{PAYLOAD}', 'processing', true, true, 1,
                    md5('elsewhere')::uuid, 1, c, now(), now() + interval '1 day', now() + interval '1 day'
               from generate_series({first}, {last}) l, generate_series(1, {cap}) c;
             update sluice.lane_turns set is_full = true, served = {cap}, oldest = 1 where lane_id between {first} and {last};"
        ))
        .await
}

/// What ended and waits for `retain`: older than any retention, as `track_id` says.
pub async fn ended(database: &Database, lanes: i32, rows: i64) -> anyhow::Result<()> {
    database
        .execute(format!(
            "insert into sluice.tasks_archive (track_id, id, lane_id, state, type, ready, attempt, created_at, started_at,
                                               finished_at, payload)
             select sluice._uuid_at(now() - interval '400 days' + g * interval '1 ms'), nextval('sluice.task_ids'), 1 + g % {lanes},
                    'completed', 'insert', false, 1, now() - interval '400 days', now() - interval '400 days',
                    now() - interval '400 days', '{PAYLOAD}'
               from generate_series(0::bigint, {rows} - 1) g"
        ))
        .await
}

/// One for each client of pgbench; `worker` names them.
pub async fn workers(database: &Database) -> anyhow::Result<()> {
    database
        .execute(
            "insert into sluice.workers (worker_id, pool_id, alive_until)
             select md5(g::text)::uuid, 1, now() + interval '1 day' from generate_series(0, 63) g",
        )
        .await
}

async fn insert(database: &Database, table: &str, rows: i64, statement: &str) -> anyhow::Result<()> {
    if rows < INDEX_LATER_ROWS {
        return database.execute(statement).await;
    }
    let indexes: Vec<(String, String)> = sqlx::query_as(
        "select indexrelid::regclass::text, pg_get_indexdef(indexrelid) from pg_index
          where indrelid = $1::text::regclass and not indisprimary and not indisunique",
    )
    .bind(table)
    .fetch_all(&database.pool)
    .await?;
    let mut sql = String::from("begin;\n");
    for (name, _) in &indexes {
        sql.push_str(&format!("drop index {name};\n"));
    }
    sql.push_str(statement);
    for (_, definition) in &indexes {
        sql.push_str(&format!(";\n{definition}"));
    }
    sql.push_str(";\ncommit;");
    database.execute(sql).await
}
