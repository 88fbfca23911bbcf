//! What was found in a chunk, whoever found it; as it is kept in `artifacts`.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extraction {
    pub entities: Vec<FoundEntity>,
    pub relations: Vec<FoundRelation>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundEntity {
    /// As it stands in the text.
    pub name: String,
    /// Of `builtin`: `name`, `identifier` or `term`; of a model: as it says.
    pub kind: String,
    pub mentions: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Two entities, by their place in `entities`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRelation {
    pub source: usize,
    pub target: usize,
    pub mentions: u32,
    /// `None`: they stand in one sentence, the lower one first, and that is all that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl Extraction {
    /// Adds what was found in another part of the same chunk.
    pub fn append(&mut self, other: Self) {
        let first = self.entities.len();
        let Self { entities, relations } = other;
        self.entities.extend(entities);
        self.relations.extend(relations.into_iter().map(|relation| FoundRelation {
            source: relation.source + first,
            target: relation.target + first,
            ..relation
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_chunk_keep_their_relations() {
        let found = |name: &str| Extraction {
            entities: vec![FoundEntity { name: name.to_owned(), ..FoundEntity::default() }; 2],
            relations: vec![FoundRelation { source: 0, target: 1, ..FoundRelation::default() }],
        };
        let mut both = found("a");
        both.append(found("b"));

        assert_eq!(both.entities.len(), 4);
        let ends: Vec<_> = both.relations.iter().map(|relation| (relation.source, relation.target)).collect();
        assert_eq!(ends, [(0, 1), (2, 3)]);
    }

    #[test]
    fn what_older_versions_kept_is_still_read() {
        let kept = r#"{"entities":[{"name":"Bern","kind":"name","mentions":2}],"relations":[{"source":0,"target":0,"mentions":1}]}"#;
        let extraction: Extraction = serde_json::from_str(kept).unwrap();
        assert_eq!(serde_json::to_string(&extraction).unwrap(), kept);
    }
}
