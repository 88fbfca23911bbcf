//! Argo CD's health checks and actions, run in Lua 5.1 with no more of its library than Argo CD gives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mlua::{Lua, LuaOptions, StdLib, Table};
use serde_json::{Map, Value, json};

use crate::bed::full;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards/argocd")
}

fn script(path: &str) -> String {
    fs::read_to_string(root().join("sluice.dev").join(path)).unwrap()
}

/// What the script returns, given this `obj`.
fn run(path: &str, object: &Value) -> Value {
    let lua = Lua::new_with(StdLib::TABLE, LuaOptions::default()).unwrap();
    lua.globals().set("obj", to_lua(&lua, object)).unwrap();
    let answer: Table = lua.load(script(path)).set_name(path).eval().unwrap();
    from_lua(&mlua::Value::Table(answer))
}

fn to_lua(lua: &Lua, value: &Value) -> mlua::Value {
    match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(flag) => mlua::Value::Boolean(*flag),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap()),
        Value::String(text) => mlua::Value::String(lua.create_string(text).unwrap()),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_lua(lua, item));
            mlua::Value::Table(lua.create_sequence_from(items).unwrap())
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, field)| (name.as_str(), to_lua(lua, field)));
            mlua::Value::Table(lua.create_table_from(fields).unwrap())
        }
    }
}

fn from_lua(value: &mlua::Value) -> Value {
    match value {
        mlua::Value::Boolean(flag) => json!(flag),
        mlua::Value::Integer(number) => json!(number),
        mlua::Value::Number(number) if number.fract() == 0.0 => json!(number.to_string().parse::<i64>().unwrap()),
        mlua::Value::Number(number) => json!(number),
        mlua::Value::String(text) => json!(text.to_str().unwrap().to_owned()),
        mlua::Value::Table(table) if table.raw_len() > 0 => {
            table.sequence_values::<mlua::Value>().map(|item| from_lua(&item.unwrap())).collect()
        }
        mlua::Value::Table(table) => {
            let pairs = table.pairs::<String, mlua::Value>().map(Result::unwrap);
            Value::Object(pairs.map(|(name, field)| (name, from_lua(&field))).collect::<Map<_, _>>())
        }
        other => panic!("a script returned {other:?}"),
    }
}

fn object(kind: &str, spec: Value, status: Value) -> Value {
    let mut object = full(kind);
    object["metadata"]["generation"] = json!(2);
    object["spec"] = spec;
    object["status"] = status;
    object
}

fn seen(mut status: Value) -> Value {
    status["observedGeneration"] = json!(2);
    status
}

fn condition(type_: &str, status: &str, message: &str) -> Value {
    json!({ "type": type_, "status": status, "reason": "Reason", "message": message })
}

fn assert_health(kind: &str, spec: Value, status: Value, health: &str, message: &str) {
    let answer = run(&format!("{kind}/health.lua"), &object(kind, spec, status.clone()));
    assert_eq!(answer, json!({ "status": health, "message": message }), "{kind} with {status}");
}

