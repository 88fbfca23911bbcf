//! Markdown into chunks: by headings first, then by paragraphs, sentences and words; each knows the headings above it.

/// Names the rules; part of what a generation says of itself. Changed rules get a new number.
pub const CHUNKER: &str = "markdown-1";

/// About 300 tokens of English: a few paragraphs on one thing.
pub const CHUNK_MAX_CHARS: usize = 1_200;
/// A section shorter than this shares its chunk with the next one.
const CHUNK_MIN_CHARS: usize = 200;
const HEADING_MAX_CHARS: usize = 200;
const HEADING_LEVELS: usize = 6;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The headings above it, outermost first, with ` > ` between.
    pub heading: String,
    pub content: &'a str,
    /// Where it begins, in characters.
    pub start_char: usize,
}

impl Chunk<'_> {
    /// What is extracted from and embedded: the text in its context.
    pub fn in_context(&self) -> String {
        if self.heading.is_empty() { self.content.to_owned() } else { format!("{}\n\n{}", self.heading, self.content) }
    }
}

/// Every letter of the text is in exactly one chunk, in order.
pub fn chunk(markdown: &str) -> Vec<Chunk<'_>> {
    let mut packer = Packer { markdown, pending: None, ranges: Vec::new() };
    let mut path = Path::default();
    for block in blocks(markdown) {
        if let Some(level) = block.heading_level {
            path.enter(level, heading_text(&markdown[block.start..block.end]));
        }
        packer.add(block, &path);
    }
    packer.finish()
}

/// Lines that belong together, as a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    start: usize,
    end: usize,
    /// 1 to 6, if it is a heading.
    heading_level: Option<usize>,
}

/// Paragraphs, headings and fenced code, without the blank lines between them.
fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    let mut fence: Option<&str> = None;
    let mut start = 0;
    for line in markdown.split_inclusive('\n') {
        let end = start + line.len();
        let text = line.trim();
        let heading_level = if fence.is_none() { heading_level(line) } else { None };
        if text.is_empty() && fence.is_none() {
            blocks.extend(open.take());
        } else if heading_level.is_some() {
            blocks.extend(open.take());
            blocks.push(Block { start, end, heading_level });
        } else {
            match fence {
                Some(mark) if text.starts_with(mark) => fence = None,
                Some(_) => {}
                None => fence = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark)),
            }
            open = Some(Block { start: open.map_or(start, |block| block.start), end, heading_level: None });
        }
        start = end;
    }
    blocks.extend(open);
    blocks
}

fn heading_level(line: &str) -> Option<usize> {
    let level = line.chars().take_while(|character| *character == '#').count();
    let rest = line.get(level..)?;
    let is_heading = (1..=HEADING_LEVELS).contains(&level) && rest.starts_with([' ', '\t']) && !rest.trim().is_empty();
    is_heading.then_some(level)
}

fn heading_text(line: &str) -> String {
    let text = line.trim().trim_matches('#').trim();
    super::text::cut(text, HEADING_MAX_CHARS).to_owned()
}

/// The headings in force.
#[derive(Debug, Default, Clone)]
struct Path {
    headings: Vec<(usize, String)>,
}

impl Path {
    fn enter(&mut self, level: usize, heading: String) {
        self.headings.retain(|(above, _)| *above < level);
        self.headings.push((level, heading));
    }

    fn to_text(&self) -> String {
        self.headings.iter().map(|(_, heading)| heading.as_str()).collect::<Vec<_>>().join(" > ")
    }
}

/// A chunk that may still grow.
struct Pending {
    start: usize,
    end: usize,
    chars: usize,
    has_body: bool,
    heading: String,
}

struct Packer<'a> {
    markdown: &'a str,
    pending: Option<Pending>,
    ranges: Vec<(usize, usize, String)>,
}

impl<'a> Packer<'a> {
    fn add(&mut self, block: Block, path: &Path) {
        let chars = self.markdown[block.start..block.end].chars().count();
        let is_full = self.pending.as_ref().is_some_and(|pending| {
            let ends_section = block.heading_level.is_some() && pending.has_body && pending.chars >= CHUNK_MIN_CHARS;
            ends_section || pending.chars + chars > CHUNK_MAX_CHARS
        });
        if is_full {
            self.flush();
        }
        let is_body = block.heading_level.is_none();
        match &mut self.pending {
            Some(pending) => {
                pending.end = block.end;
                pending.chars += chars;
                if !pending.has_body {
                    pending.heading = path.to_text();
                    pending.has_body = is_body;
                }
            }
            None => {
                let Block { start, end, heading_level: _ } = block;
                self.pending = Some(Pending { start, end, chars, has_body: is_body, heading: path.to_text() });
            }
        }
        if self.pending.as_ref().is_some_and(|pending| pending.chars > CHUNK_MAX_CHARS) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(Pending { mut start, end, heading, .. }) = self.pending.take() else { return };
        while start < end {
            let length = piece_length(&self.markdown[start..end], CHUNK_MAX_CHARS);
            self.ranges.push((start, start + length, heading.clone()));
            start += length;
        }
    }

