//! The clients that sources are read with. Addresses are looked at when the connection is made, so that no name, no spelling and
//! no redirect leads to a place that only the worker can reach.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;
use url::{Host, Url};

use super::address::may_connect;
use crate::ingest::http::{self, chain};

/// Without a byte.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
#[error("its address is not public, and SLUICE_ALLOWED_NETWORKS does not have it")]
pub struct NotPublic;

/// Makes clients that connect to public addresses, and to those of the operator's networks.
#[derive(Debug, Clone)]
pub struct Guard {
    allowed: Arc<[IpNet]>,
}

impl Guard {
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed: allowed.into() }
    }

    /// It follows no redirect. Ask [`Guard::check_host`] before each request: who writes an address needs no resolver.
    pub fn client(&self, is_https_only: bool) -> reqwest::Result<Client> {
        http::builder()
            .https_only(is_https_only)
            // A proxy would resolve names by itself.
            .no_proxy()
            .dns_resolver(self.clone())
            .read_timeout(READ_TIMEOUT)
            .build()
    }

    pub fn check_host(&self, url: &Url) -> Result<(), NotPublic> {
        let address: Option<IpAddr> = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) | None => None,
        };
        match address {
            Some(address) if !may_connect(address, &self.allowed) => Err(NotPublic),
            Some(_) | None => Ok(()),
        }
    }
}

/// Resolves names to addresses that may be connected to; the connection is made to no other.
impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = Arc::clone(&self.allowed);
        Box::pin(async move {
            let found: Vec<SocketAddr> = lookup_host((name.as_str(), 0)).await?.collect();
            // One that may not be reached is a reason to trust none of them.
            if found.iter().any(|address| !may_connect(address.ip(), &allowed)) {
                return Err(NotPublic.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether the guard is the reason.
pub fn is_not_public(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|error| error.is::<NotPublic>())
}
