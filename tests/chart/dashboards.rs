//! Alerts and dashboards name only metrics that the code has, and pages that are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::helm::root;

/// What the text format appends to a metric's name.
const SUFFIXES: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_created"];

/// Names that the code registers: each registry's prefix with each of its names, file by file.
fn registered() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                names.extend(registered_in(&path));
            }
        }
    }
    names
}

fn registered_in(path: &Path) -> Vec<String> {
    let code = fs::read_to_string(path).unwrap();
    let prefixes = strings_after(&code, "with_prefix(");
    let mut names = strings_after(&code, "register(");
    names.extend(strings_after(&code, "register_with_unit("));
    // The operator's controllers add theirs to the one registry of its process.
    let prefixes = match prefixes.is_empty() && code.contains("with_registry(") {
        true => vec!["sluice_operator".to_owned()],
        false => prefixes,
    };
    prefixes.iter().flat_map(|prefix| names.iter().map(move |name| format!("{prefix}_{name}"))).collect()
}

/// The string literals that follow a call's opening, on the same line or the next.
fn strings_after(code: &str, opening: &str) -> Vec<String> {
    let calls = code.split(opening).skip(1);
    calls.filter_map(|rest| Some(rest.trim_start().strip_prefix('"')?.split_once('"')?.0.to_owned())).collect()
}

/// All words of a text that look like a metric of ours.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("sluice_"));
    ours.map(|word| SUFFIXES.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()).collect()
}

fn assert_known(file: &str) {
    let known = registered();
    let named = named(&fs::read_to_string(root().join(file)).unwrap());
    assert!(!named.is_empty(), "{file} names no metric");
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{file}: {unknown:?} are not among {known:?}");
}

#[test]
fn alerts_name_metrics_that_there_are() {
    assert_known("dashboards/alerts.yaml");
}

#[test]
fn dashboard_names_metrics_that_there_are() {
    assert_known("dashboards/grafana.json");
}

#[test]
fn every_alert_says_how_bad_it_is_and_where_to_read_on() {
    let rules: Value =
        serde_saphyr::from_str(&fs::read_to_string(root().join("dashboards/alerts.yaml")).unwrap()).unwrap();
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let anchors: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    for rule in rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let name = rule["alert"].as_str().unwrap();
        assert!(["warning", "critical"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(rule["for"].is_string() && rule["annotations"]["summary"].is_string(), "{name}");
        let read_on = rule["annotations"]["runbook"].as_str().unwrap();
        let wanted = read_on.strip_prefix("docs/troubleshooting.md#").unwrap_or_else(|| panic!("{name}: {read_on}"));
        assert!(anchors.contains(wanted), "{name}: {wanted} is not among {anchors:?}");
    }
}

#[test]
fn dashboard_has_panels_with_queries_and_titles() {
    let text = fs::read_to_string(root().join("dashboards/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    assert!(dashboard["uid"].is_string() && dashboard["title"].is_string());
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(panel["title"].is_string(), "{panel}");
        if panel["type"] != "row" {
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()), "{panel}");
        }
    }
}

/// As the usual renderers make it of a heading.
pub fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
    kept.replace(' ', "-")
}
