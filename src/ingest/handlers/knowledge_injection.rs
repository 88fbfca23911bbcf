//! KnowledgeInjection: adds given facts to the graph of a workspace, as a document of their own without a text.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::place;
use crate::domain::failure::FailureClass;
use crate::ingest::graph::Graph;
use crate::ingest::source::{SourcePayload, Sources};
use crate::ingest::{publish, text};
use crate::store::ingest::Place;
use crate::store::ingest::publish::{self as store, GIVEN, Origin, ProvenanceRow, ROWS_MAX, Target, VersionRow};
use crate::worker::{Context, Done, Handled, Handler, NotDone};

/// Of entities and of relations in one task; a payload has at most 1 MiB.
const FACTS_MAX: usize = 10_000;
const NAME_MAX_CHARS: usize = 200;
const KIND_MAX_CHARS: usize = 64;
const DESCRIPTION_MAX_CHARS: usize = 4_000;

pub struct KnowledgeInjection {
    pub sources: Sources,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    title: Option<String>,
    #[serde(default)]
    entities: Vec<GivenEntity>,
    #[serde(default)]
    relations: Vec<GivenRelation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenEntity {
    name: String,
    kind: Option<String>,
    description: Option<String>,
}

/// Its ends are entities of the same task, or of what is there already, by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GivenRelation {
    source: String,
    target: String,
    kind: String,
    description: Option<String>,
}

impl KnowledgeInjection {
    /// The payload itself, or what a text or a file says in YAML, of which JSON is a part.
    async fn facts(&self, context: &Context) -> Result<Facts, NotDone> {
        let is_source = ["text", "url"].iter().any(|field| context.task.payload.get(field).is_some());
        if !is_source {
            return context.payload();
        }
        let payload: SourcePayload = context.payload()?;
        let given = payload.given_text(context, &self.sources).await?;
        let markdown = given.map(|given| given.markdown).unwrap_or_default();
        let facts: Facts = serde_saphyr::from_str(&markdown)
            .map_err(|error| invalid(&format!("the facts are no YAML of entities and relations: {error}")))?;
        Ok(Facts { title: payload.title.or(facts.title), ..facts })
    }
}

impl Handler for KnowledgeInjection {
    async fn handle(&self, context: Context) -> Handled {
        let facts = self.facts(&context).await?;
        let place = place(&context);
        let (graph, provenance) = graph_of(&place, &facts).map_err(|message| invalid(&message))?;
        // Facts without a document are the task's own, so that another attempt of it replaces them.
        let document_id = context.task.document_id.unwrap_or(context.task.attempt.track_id);
        context.check()?;
        context.reporter().stage("storing");
        let mut transaction = context.begin().await?;
        let version_id = store::new_version(&mut transaction).await?;
        let target = Target { place, document_id, version_id };
        for rows in provenance.chunks(ROWS_MAX) {
            store::insert_provenance(&mut transaction, version_id, rows).await?;
        }
        publish::lock_graph(&context, &mut transaction, &target.place).await?;
        let (entities, relations) = publish::write_graph(&mut transaction, &target, graph, Origin::Given).await?;
        let title = facts.title.as_deref().map(text::clean);
        let version = VersionRow { title: title.as_deref(), ..VersionRow::default() };
        store::insert_version(&mut transaction, &target, context.task.attempt, version).await?;
        context.check()?;
        let result = json!({ "document_id": document_id, "entities": entities, "relations": relations });
        Ok(Done::new().with_result(result).publish(transaction))
    }
}

fn invalid(message: &str) -> NotDone {
    NotDone::failed(FailureClass::InvalidDocument, message)
}

