//! A file behind an https URL, streamed into a temporary one. Addresses are looked at when the connection is made, so that no
//! name, no spelling and no redirect leads to a place that only the worker can reach.

use std::error::Error;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use tokio::net::lookup_host;
use url::{Host, Url};

use super::address::may_connect;
use crate::domain::failure::FailureClass;
use crate::worker::{Context, NotDone};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a byte.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const REDIRECTS_MAX: u32 = 5;
/// Times that a cut transfer goes on where it was cut.
const RESUMES_MAX: u32 = 5;

/// Fetches what tasks name.
#[derive(Clone)]
pub struct Fetcher {
    client: Client,
    allowed: Arc<[IpNet]>,
}

impl Fetcher {
    /// Addresses in `allowed` may be connected to although they are not public.
    pub fn new(allowed: Vec<IpNet>) -> reqwest::Result<Self> {
        // Whoever uses this as a library may have installed none; the first one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let allowed: Arc<[IpNet]> = allowed.into();
        let client = Client::builder()
            .https_only(true)
            // A proxy would resolve names by itself.
            .no_proxy()
            .redirect(Policy::none())
            .dns_resolver(Guard { allowed: Arc::clone(&allowed) })
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, allowed })
    }

    /// A temporary file without a name, at its beginning.
    pub async fn fetch(&self, context: &Context, url: &Url, max_bytes: u64) -> Result<File, NotDone> {
        let mut file = tempfile::tempfile().map_err(unkept)?;
        let mut kept = 0;
        let mut version = None;
        for _ in 0..=RESUMES_MAX {
            let response = self.get(context, url, kept, version.as_deref()).await?;
            if kept > 0 && !continues(&response, kept) {
                kept = 0;
                file.rewind().and_then(|()| file.set_len(0)).map_err(unkept)?;
            }
            version = resumable_version(response.headers());
            match receive(context, response, &mut file, &mut kept, max_bytes).await? {
                Received::All => {
                    file.rewind().map_err(unkept)?;
                    return Ok(file);
                }
                Received::Cut(error) => tracing::info!(%url, kept, error = %error, "a transfer was cut"),
            }
        }
        Err(NotDone::failed(FailureClass::Unknown, format!("the transfer was cut {} times", RESUMES_MAX + 1)))
    }

    /// The answer with the content, after redirects.
    async fn get(&self, context: &Context, url: &Url, from: u64, version: Option<&str>) -> Result<Response, NotDone> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            check(&at, &self.allowed)?;
            let mut request = self.client.get(at.clone());
            if let Some(version) = version.filter(|_| from > 0) {
                request = request.header(RANGE, format!("bytes={from}-")).header(IF_RANGE, version);
            }
            let response = context.unless_stopped(request.send()).await?.map_err(|error| unreachable(&error))?;
            if !response.status().is_redirection() {
                return accepted(response);
            }
            let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let to = to.and_then(|to| at.join(to).ok());
            at = to.ok_or_else(|| refused("the server redirects to no URL"))?;
        }
        Err(refused("the server redirects too often"))
    }
}

/// Resolves names to addresses that may be connected to; the connection is made to no other.
struct Guard {
    allowed: Arc<[IpNet]>,
}

#[derive(Debug, thiserror::Error)]
#[error("its address is not public, and SLUICE_ALLOWED_NETWORKS does not have it")]
struct NotPublic;

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

