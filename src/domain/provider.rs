//! Providers: who extracts and who embeds, and what an endpoint must be told before it is asked.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::closed_set::{UnknownName, closed_set};
use super::lane::ExtractProvider;

closed_set! {
    pub enum ProviderKind("provider") {
        /// Needs no network.
        Builtin = "builtin",
        /// Any endpoint that speaks OpenAI's protocol.
        OpenAi = "openai",
        Ollama = "ollama",
        LmStudio = "lmstudio",
    }
}

impl ProviderKind {
    /// No name, and `none`, is `builtin`.
    pub fn of(provider: Option<&ExtractProvider>) -> Result<Self, UnknownName> {
        match provider.map(ExtractProvider::name) {
            None | Some("none") => Ok(Self::Builtin),
            Some("lm-studio" | "lm_studio") => Ok(Self::LmStudio),
            Some(name) => Self::parse(name),
        }
    }

    /// Where it is, unless the settings say otherwise.
    pub const fn default_url(self) -> Option<&'static str> {
        match self {
            Self::Builtin => None,
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::Ollama => Some("http://localhost:11434/v1"),
            Self::LmStudio => Some("http://localhost:1234/v1"),
        }
    }
}

/// An OpenAI-compatible endpoint, and what it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    pub kind: ProviderKind,
    pub url: Url,
    pub key: Option<KeySource>,
    pub timeout: Duration,
    pub chat: Option<ChatModel>,
    pub embedding: Option<EmbeddingModel>,
    /// What a request and its answer may have together.
    pub context_tokens: u32,
    pub omitted: Vec<OptionalParameter>,
    pub prices: Prices,
    pub budget: Budget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatModel {
    pub name: String,
    /// Of one chunk.
    pub answer_tokens: u32,
    /// Requests of one task.
    pub at_once: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingModel {
    pub name: String,
    /// Each vector must have as many numbers.
    pub dimensions: u32,
    /// Texts of one request.
    pub batch: usize,
}

closed_set! {
    /// What some endpoints refuse, and what can be done without.
    pub enum OptionalParameter("parameter") {
        Temperature = "temperature",
        MaxTokens = "max_tokens",
        StreamOptions = "stream_options",
        EncodingFormat = "encoding_format",
    }
}

/// Where the key is; a file is read for each request, so that a renewed Secret holds at once.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySource {
    Given(String),
    File(PathBuf),
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("a key"),
            Self::File(path) => write!(f, "the key in {}", path.display()),
        }
    }
}

/// What was paid for, as the endpoint counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub answer_tokens: u64,
    /// Of texts that vectors were made of.
    pub embedding_tokens: u64,
}

impl Usage {
    pub fn add(&mut self, other: Self) {
        let Self { prompt_tokens, answer_tokens, embedding_tokens } = other;
        self.prompt_tokens = self.prompt_tokens.saturating_add(prompt_tokens);
        self.answer_tokens = self.answer_tokens.saturating_add(answer_tokens);
        self.embedding_tokens = self.embedding_tokens.saturating_add(embedding_tokens);
    }

    pub const fn tokens(self) -> u64 {
        self.prompt_tokens.saturating_add(self.answer_tokens).saturating_add(self.embedding_tokens)
    }
}

/// Of a million tokens, in the currency of whoever pays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    pub prompt: f64,
    pub answer: f64,
    pub embedding: f64,
}

impl Prices {
    pub fn cost(self, usage: Usage) -> f64 {
        let of = |tokens: u64, price: f64| number(tokens) / 1e6 * price;
        of(usage.prompt_tokens, self.prompt)
            + of(usage.answer_tokens, self.answer)
            + of(usage.embedding_tokens, self.embedding)
    }
}

/// Of one task with all its attempts; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    pub tokens: Option<u64>,
    pub cost: Option<f64>,
}

/// Of one task so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub tokens: u64,
    pub cost: f64,
}

impl Spent {
    pub fn add(&mut self, usage: Usage, prices: Prices) {
        self.tokens = self.tokens.saturating_add(usage.tokens());
        self.cost += prices.cost(usage);
    }
}

impl Budget {
    /// Says what is spent if `next` would be too much.
    pub fn refusal(self, spent: Spent, next: Usage, prices: Prices) -> Option<String> {
        let tokens = spent.tokens.saturating_add(next.tokens());
        let cost = spent.cost + prices.cost(next);
        if let Some(most) = self.tokens.filter(|most| tokens > *most) {
            return Some(format!("the task has used {} tokens, and may use {most}", spent.tokens));
        }
        let most = self.cost.filter(|most| cost > *most)?;
        Some(format!("the task has cost {:.4}, and may cost {most}", spent.cost))
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens are far below what a float holds exactly")]
fn number(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_providers_are_known_or_refused() {
        let rows = [
            (None, Some(ProviderKind::Builtin)),
            (Some(""), Some(ProviderKind::Builtin)),
            (Some("none"), Some(ProviderKind::Builtin)),
            (Some("Builtin"), Some(ProviderKind::Builtin)),
            (Some("OpenAI"), Some(ProviderKind::OpenAi)),
            (Some("ollama"), Some(ProviderKind::Ollama)),
            (Some("lmstudio"), Some(ProviderKind::LmStudio)),
            (Some("lm-studio"), Some(ProviderKind::LmStudio)),
            (Some("lm_studio"), Some(ProviderKind::LmStudio)),
            (Some("anthropic"), None),
        ];
        for (name, expected) in rows {
            let provider = ExtractProvider::resolve([name]);
            assert_eq!(ProviderKind::of(provider.as_ref()).ok(), expected, "{name:?}");
            if let (Some(kind), Some(provider)) = (expected, provider) {
                let is_local = matches!(kind, ProviderKind::Ollama | ProviderKind::LmStudio);
                assert_eq!(provider.is_local(), is_local, "{name:?}");
            }
        }
    }

    #[test]
    fn only_who_needs_no_network_has_no_url() {
        for kind in ProviderKind::ALL {
            let url = kind.default_url().map(Url::parse);
            assert_eq!(url.is_none(), *kind == ProviderKind::Builtin);
            assert!(url.is_none_or(|url| url.is_ok()), "{kind}");
        }
    }

    #[test]
    fn a_budget_is_kept_before_it_is_passed() {
        let usage = |tokens| Usage { prompt_tokens: tokens, ..Usage::default() };
        let prices = Prices { prompt: 2.0, answer: 8.0, embedding: 0.5 };
        let mut spent = Spent::default();
        spent.add(Usage { prompt_tokens: 1_000_000, answer_tokens: 500_000, embedding_tokens: 2_000_000 }, prices);
        assert_eq!(spent, Spent { tokens: 3_500_000, cost: 7.0 });

        let budget = |tokens, cost| Budget { tokens, cost };
        let rows = [
            (budget(None, None), 1 << 40, None),
            (budget(Some(3_500_100), None), 100, None),
            (budget(Some(3_500_100), None), 101, Some("3500000 tokens")),
            (budget(None, Some(7.1)), 49_000, None),
            (budget(None, Some(7.1)), 51_000, Some("cost 7.0000")),
        ];
        for (budget, next, expected) in rows {
            let said = budget.refusal(spent, usage(next), prices);
            assert_eq!(said.is_some(), expected.is_some(), "{next}: {said:?}");
            assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()), "{next}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        assert!(!format!("{:?}", KeySource::Given("hunter2".to_owned())).contains("hunter2"));
    }
}
