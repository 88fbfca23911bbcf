//! A file behind an https URL, streamed into a temporary one. Each step of the way is looked at before it is taken.

use std::fs::File;

use chrono::Utc;
use futures::StreamExt;
use reqwest::header::{ACCEPT_RANGES, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, LOCATION, RANGE};
use reqwest::{Client, Response, StatusCode};
use url::Url;

use super::guard::{Guard, is_not_public};
use super::spool::{RESUMES_MAX, Spool, cut_too_often};
use crate::domain::failure::FailureClass;
use crate::domain::source;
use crate::ingest::http::root_cause;
use crate::ingest::retry_after::retry_after_secs;
use crate::worker::{Context, NotDone};

const REDIRECTS_MAX: u32 = 5;

/// Fetches what tasks name.
#[derive(Clone)]
pub struct Fetcher {
    client: Client,
    guard: Guard,
}

impl Fetcher {
    pub fn new(guard: Guard) -> reqwest::Result<Self> {
        Ok(Self { client: guard.client(true)?, guard })
    }

    /// A temporary file without a name, at its beginning. Of a lane with `allowed` sources, redirects may not lead elsewhere.
    pub async fn fetch(
        &self,
        context: &Context,
        url: &Url,
        allowed: &[String],
        max_bytes: u64,
    ) -> Result<File, NotDone> {
        let mut spool = Spool::new(max_bytes)?;
        let mut version = None;
        for _ in 0..=RESUMES_MAX {
            let response = self.get(context, url, allowed, spool.kept(), version.as_deref()).await?;
            if spool.kept() > 0 && !continues(&response, spool.kept()) {
                spool.start_over()?;
            }
            version = resumable_version(response.headers());
            match receive(context, response, &mut spool).await? {
                Received::All => return spool.finish(),
                Received::Cut(error) => {
                    tracing::info!(%url, kept = spool.kept(), error = %error, "a transfer was cut");
                }
            }
        }
        Err(cut_too_often())
    }

    /// The answer with the content, after redirects.
    async fn get(
        &self,
        context: &Context,
        url: &Url,
        allowed: &[String],
        from: u64,
        version: Option<&str>,
    ) -> Result<Response, NotDone> {
        let mut at = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            check(&at, &self.guard)?;
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
            if source::check_named(&at, allowed).is_err() && at.scheme() == "https" {
                let host = at.host_str().unwrap_or_default();
                let message = format!("the way leads to {host}, to what none of the lane's allowedSources names");
                return Err(refused(message));
            }
        }
        Err(refused("the server redirects too often"))
    }
}

/// What can be said of a URL before anything is connected to.
fn check(url: &Url, guard: &Guard) -> Result<(), NotDone> {
    if url.scheme() != "https" {
        return Err(refused(format!("the way leads to {}, and only https is followed", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("a URL with a user or a password is not read: credentials do not belong in tasks"));
    }
    guard.check_host(url).map_err(|not_public| refused(not_public.to_string()))
}

fn refused(message: impl Into<String>) -> NotDone {
    NotDone::failed(FailureClass::SourceForbidden, message)
}

fn unreachable(error: &reqwest::Error) -> NotDone {
    if is_not_public(error) {
        return refused(root_cause(error));
    }
    NotDone::failed(FailureClass::Unknown, format!("the source cannot be reached: {}", root_cause(error)))
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
        StatusCode::TOO_MANY_REQUESTS => {
            let asked = retry_after_secs(response.headers(), Utc::now());
            Err(NotDone::rate_limited(format!("the server answers {status}"), asked))
        }
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

async fn receive(context: &Context, response: Response, spool: &mut Spool) -> Result<Received, NotDone> {
    let total = response.content_length().map(|rest| spool.kept().saturating_add(rest));
    if let Some(total) = total {
        spool.expect(total)?;
    }
    let mut parts = response.bytes_stream();
    while let Some(part) = context.unless_stopped(parts.next()).await? {
        match part {
            Ok(part) => spool.write(context, &part, total)?,
            Err(error) => return Ok(Received::Cut(root_cause(&error))),
        }
    }
    Ok(Received::All)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(url: &str) -> Option<FailureClass> {
        match check(&Url::parse(url).unwrap(), &Guard::new(vec!["10.9.0.0/16".parse().unwrap()])) {
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
