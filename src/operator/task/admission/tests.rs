use kube::core::ObjectMeta;
use serde_json::json;

use super::*;
use crate::api::ingest_task;

fn task(spec: Value) -> IngestTask {
    IngestTask {
        metadata: ObjectMeta {
            namespace: Some("team".to_owned()),
            name: Some("one".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectMeta::default()
        },
        spec: serde_json::from_value(spec).unwrap(),
        status: None,
    }
}

fn facts(allowed_sources: &[String]) -> Facts<'_> {
    Facts { cluster: "here", allowed_sources, content: Content::NotRead, document: Document::NotNamed }
}

fn enqueued(admission: Admission) -> NewTask {
    match admission {
        Admission::Enqueue(task) => *task,
        other => panic!("{other:?}"),
    }
}

fn refused(admission: Admission) -> (Reason, String, bool) {
    match admission {
        Admission::Refused(Refusal { reason, message, again }) => (reason, message, again.is_some()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn spec_becomes_a_task_of_the_namespaces_tenant() {
    let spec = json!({
        "type": "Insert", "workspace": "w", "source": { "text": "hello" }, "priority": 7, "suspend": true,
        "maxAttempts": 5, "timeoutSeconds": 60, "idempotencyKey": "i", "exclusiveKey": "e",
    });

    let task = enqueued(admit(&task(spec), facts(&[])));

    let resource = Resource { cluster: "here".into(), namespace: "team".into(), name: "one".into(), uid: "u".into() };
    let expected = NewTask {
        workspace: Some("w".into()),
        payload: json!({ "text": "hello" }),
        priority: 7,
        suspended: true,
        max_attempts: Some(5),
        timeout_secs: Some(60),
        idempotency_key: Some("i".into()),
        exclusive_key: Some("e".into()),
        resource: Some(resource),
        ..NewTask::new(TaskType::Insert, "team")
    };
    assert_eq!(task, expected);
}

#[test]
fn resource_that_is_born_cancelled_is_claimed_by_nobody() {
    let spec = json!({ "type": "Insert", "source": { "text": "hello" }, "cancel": true });
    assert!(enqueued(admit(&task(spec), facts(&[]))).suspended);
}

#[test]
fn url_must_be_one_that_the_lane_names() {
    let prefixes = ["s3://bucket/team/".to_owned(), "file:///srv/docs".to_owned()];
    let scan = |url: &str, prefixes: &[String]| {
        admit(&task(json!({ "type": "Scan", "source": { "url": url } })), facts(prefixes))
    };
    for url in ["s3://bucket/team/x.pdf", "file:///srv/docs/x"] {
        enqueued(scan(url, &prefixes));
        // Without a word of the platform, neither files nor buckets.
        let (reason, message, again) = refused(scan(url, &[]));
        assert_eq!((reason, again), (Reason::SourceNotAllowed, true), "{url}");
        assert!(message.contains("the lane has no allowedSources"), "{message}");
    }
    for url in ["s3://bucket/team-b/", "https://a.example/", "s3://bucket/team/../x"] {
        let (reason, message, again) = refused(scan(url, &prefixes));
        assert_eq!((reason, again), (Reason::SourceNotAllowed, true), "{url}");
        assert!(message.starts_with("spec.source.url "), "{message}");
    }
    enqueued(scan("https://a.example/x", &[]));
}

#[test]
fn credentials_in_a_url_are_refused_for_good_and_not_repeated() {
    let task = task(json!({ "type": "Upload", "source": { "url": "s3://key:hunter2@bucket/x" } }));
    let (reason, message, again) = refused(admit(&task, facts(&["s3://".to_owned()])));
    assert_eq!((reason, again), (Reason::Invalid, false));
    assert!(message.contains("credentials") && !message.contains("hunter2"), "{message}");
}

#[test]
fn text_of_a_config_map_travels_in_the_payload() {
    let task = task(json!({ "type": "Upload", "source": { "configMapKeyRef": { "name": "c", "key": "k" } } }));
    let with = |content| admit(&task, Facts { content, ..facts(&[]) });

    assert_eq!(enqueued(with(Content::Text("x".into()))).payload, json!({ "text": "x" }));
    assert_eq!(refused(with(Content::Missing("gone".into()))), (Reason::SourceMissing, "gone".to_owned(), true));
    let (reason, message, again) = refused(with(Content::Text("x".repeat(TEXT_MAX_BYTES + 1))));
    assert_eq!((reason, again), (Reason::SourceTooLarge, false));
    assert!(message.contains("put it behind a url"), "{message}");
}

#[test]
fn url_travels_as_it_was_given() {
    let task = task(json!({ "type": "PdfProcessing", "source": { "url": "https://a.example/b.pdf" } }));
    assert_eq!(enqueued(admit(&task, facts(&[]))).payload, json!({ "url": "https://a.example/b.pdf" }));
}

#[test]
fn document_must_be_the_tenants_own() {
    let id = "6e9ff3b8-2d38-4b2e-a9a2-0f4f7f3d0001";
    let task = task(json!({ "type": "Reindex", "workspace": "w", "source": { "documentId": id } }));
    let with = |document| admit(&task, Facts { document, ..facts(&[]) });
    let of = |tenant: &str, workspace: Option<&str>| Document::Of {
        tenant: tenant.into(),
        workspace: workspace.map(Into::into),
    };

    let own = enqueued(with(of("team", Some("w"))));
    assert_eq!((own.document_id, own.payload), (Some(id.parse().unwrap()), json!({})));
    for foreign in [of("other", Some("w")), of("team", None), Document::Missing] {
        let (reason, message, again) = refused(with(foreign));
        assert_eq!((reason, again), (Reason::DocumentNotFound, true));
        // One answer for all of them: it tells nothing of other tenants.
        assert_eq!(message, format!("tenant team has no document {id} in the workspace that the spec names"));
    }
}

#[test]
fn task_that_is_there_already_is_shown_and_not_made() {
    let id = "6e9ff3b8-2d38-4b2e-a9a2-0f4f7f3d0001";
    let task = task(json!({ "type": "Insert", "tenant": "other", "source": { "trackId": id } }));
    let admission = admit(&task, facts(&[]));
    assert!(
        matches!(&admission, Admission::Mirror { track_id, tenant, .. } if track_id.to_string() == id && tenant == "other"),
        "{admission:?}"
    );
}

#[test]
fn every_type_of_the_schema_is_one_of_the_domain() {
    for task_type in TaskType::ALL {
        let name = serde_json::to_value(convert::api_task_type(*task_type)).unwrap();
        assert_eq!(name, task_type.kind_name());
        let parsed: ingest_task::TaskType = serde_json::from_value(name).unwrap();
        assert_eq!(convert::task_type(parsed), *task_type);
    }
}
