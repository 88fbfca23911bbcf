//! The store as the program that asks for work has it.

use sluice::domain::lane::Cap;
use sluice::store::enqueue::{Enqueued, NewTask, enqueue_many};
use sluice::store::lanes::{WorkerPoolSettings, set_pool};
use sluice::store::{Database as Store, PoolSettings, Role};
use uuid::Uuid;

use super::bed::Database;

pub fn operator(database: &Database) -> anyhow::Result<Store> {
    Ok(Store::new(database.url.parse()?, Role::Operator, PoolSettings::default()))
}

/// Takes the caps off the default pool's lanes.
pub async fn uncap(store: &Store, lease_secs: Option<u32>) -> anyhow::Result<()> {
    let settings = WorkerPoolSettings {
        ingest_cap: Some(Cap::NONE),
        lifecycle_cap: Some(Cap::NONE),
        lease_secs,
        ..WorkerPoolSettings::default()
    };
    Ok(set_pool(store, "default", settings, None).await?)
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
