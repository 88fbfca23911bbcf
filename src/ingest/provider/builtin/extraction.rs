//! Entities and relations of a chunk: names, identifiers and repeated phrases, and which of them share a sentence.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::stop_words::is_stop_word;
use super::words::{clauses, is_ideograph, prose, sentences, words};
use crate::ingest::provider::{Extraction, FoundEntity, FoundRelation};
use crate::ingest::text;

/// Changed rules get a new number, so that artifacts of the old ones are not taken for theirs.
pub const EXTRACTOR: &str = "builtin-phrases-1";

/// A chunk says something about few things; the graph of a workspace grows with each.
const ENTITIES_MAX: usize = 12;
const RELATIONS_MAX: usize = 16;
const NAME_MAX_WORDS: usize = 5;
const NAME_MAX_CHARS: usize = 120;
/// Between two words of a name, as in `University of Bern`.
const CONNECTORS: [&str; 8] = ["of", "de", "du", "del", "von", "van", "der", "la"];
const TERM_MAX_WORDS: usize = 3;
/// A single word must be longer and more frequent than a phrase to be a term.
const TERM_WORD_MIN_CHARS: usize = 5;
const TERM_WORD_MIN_MENTIONS: u32 = 3;
const TERM_PHRASE_MIN_MENTIONS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Identifier,
    Term,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Identifier => "identifier",
            Self::Term => "term",
        }
    }

    const fn weight(self) -> u32 {
        match self {
            Self::Name => 4,
            Self::Identifier => 3,
            Self::Term => 2,
        }
    }
}

struct Candidate {
    name: String,
    kind: Kind,
    words: u32,
    /// The sentence of each mention.
    sentences: Vec<usize>,
}

pub fn extract(chunk: &str) -> Extraction {
    let prose = prose(chunk);
    let clauses: Vec<Clause<'_>> = sentences(&prose).into_iter().enumerate().flat_map(clauses_of).collect();
    let inside = Inside::of(&clauses);
    let mut candidates = Candidates::default();
    for clause in &clauses {
        candidates.read(clause, &inside);
    }
    candidates.choose()
}

/// Words that a name may run through.
struct Clause<'a> {
    sentence: usize,
    begins_sentence: bool,
    words: Vec<&'a str>,
}

fn clauses_of((sentence, text): (usize, &str)) -> impl Iterator<Item = Clause<'_>> {
    let clauses = clauses(text).into_iter().map(words).filter(|words| !words.is_empty());
    clauses.enumerate().map(move |(number, words)| Clause { sentence, begins_sentence: number == 0, words })
}

/// What is capitalised where no sentence begins, and so is a name wherever it stands.
#[derive(Default)]
struct Inside<'a> {
    words: HashSet<&'a str>,
    /// Those that a name begins with.
    first_words: HashSet<&'a str>,
}

impl<'a> Inside<'a> {
    fn of(clauses: &[Clause<'a>]) -> Self {
        let mut inside = Self::default();
        for Clause { words, .. } in clauses.iter().filter(|clause| !clause.begins_sentence) {
            inside.words.extend(words.first().filter(|word| is_capitalised(word)));
            inside.first_words.extend(words.first().filter(|word| is_name_word(word)));
        }
        for pair in clauses.iter().flat_map(|clause| clause.words.windows(2)) {
            if is_capitalised(pair[1]) {
                inside.words.insert(pair[1]);
            }
            if is_name_word(pair[1]) && !is_name_word(pair[0]) {
                inside.first_words.insert(pair[1]);
            }
        }
        inside
    }
}

#[derive(Default)]
struct Candidates {
    by_key: HashMap<String, usize>,
    found: Vec<Candidate>,
}

impl Candidates {
    fn read(&mut self, clause: &Clause<'_>, inside: &Inside<'_>) {
        let Clause { sentence: number, begins_sentence, words: sentence } = clause;
        let (number, mut at) = (*number, 0);
        let mut plain: Vec<&str> = Vec::new();
        while at < sentence.len() {
            let name = name_length(&sentence[at..], at == 0 && *begins_sentence, inside);
            if name > 0 {
                self.read_terms(number, &plain);
                plain.clear();
                self.add(number, &sentence[at..at + name], Kind::Name);
                at += name;
                continue;
            }
            let word = sentence[at];
            if is_identifier(word) {
                self.add(number, &[word], Kind::Identifier);
            }
            if is_term_word(word) && !is_identifier(word) {
                plain.push(word);
            } else {
                self.read_terms(number, &plain);
                plain.clear();
            }
            at += 1;
        }
        self.read_terms(number, &plain);
    }

    /// A run of plain words: its phrases, and its longer words.
    fn read_terms(&mut self, number: usize, run: &[&str]) {
        for phrase in (2..=TERM_MAX_WORDS).flat_map(|length| run.windows(length)) {
            self.add(number, phrase, Kind::Term);
        }
        for word in run.iter().filter(|word| word.chars().count() >= TERM_WORD_MIN_CHARS) {
            self.add(number, &[word], Kind::Term);
        }
    }

