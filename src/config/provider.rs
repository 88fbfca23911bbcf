//! Settings of an endpoint that extracts and embeds; who it is, SLUICE_EXTRACT_PROVIDER and its fallbacks say.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use url::Url;

use super::{ConfigError, ValueError, parse_count, whole};
use crate::domain::lane::ExtractProvider;
use crate::domain::provider::{
    Budget, ChatModel, EmbeddingModel, Endpoint, KeySource, OptionalParameter, Prices, ProviderKind,
};

/// What a worker asks of its provider.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Provider (not for `builtin`)")]
pub struct ProviderArgs {
    /// Where the provider is, as in https://host/v1 [default: where OpenAI, Ollama or LM Studio are]
    #[arg(long, env = "SLUICE_PROVIDER_URL", value_name = "URL", value_parser = parse_url)]
    pub provider_url: Option<Url>,

    /// The key that it asks for [default: none is sent]
    #[arg(long, env = "SLUICE_PROVIDER_API_KEY", hide_env_values = true, value_name = "KEY", value_parser = parse_key)]
    pub provider_api_key: Option<String>,

    /// A file with that key, such as a mounted Secret; it is read for each request
    #[arg(long, env = "SLUICE_PROVIDER_API_KEY_FILE", value_name = "FILE", value_parser = parse_file)]
    pub provider_api_key_file: Option<PathBuf>,

    /// How long one request may take, answer included, in seconds, between 1 and 3600
    #[arg(long, env = "SLUICE_PROVIDER_TIMEOUT_SECS", default_value = "120", value_name = "SECS", value_parser = parse_timeout)]
    pub provider_timeout_secs: u32,

    /// What the models can take in and give in one request, in tokens; longer texts are split
    #[arg(long, env = "SLUICE_PROVIDER_CONTEXT_TOKENS", default_value = "8192", value_name = "N", value_parser = parse_context)]
    pub provider_context_tokens: u32,

    /// Parameters that the endpoint refuses and that are left out, with commas between: temperature, max_tokens,
    /// stream_options, encoding_format
    #[arg(long, env = "SLUICE_PROVIDER_OMIT", value_name = "PARAMETERS", value_delimiter = ',', value_parser = parse_parameter)]
    pub provider_omit: Vec<OptionalParameter>,

    /// The model that finds entities and relations [default: `builtin` does it]
    #[arg(long, env = "SLUICE_EXTRACT_MODEL", value_name = "NAME", value_parser = parse_model)]
    pub extract_model: Option<String>,

    /// The most tokens of its answer for one chunk
    #[arg(long, env = "SLUICE_EXTRACT_ANSWER_TOKENS", default_value = "2048", value_name = "N", value_parser = parse_answer)]
    pub extract_answer_tokens: u32,

    /// Requests that one task has under way at once, between 1 and 32 [default: 4; 1 for a local provider]
    #[arg(long, env = "SLUICE_EXTRACT_REQUESTS", value_name = "N", value_parser = parse_requests)]
    pub extract_requests: Option<u32>,

    /// The model that makes vectors [default: `builtin` does it]
    #[arg(long, env = "SLUICE_EMBEDDING_MODEL", value_name = "NAME", value_parser = parse_model)]
    pub embedding_model: Option<String>,

    /// How many numbers its vectors have; others are refused
    #[arg(long, env = "SLUICE_EMBEDDING_DIMENSIONS", value_name = "N", value_parser = parse_dimensions)]
    pub embedding_dimensions: Option<u32>,

    /// Chunks that one request for vectors has, between 1 and 256
    #[arg(long, env = "SLUICE_EMBEDDING_BATCH", default_value = "32", value_name = "N", value_parser = parse_batch)]
    pub embedding_batch: u32,

    /// The most tokens that one task may use, all its attempts together [default: no limit]
    #[arg(long, env = "SLUICE_PROVIDER_TASK_TOKENS", value_name = "N", value_parser = parse_count)]
    pub provider_task_tokens: Option<u64>,

    /// The most that one task may cost, in the currency of the prices [default: no limit]
    #[arg(long, env = "SLUICE_PROVIDER_TASK_COST", value_name = "AMOUNT", value_parser = parse_amount)]
    pub provider_task_cost: Option<f64>,

