//! When nothing has changed, another look at everything writes nothing: all kinds, with all that belongs to them.

use std::time::{Duration, Instant};

use kube::api::PostParams;
use serde_json::{Value, json};
use sluice::api::ingest_task::State;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::TaskType;
use sluice::store::control::{Request, Scope, cancel};
use sluice::store::ends::fail;
use sluice::store::enqueue::{NewTask, enqueue_many};

use crate::common::cluster::AuditEvent;
use crate::pools::{Pools, says};
use crate::scene::{NOTHING, SOON, Scene};

/// Longer than anything that is written late.
const QUIET: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn another_operator_looks_at_every_kind_and_writes_nothing() {
    let Some(mut pools) = Pools::new("quiet").await else { return };
    make_pools(&pools).await;
    make_lanes(&pools.scene).await;
    make_tasks(&pools.scene).await;
    run_a_job(&pools.scene).await;
    let events = pools.scene.namespace.kubectl(&["get", "events", "--output=jsonpath={.items[*].reason}"]);
    for reason in ["Refused", "Failed", "Cancelled", "Conflict", "InvalidPool"] {
        assert!(events.contains(reason), "no event {reason}: {events}");
    }
    quiet(&pools.scene).await;

    pools.scene.stop_operator();
    let before = pools.scene.writes().len();
    pools.scene.start_operator();
    pools.scene.namespace.kubectl(&["annotate", "ingesttasks,tenantlanes,workerpools", "--all", "looked-at=again"]);
    // What comes after all others is written; so they were looked at.
    pools.make("marker", json!({ "delivery": "bridged" })).await.expect("it is made");
    pools.shown("marker", |status| says(status, "Ready", "True", "UpToDate")).await;
    lane(&pools.scene, "marker", json!({ "class": "ingest" })).await;
    // One that makes no row, and so moves no count.
    refused(&pools.scene, "marker").await;
    let later = quiet(&pools.scene).await.split_off(before);
    let is_of_marker = |event: &AuditEvent| event.name.contains("marker");
    // There is no such Deployment: asking whether its template would do changes nothing.
    let is_dry = |event: &AuditEvent| ["sluice-jobs", "sluice-broken"].contains(&event.name.as_str());
    assert!(pools.scene.namespace.get("deployment/sluice-jobs").is_none());
    assert!(pools.scene.namespace.get("deployment/sluice-broken").is_none());
    assert!(later.iter().any(is_of_marker));
    let rest: Vec<_> = later.iter().filter(|event| !is_of_marker(event) && !is_dry(event)).collect();
    let told: Vec<_> =
        rest.iter().map(|event| (&event.verb, &event.resource, &event.subresource, &event.name)).collect();
    assert!(told.is_empty(), "{told:?}");
}

async fn make_pools(pools: &Pools) {
    let workers = json!({ "delivery": "bridged", "minReplicas": 1, "maxReplicas": 2, "threads": 2 });
    pools.make("heavy", workers).await.expect("it is made");
    pools
        .make("jobs", json!({ "mode": "Job", "delivery": "bridged", "maxReplicas": 2, "drainSeconds": 1 }))
        .await
        .expect("it is made");
    let broken =
        json!({ "template": { "spec": { "containers": [{ "name": "worker", "image": "none", "ports": "none" }] } } });
    pools.make("broken", broken).await.expect("it is made");
    pools.shown("heavy", |status| says(status, "Ready", "True", "UpToDate") && status.ready_replicas == Some(1)).await;
    pools.shown("jobs", |status| says(status, "TemplateValid", "True", "TemplateAccepted")).await;
    pools.shown("broken", |status| says(status, "TemplateValid", "False", "TemplateRefused")).await;
}

async fn lane(scene: &Scene, name: &str, spec: Value) {
    let lane = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane", "metadata": { "name": name }, "spec": spec,
    });
    scene
        .lanes
        .create(&PostParams::default(), &serde_json::from_value(lane).expect("a lane"))
        .await
        .expect("it is made");
    scene
        .until("the lane says nothing", async || {
            let status = scene.lanes.get(name).await.expect("it is there").status;
            status.is_some_and(|status| status.conditions.iter().any(|condition| condition.type_ == "Ready"))
        })
        .await;
}

async fn make_lanes(scene: &Scene) {
    lane(scene, "ingest", json!({ "class": "ingest", "maxRunning": 5 })).await;
    lane(scene, "twice", json!({ "class": "ingest", "maxRunning": 6 })).await;
    lane(scene, "lifecycle", json!({ "class": "lifecycle", "pool": "jobs", "maxRunning": 1 })).await;
}

async fn make_tasks(scene: &Scene) {
    let done = scene.accepted("done").await;
    scene.finish(done).await;
    scene.wait_state("done", State::Completed).await;
    let failed = scene.accepted("failed").await;
    let attempt = scene.run(failed).await;
    fail(&scene.worker, attempt, FailureClass::InvalidDocument, Some("broken"), NOTHING).await.expect("an answer");
    scene.wait_state("failed", State::Failed).await;
    let cancelled = scene.accepted("cancelled").await;
    let by_somebody = Request { by: Some("somebody"), reason: None };
    cancel(&scene.operator_role, cancelled, by_somebody, Scope::default()).await.expect("an answer");
    scene.wait_state("cancelled", State::Cancelled).await;
    let running = scene.accepted("running").await;
    scene.run(running).await;
    scene.wait_state("running", State::Processing).await;
    scene.accepted_with("kept", json!({ "suspend": true, "deletionPolicy": "CancelAndWait" })).await;
    scene.wait_condition("kept", "LanePermitted", "False", "Suspended").await;
    refused(scene, "refused").await;
}

async fn refused(scene: &Scene, name: &str) {
    scene.create(name, json!({ "type": "Insert", "source": { "url": "s3://bucket/a.pdf" } })).await;
    scene.wait_condition(name, "Accepted", "False", "SourceNotAllowed").await;
}

/// One that outlives the test, and one that waits for its end.
async fn run_a_job(scene: &Scene) {
    let task = NewTask {
        payload: json!({ "handler": "sleep", "ms": 600_000 }),
        ..NewTask::new(TaskType::Deletion, scene.namespace.name.clone())
    };
    enqueue_many(&scene.worker, &[task.clone(), task]).await.expect("they are taken in");
    let adopted = "select count(*) from sluice.tasks t join sluice.workers w using (worker_id)
                    where t.type = 'deletion' and t.state = 'processing' and w.pod_uid is not null";
    scene
        .until("no pod has the attempt", async || {
            sqlx::query_scalar::<_, i64>(adopted).fetch_one(scene.db.admin()).await.expect("a count") == 1
        })
        .await;
}

/// All writes of the operator, once it writes no more.
async fn quiet(scene: &Scene) -> Vec<AuditEvent> {
    let begun = Instant::now();
    let mut writes = scene.writes();
    loop {
        tokio::time::sleep(QUIET).await;
        let now = scene.writes();
        if now.len() == writes.len() {
            return now;
        }
        assert!(begun.elapsed() < SOON, "it never stops writing\n{}", scene.log());
        writes = now;
    }
}
