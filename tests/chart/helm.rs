//! helm, and what it renders as parsed objects.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cluster::Cluster;

pub const RELEASE: &str = "sluice";
pub const NAMESPACE: &str = "sluice-system";
/// Without them, nothing is rendered.
pub const REQUIRED: [&str; 2] =
    ["image.repository=registry.example.com/sluice", "database.existingSecret=sluice-database"];

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn chart() -> PathBuf {
    root().join("charts/sluice")
}

/// The chart with the required values and these, each as for `--set`; or helm's words.
pub fn try_render(values: &[&str]) -> Result<Rendered, String> {
    try_render_as(RELEASE, &[&REQUIRED[..], values].concat())
}

pub fn render(values: &[&str]) -> Rendered {
    try_render(values).unwrap_or_else(|error| panic!("{values:?}: {error}"))
}

pub fn try_render_as(release: &str, values: &[&str]) -> Result<Rendered, String> {
    let chart = chart();
    let mut args = vec!["template", release, chart.to_str().unwrap(), "--namespace", NAMESPACE];
    // helm knows no cluster here, and takes a version that was new when it was built.
    args.extend(["--kube-version", "1.36.0"]);
    values.iter().for_each(|value| args.extend(["--set", value]));
    let text = run(Cluster::shared().admin().helm(&args))?;
    Ok(Rendered { objects: serde_saphyr::from_multiple(&text).expect("helm prints YAML"), text })
}

/// What the command printed, or why it failed.
pub fn run(mut command: Command) -> Result<String, String> {
    let output = command.output().expect("helm runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

pub struct Rendered {
    pub objects: Vec<Value>,
    pub text: String,
}

impl Rendered {
    /// As `Kind/name`, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.objects.iter().map(name_of).collect();
        names.sort();
        names
    }

    pub fn has(&self, name: &str) -> bool {
        self.objects.iter().any(|object| name_of(object) == name)
    }

    pub fn get(&self, name: &str) -> &Value {
        let found = self.objects.iter().find(|object| name_of(object) == name);
        found.unwrap_or_else(|| panic!("there is no {name} in {:?}", self.names()))
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The pod templates of all that makes pods, by the object's name.
    pub fn pod_templates(&self) -> Vec<(String, &Value)> {
        let template = |object: &Value| (!object["spec"]["template"].is_null()).then_some(());
        let makers = self.objects.iter().filter(|object| template(object).is_some());
        makers.map(|object| (name_of(object), &object["spec"]["template"])).collect()
    }
}

pub fn name_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("{}/{}", text(&object["kind"]), text(&object["metadata"]["name"]))
}
