//! Where a statement runs: by itself, or in a transaction that its caller commits.

use std::future::Future;

use sqlx::postgres::PgRow;

use super::connect::{Database, Statement, Transaction};
use super::error::StoreError;

/// `&Database` runs each statement by itself; `&mut Transaction` runs it with what the caller wrote before.
pub trait Session: Send {
    fn fetch_all(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<Vec<PgRow>, StoreError>> + Send;

    fn fetch_one(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<PgRow, StoreError>> + Send;
}

impl Session for &Database {
    async fn fetch_all(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        Database::fetch_all(self, statement).await
    }

    async fn fetch_one(&mut self, statement: Statement<'_>) -> Result<PgRow, StoreError> {
        Database::fetch_one(self, statement).await
    }
}

impl Session for &mut Transaction {
    async fn fetch_all(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        Transaction::fetch_all(self, statement).await
    }

    async fn fetch_one(&mut self, statement: Statement<'_>) -> Result<PgRow, StoreError> {
        Transaction::fetch_one(self, statement).await
    }
}
