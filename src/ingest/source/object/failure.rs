//! What a store's trouble means for a task.

use object_store::Error;
use reqwest::StatusCode;

use super::connect::Trouble;
use super::place::Bucket;
use crate::domain::failure::FailureClass;
use crate::ingest::http::{chain, root_cause};
use crate::worker::NotDone;

/// Codes with which stores say that it is the credentials, or the region that they are for, and not the right to read.
const ABOUT_CREDENTIALS: &[&str] = &[
    "AuthenticationFailed",
    "AuthorizationHeaderMalformed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];
/// With 503: they want to be asked less often.
const TOO_OFTEN: &[&str] = &["ServerBusy", "SlowDown"];
const TEXT_MAX_CHARS: usize = 160;

pub fn not_done(error: &Error, bucket: &Bucket) -> NotDone {
    match trouble(error) {
        Some(trouble) => of_trouble(trouble, bucket),
        None => NotDone::failed(
            FailureClass::Unknown,
            format!("the store cannot be understood: {}", plain(&root_cause(error))),
        ),
    }
}

/// Whether the object is not what it was when the transfer began, so that it cannot go on.
pub fn has_changed(error: &Error) -> bool {
    matches!(
        trouble(error),
        Some(Trouble::Answer { status: StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE, .. })
    )
}

pub fn misconfigured(message: String) -> NotDone {
    NotDone::failed(FailureClass::ProviderMisconfigured, message)
}

/// What a transfer that was cut says of it.
pub fn cause(error: &Error) -> String {
    trouble(error).map_or_else(|| plain(&root_cause(error)), ToString::to_string)
}

fn trouble(error: &Error) -> Option<&Trouble> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn of_trouble(trouble: &Trouble, bucket: &Bucket) -> NotDone {
    let prefix = bucket.service.prefix();
    match trouble {
        Trouble::NotPublic { is_metadata_service: true, .. } => misconfigured(format!(
            "the worker's environment has no credentials for the store ({prefix}…), and {trouble}, so that its machine's are not asked for"
        )),
        Trouble::NotPublic { .. } => misconfigured(trouble.to_string()),
        Trouble::PlainHttp => misconfigured(format!("{trouble}: set {prefix}ALLOW_HTTP=true, if it must be")),
        Trouble::Unreachable(_) => NotDone::failed(FailureClass::Unknown, trouble.to_string()),
        Trouble::Answer { status, code } => of_answer(trouble, *status, code.as_deref(), prefix),
    }
}

fn of_answer(trouble: &Trouble, status: StatusCode, code: Option<&str>, prefix: &str) -> NotDone {
    let is_one_of = |codes: &[&str]| code.is_some_and(|code| codes.contains(&code));
    if status == StatusCode::TOO_MANY_REQUESTS || is_one_of(TOO_OFTEN) {
        return NotDone::rate_limited(trouble.to_string(), None);
    }
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => NotDone::failed(FailureClass::SourceNotFound, trouble.to_string()),
        _ if is_one_of(ABOUT_CREDENTIALS) => wrong_credentials(trouble, prefix),
        StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST => wrong_credentials(trouble, prefix),
        status if status.is_redirection() => misconfigured(format!(
            "{trouble}: the bucket is elsewhere; set the region or the endpoint of it in the worker's environment ({prefix}…)"
        )),
        status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            NotDone::failed(FailureClass::Unknown, trouble.to_string())
        }
        _ => NotDone::failed(
            FailureClass::SourceForbidden,
            format!("{trouble}: the worker's credentials do not let it read there"),
        ),
    }
}

fn wrong_credentials(trouble: &Trouble, prefix: &str) -> NotDone {
    misconfigured(format!("{trouble}: the worker's credentials, or their region, are wrong ({prefix}…)"))
}

/// Without what is quoted, which may be anything.
fn plain(text: &str) -> String {
    let text = text.split(['"', '\'', '`']).next().unwrap_or_default();
    text.trim().chars().take(TEXT_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::place::Service;
    use super::*;

    fn class(trouble: Trouble) -> Option<FailureClass> {
        let bucket = Bucket { service: Service::S3, name: "bucket".to_owned() };
        match of_trouble(&trouble, &bucket) {
            NotDone::Failed { class, .. } => Some(class),
            NotDone::RateLimited { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_answer_has_its_class() {
        let rows = [
            (404, Some("NoSuchKey"), Some(FailureClass::SourceNotFound)),
            (404, Some("NoSuchBucket"), Some(FailureClass::SourceNotFound)),
            (404, None, Some(FailureClass::SourceNotFound)),
            (403, Some("AccessDenied"), Some(FailureClass::SourceForbidden)),
            (403, None, Some(FailureClass::SourceForbidden)),
            (403, Some("InvalidAccessKeyId"), Some(FailureClass::ProviderMisconfigured)),
            (403, Some("SignatureDoesNotMatch"), Some(FailureClass::ProviderMisconfigured)),
            (403, Some("AuthenticationFailed"), Some(FailureClass::ProviderMisconfigured)),
            (401, None, Some(FailureClass::ProviderMisconfigured)),
            (400, Some("AuthorizationHeaderMalformed"), Some(FailureClass::ProviderMisconfigured)),
            (400, Some("invalid_grant"), Some(FailureClass::ProviderMisconfigured)),
            (301, None, Some(FailureClass::ProviderMisconfigured)),
            (307, None, Some(FailureClass::ProviderMisconfigured)),
            (409, None, Some(FailureClass::SourceForbidden)),
            (500, Some("InternalError"), Some(FailureClass::Unknown)),
            (503, None, Some(FailureClass::Unknown)),
            (408, None, Some(FailureClass::Unknown)),
            (503, Some("SlowDown"), None),
            (503, Some("ServerBusy"), None),
            (429, None, None),
        ];
        for (status, code, expected) in rows {
            let status = StatusCode::from_u16(status).unwrap();
            let answer = Trouble::Answer { status, code: code.map(str::to_owned) };
            assert_eq!(class(answer), expected, "{status} {code:?}");
        }
    }

    #[test]
    fn what_was_never_asked_has_its_class_too() {
        let not_public = |is_metadata_service| Trouble::NotPublic { host: "h".to_owned(), is_metadata_service };
        assert_eq!(class(not_public(true)), Some(FailureClass::ProviderMisconfigured));
        assert_eq!(class(not_public(false)), Some(FailureClass::ProviderMisconfigured));
        assert_eq!(class(Trouble::PlainHttp), Some(FailureClass::ProviderMisconfigured));
        assert_eq!(class(Trouble::Unreachable("reset".to_owned())), Some(FailureClass::Unknown));
    }

    #[test]
    fn what_is_quoted_is_left_out() {
        assert_eq!(plain("invalid type: string \"hunter2\", expected a map"), "invalid type: string");
        assert_eq!(plain("No such file or directory (os error 2)"), "No such file or directory (os error 2)");
    }
}
