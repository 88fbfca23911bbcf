//! The same on the older minors of Kubernetes that are supported.

use std::env;
use std::process::Command;

use serde_json::Value;

use crate::bed::installed;

#[test]
#[ignore = "starts a control plane of another version"]
fn kubernetes_1_34_takes_the_same() {
    repeat_on("1.34");
}

#[test]
#[ignore = "starts a control plane of another version"]
fn kubernetes_1_35_takes_the_same() {
    repeat_on("1.35");
}

/// Runs the other tests of this binary. A cluster belongs to the parent of its tests: a shell, so that it is one of their own.
fn repeat_on(minor: &str) {
    let status = Command::new("sh")
        .args(["-c", r#""$0" --skip=takes_the_same --test-threads=2; exit $?"#])
        .arg(env::current_exe().unwrap())
        .env("K8S", minor)
        .env_remove("KUBECONFIG")
        .status()
        .unwrap();
    assert!(status.success(), "on Kubernetes {minor}");
}

#[test]
fn the_server_is_of_the_minor_that_was_asked_for() {
    let Ok(minor) = env::var("K8S") else { return };
    if installed().own("a minor of its own").is_none() {
        return;
    }
    let version: Value =
        serde_json::from_str(&installed().admin().run(&["version", "--output=json"])).expect("the version is JSON");
    let version = &version["serverVersion"];
    assert_eq!(format!("{}.{}", version["major"].as_str().unwrap(), version["minor"].as_str().unwrap()), minor);
}
