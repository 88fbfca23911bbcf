//! The one row that a handler for tests writes: proof of what was published, in a table that the test makes.

use super::claim::Attempt;
use super::connect::Transaction;
use super::error::StoreError;

/// The test's own: `create table sluice_test_effects (track_id uuid not null, attempt int not null)` on the search path,
/// with INSERT for the worker's role.
pub async fn insert(transaction: &mut Transaction, attempt: Attempt) -> Result<(), StoreError> {
    let statement = sqlx::query("insert into sluice_test_effects (track_id, attempt) values ($1, $2)")
        .bind(attempt.track_id)
        .bind(attempt.number);
    transaction.execute(statement).await.map(drop)
}
