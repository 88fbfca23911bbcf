//! Any endpoint that speaks OpenAI's protocol: OpenAI, Ollama, LM Studio, vLLM, gateways.
//!
//! `client` asks and gives up; what is asked, what an answer is worth and what a refusal means is decided in pure functions:
//! `prompt`, `events`, `chat`, `repair`, `answer`, `vectors`, `outcome`.

mod answer;
mod chat;
mod client;
mod events;
mod outcome;
mod prompt;
mod repair;
mod vectors;

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::join_all;

use self::chat::{Chat, ChatAnswer};
use self::client::Client;
use self::events::Events;
use self::outcome::CallError;
use self::prompt::estimated_tokens;
use self::vectors::Vectors;
use super::{Answered, Extraction};
use crate::domain::failure::FailureClass;
use crate::domain::provider::{ChatModel, EmbeddingModel, Endpoint, OptionalParameter, Usage};
use crate::worker::NotDone;

/// Bytes that come for one token at most, with the event around it; and what models think before they answer.
const TOKEN_MAX_BYTES: usize = 1_024;
const THOUGHTS_MAX_BYTES: usize = 1 << 20;
/// Of one number of a vector, as text.
const NUMBER_MAX_BYTES: usize = 32;

/// What both models share.
pub struct Shared {
    client: Client,
    context_tokens: u32,
    omitted: Vec<OptionalParameter>,
}

impl Shared {
    pub fn new(endpoint: &Endpoint) -> reqwest::Result<Arc<Self>> {
        let (context_tokens, omitted) = (endpoint.context_tokens, endpoint.omitted.clone());
        Ok(Arc::new(Self { client: Client::new(endpoint)?, context_tokens, omitted }))
    }
}

/// A chat model that is asked about one chunk at a time.
pub struct Extractor {
    shared: Arc<Shared>,
    model: ChatModel,
    name: String,
}

