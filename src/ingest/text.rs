//! Text as it may be stored: UTF-8 without U+0000 and other control characters, with one kind of line end.

use std::borrow::Cow;

/// Of one document; beyond it, the chunks and their rows would no longer fit one transaction comfortably.
pub const MARKDOWN_MAX_BYTES: usize = 32 << 20;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Bytes from outside; what is no UTF-8 becomes U+FFFD.
pub fn from_bytes(bytes: &[u8]) -> String {
    clean(&String::from_utf8_lossy(bytes))
}

/// Drops U+0000 and control characters, and turns every line end and page break into line feeds.
pub fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let text = unix_lines(text);
    let mut characters = text.chars().peekable();
    if characters.peek() == Some(&BYTE_ORDER_MARK) {
        characters.next();
    }
    for character in characters {
        match character {
            '\n' | '\t' => cleaned.push(character),
            '\r' | '\u{85}' | '\u{2028}' => cleaned.push('\n'),
            '\u{c}' | '\u{2029}' => cleaned.push_str("\n\n"),
            _ if character.is_control() => {}
            _ => cleaned.push(character),
        }
    }
    cleaned
}

/// Whether there is anything to read in it.
pub fn has_content(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

/// The first heading, or nothing.
pub fn first_heading(markdown: &str) -> Option<&str> {
    let line = markdown.lines().find(|line| line.starts_with('#'))?;
    let heading = line.trim_start_matches('#').trim_end_matches('#').trim();
    (!heading.is_empty()).then_some(heading)
}

/// At most so many characters.
pub fn cut(text: &str, max_chars: usize) -> &str {
    text.char_indices().nth(max_chars).map_or(text, |(end, _)| &text[..end])
}

fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_postgres_or_readers_cannot_use_is_dropped() {
        let rows = [
            ("a\0b", "ab"),
            ("\u{feff}a\u{feff}", "a\u{feff}"),
            ("a\r\nb\rc", "a\nb\nc"),
            ("page\u{c}next", "page\n\nnext"),
            ("\u{1b}[31mred\u{7}", "[31mred"),
            ("tab\tstays", "tab\tstays"),
            ("", ""),
        ];
        for (given, expected) in rows {
            assert_eq!(clean(given), expected, "{given:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        assert_eq!(from_bytes(b"caf\xc3\xa9 \xff\xfe \0end"), "café \u{fffd}\u{fffd} end");
    }

    #[test]
    fn content_is_a_letter_or_a_digit() {
        for (given, expected) in
            [("", false), (" \n\t", false), ("--- … \u{fffd}", false), ("é", true), ("7", true), ("語", true)]
        {
            assert_eq!(has_content(given), expected, "{given:?}");
        }
    }

    #[test]
    fn first_heading_is_found_at_any_level() {
        assert_eq!(first_heading("intro\n\n## The plan ##\n# Other"), Some("The plan"));
        assert_eq!(first_heading("no heading"), None);
        assert_eq!(first_heading("#\ntext"), None);
    }

    #[test]
    fn cut_never_splits_a_character() {
        assert_eq!(cut("äöü", 2), "äö");
        assert_eq!(cut("äöü", 9), "äöü");
    }
}
