//! The database goes and comes back; an object does not parse; a status is overwritten.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice::api::ingest_task::State;
use sluice::domain::task;

use crate::scene::{Scene, condition};

#[tokio::test]
async fn database_that_is_away_is_said_and_what_was_asked_is_done_when_it_is_back() {
    let Some(mut scene) = Scene::with_private_server("away").await else { return };
    let track_id = scene.accepted("one").await;
    scene.run(track_id).await;
    scene.server().stop().expect("the server stops");
    scene.patch("one", json!({ "cancel": true })).await;
    scene.create("new", json!({ "type": "Insert", "source": { "text": "x" } })).await;
    for name in ["one", "new"] {
        let is_said = async || {
            let status = scene.get(name).await.and_then(|task| task.status).unwrap_or_default();
            condition(&status, "Reconciling").is_some_and(|(_, reason)| reason == "DatabaseUnavailable")
        };
        scene.until("nothing is said of the database", is_said).await;
    }
    scene.server().start_again().expect("the server starts");
    scene.wait_state("one", State::Stopping).await;
    scene.wait_state("new", State::Pending).await;
    assert_eq!(scene.row(track_id).await.state, task::State::Stopping);
}

#[tokio::test]
async fn status_that_somebody_overwrites_is_put_right() {
    let Some(scene) = Scene::new("overwritten").await else { return };
    scene.accepted("one").await;
    let wrong = json!({ "status": { "state": "completed", "observedRev": 1, "summary": "lies" } });
    scene.tasks.patch_status("one", &PatchParams::default(), &Patch::Merge(&wrong)).await.expect("the patch");
    scene.wait("one", |status| status.state == Some(State::Pending) && status.summary.as_deref() != Some("lies")).await;
}

#[tokio::test]
async fn object_that_does_not_parse_stops_no_other_and_is_named() {
    let Some(mut scene) = Scene::of_changing_kinds("unreadable").await else { return };
    let cluster = scene.cluster;
    scene.accepted("before").await;
    let bad = r#"{apiVersion: sluice.dev/v1alpha1, kind: IngestTask, metadata: {name: bad}, spec: {type: Unheard, source: {text: x}}}"#;
    let types = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/type/enum";
    let crd = |patch: &str| {
        let patch = format!("--patch={patch}");
        cluster.admin().run(&["patch", "crd/ingesttasks.sluice.dev", "--type=json", &patch]);
    };
    let definition: serde_json::Value =
        serde_json::from_str(&cluster.admin().run(&["get", "crd/ingesttasks.sluice.dev", "--output=json"]))
            .expect("a definition");
    let allowed = definition.pointer(types).expect("the types").clone();
    // As an older or newer version may have left it.
    crd(&format!(r#"[{{"op": "remove", "path": "{types}"}}]"#));
    scene.until("the relaxed schema does not take it", async || scene.namespace.try_apply(bad).is_ok()).await;
    crd(&format!(r#"[{{"op": "add", "path": "{types}", "value": {allowed}}}]"#));
    let is_named = async || {
        let selector = "--field-selector=involvedObject.name=bad,reason=Unreadable";
        scene.namespace.kubectl(&["get", "events", selector, "--output=name"]).lines().count() > 0
    };
    scene.until("no event names the object", is_named).await;
    let after = scene.accepted("after").await;
    scene.finish(after).await;
    scene.wait_state("after", State::Completed).await;
    // One that meets it at its start.
    scene.stop_operator();
    scene.start_operator();
    scene.accepted("later").await;
}

#[tokio::test]
async fn lane_and_pool_that_do_not_parse_stop_no_other_and_are_named_whenever_they_came() {
    let Some(mut scene) = Scene::of_changing_kinds("unreadables").await else { return };
    let cluster = scene.cluster;
    // As an older or newer version may have left them.
    let bad = |name: &str| {
        let kinds = [("TenantLane", "class: unheard"), ("WorkerPool", "delivery: unheard, template: {}")];
        kinds.map(|(kind, spec)| {
            format!("{{apiVersion: sluice.dev/v1alpha1, kind: {kind}, metadata: {{name: {name}}}, spec: {{{spec}}}}}")
        })
    };
    let enums = [("tenantlanes", "class"), ("workerpools", "delivery")].map(|(kind, field)| {
        let path = format!("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/{field}/enum");
        let crd = format!("crd/{kind}.sluice.dev");
        let definition = cluster.admin().run(&["get", &crd, "--output=json"]);
        let definition: serde_json::Value = serde_json::from_str(&definition).expect("a definition");
        let allowed = definition.pointer(&path).expect("the values").clone();
        let patch = |operation: serde_json::Value| {
            let patch = format!("--patch={}", json!([operation]));
            cluster.admin().run(&["patch", &crd, "--type=json", &patch]);
        };
        patch(json!({ "op": "remove", "path": path }));
        (crd.clone(), json!([{ "op": "add", "path": path, "value": allowed }]))
    });
    scene.stop_operator();
    for object in bad("before") {
        scene.until("the relaxed schema does not take it", async || scene.namespace.try_apply(&object).is_ok()).await;
    }
    scene.start_operator();
    let is_named = async |scene: &Scene, name: &str| {
        let selector = format!("--field-selector=involvedObject.name={name},reason=Unreadable");
        let is_so =
            async || scene.namespace.kubectl(&["get", "events", &selector, "--output=name"]).lines().count() == 2;
        scene.until(&format!("no events name the lane and the pool {name}"), is_so).await;
    };
    is_named(&scene, "before").await;
    for object in bad("meanwhile") {
        scene.namespace.apply(&object);
    }
    is_named(&scene, "meanwhile").await;
    for (crd, patch) in enums {
        cluster.admin().run(&["patch", &crd, "--type=json", &format!("--patch={patch}")]);
    }
    let good = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane", "metadata": { "name": "good" },
        "spec": { "class": "ingest", "maxRunning": 3 },
    });
    scene.namespace.apply(&good.to_string());
    scene.namespace.kubectl(&["wait", "tlane/good", "--for=condition=Ready", "--timeout=60s"]);
    scene.accepted("after").await;
}
