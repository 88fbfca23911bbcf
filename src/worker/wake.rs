//! Hears notifications: of work in our pool, and of cancels that are ours. Without them the polls do it, later.

use std::sync::Arc;
use std::time::Duration;

use super::core::Core;
use crate::store::Role;
use crate::store::listen::{Listener, Notice};

/// A connection that hears nothing for so long may be cut where nobody tells: another one takes its place.
const SILENCE_MAX: Duration = Duration::from_secs(5 * 60);

pub(super) async fn listen(core: Arc<Core>) {
    let mut failures = 0;
    while !core.over.is_cancelled() {
        match Listener::connect(&core.settings.listen_database, Role::Worker).await {
            Ok(listener) => {
                core.complaints.succeeded("listening");
                failures = 0;
                hear(&core, listener).await;
            }
            Err(error) => core.complaints.failed("listening", &error),
        }
        failures += 1;
        core.pause(failures).await;
    }
}

/// Until the connection ends.
async fn hear(core: &Core, mut listener: Listener) {
    core.shared.metrics.listening.set(1);
    // What was notified before is missed.
    core.shared.claim_wake.notify_one();
    core.watch_wake.notify_one();
    loop {
        let heard = tokio::select! {
            heard = listener.next() => heard,
            // Its connection goes with it: there is no pool that could get it back.
            () = core.databases.replaced.notified() => return,
            () = tokio::time::sleep(SILENCE_MAX) => return,
        };
        match heard {
            Ok(Notice::Wake { pool }) if pool == core.settings.pool => {
                core.pool_wake.notify_one();
            }
            Ok(Notice::Cancel { worker_id }) if worker_id == core.worker_id => core.watch_wake.notify_one(),
            Ok(Notice::Wake { .. } | Notice::Cancel { .. }) => {}
            Err(error) => {
                core.shared.metrics.listening.set(0);
                core.complaints.failed("listening", &error);
                return;
            }
        }
    }
}
