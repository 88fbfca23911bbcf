//! What all requests of the pipeline have in common.

use std::error::Error;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Response};

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Of clients that follow no redirect: where it leads is looked at first.
pub fn builder() -> ClientBuilder {
    // Whoever uses this as a library may have installed none; the first one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("sluice/", env!("CARGO_PKG_VERSION")))
}

/// Of a refusal, what there is of its body, without an error of its own.
pub async fn first_bytes(mut response: Response, max_bytes: usize) -> Vec<u8> {
    let mut first = Vec::new();
    while first.len() < max_bytes
        && let Ok(Some(bytes)) = response.chunk().await
    {
        first.extend_from_slice(&bytes[..bytes.len().min(max_bytes - first.len())]);
    }
    first
}

/// The last word of an error's chain is the plainest, and has no URL.
pub fn root_cause(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

/// An error, and what it came from.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}
