//! `docs/reference.md` is made from the schemas and the closed lists; `make generate` writes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;
use sluice::api::conditions::{ConditionType, Reason};
use sluice::operator::events::EventReason;

use crate::generated::{definitions, fields};
use crate::metrics::metrics;

const INTRODUCTION: &str = "\
# Reference: fields, conditions, events, metrics

Made from the code by `make generate`; a test compares. `kubectl explain igt.spec` says the same.

Group `sluice.dev`, version `v1alpha1`. No field has a default in the schema: what nobody wrote stays unwritten, and the
operator takes what *Meaning* says. Null is the same as absent, but server-side apply refuses it. *Fixed* means that the
field can be neither changed, added nor removed: the API server refuses it, and a new resource is needed.
";

const EVENTS: &str = "
## Events

One Event object for each reason of a resource, however often it happens; `kubectl describe` shows them. An event is a hint
that may be lost: the conditions say the same.

| reason | type | meaning |
|---|---|---|
";

const METRICS: &str = "
## Metrics

Label values are closed sets, but for `tenant`: of lanes, the hundred with the most live tasks are shown one by one, and all
of them in the sums. States that a task can be in: `running`, `stopping`, `waiting` (for a worker), `parked` (its lane is full,
held or resting), `suspended`, `backing_off`. A histogram has `_bucket`, `_sum` and `_count`.
";

fn render() -> String {
    let mut text = INTRODUCTION.to_owned();
    for definition in definitions() {
        let names = &definition["spec"]["names"];
        let version = &definition["spec"]["versions"][0];
        let schema = &version["schema"]["openAPIV3Schema"];
        let _ = write!(
            text,
            "\n## {}\n\nShort name `{}`, category `{}`. {}\n",
            plain(&names["kind"]),
            plain(&names["shortNames"][0]),
            plain(&names["categories"][0]),
            plain(&schema["description"]),
        );
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let selectable: Vec<_> =
            selectable.map(|field| format!("`{}`", plain(&field["jsonPath"]).trim_start_matches('.'))).collect();
        let _ = write!(text, "\nField selectors: {}.\n", selectable.join(", "));
        let fixed = fixed_fields(schema);
        text += "\n| spec | type | bounds | fixed | meaning |\n|---|---|---|---|---|\n";
        for (path, field) in fields(&definition).iter().filter(|(path, _)| path.starts_with("spec.")) {
            let top = path.split('.').nth(1).unwrap_or_default();
            let is_fixed = if fixed.contains(top) { "yes" } else { "" };
            let _ = writeln!(text, "| {} | {is_fixed} | {} |", columns(path, field, "spec."), meaning(field));
        }
        text += "\nRules between fields:\n\n";
        for rule in rules_between_fields(&definition) {
            let _ = writeln!(text, "- {rule}");
        }
        text += "\n| status | type | bounds | meaning |\n|---|---|---|---|\n";
        let is_own = |path: &str| path.starts_with("status.") && !path.starts_with("status.conditions[]");
        for (path, field) in fields(&definition).iter().filter(|(path, _)| is_own(path)) {
            let _ = writeln!(text, "| {} | {} |", columns(path, field, "status."), meaning(field));
        }
    }
    text += "\n## Conditions\n\n| type | meaning |\n|---|---|\n";
    for type_ in ConditionType::ALL {
        let _ = writeln!(text, "| {type_} | {} |", type_.description());
    }
    text += "\n## Reasons\n\n| reason | meaning, and what to do |\n|---|---|\n";
    for reason in Reason::ALL {
        let _ = writeln!(text, "| {reason} | {} |", reason.description());
    }
    text += EVENTS;
    for reason in EventReason::ALL {
        let type_ = if reason.is_warning() { "Warning" } else { "Normal" };
        let _ = writeln!(text, "| {reason} | {type_} | {} |", reason.description());
    }
    text += METRICS;
    for (title, metrics) in metrics() {
        let _ = write!(text, "\n{title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for metric in metrics {
            let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "| `{}` | {} | {labels} | {}. |", metric.name, metric.type_, metric.help);
        }
    }
    text
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn meaning(schema: &Value) -> String {
    plain(&schema["description"]).replace('|', "\\|")
}

fn columns(path: &str, schema: &Value, prefix: &str) -> String {
    let name = path.trim_start_matches(prefix);
    let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let type_ = if schema["format"] == "date-time" { "time" } else { plain(&schema["type"]) };
    let mut bounds = Vec::new();
    if let (Some(least), Some(most)) = (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
        bounds.push(format!("{least} to {most}"));
    }
    let is_uuid = plain(&schema["pattern"]).starts_with("^[0-9a-fA-F]{8}-");
    if let Some(most) = schema["maxLength"].as_u64().filter(|_| !is_uuid) {
        bounds.push(format!("{} to {most} characters", schema["minLength"].as_u64().unwrap_or(0)));
    }
    if let Some(most) = schema["maxItems"].as_u64() {
        bounds.push(format!("at most {most}"));
    }
    if let Some(names) = schema["enum"].as_array() {
        bounds.push(names.iter().map(|name| format!("`{}`", plain(name))).collect::<Vec<_>>().join(" "));
    }
    match plain(&schema["pattern"]) {
        "" => {}
        _ if is_uuid => bounds.push("a UUID".to_owned()),
        r"^[^\x00]*$" => bounds.push("any but U+0000".to_owned()),
        pattern => bounds.push(format!("`{}`", pattern.replace('|', "\\|"))),
    }
    if is_open {
        bounds.push("open".to_owned());
    }
    format!("`{name}` | {type_} | {}", bounds.join(", "))
}

fn validations(schema: &Value) -> impl Iterator<Item = &Value> {
    schema["x-kubernetes-validations"].as_array().into_iter().flatten()
}

fn is_fixing(rule: &Value) -> bool {
    plain(&rule["rule"]).contains("oldSelf")
}

fn fixed_fields(schema: &Value) -> BTreeSet<String> {
    let rules = validations(&schema["properties"]["spec"]).filter(|rule| is_fixing(rule));
    rules.map(|rule| plain(&rule["fieldPath"]).trim_start_matches('.').to_owned()).collect()
}

fn rules_between_fields(definition: &Value) -> Vec<String> {
    let schemas = fields(definition);
    let of_field = |(path, schema): &(String, Value)| {
        let told = |rule: &Value| format!("`{path}{}`: {}", plain(&rule["fieldPath"]), plain(&rule["message"]));
        validations(schema).filter(|rule| !is_fixing(rule)).map(told).collect::<Vec<_>>()
    };
    schemas.iter().flat_map(of_field).collect()
}

#[test]
fn the_reference_says_what_the_code_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference.md");
    let rendered = render();
    if std::env::var_os("SLUICE_WRITE_GENERATED").is_some() {
        fs::write(&file, &rendered).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == rendered, "docs/reference.md is not what the code says: run make generate");
}
