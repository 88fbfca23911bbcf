//! A chat's answer out of the events that it comes in, or out of one piece.

use serde::Deserialize;
use serde_json::Value;

use super::outcome::{CallError, Said};
use super::repair;
use crate::domain::provider::Usage;

/// The event after which nothing comes.
const DONE: &str = "[DONE]";

#[derive(Debug, Default)]
pub struct Chat {
    text: String,
    usage: Option<Usage>,
    finish: Option<String>,
    is_done: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ChatAnswer {
    pub text: String,
    /// The answer was longer than it may be.
    pub is_cut: bool,
    /// `None`: the endpoint does not count.
    pub usage: Option<Usage>,
}

/// One event, or all of it; every field may be missing, as in the last event, which only counts.
#[derive(Deserialize)]
struct Piece {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Counted>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
pub struct Counted {
    #[serde(default)]
    pub prompt_tokens: u64,
    #[serde(default)]
    pub completion_tokens: u64,
}

impl Chat {
    /// Nothing more has to be waited for.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// All of the text was said.
    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Takes the data of one event, or a whole answer.
    pub fn take(&mut self, data: &str) -> Result<(), CallError> {
        if data.trim() == DONE {
            self.is_done = true;
            return Ok(());
        }
        let value = repair::parse(data).ok_or_else(|| CallError::unavailable("the provider's answer is no JSON"))?;
        if value.get("error").is_some_and(|error| !error.is_null()) {
            let said = Said::of_value(&value);
            return Err(CallError::unavailable(format!("the provider failed while it answered: {}", said.message())));
        }
        let Piece { choices, usage } = Piece::deserialize(&value).map_err(|_| not_understood(&value))?;
        if let Some(Counted { prompt_tokens, completion_tokens }) = usage {
            self.usage = Some(Usage { prompt_tokens, answer_tokens: completion_tokens, embedding_tokens: 0 });
        }
        if let Some(Choice { delta, finish_reason }) = choices.into_iter().next() {
            self.text.push_str(delta.and_then(|delta| delta.content).as_deref().unwrap_or_default());
            self.finish = finish_reason.or(self.finish.take());
        }
        Ok(())
    }

    /// The stream is over, or was cut.
    pub fn end(self) -> Result<ChatAnswer, CallError> {
        let Self { text, usage, finish, is_done } = self;
        if !is_done && finish.is_none() {
            return Err(CallError::unavailable("the provider's answer was cut"));
        }
        Ok(ChatAnswer { text, is_cut: finish.as_deref() == Some("length"), usage })
    }
}

fn not_understood(value: &Value) -> CallError {
    let kind = if value.is_object() { "an object of another kind" } else { "no object" };
    CallError::unavailable(format!(
        "the provider's answer is {kind}, not a chat completion: look at SLUICE_PROVIDER_URL"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(events: &[&str]) -> Result<ChatAnswer, CallError> {
        let mut chat = Chat::default();
        events.iter().try_for_each(|data| chat.take(data))?;
        chat.end()
    }

    #[test]
    fn pieces_become_a_text_with_its_count() {
        let whole = answer(&[
            r#"{"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"delta":{"content":"caf"}}]}"#,
            r#"{"choices":[{"delta":{"content":"é","reasoning":"hm"}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#,
            "[DONE]",
        ]);
        let usage = Usage { prompt_tokens: 7, answer_tokens: 2, embedding_tokens: 0 };
        assert_eq!(whole, Ok(ChatAnswer { text: "café".to_owned(), is_cut: false, usage: Some(usage) }));
    }

    #[test]
    fn an_answer_in_one_piece_is_one_too() {
        let whole = answer(&[r#"{"choices":[{"message":{"content":"yes"},"finish_reason":"length"}]}"#]);
        assert_eq!(whole, Ok(ChatAnswer { text: "yes".to_owned(), is_cut: true, usage: None }));
    }

    #[test]
    fn what_is_no_whole_answer_is_told_apart() {
        let rows: [(&[&str], &str); 6] = [
            (&[], "was cut"),
            (&[r#"{"choices":[{"delta":{"content":"half"}}]}"#], "was cut"),
            (&[r#"{"choices":[{"del"#], "no JSON"),
            (&[r#"{"error":{"message":"out of memory"}}"#], "out of memory"),
            (&[r#"{"choices":"none"}"#], "not a chat completion"),
            (&["7"], "not a chat completion"),
        ];
        for (events, expected) in rows {
            let said = format!("{:?}", answer(events).unwrap_err());
            assert!(said.contains(expected) && said.contains("ProviderUnavailable"), "{events:?}: {said}");
        }
        // A server that does not say how it ends.
        assert!(answer(&[r#"{"choices":[{"delta":{"content":"all"}}]}"#, "[DONE]"]).is_ok());
    }
}
