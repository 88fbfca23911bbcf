//! What every controller works with.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config};

use super::OperatorError;
use super::events::Events;
use super::instrument::Metrics;
use super::leader::{self, Leadership};
use crate::store::{Database, DatabaseUrl, PoolSettings, Role, reads};

/// The operator's name in the managed fields of what it writes, and in events.
pub const FIELD_MANAGER: &str = "sluice-operator";
/// At most ten in all: the rest is for a connection that listens, and for one that is being replaced.
const CONNECTIONS: u32 = 8;
/// Below the limit of a pass, so that a database that is away is told and not waited for.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(5);
/// Of every request that is no watch.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);
/// Above the time of a watch, which ends by itself.
const WATCH_LIMIT: Duration = Duration::from_secs(75);

/// What the operator is told.
#[derive(Clone, Debug)]
pub struct Settings {
    pub database: DatabaseUrl,
    /// For LISTEN, past any pooler.
    pub listen_database: DatabaseUrl,
    /// Tells clusters on one database apart; the uid of the namespace kube-system if it is not given.
    pub cluster: Option<String>,
    /// Its own: of the Lease, and of the pools.
    pub namespace: String,
    /// Those whose tasks and lanes it serves; all if there is none.
    pub watch_namespaces: Vec<String>,
    /// Of this process alone, in the Lease.
    pub identity: String,
    /// Where probes and metrics are served, if anywhere.
    pub listen: Option<SocketAddr>,
    /// Of a worker in this process, which may not listen to the database.
    pub local_wake: Option<LocalWake>,
}

/// Wakes a worker of this process.
#[derive(Clone)]
pub struct LocalWake(Arc<dyn Fn() + Send + Sync>);

impl LocalWake {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }
}

impl fmt::Debug for LocalWake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LocalWake")
    }
}

/// One for the process.
pub struct Context {
    /// For reads and writes.
    pub client: Client,
    /// For watches, which may be silent for long.
    pub watch_client: Client,
    pub database: Database,
    pub settings: Settings,
    /// Of this cluster, in every row that came from it.
    pub cluster: String,
    pub leadership: Leadership,
    pub metrics: Metrics,
    pub events: Events,
}

impl Context {
    /// Reads the cluster's id if it was not given; opens no connection to the database yet.
    pub async fn new(settings: Settings) -> Result<Self, OperatorError> {
        let client = client(REQUEST_LIMIT).await?;
        let cluster = match &settings.cluster {
            Some(cluster) => cluster.clone(),
            None => cluster_id(&client).await?,
        };
        let pool = PoolSettings { max_connections: CONNECTIONS, acquire_timeout: ACQUIRE_LIMIT };
        let metrics = Metrics::new();
        let leadership = Leadership::new();
        Ok(Self {
            watch_client: self::client(WATCH_LIMIT).await?,
            database: Database::new(settings.database.clone(), Role::Operator, pool),
            events: Events::start(client.clone(), settings.identity.clone(), leadership.clone(), metrics.clone()),
            client,
            settings,
            cluster,
            leadership,
            metrics,
        })
    }

    /// Tells workers that the pool has work, after the commit that made it. They poll: a wake that fails costs two seconds
    /// and no more.
    pub async fn wake(&self, pool: &str) {
        if let Some(LocalWake(wake)) = &self.settings.local_wake {
            wake();
        }
        if let Err(error) = reads::wake(&self.database, pool).await {
            tracing::debug!(%error, pool, "workers were not woken");
        }
    }

    /// A client whose requests end in time to notice that the Lease cannot be renewed.
    pub async fn lease_client() -> Result<Client, OperatorError> {
        client(leader::REQUEST_LIMIT).await
    }
}

pub(super) async fn client(limit: Duration) -> Result<Client, OperatorError> {
    let mut config = Config::infer().await.map_err(|source| OperatorError::NoCluster { source: Box::new(source) })?;
    config.read_timeout = Some(limit);
    config.connect_timeout = Some(limit.min(Duration::from_secs(5)));
    config.write_timeout = Some(limit);
    Client::try_from(config).map_err(|source| OperatorError::Client { source: Box::new(source) })
}

/// Stays the same for as long as the cluster does.
async fn cluster_id(client: &Client) -> Result<String, OperatorError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace =
        namespaces.get("kube-system").await.map_err(|source| OperatorError::ClusterId { source: Box::new(source) })?;
    namespace.metadata.uid.ok_or(OperatorError::NoClusterId)
}
