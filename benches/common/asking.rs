//! The store as the program that asks for work has it.

use sluice::store::enqueue::{Enqueued, NewTask, enqueue_many};
use sluice::store::{Database as Store, PoolSettings, Role};
use uuid::Uuid;

use super::bed::Database;

pub fn operator(database: &Database) -> anyhow::Result<Store> {
    Ok(Store::new(database.url.parse()?, Role::Operator, PoolSettings::default()))
}

pub async fn enqueue(store: &Store, tasks: &[NewTask]) -> anyhow::Result<Vec<Uuid>> {
    let mut track_ids = Vec::new();
    for answer in enqueue_many(store, tasks).await? {
        match answer {
            Enqueued::Created { track_id } => track_ids.push(track_id),
            other => anyhow::bail!("enqueue_many answered {other:?}"),
        }
    }
    Ok(track_ids)
}
