//! How object stores, and those who give out credentials for them, are spoken to: with the guarded clients, and with answers of
//! which nothing but a code is kept.

use std::error::Error;

use async_trait::async_trait;
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use reqwest::{Body, Client, Request, Response, StatusCode};
use url::{Host, Url};

use crate::ingest::http::{first_bytes, root_cause};
use crate::ingest::source::guard::{Guard, is_not_public};

/// Of an answer that says what is wrong.
const REFUSAL_MAX_BYTES: usize = 16 << 10;
const CODE_MAX_CHARS: usize = 64;

/// Why there is no answer to read. It names nothing that could be a secret: no URL, no header, no body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    #[error("{host} is not at a public address, and SLUICE_ALLOWED_NETWORKS does not have it")]
    NotPublic { host: String, is_metadata_service: bool },
    #[error("the store's endpoint is plain http, which is not allowed")]
    PlainHttp,
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    #[error("the store answers {status}{}", code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default())]
    Answer { status: StatusCode, code: Option<String> },
}

#[derive(Debug, Clone)]
pub struct Connector {
    guard: Guard,
    https: Client,
    /// For endpoints and metadata services that have no other.
    any: Client,
}

impl Connector {
    pub fn new(guard: Guard) -> reqwest::Result<Self> {
        Ok(Self { https: guard.client(true)?, any: guard.client(false)?, guard })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let allows_http =
            allows_http.is_some_and(|text| ["1", "true", "yes", "on"].contains(&text.to_lowercase().as_str()));
        let client = if allows_http { self.any.clone() } else { self.https.clone() };
        Ok(HttpClient::new(Speaker { guard: self.guard.clone(), client, allows_http }))
    }
}

#[derive(Debug)]
struct Speaker {
    guard: Guard,
    client: Client,
    allows_http: bool,
}

#[async_trait]
impl HttpService for Speaker {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = Url::parse(&parts.uri.to_string()).map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        self.guard.check_host(&url).map_err(|_| not_public(&url))?;
        if url.scheme() != "https" && !self.allows_http {
            return Err(HttpError::new(HttpErrorKind::Unknown, Trouble::PlainHttp));
        }
        let mut request = Request::new(parts.method, url.clone());
        *request.headers_mut() = parts.headers;
        *request.body_mut() = body.as_bytes().cloned().map(Body::from);
        let response = self.client.execute(request).await.map_err(|error| failed(&error, &url))?;
        if !response.status().is_success() {
            return Err(HttpError::new(HttpErrorKind::Unknown, refusal(response).await));
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = Body::from(response).map_err(move |error| failed(&error, &url));
        let mut response = HttpResponse::new(HttpResponseBody::new(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

fn failed(error: &(dyn Error + 'static), url: &Url) -> HttpError {
    if is_not_public(error) {
        return not_public(url);
    }
    HttpError::new(HttpErrorKind::Interrupted, Trouble::Unreachable(root_cause(error)))
}

fn not_public(url: &Url) -> HttpError {
    let host = url.host_str().unwrap_or_default().to_owned();
    let is_metadata_service = match url.host() {
        Some(Host::Ipv4(address)) => address.is_link_local(),
        // Of AWS.
        Some(Host::Ipv6(address)) => address.segments()[..2] == [0xfd00, 0xec2],
        Some(Host::Domain(name)) => name == "metadata.google.internal",
        None => false,
    };
    HttpError::new(HttpErrorKind::Unknown, Trouble::NotPublic { host, is_metadata_service })
}

/// The code is all that is read of it: with a refusal, stores repeat what was signed, and by whom.
async fn refusal(response: Response) -> Trouble {
    let status = response.status();
    let text = first_bytes(response, REFUSAL_MAX_BYTES).await;
    Trouble::Answer { status, code: code(&String::from_utf8_lossy(&text)) }
}

/// Of the XML of stores, `<Code>AccessDenied</Code>`, or the JSON of token services, `"error": "invalid_grant"`.
fn code(text: &str) -> Option<String> {
    let in_xml = || text.split_once("<Code>")?.1.split_once("</Code>");
    let in_json = || {
        text.split_once("\"error\"")?.1.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split_once('"')
    };
    let (code, _) = in_xml().or_else(in_json)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || [b'.', b'_', b'-'].contains(&byte);
    let is_code = !code.is_empty() && code.len() <= CODE_MAX_CHARS && code.bytes().all(is_plain);
    is_code.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_a_word_and_nothing_else_is_kept() {
        let rows = [
            (
                "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>x</Message></Error>",
                Some("AccessDenied"),
            ),
            ("<Error><Code>has spaces</Code></Error>", None),
            ("<Error><Code></Code></Error>", None),
            ("<Error><Code>AccessDenied", None),
            (r#"{"error": "invalid_grant", "error_description": "x"}"#, Some("invalid_grant")),
            (r#"{"error":{"code":403}}"#, None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(code(text).as_deref(), expected, "{text}");
        }
        assert_eq!(code(&format!("<Code>{}</Code>", "a".repeat(65))), None);
    }

    #[test]
    fn troubles_say_what_happened() {
        let answer = |status, code: Option<&str>| Trouble::Answer { status, code: code.map(str::to_owned) };
        let forbidden = answer(StatusCode::FORBIDDEN, Some("AccessDenied"));
        assert_eq!(forbidden.to_string(), "the store answers 403 Forbidden (AccessDenied)");
        assert_eq!(answer(StatusCode::BAD_GATEWAY, None).to_string(), "the store answers 502 Bad Gateway");
    }
}
