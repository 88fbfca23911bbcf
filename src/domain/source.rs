//! Which URLs a task may read: what its lane names, and where it names nothing, what is public.

use url::Url;

/// Names of parameters with which a URL lets anybody in who has it: what signs it, or a key. In lower case.
const CREDENTIALS: &[&str] = &[
    "sig",
    "signature",
    "awsaccesskeyid",
    "googleaccessid",
    "key-pair-id",
    "access_token",
    "token",
    "api_key",
    "apikey",
    "password",
    "secret",
];
/// And what such names begin with.
const CREDENTIAL_PREFIXES: &[&str] = &["x-amz-", "x-goog-"];
/// Of allowed prefixes, named to whoever is refused.
const EXAMPLES_MAX: usize = 3;

/// Why a URL may not be read. No message has the URL: there may be a secret in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceRefusal {
    #[error("url is no URL: {0}")]
    NotUrl(#[from] url::ParseError),
    #[error("url climbs with `..`; name the place itself")]
    Climbs,
    #[error(
        "url has a user, a password or a signature in it: credentials do not belong in tasks; give them to the pool by a Secret"
    )]
    Credentials,
    #[error(
        "url is a file's or in a bucket, and the lane has no allowedSources, without which neither is read: \
         the platform adds the place to the TenantLane"
    )]
    NotNamed,
    #[error("url begins with none of the lane's allowedSources: {0}")]
    NotAllowed(String),
}

/// What can be said of a URL alone.
pub fn check_form(url: &str) -> Result<Url, SourceRefusal> {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let path = path.replace("%2e", ".").replace("%2f", "/");
    if path.contains('\\') || path.split('/').any(|part| part == "..") {
        return Err(SourceRefusal::Climbs);
    }
    let url = Url::parse(url)?;
    let has_credentials = !url.username().is_empty()
        || url.password().is_some()
        || url.query_pairs().any(|(name, _)| is_credential(&name.to_ascii_lowercase()));
    if has_credentials { Err(SourceRefusal::Credentials) } else { Ok(url) }
}

/// Whether it begins with one of the prefixes, at the end of a part of it. Without prefixes, all of https may be read, but
/// nothing that only the worker can reach or has the keys of.
pub fn check_named(url: &Url, allowed: &[String]) -> Result<(), SourceRefusal> {
    if allowed.is_empty() {
        return if url.scheme() == "https" { Ok(()) } else { Err(SourceRefusal::NotNamed) };
    }
    if allowed.iter().any(|prefix| begins_with(url.as_str(), prefix)) {
        return Ok(());
    }
    let more = if allowed.len() > EXAMPLES_MAX { " and others" } else { "" };
    let examples: Vec<_> = allowed.iter().take(EXAMPLES_MAX).map(String::as_str).collect();
    Err(SourceRefusal::NotAllowed(examples.join(", ") + more))
}

fn is_credential(name: &str) -> bool {
    CREDENTIALS.contains(&name) || CREDENTIAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// `https://a` allows `https://a/x`, and not `https://a.example`. Both are compared as they are read, whatever their spelling.
fn begins_with(url: &str, prefix: &str) -> bool {
    // `https://` is no URL.
    let prefix = Url::parse(prefix).map_or_else(|_| prefix.to_owned(), String::from);
    let Some(rest) = url.strip_prefix(&prefix) else { return false };
    prefix.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?', '#'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, allowed: &[String]) -> Result<(), SourceRefusal> {
        check_named(&check_form(url)?, allowed)
    }

    #[test]
    fn a_url_begins_with_an_allowed_prefix() {
        let prefixes = ["s3://bucket/team", "https://a.example/", "https://b.example", "file:///srv/docs", "gs://"];
        let prefixes = prefixes.map(str::to_owned);
        let rows = [
            ("s3://bucket/team", true),
            ("s3://bucket/team/x.pdf", true),
            ("s3://bucket/team/x y.pdf", true),
            ("s3://bucket/team/a..b/x.pdf", true),
            ("s3://bucket/team-b/x.pdf", false),
            ("s3://bucket", false),
            ("s3://Bucket/team/x.pdf", false),
            ("s3://bucket/team/../other/x.pdf", false),
            ("s3://bucket/team/%2E%2e/other/x.pdf", false),
            ("s3://bucket/team/..%2Fother/x.pdf", false),
            ("s3://bucket/team/.\t./other/x.pdf", false),
            ("s3://bucket/team\\..\\other/x.pdf", false),
            ("gs://any/x.pdf", true),
            ("az://any/x.pdf", false),
            ("https://a.example/x?y=..", true),
            ("HTTPS://A.EXAMPLE:443/x", true),
            ("https://b.example/x", true),
            ("https://a.example:8443/x", false),
            ("https://a.example.evil/x", false),
            ("https://b.example.evil/x", false),
            ("file:///srv/docs/x", true),
            ("file:///etc/passwd", false),
        ];
        for (url, allowed) in rows {
            assert_eq!(check(url, &prefixes).is_ok(), allowed, "{url}");
        }
    }

    #[test]
    fn without_prefixes_only_what_is_public_is_read() {
        assert_eq!(check("https://anywhere.example/x", &[]), Ok(()));
        for url in ["file:///etc/passwd", "FILE:///etc/passwd", "s3://b/x", "gs://b/x", "az://b/x", "http://a/x"] {
            assert_eq!(check(url, &[]), Err(SourceRefusal::NotNamed), "{url}");
        }
    }

    #[test]
    fn every_https_url_can_be_allowed() {
        assert_eq!(check("https://anywhere.example/x", &["https://".to_owned()]), Ok(()));
    }

    #[test]
    fn credentials_are_refused_and_not_repeated() {
        let rows = [
            "s3://hunter2@bucket/x",
            "s3://key:hunter2@bucket/x",
            "https://a.example/x?X-Amz-Credential=hunter2",
            "https://a.example/x?x-amz-signature=hunter2",
            "https://a.example/x?X-Goog-Signature=hunter2",
            "https://a.example/x?se=2030&sig=hunter2",
            "https://a.example/x?%73ig=hunter2",
            "https://a.example/x?access_token=hunter2",
        ];
        for url in rows {
            let refusal = check(url, &[]).unwrap_err();
            assert_eq!(refusal, SourceRefusal::Credentials, "{url}");
            assert!(!refusal.to_string().contains("hunter2"));
        }
        assert_eq!(check("https://a.example/x?page=2&design=signature", &[]), Ok(()));
    }

    #[test]
    fn a_refusal_names_what_would_be_allowed() {
        let prefixes = ["a", "b", "c", "d"].map(|name| format!("s3://{name}/"));
        let refusal = check("s3://z/", &prefixes).unwrap_err().to_string();
        assert!(refusal.ends_with("s3://a/, s3://b/, s3://c/ and others"), "{refusal}");
    }
}
