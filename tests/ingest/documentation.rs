//! The queries of docs/pipeline.md, run as a reader: each finds something.

use sluice::store::{PoolSettings, Role};
use sqlx::AssertSqlSafe;

use crate::bed::{Bed, TENANT};

const GUIDE: &str = include_str!("../../docs/pipeline.md");
const TEXT: &str = "# Leases\n\nOnce Ada Lovelace wrote to Charles Babbage that a lease is renewed by its worker.";

/// Those that need no extension.
fn queries() -> Vec<&'static str> {
    let blocks = GUIDE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let plain = blocks.filter(|block| !block.contains("create extension"));
    plain.flat_map(|block| block.split(';')).map(str::trim).filter(|query| !query.is_empty()).collect()
}

#[tokio::test]
async fn each_query_of_the_guide_finds_what_was_published() {
    let bed = Bed::new().await;
    let worker = bed.work();
    let document_id = bed.published(TENANT, TEXT).await;
    let reader = bed.db.connect(Role::Reader, PoolSettings::default());

    let queries = queries();
    assert_eq!(queries.len(), 5);
    for query in queries {
        let sql = query.replace('…', &document_id.to_string());
        let rows =
            reader.fetch_all(sqlx::query(AssertSqlSafe(sql))).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        assert!(!rows.is_empty(), "{query}");
    }
    worker.stop().await;
}
