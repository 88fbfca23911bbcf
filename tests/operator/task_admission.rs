//! A resource becomes a row, or says why not; its life is shown in few writes.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice::api::ingest_task::{State, UiPhase};
use sluice::domain::lane::Class;
use sluice::store::ends::{CompletedWithNext, complete, complete_with_next};
use sluice::store::enqueue::NewTask;
use sluice::store::lanes::{LaneSettings, Setting, set_lane};
use sluice::store::leases::{Report, report};
use sluice::store::status::task_status;

use crate::scene::{NOTHING, Scene, condition};

#[tokio::test]
async fn life_of_a_task_is_shown_in_three_writes_and_a_second_look_writes_nothing() {
    let Some(mut scene) = Scene::new("life").await else { return };
    let spec = json!({ "type": "Insert", "workspace": "w", "source": { "text": "hello" }, "priority": 7 });
    scene.create("one", spec).await;
    let track_id = scene.track("one").await;
    let row = task_status(&scene.worker, track_id).await.expect("an answer").expect("a row");
    assert_eq!((row.tenant.as_str(), row.workspace.as_deref()), (scene.namespace.name.as_str(), Some("w")));
    assert_eq!((row.priority, &row.payload), (7, &json!({ "text": "hello" })));

    // Its handler has not said a word yet.
    let attempt = scene.run(track_id).await;
    let running = scene.wait_state("one", State::Processing).await;
    assert_eq!(running.worker, Some(scene.worker_id.to_string()));
    complete(&scene.worker, attempt, None, NOTHING).await.expect("an answer");
    let ended = scene.wait_condition("one", "Succeeded", "True", "Completed").await;
    assert_eq!(condition(&ended, "Ready"), Some(("True".to_owned(), "Completed")));
    assert!(ended.finished_at.is_some());
    assert_eq!(scene.writes_about("one"), 3);

    // Another process looks at everything anew, and finds nothing to write.
    scene.accepted("two").await;
    scene.stop_operator();
    let before = scene.writes().len();
    scene.start_operator();
    scene.accepted("three").await;
    let later: Vec<_> = scene.writes().into_iter().skip(before).map(|event| event.name).collect();
    assert!(later.iter().all(|name| name == "three"), "{later:?}");
}

#[tokio::test]
async fn what_a_handler_says_is_shown() {
    let Some(scene) = Scene::new("progress").await else { return };
    let track_id = scene.accepted("one").await;
    let attempt = scene.run(track_id).await;
    let stage = Report { stage: Some("extracting"), progress: Some(0.5), ..Report::default() };
    report(&scene.worker, attempt, &stage).await.expect("an answer");
    let running = scene.wait("one", |status| status.progress == Some(50)).await;
    assert_eq!(running.display_status.as_deref(), Some("extracting"));
    assert_eq!((running.state, running.ui_phase), (Some(State::Processing), Some(UiPhase::Running)));
}

#[tokio::test]
async fn convert_speaks_for_the_insert_that_follows_it() {
    let Some(scene) = Scene::new("convert").await else { return };
    scene.create("pdf", json!({ "type": "PdfProcessing", "source": { "url": "https://docs.example/a.pdf" } })).await;
    let convert = scene.track("pdf").await;
    let attempt = scene.run(convert).await;
    let next = NewTask::new(sluice::domain::task::TaskType::Insert, scene.namespace.name.clone());
    let answer = complete_with_next(&scene.worker, attempt, &next, None, NOTHING).await.expect("an answer");
    let CompletedWithNext::Completed { next: insert } = answer else { panic!("{answer:?}") };

    let shown = scene.wait("pdf", |status| status.children.len() == 1).await;
    assert_eq!((shown.state, shown.ui_phase), (Some(State::Completed), Some(UiPhase::Running)));
    assert_eq!(shown.display_status.as_deref(), Some("preprocessing"));
    assert_eq!(condition(&shown, "Succeeded"), Some(("Unknown".to_owned(), "InProgress")));
    scene.finish(insert).await;
    let shown = scene.wait_condition("pdf", "Succeeded", "True", "Completed").await;
    assert_eq!(shown.children[0].state, State::Completed);
}

