//! What may change, and what may not: by patch, edit, replace and server-side apply.

use serde_json::{Value, json};

use crate::bed::{Bed, KINDS, Way, full, installed, minimal};

/// What identifies the work, with another valid value.
fn immutable(kind: &str) -> Vec<(&'static str, Value)> {
    match kind {
        "IngestTask" => vec![
            ("type", json!("Insert")),
            ("tenant", json!("globex")),
            ("workspace", json!("other")),
            ("source", json!({ "url": "s3://acme/b.pdf" })),
            ("maxAttempts", json!(4)),
            ("timeoutSeconds", json!(601)),
            ("idempotencyKey", json!("a2")),
            ("exclusiveKey", json!("b2")),
        ],
        "TenantLane" => vec![("class", json!("lifecycle")), ("tenant", json!("globex"))],
        _ => Vec::new(),
    }
}

async fn stored(bed: &Bed, kind: &str) -> [Value; 2] {
    [bed.apply(&full(kind)).await, bed.apply(&minimal(kind)).await]
}

#[tokio::test]
async fn what_identifies_the_work_cannot_be_changed_added_or_removed() {
    let bed = Bed::new("immutable").await;
    for kind in KINDS {
        let [with_all, with_least] = stored(&bed, kind).await;
        for (field, other) in immutable(kind) {
            let mut changes = Vec::new();
            let mut changed = full(kind);
            changed["spec"][field] = other.clone();
            changes.push((&with_all, changed));
            if minimal(kind)["spec"][field].is_null() {
                let mut removed = full(kind);
                removed["spec"].as_object_mut().unwrap().remove(field);
                changes.push((&with_all, removed));
                let mut nulled = full(kind);
                nulled["spec"][field] = Value::Null;
                changes.push((&with_all, nulled));
                let mut added = minimal(kind);
                added["spec"][field] = other;
                changes.push((&with_least, added));
            }
            for (before, after) in changes {
                for way in Way::ALL {
                    let refusal = bed.try_change(before, &after, way).await.expect_err(field);
                    assert!(refusal.names(&format!("spec.{field}")), "{kind} {field} by {way:?}: {refusal:?}");
                    // An applied null is refused as one, before the rules.
                    let is_null = after["spec"].get(field) == Some(&Value::Null) && matches!(way, Way::Apply);
                    assert!(is_null || refusal.message.contains("make a new resource instead"), "{refusal:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn another_member_of_the_source_does_not_escape() {
    let bed = Bed::new("source-change").await;
    let [with_url, with_text] = stored(&bed, "IngestTask").await;
    for (before, source) in [
        (&with_url, json!({ "configMapKeyRef": { "name": "a", "key": "b" } })),
        (&with_url, json!({ "url": "s3://acme/a.pdf2" })),
        (&with_text, json!({ "text": "hello " })),
        (&with_text, json!({ "url": "s3://acme/a.pdf" })),
    ] {
        for way in Way::ALL {
            let name = before["metadata"]["name"].as_str().unwrap();
            let mut after = if name == "full" { full("IngestTask") } else { minimal("IngestTask") };
            after["spec"]["source"] = source.clone();
            let refusal = bed.try_change(before, &after, way).await.unwrap_err();
            assert!(refusal.names("spec.source"), "{source} by {way:?}: {refusal:?}");
        }
    }
}

/// Every field that is not immutable, with values that it may go to from any other.
fn mutable(kind: &str) -> Vec<(&'static str, Vec<Value>)> {
    match kind {
        "IngestTask" => vec![
            // A sync that takes a cancel back must not break; the operator says that it changes nothing.
            ("cancel", vec![json!(false), json!(true)]),
            ("retries", vec![json!(0), json!(1), json!(9)]),
            ("suspend", vec![json!(true), json!(false)]),
            ("priority", vec![json!(-1), json!(1000)]),
            ("ttlSecondsAfterFinished", vec![json!(0), json!(1)]),
            ("deletionPolicy", vec![json!("Cancel"), json!("CancelAndWait")]),
        ],
        "TenantLane" => vec![
            ("maxRunning", vec![json!(0), json!(100)]),
            ("weight", vec![json!(1), json!(1000)]),
            ("policy", vec![json!("None"), json!("HoldAndDrain")]),
            ("policyReason", vec![json!("other")]),
            ("pool", vec![json!("gpu")]),
            ("allowedSources", vec![json!([]), json!(["s3://b/"])]),
            ("mirror", vec![json!({ "limit": 5 }), json!({ "policy": "None" })]),
        ],
        "WorkerPool" => vec![
            ("mode", vec![json!("Job")]),
            ("delivery", vec![json!("notify_only")]),
            ("minReplicas", vec![json!(0), json!(5)]),
            ("maxReplicas", vec![json!(1), json!(50)]),
            ("threads", vec![json!(1)]),
            ("scaleDownDelaySeconds", vec![json!(0)]),
            ("drainSeconds", vec![json!(0)]),
            ("provider", vec![json!("ollama")]),
            ("template", vec![json!({ "spec": {} })]),
        ],
        other => panic!("there is no kind {other}"),
    }
}

#[tokio::test]
async fn what_does_not_identify_the_work_may_change_come_and_go() {
    let bed = Bed::new("mutable").await;
    for kind in KINDS {
        let [with_all, with_least] = stored(&bed, kind).await;
        for (field, values) in mutable(kind) {
            for value in values {
                for way in Way::ALL {
                    let told = format!("{kind} {field} = {value} by {way:?}");
                    let mut changed = full(kind);
                    changed["spec"][field] = value.clone();
                    bed.try_change(&with_all, &changed, way).await.expect(&told);
                    if kind != "WorkerPool" {
                        let mut added = minimal(kind);
                        added["spec"][field] = value.clone();
                        bed.try_change(&with_least, &added, way).await.expect(&told);
                    }
                }
            }
            // Without delivery, several replicas are not allowed; without a template there is no pool.
            if !["delivery", "template", "maxReplicas"].contains(&field) {
                let mut removed = full(kind);
                removed["spec"].as_object_mut().unwrap().remove(field);
                for way in Way::ALL {
                    let changed = bed.try_change(&with_all, &removed, way).await.expect(field);
                    assert!(changed["spec"][field].is_null(), "{kind} {field} by {way:?} has left something");
                }
            }
        }
    }
}

#[tokio::test]
async fn every_field_is_either_immutable_or_mutable() {
    for kind in KINDS {
        let mut tested: Vec<_> = immutable(kind).into_iter().map(|(field, _)| field).collect();
        tested.extend(mutable(kind).into_iter().map(|(field, _)| field));
        tested.sort_unstable();
        let all: Vec<_> = full(kind)["spec"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(tested, all, "{kind}");
    }
}

#[tokio::test]
async fn the_boot_rule_holds_for_changes_too() {
    let bed = Bed::new("boot-change").await;
    let [with_all, with_least] = stored(&bed, "WorkerPool").await;
    for way in Way::ALL {
        let mut without_delivery = full("WorkerPool");
        without_delivery["spec"].as_object_mut().unwrap().remove("delivery");
        let mut local = full("WorkerPool");
        local["spec"]["delivery"] = json!("local");
        let mut two = minimal("WorkerPool");
        two["spec"]["maxReplicas"] = json!(2);
        for (before, after) in [(&with_all, without_delivery), (&with_all, local), (&with_least, two)] {
            let refusal = bed.try_change(before, &after, way).await.unwrap_err();
            assert!(refusal.names("spec.maxReplicas"), "{way:?}: {refusal:?}");
        }
    }
}

#[tokio::test]
async fn a_second_apply_of_the_same_changes_nothing() {
    let bed = Bed::new("again").await;
    for kind in KINDS {
        for object in [full(kind), minimal(kind)] {
            let first = bed.apply(&object).await;
            let second = bed.apply(&object).await;
            assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"], "{kind}");
            assert_eq!(second["spec"], object["spec"], "{kind}: the API server adds or drops something");
        }
    }
}

#[tokio::test]
async fn a_sync_does_not_take_back_what_it_says_nothing_of() {
    let bed = Bed::new("sync").await;
    bed.apply(&minimal("IngestTask")).await;
    bed.namespace.kubectl(&["patch", "igt/minimal", "--type=merge", "--patch={\"spec\":{\"cancel\":true}}"]);
    let synced = bed.apply(&minimal("IngestTask")).await;
    assert_eq!(synced["spec"]["cancel"], true);
    // The client-side apply of older pipelines, too.
    let admin = installed().admin();
    let apply = ["--namespace", &bed.namespace.name, "apply", "--filename=-"];
    admin.try_run_with(&apply, &minimal("IngestTask").to_string()).unwrap();
    assert_eq!(bed.namespace.get("igt/minimal").unwrap()["spec"]["cancel"], true);
}

#[tokio::test]
async fn a_task_with_a_text_of_one_mebibyte_can_be_stored_and_cancelled() {
    let bed = Bed::new("mebibyte").await;
    let mut task = minimal("IngestTask");
    task["spec"]["source"]["text"] = json!("a".repeat(1024 * 1024));
    let stored = bed.apply(&task).await;
    let mut cancelled = task.clone();
    cancelled["spec"]["cancel"] = json!(true);
    for way in Way::ALL {
        bed.try_change(&stored, &cancelled, way).await.expect("the rules are not too dear");
    }
    let mut changed = task;
    changed["spec"]["source"]["text"] = json!(format!("{}b", "a".repeat(1024 * 1024 - 1)));
    let refusal = bed.try_change(&stored, &changed, Way::Replace).await.unwrap_err();
    assert!(refusal.names("spec.source"), "{:?}", refusal.fields);
}
