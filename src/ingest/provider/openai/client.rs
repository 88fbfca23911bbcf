//! Requests to an endpoint. A dropped one closes its connection; none goes on for longer, or answers more, than it may.

use std::fs;

use chrono::Utc;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client as Http, Response};
use serde_json::Value;

use super::outcome::{CallError, Said, refusal};
use crate::domain::failure::FailureClass;
use crate::domain::provider::{Endpoint, KeySource};
use crate::ingest::http::{self, CONNECT_TIMEOUT, first_bytes, root_cause};
use crate::ingest::retry_after::retry_after_secs;

/// Of an error's body: its first words are what is told.
const ERROR_MAX_BYTES: usize = 64 << 10;

pub struct Client {
    http: Http,
    url: String,
    key: Option<KeySource>,
}

/// An answer that is 200.
pub struct Answer {
    response: Response,
    max_bytes: usize,
    read: usize,
}

impl Client {
    pub fn new(endpoint: &Endpoint) -> reqwest::Result<Self> {
        let http = http::builder()
            // From the first byte of the request to the last one of the answer.
            .timeout(endpoint.timeout)
            .connect_timeout(endpoint.timeout.min(CONNECT_TIMEOUT))
            .build()?;
        let url = endpoint.url.as_str().trim_end_matches('/').to_owned();
        Ok(Self { http, url, key: endpoint.key.clone() })
    }

    /// The answer may have so many bytes.
    pub async fn post(&self, path: &str, body: &Value, max_bytes: usize) -> Result<Answer, CallError> {
        let key = self.key()?;
        let mut request = self.http.post(format!("{}/{path}", self.url));
        request =
            request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream, application/json");
        if let Some(key) = &key {
            request = request.header(AUTHORIZATION, bearer(key)?);
        }
        let response = request.body(body.to_string()).send().await.map_err(|error| unreachable(&error))?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(Answer { response, max_bytes, read: 0 });
        }
        let asked = retry_after_secs(response.headers(), Utc::now());
        let body = first_bytes(response, ERROR_MAX_BYTES).await;
        Err(refusal(status, asked, &Said::of_body(&without(key.as_deref(), &body))))
    }

    fn key(&self) -> Result<Option<String>, CallError> {
        match &self.key {
            None => Ok(None),
            Some(KeySource::Given(key)) => Ok(Some(key.clone())),
            Some(KeySource::File(path)) => match fs::read_to_string(path) {
                Ok(key) => Ok(Some(key.trim().to_owned())),
                Err(error) => {
                    let message = format!("the key in {} cannot be read: {error}", path.display());
                    Err(CallError::Failed { class: FailureClass::ProviderMisconfigured, message })
                }
            },
        }
    }
}

impl Answer {
    /// Whether it is one piece of JSON, whatever was asked for.
    pub fn is_json(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        kind.trim_start().starts_with("application/json")
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        let Some(bytes) = self.response.chunk().await.map_err(|error| cut(&error))? else { return Ok(None) };
        self.read = self.read.saturating_add(bytes.len());
        if self.read > self.max_bytes {
            let message = format!("the provider's answer has more than {} bytes", self.max_bytes);
            return Err(CallError::unavailable(message));
        }
        Ok(Some(bytes.to_vec()))
    }

    pub async fn all(mut self) -> Result<Vec<u8>, CallError> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            all.extend(bytes);
        }
        Ok(all)
    }
}

/// It is not shown where headers are.
fn bearer(key: &str) -> Result<HeaderValue, CallError> {
    let message = "the provider's key has characters that no header can carry";
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| CallError::Failed { class: FailureClass::ProviderMisconfigured, message: message.to_owned() })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Some servers repeat what they were sent.
fn without(key: Option<&str>, body: &[u8]) -> Vec<u8> {
    match key.filter(|key| !key.is_empty()) {
        Some(key) => String::from_utf8_lossy(body).replace(key, "…").into_bytes(),
        None => body.to_vec(),
    }
}

fn unreachable(error: &reqwest::Error) -> CallError {
    if error.is_timeout() && !error.is_connect() {
        return CallError::unavailable("the provider did not answer in time (SLUICE_PROVIDER_TIMEOUT_SECS)");
    }
    CallError::unavailable(format!("the provider cannot be reached: {}", root_cause(error)))
}

fn cut(error: &reqwest::Error) -> CallError {
    if error.is_timeout() {
        return CallError::unavailable("the provider's answer did not end in time (SLUICE_PROVIDER_TIMEOUT_SECS)");
    }
    CallError::unavailable(format!("the provider's answer was cut: {}", root_cause(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_back_is_not_told() {
        assert_eq!(without(Some("sk-1"), b"got Bearer sk-1, \xff"), "got Bearer …, \u{fffd}".as_bytes());
        assert_eq!(without(Some(""), b"plain"), b"plain");
        assert_eq!(without(None, b"\xff"), b"\xff");
    }

    #[test]
    fn a_key_is_sent_as_a_secret_or_not_at_all() {
        assert!(bearer("sk-1").unwrap().is_sensitive());
        assert!(bearer("a\nb").is_err());
    }
}
