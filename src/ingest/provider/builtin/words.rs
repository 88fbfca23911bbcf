//! Sentences and words, by their characters alone.

/// Longer ones are no words, but data.
const WORD_MAX_CHARS: usize = 64;

/// The text without the targets of links, addresses and marks of markdown, which are no words of its author.
pub fn prose(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(index) = rest.find(['(', 'h']) {
        let (before, from) = rest.split_at(index);
        prose.push_str(before);
        let skipped = if from.starts_with('(') && before.ends_with(']') {
            from.find(')').map_or(from.len(), |end| end + 1)
        } else if from.starts_with("http://") || from.starts_with("https://") {
            from.find(|character: char| character.is_whitespace() || matches!(character, ')' | '>'))
                .unwrap_or(from.len())
        } else {
            0
        };
        let kept = if skipped == 0 { from.chars().next().map_or(0, char::len_utf8) } else { 0 };
        prose.push_str(&from[..kept]);
        if skipped > 0 {
            prose.push(' ');
        }
        rest = &from[skipped + kept..];
    }
    prose.push_str(rest);
    prose
}

/// Cut after full stops and the like that whitespace follows, and where lines end a paragraph, an item or a cell.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((index, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let ends = match character {
            '.' | '!' | '?' | ':' | ';' => next.is_none_or(char::is_whitespace),
            '。' | '！' | '？' | '|' => true,
            '\n' => next.is_none_or(|next| matches!(next, '\n' | '-' | '*' | '#' | '|' | '>')),
            _ => false,
        };
        if ends {
            let end = index + character.len_utf8();
            sentences.push(&text[start..end]);
            start = end;
        }
    }
    sentences.push(&text[start..]);
    sentences.retain(|sentence| sentence.chars().any(char::is_alphanumeric));
    sentences
}

/// Parts of a sentence, which no name crosses: cut at commas, brackets, quotes, slashes and dashes.
pub fn clauses(sentence: &str) -> Vec<&str> {
    let mut clauses = Vec::new();
    let mut start = 0;
    let mut characters = sentence.char_indices().peekable();
    while let Some((index, character)) = characters.next() {
        let ends = match character {
            ',' => characters.peek().is_none_or(|(_, next)| !next.is_ascii_digit()),
            '(' | ')' | '[' | ']' | '"' | '“' | '”' | '„' | '«' | '»' | '/' | '–' | '—' | '、' => true,
            _ => false,
        };
        if ends {
            clauses.push(&sentence[start..index]);
            start = index + character.len_utf8();
        }
    }
    clauses.push(&sentence[start..]);
    clauses
}

/// Runs of letters and digits, with marks inside that hold a word together, as in `user_id`, `e-mail`, `don't`, `1.5`.
pub fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = None;
    let mut characters = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((index, character)) = characters.next() {
        let next = characters.peek().map_or(' ', |(_, next)| *next);
        if is_ideograph(character) {
            // Written without spaces: each is a word of its own.
            if let Some(start) = start.take() {
                words.push(&text[start..index]);
            }
            words.push(&text[index..index + character.len_utf8()]);
        } else if character.is_alphanumeric() || start.is_some() && joins(before, character, next) {
            start.get_or_insert(index);
        } else if let Some(start) = start.take() {
            words.push(&text[start..index]);
        }
        before = character;
    }
    words.extend(start.map(|start| &text[start..]));
    words.retain(|word| word.chars().count() <= WORD_MAX_CHARS);
    words
}

pub fn is_ideograph(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

fn joins(before: char, mark: char, after: char) -> bool {
    match mark {
        '_' => before.is_alphanumeric() || before == '_',
        '-' | '\'' | '’' | '&' => before.is_alphanumeric() && after.is_alphanumeric(),
        '.' | ',' => before.is_ascii_digit() && after.is_ascii_digit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_holds_them_together() {
        let rows: [(&str, &[&str]); 7] = [
            ("The user_id's e-mail, 1.5 times.", &["The", "user_id's", "e-mail", "1.5", "times"]),
            ("don’t — stop", &["don’t", "stop"]),
            ("AT&T & co", &["AT&T", "co"]),
            ("日本語 text", &["日", "本", "語", "text"]),
            ("end.Next", &["end", "Next"]),
            ("-- '' _", &[]),
            ("", &[]),
        ];
        for (given, expected) in rows {
            assert_eq!(words(given), expected, "{given:?}");
        }
    }

    #[test]
    fn sentences_end_at_marks_and_items() {
        assert_eq!(sentences("One. Two 1.5 is! three"), ["One.", " Two 1.5 is!", " three"]);
        assert_eq!(sentences("a line\ngoes on\n- item\n- other"), ["a line\ngoes on\n", "- item\n", "- other"]);
        assert_eq!(sentences("一つ。二つ。"), ["一つ。", "二つ。"]);
        assert_eq!(sentences(" … "), [""; 0]);
    }

    #[test]
    fn clauses_end_at_marks_but_not_inside_numbers() {
        assert_eq!(clauses("In Lisbon, Ada (of 1,5) came"), ["In Lisbon", " Ada ", "of 1,5", " came"]);
        assert_eq!(clauses(""), [""]);
    }

    #[test]
    fn addresses_are_no_prose() {
        assert_eq!(prose("see [the docs](https://a.example/x?y) (now)"), "see [the docs]  (now)");
        assert_eq!(prose("at https://a.example/path today, he said"), "at   today, he said");
        assert_eq!(prose("open ("), "open (");
        assert_eq!(prose("[broken](https://never"), "[broken] ");
        assert_eq!(prose("h"), "h");
    }

    #[test]
    fn data_is_no_word() {
        assert_eq!(words(&"a".repeat(65)), [""; 0]);
    }
}
