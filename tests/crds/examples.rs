//! `examples/gitops`, applied as its README says; a second sync changes nothing.

use std::path::Path;

use serde_json::Value;

use crate::bed::installed;
use crate::cluster::{Cluster, Kubectl};

const NAMESPACES: [&str; 3] = ["sluice-system", "acme", "globex-docs"];
const OBJECTS: [(&str, &str); 7] = [
    ("sluice-system", "workerpool/default"),
    ("acme", "tenantlane/ingest"),
    ("acme", "tenantlane/lifecycle"),
    ("acme", "ingesttask/handbook"),
    ("globex-docs", "tenantlane/ingest"),
    ("globex-docs", "tenantlane/lifecycle"),
    ("globex-docs", "ingesttask/facts"),
];

/// They have fixed names: gone before and after, and never on a cluster that is somebody's.
struct Clean<'c>(&'c Kubectl);

impl Drop for Clean<'_> {
    fn drop(&mut self) {
        let _ =
            self.0.try_run(&[&["delete", "namespace", "--ignore-not-found", "--wait=false"], &NAMESPACES[..]].concat());
    }
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gitops").join(name).display().to_string()
}

fn objects(kubectl: &Kubectl) -> Vec<Value> {
    let read = |(namespace, object): &(&str, &str)| {
        let text = kubectl.run(&["--namespace", namespace, "get", object, "--output=json"]);
        serde_json::from_str(&text).unwrap()
    };
    OBJECTS.iter().map(read).collect()
}

fn specs(objects: &[Value]) -> Vec<&Value> {
    objects.iter().map(|object| &object["spec"]).collect()
}

fn versions(objects: &[Value]) -> Vec<&Value> {
    objects.iter().map(|object| &object["metadata"]["resourceVersion"]).collect()
}

#[test]
fn gitops_examples_apply_and_a_second_sync_changes_nothing() {
    let cluster: &Cluster = installed();
    if cluster.own("namespaces of fixed names").is_none() {
        return;
    }
    let kubectl = cluster.admin();
    let _clean = Clean(kubectl);

    let plain = example("plain");
    kubectl.run(&["apply", "--warnings-as-errors", "--filename", &plain]);
    let first = objects(kubectl);
    kubectl.run(&["apply", "--filename", &plain]);
    let second = objects(kubectl);
    assert_eq!(versions(&first), versions(&second), "a second apply has written");

    let kustomize = example("kustomize");
    kubectl.run(&["apply", "--server-side", "--force-conflicts", "--warnings-as-errors", "--kustomize", &kustomize]);
    let third = objects(kubectl);
    assert_eq!(specs(&first), specs(&third), "plain and kustomize do not ask for the same");
    // Ends with 1 if there is a difference.
    kubectl.run(&["diff", "--server-side", "--force-conflicts", "--kustomize", &kustomize]);
}