    /// Price of a million tokens of what the extracting model reads
    #[arg(long, env = "SLUICE_PROVIDER_PROMPT_PRICE", default_value = "0", value_name = "AMOUNT", value_parser = parse_amount)]
    pub provider_prompt_price: f64,

    /// Price of a million tokens of what it answers
    #[arg(long, env = "SLUICE_PROVIDER_ANSWER_PRICE", default_value = "0", value_name = "AMOUNT", value_parser = parse_amount)]
    pub provider_answer_price: f64,

    /// Price of a million tokens that vectors are made of
    #[arg(long, env = "SLUICE_PROVIDER_EMBEDDING_PRICE", default_value = "0", value_name = "AMOUNT", value_parser = parse_amount)]
    pub provider_embedding_price: f64,
}

/// Tokens of a task are nothing beside waiting for one answer after the other; more of them would meet limits of rate.
const REQUESTS: u32 = 4;

impl ProviderArgs {
    /// `None`: `builtin` does it all.
    pub fn resolve(self, provider: Option<&ExtractProvider>) -> Result<Option<Endpoint>, ConfigError> {
        let kind = ProviderKind::of(provider).map_err(ConfigError::Provider)?;
        let default_url = kind.default_url().and_then(|url| Url::parse(url).ok());
        let Some(url) = default_url.map(|default| self.provider_url.unwrap_or(default)) else {
            return Ok(None);
        };
        let key = match (self.provider_api_key, self.provider_api_key_file) {
            (Some(_), Some(_)) => return Err(ConfigError::TwoKeys),
            (Some(key), None) => Some(KeySource::Given(key)),
            (None, Some(file)) => Some(KeySource::File(file)),
            (None, None) => None,
        };
        let requests = if provider.is_some_and(ExtractProvider::is_local) { 1 } else { REQUESTS };
        let chat = self.extract_model.map(|name| ChatModel {
            name,
            answer_tokens: self.extract_answer_tokens,
            at_once: count(self.extract_requests.unwrap_or(requests)),
        });
        let embedding = match (self.embedding_model, self.embedding_dimensions) {
            (Some(_), None) => return Err(ConfigError::NoDimensions),
            (Some(name), Some(dimensions)) => {
                Some(EmbeddingModel { name, dimensions, batch: count(self.embedding_batch) })
            }
            (None, _) => None,
        };
        if chat.is_none() && embedding.is_none() {
            return Err(ConfigError::NoModel(kind));
        }
        Ok(Some(Endpoint {
            kind,
            url,
            key,
            timeout: Duration::from_secs(u64::from(self.provider_timeout_secs)),
            chat,
            embedding,
            context_tokens: self.provider_context_tokens,
            omitted: self.provider_omit,
            prices: Prices {
                prompt: self.provider_prompt_price,
                answer: self.provider_answer_price,
                embedding: self.provider_embedding_price,
            },
            budget: Budget { tokens: self.provider_task_tokens, cost: self.provider_task_cost },
        }))
    }
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

const MODEL_MAX_CHARS: usize = 200;

fn parse_url(text: &str) -> Result<Url, ValueError> {
    let url = Url::parse(text.trim()).map_err(|_| ValueError::ProviderUrl)?;
    let is_plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.has_host();
    if is_plain && ["http", "https"].contains(&url.scheme()) { Ok(url) } else { Err(ValueError::ProviderUrl) }
}

fn parse_key(text: &str) -> Result<String, ValueError> {
    let key = text.trim();
    let is_header = !key.is_empty() && key.chars().all(|character| character.is_ascii_graphic());
    if is_header { Ok(key.to_owned()) } else { Err(ValueError::Key) }
}

fn parse_file(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(ValueError::KeyFile) }
}

fn parse_model(text: &str) -> Result<String, ValueError> {
    let name = text.trim();
    let is_name = (1..=MODEL_MAX_CHARS).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    if is_name { Ok(name.to_owned()) } else { Err(ValueError::Model) }
}

fn parse_parameter(text: &str) -> Result<OptionalParameter, ValueError> {
    Ok(OptionalParameter::parse(text.trim())?)
}

fn parse_timeout(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, 3_600)
}

/// Less would not hold the question and an answer.
fn parse_context(text: &str) -> Result<u32, ValueError> {
    whole(text, 512, 10_000_000)
}

fn parse_answer(text: &str) -> Result<u32, ValueError> {
    whole(text, 64, 100_000)
}

fn parse_requests(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, 32)
}

