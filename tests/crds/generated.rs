//! The generated files, and what every field of every schema must have.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sluice::api;

use crate::bed::printed;
use crate::cluster::Cluster;

/// Each leaf and node of a kind's schema with its path, such as `spec.source.url`.
pub fn fields(definition: &Value) -> Vec<(String, Value)> {
    fn walk(path: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
        let properties = schema["properties"].as_object().into_iter().flatten();
        for (name, property) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            found.push((path.clone(), property.clone()));
            walk(&path, property, found);
            if property["items"].is_object() {
                let item = format!("{path}[]");
                found.push((item.clone(), property["items"].clone()));
                walk(&item, &property["items"], found);
            }
        }
    }
    let mut found = Vec::new();
    walk("", &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], &mut found);
    found
}

pub fn definitions() -> Vec<Value> {
    api::all_crds().unwrap().iter().map(|definition| api::plain_json(definition).unwrap()).collect()
}

fn every_field() -> Vec<(String, Value)> {
    let of_kind = |definition: &Value| {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        fields(definition).into_iter().map(move |(path, schema)| (format!("{kind}.{path}"), schema)).collect::<Vec<_>>()
    };
    definitions().iter().flat_map(of_kind).collect()
}

#[test]
fn generated_files_are_what_the_code_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut expected = Vec::new();
    for definition in definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let body = serde_saphyr::to_string(&definition).unwrap();
        expected.push((format!("{name}.yaml"), body));
    }
    for directory in ["crds", "charts/sluice-crds/templates"] {
        let mut there: Vec<_> = fs::read_dir(root.join(directory))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        there.sort();
        let names: Vec<_> = expected.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(there, names, "{directory}: run make generate");
        for (name, body) in &expected {
            let text = fs::read_to_string(root.join(directory).join(name)).unwrap();
            let (comment, kept) = text.split_once('\n').unwrap();
            assert!(comment.starts_with("# Made by"), "{directory}/{name}");
            assert!(kept == body, "{directory}/{name} is not what the code says: run make generate");
        }
    }
}

#[test]
fn the_printed_stream_is_the_same() {
    let printed: Vec<Value> = serde_saphyr::from_multiple(&printed()).unwrap();
    assert_eq!(printed, definitions());
}

#[test]
fn helm_renders_the_chart_to_the_same() {
    let Some(own) = Cluster::shared().own("helm") else { return };
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/sluice-crds");
    let rendered = own.run(&["helm", "template", "crds", &chart.display().to_string(), "--kube-version=1.34.0"]);
    let rendered: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    assert_eq!(rendered.len(), 3);
    for definition in definitions() {
        assert!(rendered.contains(&definition), "{}", definition["metadata"]["name"]);
    }
}

#[test]
fn removing_the_chart_keeps_the_definitions_and_so_every_resource() {
    for definition in definitions() {
        assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
}

#[test]
fn every_field_says_what_it_is() {
    for (path, schema) in every_field() {
        let description = schema["description"].as_str().unwrap_or_default();
        let is_plain_item = path.ends_with("[]");
        assert!(
            is_plain_item || description.ends_with('.'),
            "{path} has no description, or no sentence: {description}"
        );
    }
}

#[test]
fn every_field_is_bounded_and_none_has_a_default() {
    for (path, schema) in every_field() {
        let has = |keyword: &str| !schema[keyword].is_null();
        let is_bounded = match schema["type"].as_str() {
            Some("integer") => {
                has("minimum") && has("maximum") && ["int32", "int64"].contains(&schema["format"].as_str().unwrap())
            }
            Some("string") => has("maxLength") || has("enum") || schema["format"] == "date-time",
            Some("array") => has("maxItems") && has("x-kubernetes-list-type"),
            Some("boolean" | "object") => true,
            other => panic!("{path} has the type {other:?}"),
        };
        assert!(is_bounded, "{path} has no bounds: {schema}");
        assert!(!has("default"), "{path}: what nobody wrote must not look written");
        assert!(!has("nullable"), "{path}: null must be the same as absent");
    }
}

#[test]
fn every_text_that_names_something_refuses_what_postgres_would_strip() {
    let free = ["text"];
    for (path, schema) in every_field() {
        let is_spec = path.split('.').nth(1) == Some("spec");
        let leaf = path.rsplit('.').next().unwrap();
        if is_spec && schema["type"] == "string" && schema["enum"].is_null() && !free.contains(&leaf) {
            assert!(schema["pattern"].is_string(), "{path} has no pattern: with U+0000 it would become another name");
        }
    }
}
