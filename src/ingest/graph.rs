//! Who is who in the graph of a workspace: ids that tenant, workspace and name make, and nothing else.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use super::provider::Extraction;
use crate::store::ingest::Place;
use crate::store::ingest::publish::{EntityRow, ProvenanceRow, RelationRow};

/// Of two things that stand in one sentence.
const TOGETHER: &str = "co_occurs";

/// What a generation adds to the graph, each entity and relation once.
#[derive(Debug, Default)]
pub struct Graph {
    entities: HashMap<Uuid, EntityRow>,
    relations: HashMap<Uuid, RelationRow>,
}

impl Graph {
    /// Answers where the chunk's entities and relations were found.
    pub fn add(&mut self, place: &Place, ordinal: i32, extraction: &Extraction) -> Vec<ProvenanceRow> {
        // Two spellings of one name are one entity, and the pair of them is no relation.
        let mut mentions: HashMap<Uuid, i32> = HashMap::new();
        let mut ids = Vec::with_capacity(extraction.entities.len());
        for found in &extraction.entities {
            let id = self.add_entity(place, &found.name, &found.kind, None);
            self.describe_entity(id, found.description.as_deref());
            *mentions.entry(id).or_default() += count(found.mentions);
            ids.push(id);
        }
        for found in &extraction.relations {
            let (Some(first), Some(second)) = (ids.get(found.source), ids.get(found.target)) else { continue };
            if first == second {
                continue;
            }
            let id = match &found.kind {
                Some(kind) => self.add_relation(place, *first, *second, kind, None),
                // It has no direction.
                None => self.add_relation(place, *first.min(second), *first.max(second), TOGETHER, None),
            };
            self.describe_relation(id, found.description.as_deref());
            *mentions.entry(id).or_default() += count(found.mentions);
        }
        let mut rows: Vec<_> =
            mentions.into_iter().map(|(item_id, mentions)| ProvenanceRow { item_id, ordinal, mentions }).collect();
        rows.sort_by_key(|row| row.item_id);
        rows
    }

    /// The first spelling of a name and the last description hold.
    pub fn add_entity(&mut self, place: &Place, name: &str, kind: &str, description: Option<&str>) -> Uuid {
        let name_key = name_key(name);
        let entity_id = entity_id(place, &name_key);
        let row = self.entities.entry(entity_id).or_insert_with(|| EntityRow {
            entity_id,
            name: name.to_owned(),
            name_key,
            kind: kind.to_owned(),
            description: None,
        });
        if let Some(description) = description {
            row.description = Some(description.to_owned());
            row.kind = kind.to_owned();
        }
        entity_id
    }

    pub fn add_relation(
        &mut self,
        place: &Place,
        source_id: Uuid,
        target_id: Uuid,
        kind: &str,
        description: Option<&str>,
    ) -> Uuid {
        let relation_id = hashed(place, &["relation", &source_id.to_string(), &target_id.to_string(), kind]);
        let row = self.relations.entry(relation_id).or_insert_with(|| RelationRow {
            relation_id,
            source_id,
            target_id,
            kind: kind.to_owned(),
            description: None,
        });
        if let Some(description) = description {
            row.description = Some(description.to_owned());
        }
        relation_id
    }

    /// Of what was found, the first description holds.
    fn describe_entity(&mut self, id: Uuid, description: Option<&str>) {
        if let Some(row) = self.entities.get_mut(&id).filter(|row| row.description.is_none()) {
            row.description = description.map(str::to_owned);
        }
    }

    fn describe_relation(&mut self, id: Uuid, description: Option<&str>) {
        if let Some(row) = self.relations.get_mut(&id).filter(|row| row.description.is_none()) {
            row.description = description.map(str::to_owned);
        }
    }

    pub fn into_rows(self) -> (Vec<EntityRow>, Vec<RelationRow>) {
        (self.entities.into_values().collect(), self.relations.into_values().collect())
    }
}

