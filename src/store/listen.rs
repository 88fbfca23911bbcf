//! Notifications: hints that there may be work, or something to stop. Who misses one polls.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use uuid::Uuid;

use super::connect::{Role, connect_options};
use super::error::StoreError;
use super::url::DatabaseUrl;

const WAKE: &str = "sluice_wake";
const CANCEL: &str = "sluice_cancel";
/// The poll goes on meanwhile.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that only listens; it must lead past any pooler. When it ends, make another one.
pub struct Listener {
    inner: PgListener,
    url: DatabaseUrl,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// There may be work in this pool.
    Wake { pool: String },
    /// Something that this worker holds is to stop.
    Cancel { worker_id: Uuid },
}

impl Listener {
    pub async fn connect(url: &DatabaseUrl, role: Role) -> Result<Self, StoreError> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT_TIMEOUT)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_lazy_with(connect_options(url, role));
        let sorted = |error| StoreError::sort(error, url);
        let mut inner = PgListener::connect_with(&pool).await.map_err(sorted)?;
        // What was missed meanwhile is for the caller to look after.
        inner.eager_reconnect(false);
        inner.listen_all([WAKE, CANCEL]).await.map_err(sorted)?;
        Ok(Self { inner, url: url.clone() })
    }

    /// The next one that is understood; an error when the connection has ended.
    pub async fn next(&mut self) -> Result<Notice, StoreError> {
        loop {
            let heard = self.inner.try_recv().await.map_err(|error| StoreError::sort(error, &self.url))?;
            let Some(notification) = heard else {
                return Err(StoreError::Transient {
                    cause: format!("{} ended the connection that listens", self.url.server()),
                    driver: None,
                });
            };
            match notification.channel() {
                WAKE => return Ok(Notice::Wake { pool: notification.payload().to_owned() }),
                CANCEL => {
                    if let Ok(worker_id) = Uuid::parse_str(notification.payload()) {
                        return Ok(Notice::Cancel { worker_id });
                    }
                }
                _ => {}
            }
        }
    }
}