    fn add(&mut self, number: usize, words: &[&str], kind: Kind) {
        let name = words.join(" ");
        let name = name.trim_end_matches("'s").trim_end_matches("’s");
        let name = text::cut(name, NAME_MAX_CHARS);
        let next = self.found.len();
        let index = *self.by_key.entry(name.to_lowercase()).or_insert(next);
        if index == next {
            let words = u32::try_from(words.len()).unwrap_or(u32::MAX);
            self.found.push(Candidate { name: name.to_owned(), kind, words, sentences: Vec::new() });
        }
        self.found[index].sentences.push(number);
    }

    fn choose(self) -> Extraction {
        let mut chosen: Vec<_> =
            self.found.into_iter().enumerate().filter(|(_, candidate)| is_kept(candidate)).collect();
        let covered = covered_terms(&chosen);
        chosen.retain(|(position, _)| !covered.contains(position));
        // The more telling first; of equal ones, the earlier.
        chosen.sort_by_key(|(position, candidate)| (std::cmp::Reverse(score(candidate)), *position));
        chosen.truncate(ENTITIES_MAX);
        chosen.sort_by_key(|(position, _)| *position);
        let chosen: Vec<Candidate> = chosen.into_iter().map(|(_, candidate)| candidate).collect();
        let relations = relations(&chosen);
        let entity = |candidate: Candidate| FoundEntity {
            mentions: mentions(&candidate),
            name: candidate.name,
            kind: candidate.kind.as_str().to_owned(),
            description: None,
        };
        Extraction { entities: chosen.into_iter().map(entity).collect(), relations }
    }
}

/// Terms that stand only inside of longer ones: those say it better. Answers their positions.
fn covered_terms(candidates: &[(usize, Candidate)]) -> HashSet<usize> {
    let is_term = |candidate: &Candidate| candidate.kind == Kind::Term;
    let padded = |candidate: &Candidate| format!(" {} ", candidate.name.to_lowercase());
    let phrases: Vec<_> = candidates
        .iter()
        .filter(|(_, candidate)| is_term(candidate) && candidate.words > 1)
        .map(|(_, candidate)| (padded(candidate), mentions(candidate)))
        .collect();
    let is_inside = |candidate: &Candidate| {
        let name = padded(candidate);
        phrases
            .iter()
            .any(|(phrase, count)| phrase.len() > name.len() && *count >= mentions(candidate) && phrase.contains(&name))
    };
    candidates
        .iter()
        .filter(|(_, candidate)| is_term(candidate) && is_inside(candidate))
        .map(|(position, _)| *position)
        .collect()
}

fn relations(entities: &[Candidate]) -> Vec<FoundRelation> {
    let mut by_sentence: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, entity) in entities.iter().enumerate() {
        let in_sentences: HashSet<usize> = entity.sentences.iter().copied().collect();
        for sentence in in_sentences {
            by_sentence.entry(sentence).or_default().push(index);
        }
    }
    let mut pairs: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for together in by_sentence.values() {
        for (position, first) in together.iter().enumerate() {
            for second in &together[position + 1..] {
                *pairs.entry((*first, *second)).or_default() += 1;
            }
        }
    }
    let mut relations: Vec<_> =
        pairs.into_iter().map(|((source, target), mentions)| together(source, target, mentions)).collect();
    relations.sort_by_key(|relation| std::cmp::Reverse(relation.mentions));
    relations.truncate(RELATIONS_MAX);
    relations
}

fn together(source: usize, target: usize, mentions: u32) -> FoundRelation {
    FoundRelation { source, target, mentions, kind: None, description: None }
}

fn is_kept(candidate: &Candidate) -> bool {
    match candidate.kind {
        Kind::Name | Kind::Identifier => true,
        Kind::Term if candidate.words == 1 => mentions(candidate) >= TERM_WORD_MIN_MENTIONS,
        Kind::Term => mentions(candidate) >= TERM_PHRASE_MIN_MENTIONS,
    }
}

fn mentions(candidate: &Candidate) -> u32 {
    u32::try_from(candidate.sentences.len()).unwrap_or(u32::MAX)
}

fn score(candidate: &Candidate) -> u32 {
    mentions(candidate).saturating_mul(candidate.kind.weight()).saturating_mul(1 + candidate.words)
}