impl Extractor {
    pub fn new(shared: Arc<Shared>, endpoint: &Endpoint, model: ChatModel) -> Self {
        Self { shared, name: format!("{}/{}/{}", endpoint.kind, model.name, prompt::VERSION), model }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn at_once(&self) -> usize {
        self.model.at_once
    }

    /// Of what is asked, as far as can be said before.
    pub fn estimate(&self, texts: &[String]) -> Usage {
        let tokens = |text: &String| u64::from(prompt::question_tokens() + estimated_tokens(text));
        Usage { prompt_tokens: texts.iter().map(tokens).sum(), ..Usage::default() }
    }

    /// One answer for each text, all asked at once: what one of them cost is not lost when another one fails.
    pub async fn extract(&self, texts: &[String]) -> Vec<Answered<Extraction>> {
        join_all(texts.iter().map(|text| self.extract_one(text))).await
    }

    async fn extract_one(&self, text: &str) -> Answered<Extraction> {
        let mut usage = Usage::default();
        let mut found = Extraction::default();
        let parts = prompt::parts(text, prompt::text_max_bytes(self.shared.context_tokens));
        let mut parts: VecDeque<(&str, bool)> = parts.into_iter().map(|part| (part, true)).collect();
        while let Some((part, may_split)) = parts.pop_front() {
            let (paid, answer) = self.ask(part).await;
            usage.add(paid);
            match answer {
                Ok(extraction) => found.append(extraction),
                Err(error @ CallError::TooLong { .. }) => match prompt::halves(part).filter(|_| may_split) {
                    Some((first, second)) => {
                        parts.push_front((second, false));
                        parts.push_front((first, false));
                    }
                    None => return Answered::failed(usage, not_done(error, FailureClass::DocumentTooLarge)),
                },
                Err(error) => return Answered::failed(usage, not_done(error, FailureClass::DocumentTooLarge)),
            }
        }
        Answered { usage, result: Ok(found) }
    }

    async fn ask(&self, part: &str) -> (Usage, Result<Extraction, CallError>) {
        let Shared { client, context_tokens, omitted } = &*self.shared;
        let body = prompt::chat(&self.model, part, *context_tokens, omitted);
        let answer = match listen(client, &body, self.max_bytes()).await {
            Ok(answer) => answer,
            Err(error) => return (Usage::default(), Err(error)),
        };
        let ChatAnswer { text, is_cut, usage } = answer;
        let usage = usage.unwrap_or_else(|| Usage {
            prompt_tokens: u64::from(prompt::question_tokens() + estimated_tokens(part)),
            answer_tokens: u64::from(estimated_tokens(&text)),
            ..Usage::default()
        });
        (usage, read(&text, is_cut, part))
    }

    fn max_bytes(&self) -> usize {
        let tokens = usize::try_from(self.model.answer_tokens).unwrap_or(usize::MAX);
        tokens.saturating_mul(TOKEN_MAX_BYTES).saturating_add(THOUGHTS_MAX_BYTES)
    }
}

/// A cut answer is worth a try in smaller parts; any other one that is none may be better the next time.
fn read(text: &str, is_cut: bool, part: &str) -> Result<Extraction, CallError> {
    match answer::extraction(text, part) {
        Some(extraction) => Ok(extraction),
        None if is_cut => {
            let message = "the model's answer is longer than SLUICE_EXTRACT_ANSWER_TOKENS".to_owned();
            Err(CallError::TooLong { message })
        }
        None => Err(CallError::unavailable("the model's answer has no JSON with entities in it")),
    }
}

/// Asks, and hears the answer to its end.
async fn listen(client: &Client, body: &serde_json::Value, max_bytes: usize) -> Result<ChatAnswer, CallError> {
    let mut answer = client.post("chat/completions", body, max_bytes).await?;
    let mut chat = Chat::default();
    if answer.is_json() {
        chat.take(&String::from_utf8_lossy(&answer.all().await?))?;
        return chat.end();
    }
    let mut events = Events::default();
    while !chat.is_done() {
        match answer.next().await {
            Ok(Some(bytes)) => events.push(&bytes).iter().try_for_each(|data| chat.take(data))?,
            Ok(None) => {
                std::mem::take(&mut events).finish().iter().try_for_each(|data| chat.take(data))?;
                break;
            }
            // All was said, and only the end is missing.
            Err(_) if chat.is_finished() => break,
            Err(error) => return Err(error),
        }
    }
    chat.end()
}

/// A model that makes a vector of each text.
pub struct Embedder {
    shared: Arc<Shared>,
    model: EmbeddingModel,
    name: String,
}

impl Embedder {
    pub fn new(shared: Arc<Shared>, endpoint: &Endpoint, model: EmbeddingModel) -> Self {
        Self { shared, name: format!("{}/{}/{}", endpoint.kind, model.name, model.dimensions), model }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn dimensions(&self) -> u32 {
        self.model.dimensions
    }

    pub fn batch(&self) -> usize {
        self.model.batch
    }

    pub fn estimate(&self, texts: &[String]) -> Usage {
        let tokens = texts.iter().map(|text| u64::from(estimated_tokens(text))).sum();
        Usage { embedding_tokens: tokens, ..Usage::default() }
    }

    /// One vector for each text, in one request; text by text if that is more than the model takes.
    pub async fn embed(&self, texts: &[String]) -> Answered<Vec<Vec<f32>>> {
        let mut usage = Usage::default();
        let max_bytes = prompt::bytes_of(self.shared.context_tokens);
        let fits = texts.iter().all(|text| text.len() <= max_bytes);
        if fits {
            let whole: Vec<&str> = texts.iter().map(String::as_str).collect();
            match self.ask(&whole, &mut usage).await {
                Err(CallError::TooLong { .. }) => {}
                answer => return self.answered(usage, answer),
            }
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            match self.embed_one(text, max_bytes, texts.len() > 1 || !fits, &mut usage).await {
                Ok(vector) => vectors.push(vector),
                Err(error) => return self.answered(usage, Err(error)),
            }
        }
        self.answered(usage, Ok(vectors))
    }

    /// Whole, unless that is known not to fit; then the middle of the vectors of its parts.
    async fn embed_one(
        &self,
        text: &str,
        max_bytes: usize,
        may_be_whole: bool,
        usage: &mut Usage,
    ) -> Result<Vec<f32>, CallError> {
        if may_be_whole && text.len() <= max_bytes {
            match self.ask(&[text], usage).await {
                Err(CallError::TooLong { .. }) => {}
                answer => return answer.map(middle),
            }
        }
        let parts = match prompt::halves(text) {
            Some((first, second)) if text.len() <= max_bytes => vec![first, second],
            Some(_) | None => prompt::parts(text, max_bytes),
        };
        self.ask(&parts, usage).await.map(middle)
    }

    async fn ask(&self, texts: &[&str], usage: &mut Usage) -> Result<Vec<Vec<f32>>, CallError> {
        let Shared { client, context_tokens: _, omitted } = &*self.shared;
        let body = prompt::embeddings(&self.model.name, texts, omitted);
        let numbers = usize::try_from(self.model.dimensions).unwrap_or(usize::MAX).saturating_mul(texts.len());
        // Twice as many as asked for are still told by their number.
        let max_bytes = numbers.saturating_mul(2 * NUMBER_MAX_BYTES).saturating_add(THOUGHTS_MAX_BYTES);
        let answer = client.post("embeddings", &body, max_bytes).await?.all().await?;
        let Vectors { vectors, usage: counted } = vectors::vectors(&answer, texts.len(), self.model.dimensions)?;
        let estimated = || texts.iter().map(|text| u64::from(estimated_tokens(text))).sum();
        usage.add(counted.unwrap_or_else(|| Usage { embedding_tokens: estimated(), ..Usage::default() }));
        Ok(vectors)
    }

    fn answered<T>(&self, usage: Usage, answer: Result<T, CallError>) -> Answered<T> {
        Answered { usage, result: answer.map_err(|error| not_done(error, FailureClass::EmbeddingLimit)) }
    }
}

/// Of the vectors of one text's parts.
fn middle(vectors: Vec<Vec<f32>>) -> Vec<f32> {
    let mut sum = vec![0.0_f64; vectors.first().map_or(0, Vec::len)];
    for vector in &vectors {
        sum.iter_mut().zip(vector).for_each(|(sum, number)| *sum += f64::from(*number));
    }
    vectors::unit(&sum).unwrap_or_default()
}

/// `too_long`: the class of what does not fit, even in parts.
fn not_done(error: CallError, too_long: FailureClass) -> NotDone {
    match error {
        CallError::RateLimited { message, retry_after_secs } => NotDone::rate_limited(message, retry_after_secs),
        CallError::TooLong { message } => NotDone::failed(too_long, message),
        CallError::Failed { class, message } => NotDone::failed(class, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_vectors_has_length_one() {
        assert_eq!(middle(vec![vec![1.0, 0.0]]), [1.0, 0.0]);
        let both = middle(vec![vec![1.0, 0.0], vec![0.0, 1.0]]);
        assert!((both[0] - both[1]).abs() < 1e-6 && (both[0] * both[0] + both[1] * both[1] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn only_a_cut_answer_is_asked_for_in_parts() {
        let half = r#"{"entities": [{"name": "Be"#;
        assert!(matches!(read(half, true, "Bern"), Err(CallError::TooLong { .. })));
        assert!(matches!(
            read(half, false, "Bern"),
            Err(CallError::Failed { class: FailureClass::ProviderUnavailable, .. })
        ));
        assert!(read(r#"{"entities": []}"#, true, "Bern").is_ok());
    }
}
