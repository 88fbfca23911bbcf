//! What an endpoint's refusal means: who can help, and whether waiting does.

use serde_json::Value;

use crate::domain::failure::FailureClass;
use crate::ingest::text;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// It asks for fewer calls.
    RateLimited {
        message: String,
        retry_after_secs: Option<u32>,
    },
    /// The request, or its answer, is more than the model takes.
    TooLong {
        message: String,
    },
    Failed {
        class: FailureClass,
        message: String,
    },
}

impl CallError {
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Failed { class: FailureClass::ProviderUnavailable, message: message.into() }
    }
}

/// What an endpoint says of an error, in whichever of the usual shapes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Said {
    code: String,
    message: String,
}

/// People read it in a status.
const SAID_MAX_CHARS: usize = 300;

impl Said {
    pub fn of_body(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::of_value(&value),
            Err(_) => Self { code: String::new(), message: shortened(&String::from_utf8_lossy(body)) },
        }
    }

    pub fn of_value(value: &Value) -> Self {
        let error = value.get("error").unwrap_or(value);
        let text = |field: &str| error.get(field).and_then(Value::as_str).unwrap_or_default();
        let message = error.as_str().unwrap_or_else(|| text("message"));
        let code = if text("code").is_empty() { text("type") } else { text("code") };
        let message = if message.is_empty() { value.to_string() } else { message.to_owned() };
        Self { code: shortened(code), message: shortened(&message) }
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    fn has(&self, signs: &[&str]) -> bool {
        let said = format!("{} {}", self.code, self.message).to_lowercase();
        signs.iter().any(|sign| said.contains(sign))
    }
}

fn shortened(said: &str) -> String {
    let words = text::clean(said).split_whitespace().collect::<Vec<_>>().join(" ");
    text::cut(&words, SAID_MAX_CHARS).to_owned()
}

const TOO_LONG: [&str; 8] = [
    "context_length_exceeded",
    "context length",
    "context window",
    "context size",
    "maximum context",
    "too many tokens",
    "too long",
    "input is too large",
];
const UNSUPPORTED: [&str; 8] = [
    "unsupported_parameter",
    "unsupported_value",
    "unknown_parameter",
    "unsupported parameter",
    "unsupported value",
    "unrecognized request argument",
    "extra inputs are not permitted",
    "does not support",
];

/// Of an answer that is not 200. `said` has no secret in it.
pub fn refusal(status: u16, retry_after_secs: Option<u32>, said: &Said) -> CallError {
    let answers = format!("the provider answers {status}");
    let with_words = || if said.message.is_empty() { answers.clone() } else { format!("{answers}: {}", said.message) };
    let failed = |class, message| CallError::Failed { class, message };
    match status {
        429 => CallError::RateLimited { message: with_words(), retry_after_secs },
        // What it says may repeat a part of the key.
        401 | 403 => failed(
            FailureClass::ProviderMisconfigured,
            format!("{answers}: it does not take the key; look at SLUICE_PROVIDER_API_KEY"),
        ),
        413 => CallError::TooLong { message: with_words() },
        400 | 422 if said.has(&TOO_LONG) => CallError::TooLong { message: with_words() },
        400 | 422 if said.has(&UNSUPPORTED) => failed(
            FailureClass::LlmUnsupportedParam,
            format!("{}; SLUICE_PROVIDER_OMIT leaves parameters out", with_words()),
        ),
        404 => failed(
            FailureClass::ProviderMisconfigured,
            format!("{}; look at SLUICE_PROVIDER_URL and the names of the models", with_words()),
        ),
        408 | 409 | 425 | 500.. => CallError::unavailable(with_words()),
        // Redirects among them: a key goes to the place that it was given for, and nowhere else.
        _ => failed(FailureClass::ProviderMisconfigured, with_words()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a word: the class, or what else it is.
    fn word(error: &CallError) -> &'static str {
        match error {
            CallError::RateLimited { retry_after_secs: Some(7), .. } => "rests 7 s",
            CallError::RateLimited { .. } => "rests",
            CallError::TooLong { .. } => "too long",
            CallError::Failed { class, .. } => class.as_str(),
        }
    }

    #[test]
    fn a_refusal_is_what_its_status_and_words_say() {
        let openai = |code: &str, message: &str| format!(r#"{{"error":{{"code":"{code}","message":"{message}"}}}}"#);
        let rows = [
            (401, None, String::new(), "provider_misconfigured"),
            (403, None, String::new(), "provider_misconfigured"),
            (404, None, openai("model_not_found", "The model x does not exist"), "provider_misconfigured"),
            (404, None, "404 page not found".to_owned(), "provider_misconfigured"),
            (307, None, String::new(), "provider_misconfigured"),
            (204, None, String::new(), "provider_misconfigured"),
            (402, None, openai("", "Insufficient credits"), "provider_misconfigured"),
            (400, None, openai("invalid_value", "bad model"), "provider_misconfigured"),
            (400, None, openai("unsupported_parameter", "max_tokens is not supported"), "llm_unsupported_param"),
            (400, None, openai("unsupported_value", "temperature does not support 0"), "llm_unsupported_param"),
            (400, None, openai("", "Unrecognized request argument supplied: stream_options"), "llm_unsupported_param"),
            (422, None, r#"{"message":"Extra inputs are not permitted"}"#.to_owned(), "llm_unsupported_param"),
            (400, None, openai("context_length_exceeded", "reduce it"), "too long"),
            (400, None, r#"{"error":"the input length exceeds the context length"}"#.to_owned(), "too long"),
            (400, None, r#"{"error":{"message":"This model's maximum context length is 512"}}"#.to_owned(), "too long"),
            (413, None, String::new(), "too long"),
            (429, None, openai("rate_limit_exceeded", "slow down"), "rests"),
            (429, Some(7), String::new(), "rests 7 s"),
            (408, None, String::new(), "provider_unavailable"),
            (500, None, "<html>".to_owned(), "provider_unavailable"),
            (503, Some(7), String::new(), "provider_unavailable"),
            (529, None, String::new(), "provider_unavailable"),
        ];
        for (status, retry_after_secs, body, expected) in rows {
            let error = refusal(status, retry_after_secs, &Said::of_body(body.as_bytes()));
            assert_eq!(word(&error), expected, "{status} {body}");
        }
    }

    #[test]
    fn what_it_says_is_told_in_few_words_and_storable() {
        let body = format!(r#"{{"error":{{"message":"a\u0000b\n\n c {}"}}}}"#, "x".repeat(1_000));
        let said = Said::of_body(body.as_bytes());
        assert!(said.message.starts_with("ab c xxx") && said.message.chars().count() == SAID_MAX_CHARS, "{said:?}");
        assert_eq!(Said::of_body(b"caf\xff").message, "caf\u{fffd}");
    }

    #[test]
    fn a_refused_key_is_not_repeated() {
        let said = Said::of_body(br#"{"error":{"message":"Incorrect API key provided: sk-ab***yz"}}"#);
        let CallError::Failed { message, .. } = refusal(401, None, &said) else { panic!("a failure") };
        assert!(!message.contains("sk-"), "{message}");
    }
}
