//! What somebody sees who has never seen the project: columns, explanations, selectors, waits.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sluice::api::conditions::{ConditionType, Reason};
use sluice::api::ingest_task::{CHILDREN_MAX, Child, Failure, State, TaskType, UiPhase};
use sluice::api::tenant_lane::LaneClass;
use sluice::api::{
    Condition, ConditionStatus, FAILURE_MESSAGE_MAX_BYTES, IngestTask, IngestTaskStatus, SUMMARY_MAX_CHARS, TenantLane,
    Time, WorkerPool,
};

use crate::bed::{Bed, KINDS, full, installed, minimal};

const ID: &str = "0190c2a4-7b3e-7c11-9d5a-3f0a1b2c3d4e";

fn time() -> Time {
    Time::from(DateTime::<Utc>::from_timestamp(1_700_000_000, 0).unwrap())
}

#[tokio::test]
async fn columns_say_what_it_does_and_why() {
    let bed = Bed::new("columns").await;
    let task = bed.apply(&minimal("IngestTask")).await;
    let status = json!({
        "displayStatus": "extracting", "uiPhase": "running", "progress": 42, "summary": "extracting, attempt 2 of 3",
        "attempt": 2, "tenant": "acme", "class": "ingest", "trackId": ID, "worker": "w-1", "pool": "gpu", "documentId": ID,
    });
    bed.write_status(&task, &status).await.unwrap();
    let lane = bed.apply(&full("TenantLane")).await;
    let status = json!({ "tenant": "acme", "effectiveMaxRunning": 4, "running": 3, "pending": 7, "parked": 2, "summary": "held: maintenance" });
    bed.write_status(&lane, &status).await.unwrap();
    let pool = bed.apply(&full("WorkerPool")).await;
    let status = json!({ "replicas": 2, "readyReplicas": 1, "desiredReplicas": 3, "demand": 9, "summary": "scaled up: more work is permitted" });
    bed.write_status(&pool, &status).await.unwrap();

    let printed = bed.namespace.kubectl(&["get", "igt,tlane,wpool"]);
    let lines: Vec<String> = printed
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.is_empty())
        .collect();
    let expected = [
        "NAME TYPE STATUS PHASE PROGRESS WHY AGE",
        "ingesttask.sluice.dev/minimal Insert extracting running 42 extracting, attempt 2 of 3",
        "NAME TENANT CLASS MAX RUNNING PENDING PARKED WHY AGE",
        "tenantlane.sluice.dev/full acme ingest 4 3 7 2 held: maintenance",
        "NAME REPLICAS READY DESIRED MAX DEMAND WHY AGE",
        "workerpool.sluice.dev/full 2 1 3 5 9 scaled up: more work is permitted",
    ];
    assert_eq!(lines.len(), expected.len(), "{printed}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
    let all = bed.namespace.kubectl(&["get", "sluice", "--output=name"]);
    assert_eq!(all.lines().count(), 3, "{all}");
    let wide = bed.namespace.kubectl(&["get", "igt", "--output=wide"]);
    assert!(["acme", "gpu", "w-1", ID].iter().all(|word| wide.contains(word)), "{wide}");
}

#[tokio::test]
async fn tasks_are_selected_by_tenant_class_and_phase() {
    let bed = Bed::new("selected").await;
    for (name, tenant, phase) in [("a", "acme", "running"), ("b", "acme", "idle"), ("c", "globex", "running")] {
        let mut object = minimal("IngestTask");
        object["metadata"]["name"] = json!(name);
        let stored = bed.apply(&object).await;
        bed.write_status(&stored, &json!({ "tenant": tenant, "class": "ingest", "uiPhase": phase })).await.unwrap();
    }
    for (selector, expected) in [
        ("status.tenant=acme", "a b"),
        ("status.tenant=acme,status.uiPhase=running", "a"),
        ("status.class=lifecycle", ""),
        ("spec.type=Insert,status.tenant=globex", "c"),
    ] {
        let selector = format!("--field-selector={selector}");
        let names = bed.namespace.kubectl(&["get", "igt", &selector, "--output=jsonpath={.items[*].metadata.name}"]);
        assert_eq!(names, expected, "{selector}");
    }
}

#[test]
fn explain_has_a_text_for_what_people_set() {
    let kubectl = installed().admin();
    for (field, words) in [
        ("ingesttask", "asks for it and shows it"),
        ("igt.spec.cancel", "only a higher value of retries starts the task again"),
        ("igt.spec.type", "PdfProcessing converts a PDF"),
        ("igt.spec.source.text", "at most 1 MiB"),
        ("igt.status.uiPhase", "ENUM: idle running stopping terminal"),
        ("tlane.spec.maxRunning", "0 is no cap"),
        ("wpool.spec.delivery", "ENUM: local bridged notify_only"),
        ("wpool.spec.template", "as in a Deployment"),
    ] {
        let told = kubectl.run(&["explain", field]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(words), "{field}: {told}");
    }
}