/// What makes two spellings one name: lower case, with single spaces.
pub fn name_key(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

pub fn entity_id(place: &Place, name_key: &str) -> Uuid {
    hashed(place, &["entity", name_key])
}

pub fn hashed(place: &Place, parts: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    for part in [place.tenant.as_str(), place.workspace.as_str()].iter().chain(parts) {
        // With its length, so that no two lists of parts run together.
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

fn count(mentions: u32) -> i32 {
    i32::try_from(mentions).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::provider::{FoundEntity, FoundRelation};
    use super::*;

    fn place(tenant: &str, workspace: &str) -> Place {
        Place { tenant: tenant.to_owned(), workspace: workspace.to_owned() }
    }

    fn found(name: &str, mentions: u32) -> FoundEntity {
        FoundEntity { name: name.to_owned(), kind: "name".to_owned(), mentions, description: None }
    }

    fn together(source: usize, target: usize, mentions: u32) -> FoundRelation {
        FoundRelation { source, target, mentions, ..FoundRelation::default() }
    }

    #[test]
    fn no_two_places_share_an_id() {
        let ids = [
            entity_id(&place("a", "b"), "paris"),
            entity_id(&place("a", ""), "paris"),
            entity_id(&place("ab", ""), "paris"),
            entity_id(&place("", "ab"), "paris"),
            entity_id(&place("a", "bparis"), ""),
            entity_id(&place("b", "a"), "paris"),
        ];
        for (position, id) in ids.iter().enumerate() {
            assert!(!ids[position + 1..].contains(id), "{position}");
        }
        assert_eq!(ids[0], entity_id(&place("a", "b"), "paris"));
    }

    #[test]
    fn spellings_of_a_name_are_one_entity_that_relates_not_to_itself() {
        let extraction = Extraction {
            entities: vec![found("New  York", 2), found("new york", 1), found("Boston", 1)],
            relations: vec![together(0, 1, 1), together(0, 2, 1), together(2, 1, 4), together(0, 99, 1)],
        };
        let mut graph = Graph::default();

        let provenance = graph.add(&place("t", "w"), 7, &extraction);
        let (entities, relations) = graph.into_rows();

        assert_eq!((entities.len(), relations.len(), provenance.len()), (2, 1, 3));
        let mut mentions: Vec<_> = provenance.iter().map(|row| row.mentions).collect();
        mentions.sort_unstable();
        assert_eq!(mentions, [1, 3, 5]);
        assert!(provenance.iter().all(|row| row.ordinal == 7));
    }

    #[test]
    fn a_relation_of_a_kind_has_a_direction_and_the_first_description() {
        let works_for = |source, target, description: &str| FoundRelation {
            kind: Some("works_for".to_owned()),
            description: Some(description.to_owned()),
            ..together(source, target, 1)
        };
        let described =
            |name: &str, description: &str| FoundEntity { description: Some(description.to_owned()), ..found(name, 1) };
        let extraction = Extraction {
            entities: vec![found("Ada", 1), described("ada", "first"), described("Ada", "second"), found("Acme", 1)],
            relations: vec![works_for(0, 3, "one"), works_for(1, 3, "two"), works_for(3, 0, "back")],
        };
        let mut graph = Graph::default();
        graph.add(&place("t", ""), 0, &extraction);
        let (entities, relations) = graph.into_rows();

        let described: Vec<_> = entities.iter().filter_map(|row| row.description.as_deref()).collect();
        assert_eq!((entities.len(), described), (2, vec!["first"]));
        let mut said: Vec<_> = relations.iter().filter_map(|row| row.description.as_deref()).collect();
        said.sort_unstable();
        assert_eq!(said, ["back", "one"]);
    }

    #[test]
    fn a_given_description_holds_over_what_was_found() {
        let mut graph = Graph::default();
        graph.add_entity(&place("t", ""), "Acme", "name", None);
        graph.add_entity(&place("t", ""), "ACME", "company", Some("makes everything"));
        graph.add_entity(&place("t", ""), "acme", "term", None);

        let (entities, _) = graph.into_rows();

        assert_eq!(entities.len(), 1);
        assert_eq!((entities[0].name.as_str(), entities[0].kind.as_str()), ("Acme", "company"));
    }
}
