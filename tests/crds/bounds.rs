//! Every field of every spec with values that it must not have: the API server names the field.

use serde_json::{Value, json};

use crate::bed::{Bed, Refusal, full, minimal};
use crate::generated::{definitions, fields};

/// Values that a field of this schema must refuse.
fn wrong_values(schema: &Value) -> Vec<Value> {
    let number = |keyword: &str| schema[keyword].as_i64().unwrap();
    let mut wrong = match schema["type"].as_str().unwrap() {
        "integer" => vec![
            json!("5"),
            json!(true),
            json!([]),
            json!(number("minimum") - 1),
            json!(number("maximum") + 1),
            json!(1.5),
            json!(i64::MAX),
            json!(1e300),
        ],
        "boolean" => vec![json!("true"), json!(1), json!({})],
        "array" => vec![json!("one"), json!({}), json!(vec!["s3://a/"; 2]), many(number("maxItems") + 1)],
        "object" => vec![json!("one"), json!([]), json!(7)],
        "string" => vec![json!(7), json!(true), json!({}), json!(["a"])],
        other => panic!("a spec has a field of type {other}"),
    };
    if let Some(length) = schema["maxLength"].as_u64() {
        wrong.push(json!("ü".repeat(usize::try_from(length).unwrap() + 1)));
    }
    if schema["minLength"].as_u64() > Some(0) {
        wrong.push(json!(""));
    }
    if schema["pattern"].is_string() {
        wrong.push(json!("a\0b"));
    }
    if schema["enum"].is_array() {
        wrong.extend([json!("Nonsense"), json!(""), json!(schema["enum"][0].as_str().unwrap().to_uppercase())]);
    }
    wrong
}

fn many(count: i64) -> Value {
    (0..count).map(|number| json!(format!("s3://bucket/{number}"))).collect()
}

/// The smallest valid object with this field in it set to the value.
fn with(kind: &str, path: &str, value: &Value) -> Value {
    let mut object = minimal(kind);
    let steps: Vec<_> = path.split('.').collect();
    if let ["spec", "source", member, ..] = steps[..] {
        // A source has one member.
        object["spec"]["source"] = match member {
            "configMapKeyRef" => json!({ "configMapKeyRef": { "name": "a", "key": "b" } }),
            _ => json!({}),
        };
    }
    let mut place = &mut object;
    for step in steps {
        place = match step.strip_suffix("[]") {
            Some(list) => {
                place[list] = json!([null]);
                &mut place[list][0]
            }
            None => &mut place[step],
        };
    }
    *place = value.clone();
    object
}

#[tokio::test]
async fn every_field_refuses_what_it_must_not_be_and_is_named() {
    let bed = Bed::new("bounds").await;
    let mut questions = 0;
    for definition in definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        for (path, schema) in fields(&definition).into_iter().filter(|(path, _)| path.starts_with("spec.")) {
            for value in wrong_values(&schema) {
                let told = format!("{kind} {path} = {:.80}", value.to_string());
                let refusal = bed.try_create(&with(kind, &path, &value)).await.expect_err(&told);
                assert!(names_field(&refusal, &path), "{told}: {refusal:?}");
                questions += 1;
            }
        }
    }
    assert!(questions > 150, "only {questions} questions were asked");
}

/// An item is named with its index; a duplicate, too.
fn names_field(refusal: &Refusal, path: &str) -> bool {
    let path = path.replace("[]", "[0]");
    refusal.fields.iter().any(|field| *field == path || field.starts_with(&format!("{path}[")))
}

#[tokio::test]
async fn what_is_required_is_asked_for_by_name() {
    let bed = Bed::new("required").await;
    let required = [
        ("IngestTask", "spec.type"),
        ("TenantLane", "spec.class"),
        ("WorkerPool", "spec.template"),
        ("IngestTask", "spec"),
        ("TenantLane", "spec"),
        ("WorkerPool", "spec"),
        ("IngestTask", "spec.source.configMapKeyRef.name"),
        ("IngestTask", "spec.source.configMapKeyRef.key"),
    ];
    for (kind, path) in required {
        let mut missing = with(kind, path, &Value::Null);
        let refusal = bed.try_create(&missing).await.expect_err(path);
        assert!(refusal.names(path), "{kind} {path} = null: {refusal:?}");

        let (parent, leaf) = path.rsplit_once('.').unwrap_or(("", path));
        let pointer = if parent.is_empty() { String::new() } else { format!("/{}", parent.replace('.', "/")) };
        missing.pointer_mut(&pointer).unwrap().as_object_mut().unwrap().remove(leaf);
        let refusal = bed.try_create(&missing).await.expect_err(path);
        assert!(refusal.names(path), "{kind} without {path}: {refusal:?}");
    }
}

#[tokio::test]
async fn bounds_themselves_are_allowed() {
    let bed = Bed::new("edges").await;
    for definition in definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        for (path, schema) in fields(&definition).into_iter().filter(|(path, _)| path.starts_with("spec.")) {
            let mut right: Vec<Value> = match schema["type"].as_str().unwrap() {
                "integer" => vec![schema["minimum"].clone(), schema["maximum"].clone()],
                "boolean" => vec![json!(true), json!(false)],
                _ => schema["enum"].as_array().cloned().unwrap_or_default(),
            };
            let is_free_text = schema["pattern"] == r"^[^\x00]*$" || path == "spec.source.text";
            if is_free_text {
                let length = usize::try_from(schema["maxLength"].as_u64().unwrap()).unwrap();
                // As many characters as are allowed; those outside the first plane count as one.
                right.push(json!(if length < 1_000 { "𝔘".repeat(length) } else { "a".repeat(length) }));
                right.push(json!(" \u{202e}\n'\"{{x}}--"));
            }
            // What needs a source or a partner is the matter of other tests.
            for value in right.into_iter().filter(|_| !needs_more(&path)) {
                let told = format!("{kind} {path} = {:.80}", value.to_string());
                if let Err(refusal) = bed.try_create(&with(kind, &path, &value)).await {
                    panic!("{told}: {refusal:?}");
                }
            }
        }
        bed.try_create(&full(kind)).await.unwrap();
        bed.try_create(&minimal(kind)).await.unwrap();
    }
}

fn needs_more(path: &str) -> bool {
    ["spec.type", "spec.maxReplicas", "spec.minReplicas"].contains(&path)
}

#[tokio::test]
async fn null_is_the_same_as_absent_in_every_optional_field() {
    let bed = Bed::new("null").await;
    for kind in ["IngestTask", "TenantLane", "WorkerPool"] {
        let mut object = minimal(kind);
        let minimal_spec = object["spec"].clone();
        for field in full(kind)["spec"].as_object().unwrap().keys() {
            if minimal_spec[field].is_null() {
                object["spec"][field] = Value::Null;
            }
        }
        let stored = bed.try_create(&object).await.unwrap();
        assert_eq!(stored["spec"], minimal_spec);
    }
}