/// Or what is wrong with the facts, and where.
fn graph_of(place: &Place, facts: &Facts) -> Result<(Graph, Vec<ProvenanceRow>), String> {
    if facts.entities.is_empty() && facts.relations.is_empty() {
        return Err("there are no facts: set entities, relations or both".to_owned());
    }
    for (what, number) in [("entities", facts.entities.len()), ("relations", facts.relations.len())] {
        if number > FACTS_MAX {
            return Err(format!("{number} {what}, at most {FACTS_MAX} are taken: use several tasks"));
        }
    }
    let mut graph = Graph::default();
    let mut mentions: HashMap<Uuid, i32> = HashMap::new();
    for (number, GivenEntity { name, kind, description }) in facts.entities.iter().enumerate() {
        let at = |field| format!("entities[{number}].{field}");
        let name = words(name, &at("name"), NAME_MAX_CHARS)?;
        let kind = words(kind.as_deref().unwrap_or("name"), &at("kind"), KIND_MAX_CHARS)?;
        let description = optional(description.as_deref(), &at("description"))?;
        *mentions.entry(graph.add_entity(place, &name, &kind, description.as_deref())).or_default() += 1;
    }
    for (number, GivenRelation { source, target, kind, description }) in facts.relations.iter().enumerate() {
        let at = |field| format!("relations[{number}].{field}");
        let mut ends = Vec::with_capacity(2);
        for (end, field) in [(source, "source"), (target, "target")] {
            let name = words(end, &at(field), NAME_MAX_CHARS)?;
            let id = graph.add_entity(place, &name, "name", None);
            mentions.entry(id).or_insert(1);
            ends.push(id);
        }
        let kind = words(kind, &at("kind"), KIND_MAX_CHARS)?;
        let description = optional(description.as_deref(), &at("description"))?;
        let id = graph.add_relation(place, ends[0], ends[1], &kind, description.as_deref());
        *mentions.entry(id).or_default() += 1;
    }
    let provenance =
        mentions.into_iter().map(|(item_id, mentions)| ProvenanceRow { item_id, ordinal: GIVEN, mentions });
    Ok((graph, provenance.collect()))
}

fn words(given: &str, at: &str, max_chars: usize) -> Result<String, String> {
    let cleaned = text::clean(given);
    let cleaned = cleaned.trim();
    if cleaned.is_empty() {
        return Err(format!("{at} is empty"));
    }
    if cleaned.chars().count() > max_chars {
        return Err(format!("{at} has more than {max_chars} characters"));
    }
    Ok(cleaned.to_owned())
}

fn optional(given: Option<&str>, at: &str) -> Result<Option<String>, String> {
    given.map(|given| words(given, at, DESCRIPTION_MAX_CHARS)).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn rows(facts: Value) -> Result<(usize, usize, usize), String> {
        let facts = Facts::deserialize(facts).map_err(|error| error.to_string())?;
        let (graph, provenance) = graph_of(&Place::new("t", None), &facts)?;
        let (entities, relations) = graph.into_rows();
        Ok((entities.len(), relations.len(), provenance.len()))
    }

    #[test]
    fn facts_become_a_graph_with_the_ends_of_their_relations() {
        let entity = json!({ "name": "Acme", "kind": "company", "description": "makes everything" });
        let relation = json!({ "source": "ACME", "target": "Rome", "kind": "sits_in" });
        assert_eq!(rows(json!({ "entities": [entity] })), Ok((1, 0, 1)));
        assert_eq!(rows(json!({ "relations": [relation] })), Ok((2, 1, 3)));
        assert_eq!(rows(json!({ "entities": [entity], "relations": [relation, relation] })), Ok((2, 1, 3)));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            (json!({}), "there are no facts"),
            (json!({ "entities": [{ "name": " \u{0}" }] }), "entities[0].name is empty"),
            (
                json!({ "entities": [{ "name": "a" }, { "name": "x".repeat(201) }] }),
                "entities[1].name has more than 200",
            ),
            (json!({ "relations": [{ "source": "a", "target": "b", "kind": "" }] }), "relations[0].kind is empty"),
            (json!({ "relations": [{ "source": "a", "kind": "k" }] }), "missing field `target`"),
            (json!({ "entitys": [] }), "unknown field `entitys`"),
        ];
        for (facts, expected) in cases {
            let message = rows(facts.clone()).expect_err("it is wrong");
            assert!(message.contains(expected), "{facts}: {message}");
        }
    }
}
