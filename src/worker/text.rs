//! Bounds of what handlers say: cut at a character, and without what Postgres cannot store.

/// As long as the database keeps an error.
pub const MESSAGE_MAX_CHARS: usize = 4_096;
/// As long as the database keeps a report's message.
pub const NOTE_MAX_CHARS: usize = 1_024;
/// As long as the database keeps a stage.
pub const STAGE_MAX_CHARS: usize = 64;
/// As much as a payload may have; a result is read by people and by follow-ons.
pub const RESULT_MAX_BYTES: usize = 1 << 20;

/// At most so many characters, none of them U+0000.
pub fn bounded(text: String, max_chars: usize) -> String {
    if text.len() <= max_chars && !text.contains('\0') {
        return text;
    }
    text.chars().filter(|character| *character != '\0').take(max_chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_and_loses_nul() {
        for (given, expected) in
            [("", ""), ("abc", "abc"), ("abcd", "abc"), ("\0a\0b", "ab"), ("äöüß", "äöü"), ("\0\0\0\0abcd", "abc")]
        {
            assert_eq!(bounded(given.to_owned(), 3), expected, "{given:?}");
        }
    }
}
