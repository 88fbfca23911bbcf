//! `sluice uninstall`, which the chart runs before it goes: the operator ends, and nothing waits for it any more.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::accepted::{apply, installed};
use crate::cluster::{Cluster, Kubectl, Namespace};

const SOON: Duration = Duration::from_secs(60);
const OURS: &str = "sluice.dev/stop";

fn uninstall(cluster: &Cluster, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("uninstall").args(args).env("KUBECONFIG", kubeconfig(cluster.admin()));
    crate::helm::run(command)
}

fn kubeconfig(kubectl: &Kubectl) -> std::ffi::OsString {
    let command = kubectl.command(&[]);
    let (_, value) = command.get_envs().find(|(name, _)| *name == "KUBECONFIG").unwrap();
    value.unwrap().to_owned()
}

fn task(name: &str, finalizers: &[&str]) -> String {
    json!({
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "IngestTask",
        "metadata": { "name": name, "finalizers": finalizers },
        "spec": { "type": "Insert", "source": { "text": "hello" }, "deletionPolicy": "CancelAndWait" },
    })
    .to_string()
}

fn finalizers(namespace: &Namespace<'_>, name: &str) -> Value {
    namespace.get(&format!("ingesttask/{name}")).unwrap()["metadata"]["finalizers"].clone()
}

#[test]
fn finalizers_of_ours_go_where_the_operator_served_and_others_stay() {
    let cluster = installed();
    let (served, other) = (cluster.namespace("served"), cluster.namespace("not-served"));
    served.apply(&task("ours", &[OURS]));
    served.apply(&task("both", &["example.com/backup", OURS]));
    served.apply(&task("none", &[]));
    other.apply(&task("ours", &[OURS]));

    let said = uninstall(cluster, &["--watch-namespaces", &served.name]).unwrap();
    assert_eq!(said, "IngestTasks that wait for the operator no more: 2\n");
    assert_eq!(finalizers(&served, "ours"), Value::Null);
    assert_eq!(finalizers(&served, "both"), json!(["example.com/backup"]));
    assert_eq!(finalizers(&other, "ours"), json!([OURS]));
    let again = uninstall(cluster, &["--watch-namespaces", &served.name]).unwrap();
    assert_eq!(again, "IngestTasks that wait for the operator no more: 0\n");

    // A task that is on its way out is freed as well, and then is gone.
    other.kubectl(&["delete", "ingesttask", "ours", "--wait=false"]);
    uninstall(cluster, &["--watch-namespaces", &format!("{},{}", other.name, served.name)]).unwrap();
    other.wait_gone("ingesttask/ours", SOON);
    served.kubectl(&["patch", "ingesttask", "both", "--type=merge", r#"--patch={"metadata":{"finalizers":[]}}"#]);
}

#[test]
fn many_tasks_are_freed_page_by_page() {
    const TASKS: usize = 520; // more than one page
    let cluster = installed();
    let namespace = cluster.namespace("many");
    let tasks: Vec<String> = (0..TASKS).map(|number| task(&format!("task-{number}"), &[OURS])).collect();
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{}]}}"#, tasks.join(","));
    let in_namespace = ["--namespace", &namespace.name];
    cluster.admin().try_run_with(&[&["create", "--filename=-"][..], &in_namespace].concat(), &list).unwrap();
    let said = uninstall(cluster, &["--watch-namespaces", &namespace.name]).unwrap();
    assert_eq!(said, format!("IngestTasks that wait for the operator no more: {TASKS}\n"));
}

#[test]
fn operator_is_ended_before_its_finalizers_are_taken() {
    let cluster = installed();
    let Some(own) = cluster.own("a loaded image") else { return };
    own.load("chart.test/sleep:1", "/bin/sleep");
    let namespace = cluster.namespace("ended");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "operator" },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": { "app": "operator" } },
            "template": {
                "metadata": { "labels": { "app": "operator" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "sleep", "image": "chart.test/sleep:1", "args": ["1000"] }],
                },
            },
        },
    });
    apply(cluster.admin(), &["--namespace", &namespace.name], &deployment.to_string()).unwrap();
    namespace.wait("deployment/operator", SOON, |object| object["status"]["readyReplicas"] == 1);
    namespace.apply(&task("ours", &[OURS]));

    let scope = ["--namespace", &namespace.name, "--watch-namespaces", &namespace.name];
    uninstall(cluster, &[&scope[..], &["--deployment=operator"]].concat()).unwrap();
    assert_eq!(namespace.kubectl(&["get", "pods", "--selector=app=operator", "--output=name"]), "");
    assert_eq!(namespace.get("deployment/operator").unwrap()["spec"]["replicas"], 0);
    assert_eq!(finalizers(&namespace, "ours"), Value::Null);
    // One that is gone already is as good.
    uninstall(cluster, &[&scope[..], &["--deployment=gone"]].concat()).unwrap();
}

#[test]
fn missing_right_is_told_with_what_it_was_for() {
    let cluster = installed();
    let stranger = cluster.user("stranger", &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["uninstall"]).env("KUBECONFIG", kubeconfig(&stranger));
    let refused = crate::helm::run(command).unwrap_err();
    assert!(refused.contains("IngestTasks could not be listed") && refused.contains("forbidden"), "{refused}");
}
