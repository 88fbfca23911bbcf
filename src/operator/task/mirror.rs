//! Hears from the database whose row has changed.
//!
//! A short poll, not LISTEN: a NOTIFY of each transition would be part of the transactions that workers end tasks with,
//! and costs them several times their speed. The poll is one call that finds nothing in a partial index.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Shared;
use super::entries::Revision;
use crate::operator::cache::Key;
use crate::operator::context::Context;
use crate::store::StoreError;
use crate::store::reads::mirror_changes_after;

/// A fifth of what a status may be late.
const POLL: Duration = Duration::from_millis(100);
/// When the database does not answer.
const LONG_POLL: Duration = Duration::from_secs(1);
const PAGE: u32 = 1_000;

pub async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut is_away = false;
    while !stop.is_cancelled() {
        // Never raced: a statement on its way must come to its end.
        let pause = match pass(&shared).await {
            Ok(()) => {
                if std::mem::take(&mut is_away) {
                    tracing::info!("the database answers again");
                    // It may be another server, or an older state: nothing that was known of it holds.
                    shared.look_at_all();
                }
                POLL
            }
            Err(error) => {
                if !std::mem::replace(&mut is_away, true) {
                    tracing::warn!(%error, "changes of rows cannot be read and are tried again");
                }
                LONG_POLL
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn pass(shared: &Shared) -> Result<(), StoreError> {
    let Context { database, cluster, settings, metrics, .. } = &*shared.context;
    let (mut after, mut behind) = (0, 0);
    loop {
        let page = mirror_changes_after(database, cluster, &settings.watch_namespaces, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.mirror_id;
        behind += page.len();
        for change in &page {
            let key = Key { namespace: change.namespace.clone(), name: change.name.clone() };
            let held = shared.caches.tasks.objects.get(&key);
            // One that the cache has not seen yet is looked at when it is; one that is gone is the janitor's.
            let is_held = held.is_some_and(|task| task.metadata.uid.as_deref() == Some(&change.uid));
            if !is_held {
                continue;
            }
            match shared.entries.note_behind(&change.uid, change.rev) {
                Revision::News => shared.caches.tasks.queue.add(key),
                Revision::Known => {}
                Revision::Shown => shared.acks.tell((change.mirror_id, change.rev)),
            }
        }
        if page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
            break;
        }
    }
    metrics.mirror_behind(behind);
    Ok(())
}
