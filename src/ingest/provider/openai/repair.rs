//! JSON out of what a model wrote: without the prose and the fences around it, and with its small faults mended.

use serde_json::Value;

/// Braces in the prose before the answer; more than a few are no answer.
const TRIES_MAX: usize = 16;
/// Models that think aloud do it before this.
const THOUGHT_ENDS: &str = "</think>";

/// The first object in the text that satisfies `is_wanted`.
pub fn find_object(text: &str, is_wanted: impl Fn(&Value) -> bool) -> Option<Value> {
    let text = text.rsplit_once(THOUGHT_ENDS).map_or(text, |(_, after)| after);
    let starts = text.match_indices('{').map(|(start, _)| start).take(TRIES_MAX);
    starts.filter_map(|start| mended(&text[start..])).find_map(|json| parse(&json).filter(&is_wanted))
}

/// JSON in which half a surrogate pair is U+FFFD instead of an error.
pub fn parse(json: &str) -> Option<Value> {
    serde_json::from_str(json).or_else(|_| serde_json::from_str(&with_whole_characters(json))).ok()
}

/// The object that begins the text: commas before an end are dropped, and strings are made what JSON takes. `None` if it has no end.
fn mended(text: &str) -> Option<String> {
    let mut json = String::new();
    let mut open = Vec::new();
    let mut comma = false;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == ',' {
            comma = true;
            continue;
        }
        let is_end = matches!(character, '}' | ']');
        if comma && !character.is_whitespace() {
            if !is_end {
                json.push(',');
            }
            comma = false;
        }
        json.push(character);
        match character {
            '{' => open.push('}'),
            '[' => open.push(']'),
            '"' => string(&mut characters, &mut json)?,
            _ if is_end && open.pop() != Some(character) => return None,
            _ => {}
        }
        if open.is_empty() {
            return Some(json);
        }
    }
    None
}

/// The rest of a string, with its closing quote.
fn string(characters: &mut std::str::Chars<'_>, json: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '"' => {
                json.push('"');
                return Some(());
            }
            '\\' => {
                let escaped = characters.next()?;
                // As in `\_`, which models write and JSON does not know.
                if matches!(escaped, '"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u') {
                    json.push('\\');
                }
                json.push(escaped);
            }
            '\n' => json.push_str("\\n"),
            '\t' => json.push_str("\\t"),
            control if control.is_control() => {}
            character => json.push(character),
        }
    }
}

fn with_whole_characters(json: &str) -> String {
    let mut whole = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let length = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => {
                whole.push_str(&escape[..12]);
                12
            }
            (Some(0xd800..=0xdfff), _) => {
                whole.push_str("\\ufffd");
                6
            }
            // Any other escape, of which the first two characters are one.
            _ => {
                let length = escape.chars().take(2).map(char::len_utf8).sum();
                whole.push_str(&escape[..length]);
                length
            }
        };
        rest = &escape[length..];
    }
    whole.push_str(rest);
    whole
}

/// Of `\uXXXX` at the beginning.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(text: &str) -> Option<Value> {
        find_object(text, |object| object.get("a").is_some())
    }

    #[test]
    fn an_answer_is_found_and_mended() {
        let rows = [
            (r#"{"a": 1}"#, json!({ "a": 1 })),
            ("```json\n{\"a\": [1, 2]}\n```", json!({ "a": [1, 2] })),
            ("Here is {the} answer: {\"a\": {\"b\": 2}} I hope {\"a\": 3} it helps.", json!({ "a": { "b": 2 } })),
            (r#"{"a": [1, 2, ], "b": {"c": 3,},}"#, json!({ "a": [1, 2], "b": { "c": 3 } })),
            (r#"<think>{"a": 0}</think> {"a": 4}"#, json!({ "a": 4 })),
            ("{\"a\": \"two\nlines\tand \u{1}more\"}", json!({ "a": "two\nlines\tand more" })),
            (r#"{"a": "under\_score, \"said\", c:\\d"}"#, json!({ "a": "under_score, \"said\", c:\\d" })),
            (r#"{"a": "}, ] {"}"#, json!({ "a": "}, ] {" })),
            (r#"{"a": "\ud83d\ude00 \ud83d x \udc00"}"#, json!({ "a": "😀 \u{fffd} x \u{fffd}" })),
            (r#"{"a": "nul \u0000 here"}"#, json!({ "a": "nul \0 here" })),
        ];
        for (text, expected) in rows {
            assert_eq!(found(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_answer_stays_none() {
        let deep = format!("{{\"a\": {}", "[".repeat(100_000));
        let rows = [
            "",
            "I cannot do that.",
            r#"{"b": 1}"#,
            r#"{"a": [1, 2"#,
            r#"{"a": "open"#,
            r#"{"a": 1]"#,
            "{{{{{{{{{{{{{{{{{{{{{{{{",
            r#"{"a": "\"#,
            r#"{"a" 1}"#,
            &deep,
        ];
        for text in rows {
            assert_eq!(found(text), None, "{}", &text[..text.len().min(40)]);
        }
    }
}