/// As many as models have; each chunk has as many numbers in a row of the database.
fn parse_dimensions(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, 16_384)
}

fn parse_batch(text: &str) -> Result<u32, ValueError> {
    whole(text, 1, 256)
}

fn parse_amount(text: &str) -> Result<f64, ValueError> {
    let amount: f64 = text.trim().parse().map_err(|_| ValueError::Amount)?;
    if (0.0..=1e9).contains(&amount) { Ok(amount) } else { Err(ValueError::Amount) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        provider: ProviderArgs,
    }

    fn resolved(provider: &str, flags: &[&str]) -> Result<Option<Endpoint>, ConfigError> {
        let args = Only::try_parse_from(["test"].iter().chain(flags)).expect("flags");
        args.provider.resolve(ExtractProvider::resolve([Some(provider)]).as_ref())
    }

    #[test]
    fn builtin_needs_nothing_and_takes_nothing() {
        for provider in ["", "none", "builtin"] {
            assert_eq!(resolved(provider, &["--extract-model", "m"]), Ok(None), "{provider}");
        }
    }

    #[test]
    fn an_endpoint_is_where_its_provider_is_unless_it_is_said() {
        let chat = ["--extract-model", "m"];
        for (provider, url, at_once) in [
            ("openai", "https://api.openai.com/v1", 4),
            ("ollama", "http://localhost:11434/v1", 1),
            ("lm-studio", "http://localhost:1234/v1", 1),
        ] {
            let endpoint = resolved(provider, &chat).unwrap().unwrap();
            assert_eq!((endpoint.url.as_str(), endpoint.chat.unwrap().at_once), (url, at_once));
        }
        let elsewhere = [&chat[..], &["--provider-url", "http://vllm.models:8000/v1/"]].concat();
        assert_eq!(resolved("openai", &elsewhere).unwrap().unwrap().url.as_str(), "http://vllm.models:8000/v1/");
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let rows: [(&str, &[&str], ConfigError); 3] = [
            ("openai", &[], ConfigError::NoModel(ProviderKind::OpenAi)),
            ("ollama", &["--embedding-model", "m"], ConfigError::NoDimensions),
            (
                "openai",
                &["--extract-model", "m", "--provider-api-key", "k", "--provider-api-key-file", "/k"],
                ConfigError::TwoKeys,
            ),
        ];
        for (provider, flags, expected) in rows {
            assert_eq!(resolved(provider, flags), Err(expected), "{flags:?}");
        }
        let unknown = resolved("hal9000", &[]).unwrap_err().to_string();
        assert!(unknown.contains("hal9000") && unknown.contains("builtin, openai, ollama, lmstudio"), "{unknown}");
    }

    #[test]
    fn either_part_may_be_left_to_builtin() {
        let embedding = ["--embedding-model", "e", "--embedding-dimensions", "768"];
        let endpoint = resolved("openai", &embedding).unwrap().unwrap();
        assert!(endpoint.chat.is_none());
        assert_eq!(endpoint.embedding, Some(EmbeddingModel { name: "e".to_owned(), dimensions: 768, batch: 32 }));
    }

    #[test]
    fn a_url_has_no_secret_and_no_query() {
        for good in ["https://api.openai.com/v1", " http://10.0.0.1:8000 ", "http://[::1]:1/v1/"] {
            assert!(parse_url(good).is_ok(), "{good}");
        }
        for bad in
            ["api.openai.com/v1", "ftp://a/v1", "https://user:key@a/v1", "https://a/v1?key=b", "https://a/#b", ""]
        {
            assert_eq!(parse_url(bad), Err(ValueError::ProviderUrl), "{bad}");
        }
    }

    #[test]
    fn a_key_is_what_a_header_can_carry() {
        assert_eq!(parse_key(" sk-1_a\n"), Ok("sk-1_a".to_owned()));
        for bad in ["", " ", "a b", "ä", "a\0b"] {
            assert_eq!(parse_key(bad), Err(ValueError::Key), "{bad:?}");
        }
    }

    #[test]
    fn amounts_are_numbers_that_can_be_paid() {
        assert_eq!(parse_amount(" 0.15 "), Ok(0.15));
        for bad in ["-1", "NaN", "inf", "1e10", "cheap", ""] {
            assert_eq!(parse_amount(bad), Err(ValueError::Amount), "{bad:?}");
        }
    }
}