    fn finish(mut self) -> Vec<Chunk<'a>> {
        self.flush();
        let mut chunks = Vec::with_capacity(self.ranges.len());
        let (mut counted_to, mut start_char) = (0, 0);
        for (start, end, heading) in self.ranges {
            let range = &self.markdown[start..end];
            let content = range.trim();
            if content.is_empty() {
                continue;
            }
            let start = start + (range.len() - range.trim_start().len());
            start_char += self.markdown[counted_to..start].chars().count();
            counted_to = start;
            chunks.push(Chunk { heading, content, start_char });
        }
        chunks
    }
}

/// How many bytes of a text make a piece of at most `max_chars` characters: up to the last end of a sentence in its second
/// half, else of a line, else of a word, else as many as go in.
fn piece_length(text: &str, max_chars: usize) -> usize {
    let Some((limit, _)) = text.char_indices().nth(max_chars) else { return text.len() };
    let window = &text[..limit];
    let half = window.char_indices().nth(max_chars / 2).map_or(0, |(index, _)| index);
    let (mut sentence, mut line, mut word) = (None, None, None);
    let mut before = ' ';
    for (index, character) in window.char_indices() {
        let after = index + character.len_utf8();
        if index >= half {
            match character {
                '\n' => line = Some(after),
                '。' | '！' | '？' => sentence = Some(after),
                _ if character.is_whitespace() => word = Some(after),
                _ => {}
            }
            if character.is_whitespace() && matches!(before, '.' | '!' | '?') {
                sentence = Some(after);
            }
        }
        before = character;
    }
    sentence.or(line).or(word).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(text: &str) -> String {
        text.split_whitespace().collect()
    }

    fn assert_is_whole(markdown: &str) {
        let chunks = chunk(markdown);
        let together: String = chunks.iter().map(|chunk| letters(chunk.content)).collect();
        assert_eq!(together, letters(markdown));
        for chunk in &chunks {
            assert!(chunk.content.chars().count() <= CHUNK_MAX_CHARS, "{} characters", chunk.content.chars().count());
            let tail: String = markdown.chars().skip(chunk.start_char).collect();
            assert!(tail.starts_with(chunk.content), "start_char of {:?}", super::super::text::cut(chunk.content, 40));
        }
    }

    fn paragraph(word: &str, chars: usize) -> String {
        let mut text = String::new();
        while text.chars().count() < chars {
            text.push_str(word);
            text.push(if text.len().is_multiple_of(7) { '.' } else { ',' });
            text.push(' ');
        }
        text
    }

    #[test]
    fn sections_become_chunks_with_their_headings() {
        let (first, second) = (paragraph("alpha", 300), paragraph("beta", 300));
        let markdown = format!("# Guide\n\n## Install\n\n{first}\n\n## Use\n\n{second}\n");

        let chunks = chunk(&markdown);

        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[0].heading, "Guide > Install");
        assert!(chunks[0].content.starts_with("# Guide\n\n## Install"));
        assert_eq!(chunks[1].heading, "Guide > Use");
        assert_is_whole(&markdown);
    }

    #[test]
    fn short_sections_share_a_chunk() {
        let chunks = chunk("# List\n\n## One\n\nfirst\n\n## Two\n\nsecond\n");

        assert_eq!(chunks.len(), 1);
        assert_eq!(chunks[0].heading, "List > One");
    }

    #[test]
    fn headings_alone_are_kept() {
        let chunks = chunk("# Only\n## Headings\n");

        assert_eq!(chunks.len(), 1);
        assert_eq!(chunks[0].content, "# Only\n## Headings");
    }

    #[test]
    fn a_sign_in_code_is_no_heading() {
        let chunks = chunk("```sh\n# comment\n```\n\n#hashtag\n");

        assert_eq!(chunks.len(), 1);
        assert_eq!(chunks[0].heading, "");
    }

    #[test]
    fn long_text_is_cut_at_sentences_lines_words_or_characters() {
        for markdown in [
            paragraph("word", 5_000),
            "x".repeat(5_000),
            "漢字".repeat(2_000),
            "これは文です。".repeat(800),
            format!("```\n{}\n```", "let x = 1;\n".repeat(500)),
            format!("| a | b |\n{}", "| 1 | 2 |\n".repeat(900)),
            "🦀é ".repeat(3_000),
        ] {
            assert!(chunk(&markdown).len() > 3);
            assert_is_whole(&markdown);
        }
    }

    #[test]
    fn a_sentence_ends_a_chunk_if_one_can() {
        let markdown = "This is a sentence of some length. ".repeat(100);

        assert!(chunk(&markdown).iter().all(|chunk| chunk.content.ends_with('.')));
    }

    #[test]
    fn nothing_makes_no_chunk() {
        for markdown in ["", "\n\n\n", "  \n\t\n"] {
            assert_eq!(chunk(markdown), []);
        }
    }

    #[test]
    fn an_open_fence_ends_with_the_text() {
        assert_is_whole(&format!("text\n\n```\n{}", "# not a heading\n\n".repeat(300)));
    }
}