#[tokio::test]
async fn kubectl_waits_for_conditions_and_fields() {
    let bed = Bed::new("wait").await;
    let stored = bed.apply(&minimal("IngestTask")).await;
    let succeeded =
        Condition::new(ConditionType::Succeeded, ConditionStatus::True, Reason::Completed, "", Some(1), time());
    let status = IngestTaskStatus {
        state: Some(State::Completed),
        ui_phase: Some(UiPhase::Terminal),
        conditions: vec![succeeded],
        ..IngestTaskStatus::default()
    };
    bed.write_status(&stored, &serde_json::to_value(status).unwrap()).await.unwrap();
    bed.namespace.kubectl(&["wait", "igt/minimal", "--for=condition=Succeeded", "--timeout=30s"]);
    bed.namespace.kubectl(&["wait", "igt/minimal", "--for=jsonpath={.status.uiPhase}=terminal", "--timeout=30s"]);
}

#[tokio::test]
async fn the_status_is_written_through_its_subresource_only() {
    let bed = Bed::new("subresource").await;
    for kind in KINDS {
        let mut object = minimal(kind);
        object["status"] = json!({ "summary": "written by a user" });
        assert!(bed.apply(&object).await["status"].is_null(), "{kind}");
    }
}

#[tokio::test]
async fn the_largest_status_is_taken_and_stays_under_16_kib() {
    let bed = Bed::new("largest").await;
    let stored = bed.apply(&minimal("IngestTask")).await;
    let condition = |type_: &ConditionType| {
        let message = "€".repeat(100_000);
        Condition::new(
            *type_,
            ConditionStatus::Unknown,
            Reason::RetryBlockedByCancel,
            &message,
            Some(i64::from(u32::MAX)),
            time(),
        )
    };
    let of_tasks = ConditionType::ALL.iter().filter(|type_| {
        ![ConditionType::Held, ConditionType::DeliveryRule, ConditionType::TemplateValid, ConditionType::Scaled]
            .contains(type_)
    });
    let child = |number: usize| Child {
        track_id: format!("0190c2a4-7b3e-7c11-9d5a-3f0a1b2c{number:04}"),
        task_type: TaskType::KnowledgeInjection,
        state: State::Processing,
    };
    let status = IngestTaskStatus {
        observed_generation: Some(i64::from(u32::MAX)),
        observed_rev: Some(i64::from(u32::MAX)),
        observed_retries: Some(1_000_000),
        track_id: Some(ID.to_owned()),
        tenant: Some("𝔘".repeat(253)),
        class: Some(LaneClass::Lifecycle),
        pool: Some("𝔘".repeat(253)),
        state: Some(State::Processing),
        display_status: Some("𝔘".repeat(64)),
        ui_phase: Some(UiPhase::Terminal),
        stage: Some("𝔘".repeat(64)),
        progress: Some(100),
        attempt: Some(u32::MAX / 2),
        retries: Some(3),
        worker: Some("w".repeat(253)),
        document_id: Some(ID.to_owned()),
        children: (0..CHILDREN_MAX).map(child).collect(),
        children_counts: Some(Default::default()),
        started_at: Some(time()),
        finished_at: Some(time()),
        summary: Some("𝔘".repeat(SUMMARY_MAX_CHARS)),
        failure: Some(Failure {
            class: "document_too_large".into(),
            message: "e".repeat(FAILURE_MESSAGE_MAX_BYTES),
            recommended_action: "reduce_concurrency_or_check_provider".into(),
        }),
        conditions: of_tasks.map(condition).collect(),
    };
    let size = serde_json::to_vec(&status).unwrap().len();
    assert!(size < 16 * 1024, "{size} bytes");
    let written = bed.write_status(&stored, &serde_json::to_value(&status).unwrap()).await.unwrap();
    let read: IngestTask = serde_json::from_value(written).unwrap();
    assert_eq!(read.status, Some(status));
}

#[test]
fn every_object_that_the_server_takes_can_be_read() {
    fn reads<K: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) {
        let parsed: K = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(parsed).unwrap()["spec"], object["spec"]);
    }
    for object in [full, minimal] {
        reads::<IngestTask>(&object("IngestTask"));
        reads::<TenantLane>(&object("TenantLane"));
        reads::<WorkerPool>(&object("WorkerPool"));
    }
}
