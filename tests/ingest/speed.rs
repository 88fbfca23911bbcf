//! How fast a generation is published, beside a COPY of the same rows into the same tables.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use sluice::domain::task::{State, TaskType};
use sqlx::postgres::PgPoolCopyExt;
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use crate::bed::{Bed, TENANT, book, counted, on};

const CHUNKS: usize = 2_000;
/// Tables of a generation with the columns in the place of its number.
const TABLES: [(&str, &str); 3] = [
    ("chunks", "ordinal, document_id, tenant, workspace, heading, content, start_char"),
    ("embeddings", "ordinal, tenant, workspace, model, embedding"),
    ("provenance", "item_id, ordinal, mentions"),
];

/// Of a reindex that finds everything paid for, from its claim until its end is seen: what is left is to cut the text, to
/// publish, and to take the old generation away.
async fn publish_time(bed: &Bed, document_id: Uuid) -> Duration {
    let ended = bed.done(on(TaskType::Reindex, TENANT, document_id)).await;
    // Not its `finished_at`: that is when the publishing transaction began.
    let seen = sqlx::query("select clock_timestamp()").fetch_one(bed.db.admin()).await.expect("the time");
    assert_eq!(ended.state, State::Completed, "{:?}", ended.error);
    assert_eq!(counted(&ended, "extracted") + counted(&ended, "embedded"), 0);
    let seen: DateTime<Utc> = seen.get(0);
    (seen - ended.started_at.expect("a start")).to_std().expect("it ends after its start")
}

async fn copy_time(bed: &Bed) -> (Duration, u64) {
    let (mut time, mut rows) = (Duration::ZERO, 0);
    for (table, columns) in TABLES {
        let out = format!("copy (select 0, {columns} from ingest.{table}) to stdout");
        let data: Vec<_> = bed.db.admin().copy_out_raw(&out).await.expect("a copy").try_collect().await.expect("rows");
        let started = Instant::now();
        let mut copy = bed
            .db
            .admin()
            .copy_in_raw(&format!("copy ingest.{table} (version_id, {columns}) from stdin"))
            .await
            .expect("a copy");
        for piece in data {
            copy.send(piece).await.expect("rows");
        }
        rows += copy.finish().await.expect("the end of the copy");
        time += started.elapsed();
        bed.arrange(&format!("delete from ingest.{table} where version_id = 0")).await;
    }
    (time, rows)
}

#[tokio::test]
#[ignore = "measures: alone on the machine, with --nocapture"]
async fn generation_is_published_at_half_the_rate_of_copy() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let document_id = bed.published(TENANT, &book(CHUNKS)).await;
    bed.arrange("analyze").await;
    let row =
        sqlx::query(AssertSqlSafe("select count(*) from ingest.chunks".to_owned())).fetch_one(bed.db.admin()).await;
    assert_eq!(row.expect("a count").get::<i64, _>(0), 2_000);
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let publish = publish_time(&bed, document_id).await;
        let (copy, rows) = copy_time(&bed).await;
        let ratio = copy.as_secs_f64() / publish.as_secs_f64();
        println!("{rows} rows: published in {publish:?}, copied in {copy:?}, ratio {ratio:.2}");
        best = best.max(ratio);
    }
    assert!(best >= 0.5, "{best}");
    worker.stop().await;
}
