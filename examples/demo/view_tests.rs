use serde_json::{Value, json};

use super::*;

fn task(spec: Value, status: Value) -> Seen {
    let mut whole = json!({ "type": "PdfProcessing", "source": { "url": "file:///documents/a.pdf" } });
    for (name, value) in spec.as_object().expect("an object") {
        whole[name] = value.clone();
    }
    let object = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "IngestTask",
        "metadata": { "name": "a", "namespace": "acme" }, "spec": whole, "status": status,
    });
    Seen::Task(Box::new(serde_json::from_value(object).expect("a task")))
}

fn key() -> Key {
    ("acme".to_owned(), "a".to_owned())
}

#[test]
fn life_of_a_task_is_told_in_lines() {
    let steps = [
        (json!({}), Value::Null, "░░░░░░░░░░░░░░░░░░░░   0 %  submitted"),
        (
            json!({}),
            json!({ "state": "pending", "uiPhase": "idle", "displayStatus": "pending", "summary": "The lane is full" }),
            "░░░░░░░░░░░░░░░░░░░░   0 %  waiting      The lane is full",
        ),
        (
            json!({}),
            json!({ "state": "processing", "uiPhase": "running", "displayStatus": "converting", "progress": 50, "summary": "x" }),
            "███░░░░░░░░░░░░░░░░░  15 %  converting",
        ),
        (
            json!({}),
            json!({ "state": "completed", "uiPhase": "running", "displayStatus": "extracting", "progress": 50 }),
            "█████████████░░░░░░░  65 %  extracting",
        ),
        (
            json!({ "cancel": true }),
            json!({ "state": "completed", "uiPhase": "running", "displayStatus": "extracting", "progress": 50 }),
            "█████████████░░░░░░░  65 %  Stopping…",
        ),
        (
            json!({ "cancel": true }),
            json!({ "state": "completed", "uiPhase": "terminal", "displayStatus": "cancelled", "summary": "Cancelled" }),
            "█████████████░░░░░░░  65 %  cancelled",
        ),
    ];
    let mut view = View::default();
    for (spec, status, line) in steps {
        assert_eq!(view.take(&task(spec, status)), Change::Task(key()), "{line}");
        assert_eq!(view.line(&key()), format!("acme    a                        {line}"));
    }
    assert_eq!(view.tasks[&key()].end, Some(End::Cancelled));
    assert!(view.not_ended().is_empty());
}

#[test]
fn completed_task_has_a_full_bar_and_nothing_more_to_say() {
    let mut view = View::default();
    let status = json!({ "state": "completed", "uiPhase": "terminal", "displayStatus": "completed", "summary": "x" });
    view.take(&task(json!({}), status));
    assert!(view.line(&key()).ends_with("████████████████████ 100 %  completed"), "{}", view.line(&key()));
    assert!(view.surprises(("globex", "long")).is_empty());
    let surprises = view.surprises(("acme", "a"));
    assert_eq!(surprises, ["acme/a is completed and not Cancelled: x"]);
}

#[test]
fn refused_task_ends_as_a_surprise() {
    let mut view = View::default();
    let stalled = json!({
        "type": "Stalled", "status": "True", "reason": "SourceNotAllowed", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    view.take(&task(json!({}), json!({ "summary": "begins with none of", "conditions": [stalled] })));
    assert_eq!(view.surprises(("b", "c")), ["acme/a is refused and not Completed: begins with none of"]);
}

#[test]
fn small_steps_are_not_printed_and_add_up() {
    let mut view = View::default();
    let at = |progress: u32| {
        let status =
            json!({ "state": "completed", "uiPhase": "running", "displayStatus": "extracting", "progress": progress });
        task(json!({}), status)
    };
    view.take(&at(0));
    assert_eq!(view.take(&at(20)), Change::Nothing);
    assert_eq!(view.take(&at(40)), Change::Task(key()));
}

#[test]
fn lanes_and_workers_are_told_in_one_line() {
    let lane = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane",
        "metadata": { "name": "ingest", "namespace": "acme" }, "spec": { "class": "ingest" },
        "status": { "running": 1, "stopping": 1, "pending": 3, "effectiveMaxRunning": 2 },
    });
    let pool = |ready: u32| {
        let object = json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "WorkerPool", "metadata": { "name": "default" },
            "spec": { "template": {} }, "status": { "readyReplicas": ready },
        });
        Seen::Pool(Box::new(serde_json::from_value(object).expect("a pool")))
    };
    let mut view = View::default();
    let full = Seen::Lane(Box::new(serde_json::from_value(lane).expect("a lane")));
    assert_eq!((view.take(&full), view.take(&full)), (Change::Lanes, Change::Nothing));
    for (ready, change) in [(0, Change::Lanes), (2, Change::Lanes), (2, Change::Nothing), (0, Change::Lanes)] {
        assert_eq!(view.take(&pool(ready)), change);
    }
    assert_eq!(view.workers, [0, 2, 0]);
    assert_eq!(view.lanes_line(), "acme: 2 of at most 2 running, 3 waiting · workers: 0");
}