#[test]
fn a_task_is_healthy_when_it_did_what_its_spec_asks() {
    let plain = || json!({ "type": "Insert" });
    let cases = [
        (plain(), json!({}), "Progressing", "the operator has not seen this version yet"),
        (plain(), json!({ "observedGeneration": 1 }), "Progressing", "the operator has not seen this version yet"),
        (plain(), seen(json!({ "uiPhase": "idle", "state": "pending", "summary": "waits" })), "Progressing", "waits"),
        (plain(), seen(json!({ "uiPhase": "running", "summary": "extracting" })), "Progressing", "extracting"),
        (plain(), seen(json!({ "uiPhase": "stopping", "state": "stopping" })), "Progressing", ""),
        (
            plain(),
            seen(
                json!({ "uiPhase": "terminal", "conditions": [condition("Succeeded", "True", "")], "summary": "done" }),
            ),
            "Healthy",
            "done",
        ),
        (
            plain(),
            seen(json!({
                "uiPhase": "terminal", "state": "failed", "conditions": [condition("Succeeded", "False", "")],
                "failure": { "class": "no_text_layer", "message": "no text", "recommendedAction": "fix_document" },
            })),
            "Degraded",
            "no_text_layer: no text (fix_document)",
        ),
        (
            json!({ "type": "Insert", "cancel": true }),
            seen(json!({ "uiPhase": "terminal", "state": "cancelled", "summary": "Cancelled before execution" })),
            "Healthy",
            "Cancelled before execution",
        ),
        (
            plain(),
            seen(json!({ "uiPhase": "terminal", "state": "cancelled", "summary": "cancelled by admin" })),
            "Degraded",
            "cancelled by admin",
        ),
        (
            plain(),
            seen(json!({ "conditions": [condition("Accepted", "False", "not your tenant")] })),
            "Degraded",
            "not your tenant",
        ),
        (
            plain(),
            seen(json!({ "conditions": [condition("Accepted", "True", ""), condition("Stalled", "True", "")] })),
            "Degraded",
            "Reason",
        ),
        (
            json!({ "type": "Insert", "suspend": true }),
            seen(json!({ "uiPhase": "idle", "state": "pending" })),
            "Suspended",
            "spec.suspend is true",
        ),
    ];
    for (spec, status, health, message) in cases {
        assert_health("IngestTask", spec, status, health, message);
    }
}

#[test]
fn a_lane_and_a_pool_say_what_is_in_the_way() {
    let ready = || condition("Ready", "True", "");
    let lanes = [
        (json!({}), "Progressing", "the operator has not seen this version yet"),
        (seen(json!({ "conditions": [ready()], "summary": "3 of 4 run" })), "Healthy", "3 of 4 run"),
        (
            seen(json!({ "conditions": [ready(), condition("Held", "True", "maintenance")] })),
            "Suspended",
            "maintenance",
        ),
        (
            seen(json!({ "conditions": [condition("Accepted", "False", "an older one wins")] })),
            "Degraded",
            "an older one wins",
        ),
        (
            seen(json!({ "conditions": [condition("Ready", "False", "x"), condition("Reconciling", "True", "")] })),
            "Progressing",
            "",
        ),
    ];
    for (status, health, message) in lanes {
        assert_health("TenantLane", json!({ "class": "ingest" }), status, health, message);
    }
    let pools = [
        (seen(json!({ "conditions": [ready()], "summary": "enough" })), "Healthy", "enough"),
        (seen(json!({ "conditions": [condition("DeliveryRule", "False", "local"), ready()] })), "Degraded", "local"),
        (
            seen(json!({ "conditions": [condition("TemplateValid", "False", "no containers")] })),
            "Degraded",
            "no containers",
        ),
        (seen(json!({ "conditions": [condition("Stalled", "True", "pods")] })), "Degraded", "pods"),
        (seen(json!({ "conditions": [] })), "Progressing", ""),
    ];
    for (status, health, message) in pools {
        assert_health("WorkerPool", json!({ "template": {} }), status, health, message);
    }
}

fn allowed(kind: &str, spec: Value, status: Value) -> Vec<String> {
    let actions = run(&format!("{kind}/actions/discovery.lua"), &object(kind, spec, status));
    let actions: BTreeMap<String, Value> = serde_json::from_value(actions).unwrap();
    actions.into_iter().filter(|(_, action)| action["disabled"] == false).map(|(name, _)| name).collect()
}

#[test]
fn only_actions_that_can_do_something_are_offered() {
    let task = |spec, status| allowed("IngestTask", spec, status);
    assert_eq!(task(json!({}), json!({})), ["cancel", "suspend"]);
    assert_eq!(task(json!({ "suspend": true }), json!({ "state": "pending" })), ["cancel", "resume"]);
    assert_eq!(task(json!({}), json!({ "state": "processing", "uiPhase": "running" })), ["cancel"]);
    assert_eq!(task(json!({ "cancel": true }), json!({ "state": "stopping", "uiPhase": "stopping" })), [""; 0]);
    let ended = |state: &str| json!({ "state": state, "displayStatus": state, "uiPhase": "terminal" });
    assert_eq!(task(json!({}), ended("failed")), ["retry"]);
    assert_eq!(task(json!({}), ended("completed")), [""; 0]);
    assert_eq!(task(json!({ "cancel": true }), ended("cancelled")), [""; 0]);

    let lane = |spec| allowed("TenantLane", spec, json!({}));
    assert_eq!(lane(json!({})), ["drain", "hold"]);
    assert_eq!(lane(json!({ "policy": "Hold" })), ["drain", "release"]);
}

