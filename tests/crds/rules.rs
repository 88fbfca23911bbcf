//! Rules between fields: which source a type takes, the boot rule, names.

use serde_json::{Value, json};

use crate::bed::{API_VERSION, Bed, minimal};

const ID: &str = "0190c2a4-7b3e-7c11-9d5a-3f0a1b2c3d4e";

fn task(spec: Value) -> Value {
    let mut object = minimal("IngestTask");
    object["spec"] = spec;
    object
}

fn pool(settings: Value) -> Value {
    let mut object = minimal("WorkerPool");
    object["spec"].as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn each_type_takes_the_sources_that_make_sense_for_it() {
    let bed = Bed::new("sources").await;
    let sources = [
        ("url", json!({ "url": "s3://acme/a" })),
        ("text", json!({ "text": "hello" })),
        ("configMapKeyRef", json!({ "configMapKeyRef": { "name": "a", "key": "b" } })),
        ("documentId", json!({ "documentId": ID })),
        ("trackId", json!({ "trackId": ID })),
    ];
    let types = [
        ("PdfProcessing", vec!["url", "configMapKeyRef", "documentId", "trackId"]),
        ("Insert", vec!["url", "text", "configMapKeyRef", "documentId", "trackId"]),
        ("Upload", vec!["url", "text", "configMapKeyRef", "trackId"]),
        ("Scan", vec!["url", "trackId"]),
        ("Reindex", vec!["documentId", "trackId"]),
        ("KnowledgeInjection", vec!["url", "text", "configMapKeyRef", "trackId"]),
        ("Deletion", vec!["documentId", "trackId"]),
        ("WorkspaceWipe", vec!["trackId"]),
    ];
    for (type_, taken) in types {
        for (member, source) in &sources {
            let spec = json!({ "type": type_, "workspace": "main", "source": source });
            match bed.try_create(&task(spec)).await {
                Ok(_) => assert!(taken.contains(member), "{type_} took {member}"),
                Err(refusal) => {
                    assert!(!taken.contains(member), "{type_} with {member}: {refusal:?}");
                    assert!(refusal.names("spec.source"), "{type_} with {member}: {refusal:?}");
                }
            }
        }
        let without = bed.try_create(&task(json!({ "type": type_, "workspace": "main" }))).await;
        match type_ {
            "WorkspaceWipe" => drop(without.unwrap()),
            _ => assert!(without.expect_err(type_).names("spec.source"), "{type_} without a source"),
        }
    }
}

#[tokio::test]
async fn a_source_is_exactly_one_thing() {
    let bed = Bed::new("one-source").await;
    let members = [
        json!({ "url": "s3://acme/a" }),
        json!({ "text": "hello" }),
        json!({ "configMapKeyRef": { "name": "a", "key": "b" } }),
        json!({ "documentId": ID }),
        json!({ "trackId": ID }),
    ];
    let mut wrong = vec![json!({})];
    for (number, first) in members.iter().enumerate() {
        for second in &members[number + 1..] {
            let mut both = first.clone();
            both.as_object_mut().unwrap().extend(second.as_object().unwrap().clone());
            wrong.push(both);
        }
    }
    for source in wrong {
        let refusal = bed.try_create(&task(json!({ "type": "Insert", "source": source }))).await.unwrap_err();
        assert!(refusal.names("spec.source"), "{source}: {refusal:?}");
        assert!(refusal.message.contains("exactly one of url, text"), "{source}: {refusal:?}");
    }
}

#[tokio::test]
async fn a_url_is_of_a_known_kind_and_carries_no_credentials() {
    let bed = Bed::new("urls").await;
    for url in ["s3://b/k", "gs://b/k", "az://b/k", "https://h/p?sig=a@b", "file:///data/a.pdf", "https://h/a@b"] {
        bed.try_create(&task(json!({ "type": "Insert", "source": { "url": url } }))).await.expect(url);
    }
    for url in
        ["http://h/p", "ftp://h/p", "s3:/b", "/etc/passwd", "https://u:p@h/p", "S3://b/k", "s3://", "javascript:x"]
    {
        let refusal =
            bed.try_create(&task(json!({ "type": "Insert", "source": { "url": url } }))).await.expect_err(url);
        assert!(refusal.names("spec.source.url"), "{url}: {refusal:?}");
    }
}

#[tokio::test]
async fn a_workspace_wipe_names_its_workspace() {
    let bed = Bed::new("wipe").await;
    let refusal = bed.try_create(&task(json!({ "type": "WorkspaceWipe" }))).await.unwrap_err();
    assert!(refusal.names("spec.workspace"), "{refusal:?}");
}

#[tokio::test]
async fn several_replicas_with_local_delivery_are_refused_with_what_to_set() {
    let bed = Bed::new("boot-rule").await;
    let allowed = [
        json!({}),
        json!({ "maxReplicas": 0 }),
        json!({ "maxReplicas": 1 }),
        json!({ "maxReplicas": 1, "delivery": "local" }),
        json!({ "maxReplicas": 2, "delivery": "bridged" }),
        json!({ "maxReplicas": 10_000, "delivery": "notify_only" }),
        json!({ "maxReplicas": 2, "delivery": "bridged", "mode": "Job" }),
    ];
    for settings in allowed {
        bed.try_create(&pool(settings)).await.unwrap();
    }
    let refused = [
        json!({ "maxReplicas": 2 }),
        json!({ "maxReplicas": 2, "delivery": "local" }),
        json!({ "maxReplicas": 2, "delivery": null }),
        json!({ "maxReplicas": 2, "delivery": "local", "mode": "Job" }),
        json!({ "maxReplicas": 10_000, "minReplicas": 1 }),
    ];
    for settings in refused {
        let refusal = bed.try_create(&pool(settings.clone())).await.unwrap_err();
        assert!(refusal.names("spec.maxReplicas"), "{settings}: {refusal:?}");
        assert!(refusal.message.contains("set delivery to bridged or notify_only, or maxReplicas to 1"), "{refusal:?}");
    }
}

#[tokio::test]
async fn the_fewest_replicas_are_not_more_than_the_most() {
    let bed = Bed::new("min-max").await;
    for settings in [
        json!({ "minReplicas": 1 }),
        json!({ "minReplicas": 0, "maxReplicas": 0 }),
        json!({ "minReplicas": 3, "maxReplicas": 3, "delivery": "bridged" }),
    ] {
        bed.try_create(&pool(settings)).await.unwrap();
    }
    for settings in [
        json!({ "minReplicas": 2 }),
        json!({ "minReplicas": 1, "maxReplicas": 0 }),
        json!({ "minReplicas": 4, "maxReplicas": 3, "delivery": "bridged" }),
    ] {
        let refusal = bed.try_create(&pool(settings.clone())).await.unwrap_err();
        assert!(refusal.names("spec.minReplicas"), "{settings}: {refusal:?}");
    }
}

#[tokio::test]
async fn names_have_up_to_253_characters() {
    let bed = Bed::new("names").await;
    let longest = format!("{}.{}", "a".repeat(200), "b".repeat(52));
    for kind in crate::bed::KINDS {
        let mut object = minimal(kind);
        object["metadata"]["name"] = json!(longest);
        bed.try_create(&object).await.unwrap();
        object["metadata"]["name"] = json!(format!("{longest}c"));
        let refusal = bed.try_create(&object).await.unwrap_err();
        assert!(refusal.names("metadata.name"), "{refusal:?}");
    }
}

#[tokio::test]
async fn a_misspelt_field_is_refused_by_kubectl() {
    let bed = Bed::new("misspelt").await;
    let manifest = json!({
        "apiVersion": API_VERSION, "kind": "IngestTask", "metadata": { "name": "typo" },
        "spec": { "type": "Insert", "source": { "text": "hello" }, "cancle": true },
    });
    let refused = bed.namespace.try_apply(&manifest.to_string()).unwrap_err();
    assert!(refused.contains("cancle"), "{refused}");
}
