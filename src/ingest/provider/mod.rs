//! Who extracts and who embeds: `builtin`, or an endpoint that speaks OpenAI's protocol. Each of the two is chosen by itself.

mod builtin;
mod extraction;
mod openai;
mod spending;

pub use extraction::{Extraction, FoundEntity, FoundRelation};
pub use spending::Spending;

use crate::domain::provider::{Budget, Endpoint, Prices, Usage};
use crate::worker::NotDone;

/// Of `builtin`: what a lost worker loses at most, in each stage.
const BATCH_CHUNKS: usize = 32;

/// What was asked of a provider, and what it cost, also if nothing came of it.
pub struct Answered<T> {
    pub usage: Usage,
    pub result: Result<T, NotDone>,
}

impl<T> Answered<T> {
    fn free(answer: T) -> Self {
        Self { usage: Usage::default(), result: Ok(answer) }
    }

    fn failed(usage: Usage, why: NotDone) -> Self {
        Self { usage, result: Err(why) }
    }
}

/// All that a pipeline asks of others.
pub struct Provider {
    pub extractor: Extractor,
    pub embedder: Embedder,
    /// `None`: nothing that is asked costs anything.
    terms: Option<(Prices, Budget)>,
}

impl Provider {
    /// `None`: `builtin` does it all.
    pub fn new(endpoint: Option<Endpoint>) -> reqwest::Result<Self> {
        let Some(endpoint) = endpoint else {
            return Ok(Self { extractor: Extractor::Builtin, embedder: Embedder::Builtin, terms: None });
        };
        let shared = openai::Shared::new(&endpoint)?;
        let extractor = match &endpoint.chat {
            Some(model) => Extractor::OpenAi(openai::Extractor::new(shared.clone(), &endpoint, model.clone())),
            None => Extractor::Builtin,
        };
        let embedder = match &endpoint.embedding {
            Some(model) => Embedder::OpenAi(openai::Embedder::new(shared, &endpoint, model.clone())),
            None => Embedder::Builtin,
        };
        Ok(Self { extractor, embedder, terms: Some((endpoint.prices, endpoint.budget)) })
    }
}

pub enum Extractor {
    Builtin,
    OpenAi(openai::Extractor),
}

impl Extractor {
    /// Provider, model and parameters: with the text, all that an answer depends on.
    pub fn name(&self) -> &str {
        match self {
            Self::Builtin => builtin::EXTRACTOR,
            Self::OpenAi(model) => model.name(),
        }
    }

    /// Chunks that are asked for, and kept, together.
    pub fn batch(&self) -> usize {
        match self {
            Self::Builtin => BATCH_CHUNKS,
            Self::OpenAi(model) => model.at_once(),
        }
    }

    pub fn estimate(&self, texts: &[String]) -> Usage {
        match self {
            Self::Builtin => Usage::default(),
            Self::OpenAi(model) => model.estimate(texts),
        }
    }

    /// One answer for each text, in their order.
    pub async fn extract(&self, texts: &[String]) -> Vec<Answered<Extraction>> {
        match self {
            Self::Builtin => texts.iter().map(|text| Answered::free(builtin::extract(text))).collect(),
            Self::OpenAi(model) => model.extract(texts).await,
        }
    }
}

pub enum Embedder {
    Builtin,
    OpenAi(openai::Embedder),
}

impl Embedder {
    pub fn name(&self) -> &str {
        match self {
            Self::Builtin => builtin::EMBEDDER,
            Self::OpenAi(model) => model.name(),
        }
    }

    pub fn dimensions(&self) -> u32 {
        match self {
            Self::Builtin => builtin::DIMENSIONS,
            Self::OpenAi(model) => model.dimensions(),
        }
    }

    pub fn batch(&self) -> usize {
        match self {
            Self::Builtin => BATCH_CHUNKS,
            Self::OpenAi(model) => model.batch(),
        }
    }

    pub fn estimate(&self, texts: &[String]) -> Usage {
        match self {
            Self::Builtin => Usage::default(),
            Self::OpenAi(model) => model.estimate(texts),
        }
    }

    /// A vector of `dimensions` for each text, or none.
    pub async fn embed(&self, texts: &[String]) -> Answered<Vec<Vec<f32>>> {
        match self {
            Self::Builtin => Answered::free(texts.iter().map(|text| builtin::embed(text)).collect()),
            Self::OpenAi(model) => model.embed(texts).await,
        }
    }
}
