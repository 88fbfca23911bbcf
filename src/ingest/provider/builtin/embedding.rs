//! Vectors by feature hashing: words, pairs of words and parts of words, counted sublinearly, hashed into a fixed number of
//! dimensions with a sign each, and brought to length 1.

use std::collections::BTreeMap;

use super::stop_words::is_stop_word;
use super::words::{is_ideograph, prose, words};

/// Changed rules get a new number.
pub const EMBEDDER: &str = "builtin-hash-256-1";
pub const DIMENSIONS: u32 = 256;

const WORD_WEIGHT: f32 = 1.0;
/// Order matters a little.
const PAIR_WEIGHT: f32 = 0.4;
/// So that `convert` is near `converter`; spread over the parts of a word.
const PARTS_WEIGHT: f32 = 0.6;
const PART_CHARS: usize = 4;

/// Of length 1; of length 0 for a text without words.
pub fn embed(text: &str) -> Vec<f32> {
    let mut features: BTreeMap<u64, Feature> = BTreeMap::new();
    let mut before: Option<String> = None;
    for word in words(&prose(text)) {
        let word = word.to_lowercase();
        if is_stop_word(&word) {
            continue;
        }
        count(&mut features, "w", &word, WORD_WEIGHT);
        if let Some(before) = &before {
            count(&mut features, "p", &format!("{before} {word}"), PAIR_WEIGHT);
        }
        count_parts(&mut features, &word);
        before = Some(word);
    }
    let mut vector = vec![0.0_f32; DIMENSIONS as usize];
    for (hash, Feature { mentions, weight }) in features {
        let index = usize::try_from(hash % u64::from(DIMENSIONS)).unwrap_or(0);
        let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
        vector[index] += sign * weight * (1.0 + mentions.ln());
    }
    normalise(&mut vector);
    vector
}

struct Feature {
    mentions: f32,
    weight: f32,
}

fn count(features: &mut BTreeMap<u64, Feature>, space: &str, feature: &str, weight: f32) {
    let feature = features.entry(hash(space, feature)).or_insert(Feature { mentions: 0.0, weight });
    feature.mentions += 1.0;
}

fn count_parts(features: &mut BTreeMap<u64, Feature>, word: &str) {
    let characters: Vec<char> = word.chars().collect();
    if characters.len() <= PART_CHARS || characters.iter().copied().any(is_ideograph) {
        return;
    }
    let parts = characters.len() - PART_CHARS + 1;
    // A word has at most 64 characters.
    let weight = PARTS_WEIGHT / f32::from(u16::try_from(parts).unwrap_or(u16::MAX)).sqrt();
    for part in characters.windows(PART_CHARS) {
        count(features, "c", &part.iter().collect::<String>(), weight);
    }
}

/// FNV-1a, stirred at the end so that its low and its high bits are good. Stays as it is: stored vectors were made with it.
fn hash(space: &str, feature: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in space.bytes().chain([0]).chain(feature.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|number| *number /= length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearness(first: &str, second: &str) -> f32 {
        embed(first).iter().zip(embed(second)).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn vectors_have_length_one() {
        for text in ["single", "The converter reads a PDF and writes markdown.", "日本語の文", &"word ".repeat(10_000)]
        {
            let vector = embed(text);
            let length = vector.iter().map(|number| number * number).sum::<f32>();
            assert_eq!(vector.len(), DIMENSIONS as usize);
            assert!((length - 1.0).abs() < 1e-4, "{text}: {length}");
        }
        assert!(embed("the of and").iter().all(|number| *number == 0.0));
        assert!(embed("").iter().all(|number| *number == 0.0));
    }

    #[test]
    fn texts_on_one_thing_are_nearer_than_others() {
        let rows = [
            (
                "The worker claims a task and renews its lease while the handler runs.",
                "A lease is renewed by the worker as long as its task is running.",
                "Bake the bread with flour, water and salt for forty minutes.",
            ),
            (
                "Der Konverter liest das Dokument und schreibt Text.",
                "Dokumente werden vom Konverter gelesen.",
                "Die Sonne scheint heute über den Bergen.",
            ),
            ("converting documents", "document converter", "sunny mountains"),
        ];
        for (text, near, far) in rows {
            assert!(
                nearness(text, near) > nearness(text, far) + 0.15,
                "{text}: {} {}",
                nearness(text, near),
                nearness(text, far)
            );
        }
    }

    #[test]
    fn case_and_marks_do_not_matter() {
        assert!((nearness("Claim the TASK!", "claim task") - 1.0).abs() < 1e-4);
    }

    #[test]
    fn hashes_never_change() {
        assert_eq!(hash("w", ""), 0xc077_bac4_2259_5a0f);
    }
}