#[tokio::test]
async fn refused_resource_says_why_makes_no_row_and_is_taken_when_the_reason_is_gone() {
    let Some(scene) = Scene::new("refuse").await else { return };
    let own = scene.namespace.name.clone();
    let settings =
        LaneSettings { allowed_sources: Setting::To(vec!["s3://bucket/team/".to_owned()]), ..LaneSettings::default() };
    set_lane(&scene.operator_role, &own, Class::Ingest, &settings, None).await.expect("the lane");
    let foreign_document = "6e9ff3b8-2d38-4b2e-a9a2-0f4f7f3d0001";
    let rows: [(&str, Value, &str); 5] = [
        ("tenant", json!({ "type": "Insert", "tenant": "foreign", "source": { "text": "x" } }), "TenantNotAllowed"),
        ("source", json!({ "type": "Scan", "source": { "url": "s3://bucket/team-b/" } }), "SourceNotAllowed"),
        ("file", json!({ "type": "Scan", "source": { "url": "file:///etc/" } }), "SourceNotAllowed"),
        (
            "map",
            json!({ "type": "Upload", "source": { "configMapKeyRef": { "name": "m", "key": "k" } } }),
            "SourceMissing",
        ),
        ("document", json!({ "type": "Reindex", "source": { "documentId": foreign_document } }), "DocumentNotFound"),
    ];
    for (name, spec, _) in &rows {
        scene.create(name, spec.clone()).await;
    }
    for (name, _, reason) in &rows {
        let status = scene.wait_condition(name, "Accepted", "False", reason).await;
        assert_eq!(condition(&status, "Stalled"), Some(("True".to_owned(), *reason)));
        assert_eq!(status.track_id, None);
    }
    assert_eq!(scene.count_rows().await, 0);

    // Told by an event, once.
    let kubectl = |name: &str| {
        let selector = format!("--field-selector=involvedObject.name={name},reason=Refused");
        scene.namespace.kubectl(&["get", "events", &selector, "--output=name"]).lines().count()
    };
    scene.until("no event tells of the refusal", async || kubectl("tenant") == 1).await;

    // An edit is a new look; what a person has to change elsewhere is looked at again by itself.
    // What Postgres cannot store is left out.
    let map =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m" }, "data": { "k": "hel\0lo" } });
    scene.namespace.apply(&map.to_string());
    scene.patch("map", json!({ "priority": 1 })).await;
    let track_id = scene.track("map").await;
    assert_eq!(scene.row(track_id).await.payload, json!({ "text": "hello" }));
}

#[tokio::test]
async fn namespace_may_name_the_tenants_of_its_annotation() {
    let Some(scene) = Scene::new("tenants").await else { return };
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(scene.client.clone());
    let annotation = json!({ "metadata": { "annotations": { "sluice.dev/tenants": r#"["Mandant Ö","b"]"# } } });
    namespaces
        .patch(&scene.namespace.name, &PatchParams::default(), &Patch::Merge(&annotation))
        .await
        .expect("the annotation");
    let track_id = scene.accepted_with("one", json!({ "tenant": "Mandant Ö" })).await;
    assert_eq!(scene.row(track_id).await.tenant, "Mandant Ö");
    scene.create("two", json!({ "type": "Insert", "tenant": "c", "source": { "text": "x" } })).await;
    scene.wait_condition("two", "Accepted", "False", "TenantNotAllowed").await;
}

#[tokio::test]
async fn second_use_of_a_key_makes_no_second_task() {
    let Some(scene) = Scene::new("keys").await else { return };
    let first = scene.accepted_with("first", json!({ "idempotencyKey": "k" })).await;
    let same = json!({ "type": "Insert", "source": { "text": "hello" }, "idempotencyKey": "k" });
    let other = json!({ "type": "Insert", "source": { "text": "other" }, "idempotencyKey": "k" });
    scene.create("same", same).await;
    scene.create("other", other).await;
    let duplicate = scene.wait_condition("same", "Accepted", "False", "Duplicate").await;
    assert!(duplicate.summary.is_some_and(|summary| summary.contains(&first.to_string())));
    scene.wait_condition("other", "Accepted", "False", "IdempotencyConflict").await;

    let holder = scene.accepted_with("holder", json!({ "exclusiveKey": "e" })).await;
    scene.create("waiter", json!({ "type": "Insert", "source": { "text": "x" }, "exclusiveKey": "e" })).await;
    let waiting = scene.wait_condition("waiter", "Accepted", "False", "ExclusiveKeyActive").await;
    assert_eq!(condition(&waiting, "Reconciling"), Some(("True".to_owned(), "ExclusiveKeyActive")));
    assert_eq!(scene.count_rows().await, 2);
    scene.finish(holder).await;
    scene.track("waiter").await;
}
