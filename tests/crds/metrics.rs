//! Every metric that the code registers, with its type, labels and meaning, read from the code: families that are still empty
//! are left out of what a process shows.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Of each process: the file that registers its metrics, their prefix, and who shows them where.
const REGISTRIES: [(&str, &str, &str); 2] = [
    (
        "src/operator/instrument.rs",
        "sluice_operator",
        "The operator, at `/metrics` of port 8081. Only the leader counts tasks and lanes.",
    ),
    (
        "src/worker/metrics.rs",
        "sluice_worker",
        "Each worker, at `/metrics` of `SLUICE_HEALTH_LISTEN` (port 8081 in a pool's pods).",
    ),
];

pub struct Metric {
    pub name: String,
    /// As Prometheus calls it.
    pub type_: &'static str,
    pub labels: Vec<String>,
    pub help: String,
}

/// Of each process what it is, and what it counts.
pub fn metrics() -> Vec<(&'static str, Vec<Metric>)> {
    let of = |(file, prefix, title): (&str, &str, &'static str)| {
        let code = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let calls = code.split("registry.register(").skip(1);
        (title, calls.map(|call| metric(&code, call, prefix)).collect())
    };
    REGISTRIES.into_iter().map(of).collect()
}

/// From a call's `"name", "help", metrics.field.clone()`.
fn metric(code: &str, call: &str, prefix: &str) -> Metric {
    let mut strings = call.split('"').skip(1).step_by(2);
    let (name, help) = (strings.next().unwrap(), strings.next().unwrap());
    let field = call.split(".clone()").next().unwrap().rsplit('.').next().unwrap();
    let declared = code.split(&format!("{field}: ")).find_map(|rest| {
        let kind = rest.split_once(",\n")?.0;
        ["Family<", "Counter", "Gauge", "Histogram"].iter().any(|start| kind.starts_with(start)).then_some(kind)
    });
    let declared = declared.unwrap_or_else(|| panic!("{name}: no field {field}"));
    let type_ = match declared {
        kind if kind.contains("Counter") => "counter",
        kind if kind.contains("Histogram") => "histogram",
        _ => "gauge",
    };
    let labels = declared.strip_prefix("Family<").map(|rest| labels(code, rest.split_once(',').unwrap().0));
    let suffix = if type_ == "counter" { "_total" } else { "" };
    let name = format!("{prefix}_{name}{suffix}");
    Metric { name, type_, labels: labels.unwrap_or_default(), help: help.to_owned() }
}

/// The fields of a set of labels.
fn labels(code: &str, set: &str) -> Vec<String> {
    let body = code.split_once(&format!("struct {set} {{")).unwrap().1.split_once('}').unwrap().0;
    let names = body.lines().filter_map(|line| line.trim().trim_start_matches("pub ").split_once(':'));
    names.map(|(name, _)| name.trim_start_matches("r#").to_owned()).collect()
}

#[test]
fn page_of_the_workers_explains_each_of_their_metrics() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/worker.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("Metrics\n")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let named = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let named: BTreeSet<_> = named.map(|name| format!("sluice_worker_{name}")).collect();
    let (_, of_workers) = metrics().pop().unwrap();
    let known: BTreeSet<_> = of_workers.into_iter().map(|metric| metric.name).collect();
    assert_eq!(named, known);
}

#[test]
fn metrics_are_read_as_they_are_registered() {
    let all: Vec<_> = metrics().into_iter().flat_map(|(_, metrics)| metrics).collect();
    let shown = |name: &str| {
        let metric = all.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
        (metric.type_, metric.labels.join(","))
    };
    assert_eq!(shown("sluice_operator_reconciles_total"), ("counter", "kind,outcome".to_owned()));
    assert_eq!(shown("sluice_operator_lane_tasks"), ("gauge", "tenant,class,state".to_owned()));
    assert_eq!(shown("sluice_operator_cancel_seconds"), ("histogram", String::new()));
    assert_eq!(shown("sluice_worker_handler_seconds"), ("histogram", "type".to_owned()));
    assert_eq!(shown("sluice_worker_last_claim_age_seconds"), ("gauge", String::new()));
}
