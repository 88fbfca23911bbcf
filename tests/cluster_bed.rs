//! The helpers of `tests/common/cluster.rs`, on the real cluster that they are for.

#[path = "common/cluster.rs"]
mod cluster;

use std::time::Duration;

use cluster::Cluster;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn config_map_is_applied_and_read() {
    let namespace = Cluster::shared().namespace("apply");
    assert!(namespace.get("configmap/settings").is_none());
    namespace.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {word: hello}}");
    let settings = namespace.wait("configmap/settings", SOON, |object| object["data"]["word"] == "hello");
    assert_eq!(settings["metadata"]["namespace"], namespace.name.as_str());
    namespace.kubectl(&["delete", "configmap", "settings"]);
    namespace.wait_gone("configmap/settings", SOON);
}

#[test]
fn invalid_manifest_is_refused_with_words() {
    let namespace = Cluster::shared().namespace("refuse");
    let refused = namespace.try_apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: Settings}}").unwrap_err();
    assert!(refused.contains("RFC 1123"), "{refused}");
}

#[test]
fn pod_runs_a_loaded_program() {
    let cluster = Cluster::shared();
    let Some(own) = cluster.own("a loaded image") else { return };
    own.load("cluster-bed/echo:1", "/bin/echo");
    let namespace = cluster.namespace("pod");
    namespace.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: echo}, spec: {restartPolicy: Never,
          containers: [{name: echo, image: 'cluster-bed/echo:1', args: [hello, tests]}]}}",
    );
    namespace.wait("pod/echo", SOON, |pod| pod["status"]["phase"] == "Succeeded");
    assert_eq!(namespace.kubectl(&["logs", "echo"]), "hello tests\n");
}

#[test]
fn tenant_is_denied_until_a_role_allows() {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("tenant");
    let tenant = cluster.user("tenant", &[&namespace.name]);
    let denied = namespace.kubectl_as(&tenant, &["get", "pods"]).unwrap_err();
    assert!(denied.contains("forbidden"), "{denied}");
    let group = format!("--group={}", namespace.name);
    namespace.kubectl(&["create", "rolebinding", "tenants", "--clusterrole=view", &group]);
    namespace.kubectl_as(&tenant, &["get", "pods"]).unwrap();
}

#[test]
fn audit_log_counts_who_wrote_what() {
    let cluster = Cluster::shared();
    let Some(own) = cluster.own("an audit log") else { return };
    let namespace = cluster.namespace("audit");
    let writer = own.user("writer", &["system:masters"], None);
    for name in ["one", "two", "three"] {
        namespace.kubectl_as(&writer, &["create", "configmap", name]).unwrap();
    }
    let events = own.audit();
    let written = events.iter().filter(|event| {
        event.user == "writer"
            && event.verb == "create"
            && event.resource == "configmaps"
            && event.namespace == namespace.name
            && event.code == 201
    });
    assert_eq!(written.count(), 3);
}

#[test]
fn cut_line_stops_one_client_only() {
    let cluster = Cluster::shared();
    let Some(own) = cluster.own("fault verbs") else { return };
    let namespace = cluster.namespace("line");
    let client = own.user("cut-off", &["system:masters"], Some("cut-off"));
    namespace.kubectl_as(&client, &["get", "pods"]).unwrap();
    own.run(&["net", "cut", "--client", "cut-off"]);
    namespace.kubectl_as(&client, &["get", "pods"]).unwrap_err();
    namespace.kubectl(&["get", "pods"]);
    own.run(&["net", "ok", "--client", "cut-off"]);
    namespace.kubectl_as(&client, &["get", "pods"]).unwrap();
}