/// How many of the words are a name that begins here. A single word that begins a sentence is one only if it is seen
/// capitalised elsewhere, or has the form of an acronym.
fn name_length(sentence: &[&str], begins_sentence: bool, inside: &Inside<'_>) -> usize {
    let mut length = 0;
    while length < sentence.len().min(NAME_MAX_WORDS) {
        let is_connector = length > 0
            && CONNECTORS.contains(&sentence[length])
            && sentence.get(length + 1).is_some_and(|next| is_name_word(next))
            && length + 1 < NAME_MAX_WORDS;
        if !is_connector && !is_name_word(sentence[length]) {
            break;
        }
        length += 1;
    }
    let is_doubtful = begins_sentence && length > 0 && !inside.words.contains(sentence[0]) && !is_acronym(sentence[0]);
    // As in `Later Ada came`, where `Ada` is a name by itself.
    let is_before_name = length > 1 && inside.first_words.contains(sentence[1]);
    if is_doubtful && (length == 1 || is_before_name) { 0 } else { length }
}

fn is_name_word(word: &str) -> bool {
    is_capitalised(word) && word.chars().count() >= 2 && !is_identifier(word) && !is_stop_word(&word.to_lowercase())
}

fn is_capitalised(word: &str) -> bool {
    word.chars().next().is_some_and(char::is_uppercase)
}

fn is_acronym(word: &str) -> bool {
    let letters = word.chars().filter(|character| character.is_alphabetic());
    word.chars().count() >= 2 && letters.clone().count() >= 2 && letters.clone().all(char::is_uppercase)
}

/// What programs call things: `snake_case`, `camelCase`, `v2`.
fn is_identifier(word: &str) -> bool {
    let mut characters = word.chars();
    let starts_small = characters.next().is_some_and(char::is_lowercase);
    let has_hump = starts_small && word.chars().any(char::is_uppercase);
    let is_numbered = starts_small && word.chars().any(|character| character.is_ascii_digit());
    let is_snake = word.contains('_') && word.chars().any(char::is_alphabetic);
    has_hump || is_numbered || is_snake
}

fn is_term_word(word: &str) -> bool {
    word.chars().count() >= 3
        && word.chars().all(|character| character.is_alphabetic() || matches!(character, '-' | '\'' | '’'))
        && !word.chars().any(is_ideograph)
        && !is_stop_word(&word.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, String, u32)> {
        extract(text).entities.into_iter().map(|entity| (entity.name, entity.kind, entity.mentions)).collect()
    }

    fn entity(name: &str, kind: &str, mentions: u32) -> (String, String, u32) {
        (name.to_owned(), kind.to_owned(), mentions)
    }

    #[test]
    fn names_are_found_inside_sentences_and_at_their_start_if_seen_elsewhere() {
        let found = names("Marie Curie moved to Paris. There the University of Paris hired her. Paris was large.");

        assert_eq!(
            found,
            [entity("Marie Curie", "name", 1), entity("Paris", "name", 2), entity("University of Paris", "name", 1)]
        );
    }

    #[test]
    fn a_word_that_only_begins_a_sentence_is_no_name() {
        assert_eq!(names("Workers claim tasks. Nobody waits."), []);
    }

    #[test]
    fn no_name_crosses_a_comma() {
        assert_eq!(
            names("In Lisbon, Ada Lovelace left."),
            [entity("Lisbon", "name", 1), entity("Ada Lovelace", "name", 1)]
        );
    }

    #[test]
    fn acronyms_and_identifiers_are_found_anywhere() {
        let found = names("NATO met. Set max_running or leaseSecs, says the API of v2.");

        assert_eq!(
            found,
            [
                entity("NATO", "name", 1),
                entity("max_running", "identifier", 1),
                entity("leaseSecs", "identifier", 1),
                entity("API", "name", 1),
                entity("v2", "identifier", 1),
            ]
        );
    }

    #[test]
    fn phrases_count_when_they_come_again() {
        let found = names("the solar panel is cheap. a solar panel lasts. this wind turbine is big.");

        assert_eq!(found, [entity("solar panel", "term", 2)]);
    }

    #[test]
    fn relations_join_what_shares_a_sentence() {
        let found = extract(
            "Then Ada Lovelace wrote to Charles Babbage. Later Ada Lovelace met Charles Babbage. So Byron left.",
        );

        assert_eq!(found.relations, [together(0, 1, 2)]);
        assert_eq!(found.entities.len(), 3);
    }

    #[test]
    fn a_possessive_is_the_same_name() {
        assert_eq!(names("It is Postgres's way. We like Postgres."), [entity("Postgres", "name", 2)]);
    }

    #[test]
    fn floods_stay_in_their_bounds() {
        let flood: String = (0..2_000).map(|number| format!("x Name{number} y Other{number}b ")).collect();
        let found = extract(&flood);

        assert_eq!(found.entities.len(), ENTITIES_MAX);
        assert!(found.relations.len() <= RELATIONS_MAX);
        assert!(extract(&"A".repeat(100_000)).entities.is_empty());
        assert_eq!(extract(""), Extraction::default());
    }

    #[test]
    fn the_same_text_gives_the_same_answer() {
        let text =
            "Paris and Rome signed. In Rome, Paris spoke. The treaty text names treaty text and Berlin.".repeat(20);

        assert_eq!(extract(&text), extract(&text));
    }
}