/// What can be said of a URL before anything is connected to.
fn check(url: &Url, allowed: &[IpNet]) -> Result<(), NotDone> {
    if url.scheme() != "https" {
        return Err(refused(format!("the way leads to {}, and only https is followed", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("a URL with a user or a password is not read: credentials do not belong in tasks"));
    }
    let address: Option<IpAddr> = match url.host() {
        Some(Host::Ipv4(address)) => Some(address.into()),
        Some(Host::Ipv6(address)) => Some(address.into()),
        Some(Host::Domain(_)) | None => None,
    };
    match address {
        Some(address) if !may_connect(address, allowed) => Err(refused(NotPublic.to_string())),
        Some(_) | None => Ok(()),
    }
}

fn refused(message: impl Into<String>) -> NotDone {
    NotDone::failed(FailureClass::SourceForbidden, message)
}

fn unkept(error: io::Error) -> NotDone {
    NotDone::failed(FailureClass::Unknown, format!("the temporary file cannot be written: {error}"))
}

fn unreachable(error: &reqwest::Error) -> NotDone {
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<NotPublic>() {
            return refused(error.to_string());
        }
        cause = error.source();
    }
    NotDone::failed(FailureClass::Unknown, format!("the source cannot be reached: {}", root_cause(error)))
}

/// The last word of an error's chain is the plainest.
fn root_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn accepted(response: Response) -> Result<Response, NotDone> {
    let status = response.status();
    match status {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            Err(NotDone::failed(FailureClass::SourceNotFound, format!("the server answers {status}")))
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(refused(format!("the server answers {status}: it wants to know who asks")))
        }
        StatusCode::TOO_MANY_REQUESTS => Err(NotDone::rate_limited(format!("the server answers {status}"))),
        status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            Err(NotDone::failed(FailureClass::Unknown, format!("the server answers {status}")))
        }
        status => Err(refused(format!("the server answers {status}"))),
    }
}

/// Whether the answer is what follows the bytes that are there.
fn continues(response: &Response, kept: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok()).unwrap_or_default();
    response.status() == StatusCode::PARTIAL_CONTENT && range.starts_with(&format!("bytes {kept}-"))
}

/// A strong one, of a server that can go on from the middle.
fn resumable_version(headers: &HeaderMap) -> Option<String> {
    let version = headers.get(ETAG)?.to_str().ok()?;
    let goes_on = headers.contains_key(CONTENT_RANGE) || headers.get(ACCEPT_RANGES).is_some_and(|unit| unit == "bytes");
    (goes_on && !version.starts_with("W/")).then(|| version.to_owned())
}

enum Received {
    All,
    Cut(String),
}

async fn receive(
    context: &Context,
    response: Response,
    file: &mut File,
    kept: &mut u64,
    max_bytes: u64,
) -> Result<Received, NotDone> {
    let too_large = || {
        let message = format!("the file has more than {max_bytes} bytes: split it");
        NotDone::failed(FailureClass::DocumentTooLarge, message)
    };
    let rest = response.content_length();
    if rest.is_some_and(|rest| kept.saturating_add(rest) > max_bytes) {
        return Err(too_large());
    }
    let of = rest.map(|rest| kept.saturating_add(rest));
    let mut parts = response.bytes_stream();
    while let Some(part) = context.unless_stopped(parts.next()).await? {
        let part = match part {
            Ok(part) => part,
            Err(error) => return Ok(Received::Cut(root_cause(&error))),
        };
        *kept = kept.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        if *kept > max_bytes {
            return Err(too_large());
        }
        // To the page cache: as good as memory.
        file.write_all(&part).map_err(unkept)?;
        let of = of.map(|of| format!(" of {of}")).unwrap_or_default();
        context.reporter().message(format!("fetched {kept}{of} bytes"));
    }
    Ok(Received::All)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(url: &str) -> Option<FailureClass> {
        match check(&Url::parse(url).unwrap(), &["10.9.0.0/16".parse().unwrap()]) {
            Err(NotDone::Failed { class, .. }) => Some(class),
            Err(other) => panic!("{other:?}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn no_spelling_of_an_address_is_a_way_in() {
        let forbidden = [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0177.0.0.1/",
            "https://127.0.0.1./",
            "https://①②⑦.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://[64:ff9b::a9fe:a9fe]/",
            "https://169.254.169.254/latest/meta-data/",
            "https://0/",
            "https://user@example.com/",
            "https://user:password@example.com/",
            "http://example.com/",
            "ftp://example.com/",
        ];
        for url in forbidden {
            assert_eq!(class(url), Some(FailureClass::SourceForbidden), "{url}");
        }
        for url in ["https://example.com/a.pdf", "https://8.8.8.8/", "https://10.9.1.1:8443/"] {
            assert_eq!(class(url), None, "{url}");
        }
    }
}
