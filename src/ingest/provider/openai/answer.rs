//! A model's answer as an extraction: storable, bounded, and with relations only between what it names.

use std::collections::HashMap;

use serde_json::Value;

use super::prompt::{ENTITIES_MAX, RELATIONS_MAX};
use super::repair;
use crate::ingest::graph::name_key;
use crate::ingest::provider::{Extraction, FoundEntity, FoundRelation};
use crate::ingest::text;

const NAME_MAX_CHARS: usize = 200;
const KIND_MAX_CHARS: usize = 64;
const DESCRIPTION_MAX_CHARS: usize = 1_000;
/// Of an entity that the model calls nothing, or that only a relation names.
const KIND: &str = "term";
const RELATION_KIND: &str = "related_to";

/// `None`: there is no such object in the answer.
pub fn extraction(answer: &str, chunk: &str) -> Option<Extraction> {
    let object = repair::find_object(answer, |object| object.get("entities").is_some_and(Value::is_array))?;
    let mut found = Found { chunk: chunk.to_lowercase(), by_key: HashMap::new(), extraction: Extraction::default() };
    let items = |field: &str| object.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for item in items("entities") {
        let kind = words(item, &["kind", "type"], KIND_MAX_CHARS).map(|kind| kind.to_lowercase());
        if let Some(name) = words(item, &["name"], NAME_MAX_CHARS) {
            found.entity(name, kind, words(item, &["description"], DESCRIPTION_MAX_CHARS));
        }
    }
    for item in items("relations") {
        let ends = ["source", "target"].map(|end| words(item, &[end], NAME_MAX_CHARS));
        let [Some(source), Some(target)] = ends else { continue };
        let kind = words(item, &["kind", "type"], KIND_MAX_CHARS);
        found.relation(source, target, kind, words(item, &["description"], DESCRIPTION_MAX_CHARS));
    }
    Some(found.extraction)
}

struct Found {
    /// In lower case.
    chunk: String,
    by_key: HashMap<String, usize>,
    extraction: Extraction,
}

impl Found {
    /// Where the entity is; `None` if there are too many.
    fn entity(&mut self, name: String, kind: Option<String>, description: Option<String>) -> Option<usize> {
        let key = name_key(&name);
        if let Some(known) = self.by_key.get(&key) {
            return Some(*known);
        }
        let entities = &mut self.extraction.entities;
        if entities.len() >= ENTITIES_MAX {
            return None;
        }
        let mentions = u32::try_from(self.chunk.matches(&key).count()).unwrap_or(u32::MAX).max(1);
        let kind = kind.unwrap_or_else(|| KIND.to_owned());
        entities.push(FoundEntity { name, kind, mentions, description });
        self.by_key.insert(key, entities.len() - 1);
        Some(entities.len() - 1)
    }

    fn relation(&mut self, source: String, target: String, kind: Option<String>, description: Option<String>) {
        if self.extraction.relations.len() >= RELATIONS_MAX {
            return;
        }
        let (Some(source), Some(target)) = (self.entity(source, None, None), self.entity(target, None, None)) else {
            return;
        };
        if source != target {
            let kind = kind.map(|kind| name_key(&kind).replace([' ', '-'], "_"));
            let kind = Some(kind.unwrap_or_else(|| RELATION_KIND.to_owned()));
            self.extraction.relations.push(FoundRelation { source, target, mentions: 1, kind, description });
        }
    }
}

/// The first of the fields that says something, on one line.
fn words(item: &Value, fields: &[&str], max_chars: usize) -> Option<String> {
    let said = fields.iter().find_map(|field| item.get(field).and_then(Value::as_str))?;
    let cleaned = text::clean(said);
    let line = cleaned.split_whitespace().collect::<Vec<_>>().join(" ");
    text::has_content(&line).then(|| text::cut(&line, max_chars).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CHUNK: &str = "Ada Lovelace wrote to Babbage. ADA LOVELACE was in London.";

    fn found(answer: &Value) -> Extraction {
        extraction(&answer.to_string(), CHUNK).expect("an extraction")
    }

    #[test]
    fn what_a_model_names_is_found_and_related() {
        let answer = json!({
            "entities": [
                { "name": "Ada Lovelace", "kind": "Person", "description": "wrote letters" },
                { "name": "London", "type": "place" },
                { "name": "ada  lovelace", "kind": "somebody else" },
            ],
            "relations": [
                { "source": "ADA LOVELACE", "target": "Babbage", "kind": "Wrote To", "description": "letters" },
                { "source": "Ada Lovelace", "target": "ada lovelace", "kind": "is" },
                { "source": "London", "target": "Ada Lovelace" },
            ],
        });
        let Extraction { entities, relations } = found(&answer);

        let names: Vec<_> = entities.iter().map(|e| (e.name.as_str(), e.kind.as_str(), e.mentions)).collect();
        assert_eq!(names, [("Ada Lovelace", "person", 2), ("London", "place", 1), ("Babbage", "term", 1)]);
        assert_eq!(entities[0].description.as_deref(), Some("wrote letters"));
        let kinds: Vec<_> = relations.iter().map(|r| (r.source, r.target, r.kind.as_deref())).collect();
        assert_eq!(kinds, [(0, 2, Some("wrote_to")), (1, 0, Some("related_to"))]);
    }

    #[test]
    fn nothing_that_postgres_refuses_is_left() {
        let answer = json!({ "entities": [
            { "name": "Nul\u{0}ler \u{7}", "kind": "a\u{0}b", "description": "one\u{0}\ntwo" },
            { "name": "\u{0}" }, { "name": 7 }, {}, "text", null, { "name": " - " },
        ]});
        let Extraction { entities, .. } = found(&answer);
        let expected = FoundEntity {
            name: "Nuller".to_owned(),
            kind: "ab".to_owned(),
            mentions: 1,
            description: Some("one two".to_owned()),
        };
        assert_eq!(entities, [expected]);
    }

    #[test]
    fn floods_stay_in_their_bounds() {
        let long = "ä".repeat(10_000);
        let entities: Vec<_> =
            (0..500).map(|n| json!({ "name": format!("{n}{long}"), "kind": long, "description": long })).collect();
        let relations: Vec<_> =
            (0..500).map(|n| json!({ "source": format!("{}{long}", n % 7), "target": "1" })).collect();
        let Extraction { entities, relations } = found(&json!({ "entities": entities, "relations": relations }));

        assert_eq!(entities.len(), ENTITIES_MAX);
        assert!(relations.len() <= RELATIONS_MAX);
        let first = &entities[0];
        let chars = [&first.name, &first.kind, first.description.as_ref().unwrap()].map(|text| text.chars().count());
        assert_eq!(chars, [NAME_MAX_CHARS, KIND_MAX_CHARS, DESCRIPTION_MAX_CHARS]);
    }

    #[test]
    fn an_answer_without_lists_is_none() {
        for answer in
            ["I see nothing.", "{}", r#"{"relations": []}"#, r#"{"entities": "none"}"#, r#"{"entities": [{"na"#]
        {
            assert_eq!(extraction(answer, CHUNK), None, "{answer}");
        }
        assert_eq!(extraction(r#"{"entities": []}"#, CHUNK), Some(Extraction::default()));
    }
}
