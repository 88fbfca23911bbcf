//! Vectors out of an endpoint's answer: all of them, each of the right size and of numbers, or none.

use serde::Deserialize;

use super::outcome::CallError;
use crate::domain::failure::FailureClass;
use crate::domain::provider::Usage;

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
    usage: Option<Counted>,
}

#[derive(Deserialize)]
struct Item {
    index: Option<usize>,
    /// Some servers write what is no number as null.
    embedding: Vec<Option<f64>>,
}

#[derive(Deserialize)]
struct Counted {
    #[serde(default)]
    prompt_tokens: u64,
}

#[derive(Debug, PartialEq)]
pub struct Vectors {
    /// In the order of the texts, of length 1.
    pub vectors: Vec<Vec<f32>>,
    pub usage: Option<Usage>,
}

/// `body` is the answer for so many texts.
pub fn vectors(body: &[u8], texts: usize, dimensions: u32) -> Result<Vectors, CallError> {
    let Answer { data, usage } = serde_json::from_slice(body).map_err(|error| unreadable(&error, body))?;
    if data.len() != texts {
        return Err(refused(format!("the provider gives {} vectors for {texts} texts", data.len())));
    }
    let mut placed: Vec<Option<Vec<f32>>> = vec![None; texts];
    for (position, Item { index, embedding }) in data.into_iter().enumerate() {
        let index = index.unwrap_or(position);
        let place = placed.get_mut(index).filter(|place| place.is_none());
        let place = place.ok_or_else(|| refused(format!("the provider gives no or two vectors for text {index}")))?;
        *place = Some(vector(embedding, dimensions)?);
    }
    let usage = usage.map(|Counted { prompt_tokens }| Usage { embedding_tokens: prompt_tokens, ..Usage::default() });
    Ok(Vectors { vectors: placed.into_iter().flatten().collect(), usage })
}

fn vector(numbers: Vec<Option<f64>>, dimensions: u32) -> Result<Vec<f32>, CallError> {
    if u32::try_from(numbers.len()) != Ok(dimensions) {
        let length = numbers.len();
        return Err(refused(format!(
            "a vector of the provider has {length} numbers, and SLUICE_EMBEDDING_DIMENSIONS says {dimensions}"
        )));
    }
    let numbers: Option<Vec<f64>> =
        numbers.into_iter().map(|number| number.filter(|number| number.is_finite())).collect();
    let numbers = numbers.ok_or_else(no_number)?;
    unit(&numbers).ok_or_else(no_number)
}

/// Brought to length 1; a vector of zeros stays what it is. `None` if that is too long for numbers.
pub fn unit(numbers: &[f64]) -> Option<Vec<f32>> {
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    let divisor = if length > 0.0 { length } else { 1.0 };
    length.is_finite().then(|| numbers.iter().map(|number| narrowed(number / divisor)).collect())
}

#[expect(clippy::cast_possible_truncation, reason = "it is between -1 and 1, and stored so")]
fn narrowed(number: f64) -> f32 {
    number as f32
}

fn refused(message: impl Into<String>) -> CallError {
    CallError::Failed { class: FailureClass::EmbeddingLimit, message: message.into() }
}

fn no_number() -> CallError {
    refused("a vector of the provider has something in it that is no number")
}

/// Servers that are written in languages where it is easy say NaN, which is no JSON.
fn unreadable(error: &serde_json::Error, body: &[u8]) -> CallError {
    let text = String::from_utf8_lossy(body);
    let has_no_number = ["NaN", "nan", "Infinity", "inf"]
        .iter()
        .any(|word| text.match_indices(word).any(|(at, _)| text[..at].trim_end().ends_with(['[', ',', '-'])));
    if has_no_number || error.to_string().contains("number out of range") {
        return no_number();
    }
    CallError::unavailable(format!("the provider's vectors cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, texts: usize) -> Result<Vec<Vec<f32>>, String> {
        let read = vectors(body.as_bytes(), texts, 2);
        read.map(|read| read.vectors).map_err(|error| match error {
            CallError::Failed { class, .. } => class.to_string(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn vectors_stand_in_the_order_of_their_texts_and_have_length_one() {
        let body = r#"{"object":"list","data":[{"index":1,"embedding":[0,-2]},{"index":0,"embedding":[3,4.0]}]}"#;
        assert_eq!(read(body, 2), Ok(vec![vec![0.6, 0.8], vec![0.0, -1.0]]));
        assert_eq!(read(r#"{"data":[{"embedding":[0,0]}]}"#, 1), Ok(vec![vec![0.0, 0.0]]));
        let counted = vectors(br#"{"data":[],"usage":{"prompt_tokens":9,"total_tokens":9}}"#, 0, 2).unwrap();
        assert_eq!(counted.usage, Some(Usage { embedding_tokens: 9, ..Usage::default() }));
    }

    #[test]
    fn what_is_no_whole_set_of_vectors_is_refused() {
        let rows = [
            (r#"{"data":[{"index":0,"embedding":[1,2]}]}"#, 2, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[1,2]},{"index":0,"embedding":[1,2]}]}"#, 2, "embedding_limit"),
            (r#"{"data":[{"index":5,"embedding":[1,2]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[1,2,3]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[1,null]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[1,NaN]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[-Infinity,1]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[1e999,1]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":[1e300,1e300]}]}"#, 1, "embedding_limit"),
            (r#"{"data":[{"index":0,"embedding":"AACAPw=="}]}"#, 1, "provider_unavailable"),
            (r#"{"data":[{"index":0,"embed"#, 1, "provider_unavailable"),
            ("<html>financial information</html>", 1, "provider_unavailable"),
            ("", 1, "provider_unavailable"),
        ];
        for (body, texts, expected) in rows {
            assert_eq!(read(body, texts), Err(expected.to_owned()), "{body}");
        }
    }
}