#[test]
fn an_action_changes_its_field_and_nothing_else() {
    let cases = [
        ("IngestTask", "cancel", json!({}), json!({}), json!({ "cancel": true })),
        ("IngestTask", "suspend", json!({}), json!({}), json!({ "suspend": true })),
        ("IngestTask", "resume", json!({ "suspend": true }), json!({}), json!({ "suspend": false })),
        ("IngestTask", "retry", json!({}), json!({}), json!({ "retries": 1 })),
        ("IngestTask", "retry", json!({ "retries": 4 }), json!({ "observedRetries": 4 }), json!({ "retries": 5 })),
        ("IngestTask", "retry", json!({ "retries": 1 }), json!({ "observedRetries": 4 }), json!({ "retries": 5 })),
        ("TenantLane", "hold", json!({}), json!({}), json!({ "policy": "Hold" })),
        ("TenantLane", "drain", json!({ "policy": "Hold" }), json!({}), json!({ "policy": "HoldAndDrain" })),
        (
            "TenantLane",
            "release",
            json!({ "policy": "Hold", "policyReason": "x" }),
            json!({}),
            json!({ "policy": "None" }),
        ),
    ];
    for (kind, action, mut before, status, after) in cases {
        before["pool"] = json!("default");
        let mut expected = object(kind, after, status.clone());
        expected["spec"]["pool"] = json!("default");
        // Lua does not tell an empty table from an empty list.
        let changed = run(&format!("{kind}/actions/{action}/action.lua"), &object(kind, before, status));
        assert_eq!(changed, expected, "{action} on {kind}");
    }
}

/// The patch for Argo CD's ConfigMap.
fn patch() -> String {
    let mut data = BTreeMap::new();
    for kind in ["IngestTask", "TenantLane", "WorkerPool"] {
        data.insert(format!("resource.customizations.health.sluice.dev_{kind}"), script(&format!("{kind}/health.lua")));
        let folder = root().join("sluice.dev").join(kind).join("actions");
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        let indented = |text: String, by: &str| text.lines().map(|line| format!("{by}{line}\n")).collect::<String>();
        let mut actions = "discovery.lua: |\n".to_owned();
        actions += &indented(script(&format!("{kind}/actions/discovery.lua")), "  ");
        actions += "definitions:\n";
        for name in names {
            actions += &format!("- name: {name}\n  action.lua: |\n");
            actions += &indented(script(&format!("{kind}/actions/{name}/action.lua")), "    ");
        }
        data.insert(format!("resource.customizations.actions.sluice.dev_{kind}"), actions);
    }
    format!("# Made from the scripts beside it: change those, then run make generate.\n{}", literal(&data))
}

fn literal(data: &BTreeMap<String, String>) -> String {
    let mut text = "data:\n".to_owned();
    for (key, script) in data {
        text += &format!("  {key}: |\n");
        for line in script.lines() {
            text += if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }.as_str();
        }
    }
    text
}

#[test]
fn the_patch_has_the_scripts_beside_it() {
    let file = root().join("argocd-cm.yaml");
    if std::env::var_os("SLUICE_WRITE_GENERATED").is_some() {
        fs::write(&file, patch()).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == patch(), "dashboards/argocd/argocd-cm.yaml is not what the scripts say: run make generate");
    let parsed: Value = serde_saphyr::from_str(&kept).unwrap();
    assert_eq!(parsed["data"].as_object().unwrap().len(), 5);
    let actions = parsed["data"]["resource.customizations.actions.sluice.dev_IngestTask"].as_str().unwrap();
    let actions: Value = serde_saphyr::from_str(actions).unwrap();
    assert_eq!(actions["definitions"][0]["name"], "cancel");
    assert_eq!(actions["definitions"][0]["action.lua"], script("IngestTask/actions/cancel/action.lua"));
}
