//! Who may do what, as the API server answers when the chart's roles are in force.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::accepted::{apply, installed, rendered_for};
use crate::cluster::{Cluster, Namespace};

const SOON: Duration = Duration::from_secs(60);

/// Verbs, resource (with group, name and subresource as in `leases.coordination.k8s.io/name:sub`), where.
type Row<'a> = (&'a str, &'a str, &'a str);

/// The chart's roles in force; those that belong to no namespace go with the value.
struct Roles<'c> {
    cluster: &'c Cluster,
    own: Namespace<'c>,
    of_cluster: Vec<String>,
}

impl<'c> Roles<'c> {
    fn install(cluster: &'c Cluster, purpose: &str, values: &[&str]) -> Self {
        let own = cluster.namespace(purpose);
        let mut rendered = rendered_for(&own.name, values);
        let is_about_rights = |object: &Value| {
            object["apiVersion"] == "rbac.authorization.k8s.io/v1" || object["kind"] == "ServiceAccount"
        };
        rendered.objects.retain(is_about_rights);
        let elsewhere = rendered.objects.iter().filter(|object| object["metadata"]["namespace"] != own.name.as_str());
        let of_cluster = elsewhere.map(reference).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": rendered.objects });
        apply(cluster.admin(), &[], &list.to_string()).unwrap();
        Self { cluster, own, of_cluster }
    }

    fn account(&self) -> String {
        format!("system:serviceaccount:{0}:{0}", self.own.name)
    }
}

impl Drop for Roles<'_> {
    fn drop(&mut self) {
        for object in &self.of_cluster {
            let (namespace, object) = object.split_once(' ').unwrap();
            let _ = self.cluster.admin().try_run(&["delete", object, "--namespace", namespace, "--ignore-not-found"]);
        }
    }
}

fn reference(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("default").to_owned();
    let metadata = &object["metadata"];
    format!("{} {}/{}", text(&metadata["namespace"]), text(&object["kind"]), text(&metadata["name"]))
}

/// Asks the API server for each row and each of its verbs, in one go, whether the user may.
fn check(cluster: &Cluster, user: &str, groups: &[&str], allowed: &[Row<'_>], denied: &[Row<'_>]) {
    let mut questions = Vec::new();
    let mut wanted = Vec::new();
    for (rows, answer) in [(allowed, true), (denied, false)] {
        for (verbs, resource, namespace) in rows {
            for verb in verbs.split(' ') {
                questions.push(question(user, groups, verb, resource, namespace));
                wanted.push((format!("{verb} {resource} in {namespace:?}"), answer));
            }
        }
    }
    let documents: Vec<_> = questions.iter().map(|question| format!("---\n{question}\n")).collect();
    let args = ["create", "--filename=-", "--output=jsonpath={.status.allowed},"];
    let answers = cluster.admin().try_run_with(&args, &documents.concat()).unwrap();
    let answers: Vec<_> = answers.split_terminator(',').map(|answer| answer == "true").collect();
    assert_eq!(answers.len(), wanted.len());
    let mut wrong = String::new();
    for ((what, wanted), answer) in wanted.into_iter().zip(answers) {
        if answer != wanted {
            let _ = writeln!(wrong, "{what}: {}", if answer { "may, and should not" } else { "may not, and should" });
        }
    }
    assert!(wrong.is_empty(), "{user}:\n{wrong}");
}

fn question(user: &str, groups: &[&str], verb: &str, resource: &str, namespace: &str) -> Value {
    let (resource, subresource) = resource.split_once(':').unwrap_or((resource, ""));
    let (resource, name) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": groups,
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "name": name,
                "subresource": subresource, "namespace": namespace,
            },
        },
    })
}

/// What the operator never needs, wherever it is.
fn never<'a>(own: &'a str, team: &'a str) -> Vec<Row<'a>> {
    vec![
        ("get list watch create", "secrets", own),
        ("get list watch create", "secrets", team),
        ("list watch create update patch delete", "configmaps", own),
        ("list watch create update patch delete", "configmaps", team),
        ("create delete", "pods", own),
        ("create get", "pods:exec", own),
        ("get list watch create patch delete", "pods", team),
        ("get list watch create patch delete", "deployments.apps", team),
        ("create delete", "jobs.batch", team),
        ("create update patch delete", "tenantlanes.sluice.dev", team),
        ("create update patch delete", "workerpools.sluice.dev", own),
        ("update", "ingesttasks.sluice.dev", team),
        ("get patch update", "leases.coordination.k8s.io/another", own),
        ("list watch delete", "leases.coordination.k8s.io", own),
        ("get create patch", "leases.coordination.k8s.io/sluice-operator", team),
        ("list watch patch update", "namespaces", ""),
        ("patch update delete", "namespaces/team", team),
        ("create patch", "roles.rbac.authorization.k8s.io", own),
        ("create", "serviceaccounts:token", own),
        ("impersonate", "users", ""),
        ("get list", "nodes", ""),
        ("get", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ]
}

/// What it needs in its own namespace.
fn own_rights(own: &str) -> Vec<Row<'_>> {
    vec![
        ("create", "leases.coordination.k8s.io", own),
        ("get patch", "leases.coordination.k8s.io/sluice-operator", own),
        ("get list watch", "workerpools.sluice.dev", own),
        ("patch", "workerpools.sluice.dev:status", own),
        ("get list watch create patch delete", "deployments.apps", own),
        ("get list watch", "replicasets.apps", own),
        ("get list watch patch", "pods", own),
        ("get list watch create delete", "jobs.batch", own),
        ("create patch", "events.events.k8s.io", own),
    ]
}

fn task_rights(team: &str) -> Vec<Row<'_>> {
    vec![
        ("get list watch create patch delete", "ingesttasks.sluice.dev", team),
        ("patch", "ingesttasks.sluice.dev:status", team),
        ("get list watch", "tenantlanes.sluice.dev", team),
        ("patch", "tenantlanes.sluice.dev:status", team),
        ("get", "configmaps/text", team),
        ("create patch", "events.events.k8s.io", team),
    ]
}

#[test]
fn operator_of_all_namespaces_may_do_what_it_does() {
    let cluster = installed();
    let roles = Roles::install(cluster, "rights-all", &[]);
    let team = cluster.namespace("team");
    let own = roles.own.name.as_str();
    let mut allowed = own_rights(own);
    allowed.extend(task_rights(&team.name));
    let get_team = format!("namespaces/{}", team.name);
    allowed.extend([("list watch", "ingesttasks.sluice.dev", ""), ("list watch", "tenantlanes.sluice.dev", "")]);
    allowed.extend([("get", get_team.as_str(), team.name.as_str()), ("get", "namespaces/kube-system", "kube-system")]);
    // A pool in a team's namespace is told that it is in the wrong one.
    allowed
        .extend([("list watch", "workerpools.sluice.dev", ""), ("patch", "workerpools.sluice.dev:status", &team.name)]);
    check(cluster, &roles.account(), &["system:serviceaccounts"], &allowed, &never(own, &team.name));
}

#[test]
fn operator_of_some_namespaces_sees_no_other() {
    let cluster = installed();
    let (team, other) = (cluster.namespace("team"), cluster.namespace("other"));
    let watch = format!("watchNamespaces={{{}}}", team.name);
    let roles = Roles::install(cluster, "rights-some", &[&watch]);
    let own = roles.own.name.as_str();
    let (get_team, get_other) = (format!("namespaces/{}", team.name), format!("namespaces/{}", other.name));
    let mut allowed = own_rights(own);
    allowed.extend(task_rights(&team.name));
    allowed.extend([
        // A Role in a namespace speaks for the namespace itself: nothing of the cluster's is needed.
        ("get", get_team.as_str(), team.name.as_str()),
        ("get", "namespaces/kube-system", "kube-system"),
    ]);
    let mut denied = never(own, &team.name);
    denied.extend([
        ("get list watch create patch delete", "ingesttasks.sluice.dev", other.name.as_str()),
        ("get list watch create patch delete", "ingesttasks.sluice.dev", own),
        ("get list watch", "tenantlanes.sluice.dev", other.name.as_str()),
        ("get list watch", "workerpools.sluice.dev", team.name.as_str()),
        ("list watch", "workerpools.sluice.dev", ""),
        ("get", "configmaps/text", other.name.as_str()),
        ("get", "configmaps/text", "kube-system"),
        ("list watch", "ingesttasks.sluice.dev", ""),
        ("list watch", "tenantlanes.sluice.dev", ""),
        ("get", get_other.as_str(), other.name.as_str()),
        ("create patch", "events.events.k8s.io", other.name.as_str()),
    ]);
    check(cluster, &roles.account(), &["system:serviceaccounts"], &allowed, &denied);

    // The API server agrees when it is really asked.
    let account = cluster.admin().try_run(&["get", &get_team, "--as", &roles.account()]);
    assert!(account.is_ok(), "{account:?}");
    let refused = cluster.admin().try_run(&["get", "namespaces", "--as", &roles.account()]).unwrap_err();
    assert!(refused.contains("forbidden"), "{refused}");
}

#[test]
fn named_cluster_needs_nothing_of_kube_system() {
    let cluster = installed();
    let team = cluster.namespace("team");
    let watch = format!("watchNamespaces={{{}}},clusterId=here", team.name);
    let roles = Roles::install(cluster, "rights-named", &[&watch]);
    let denied = [("get", "namespaces/kube-system", "kube-system")];
    check(cluster, &roles.account(), &["system:serviceaccounts"], &task_rights(&team.name), &denied);
}

#[test]
fn people_may_do_what_their_role_says() {
    let cluster = installed();
    let roles = Roles::install(cluster, "rights-people", &[]);
    let (team, other) = (cluster.namespace("team"), cluster.namespace("other"));
    for (role, user) in [("edit", "editor"), ("admin", "administrator"), ("view", "viewer")] {
        team.kubectl(&["create", "rolebinding", user, &format!("--clusterrole={role}"), &format!("--user={user}")]);
        // Aggregation is a controller's work.
        let role = format!("clusterrole/{role}");
        roles.own.wait(&role, SOON, |role| role["rules"].to_string().contains("ingesttasks"));
    }
    let platform = format!("--clusterrole={}-platform", roles.own.name);
    team.kubectl(&["create", "rolebinding", "platform", &platform, "--user=engineer"]);

    let (team, other) = (team.name.as_str(), other.name.as_str());
    let watches: Row<'_> = ("get list watch", "ingesttasks.sluice.dev", team);
    let asks: Row<'_> = ("create update patch delete deletecollection", "ingesttasks.sluice.dev", team);
    let lanes: Row<'_> = ("get list watch create update patch delete", "tenantlanes.sluice.dev", team);
    let pools: Row<'_> = ("get list watch create update patch delete", "workerpools.sluice.dev", team);
    let writes_status: Row<'_> = ("update patch", "ingesttasks.sluice.dev:status", team);
    let elsewhere: Row<'_> = ("get list watch create patch delete", "ingesttasks.sluice.dev", other);
    let groups = ["system:authenticated"];
    for user in ["editor", "administrator"] {
        check(cluster, user, &groups, &[watches, asks], &[lanes, pools, writes_status, elsewhere]);
    }
    check(cluster, "viewer", &groups, &[watches], &[asks, lanes, pools, writes_status, elsewhere]);
    check(cluster, "engineer", &groups, &[watches, asks, lanes, pools], &[writes_status, elsewhere]);
    check(cluster, "stranger", &groups, &[], &[watches, asks, lanes, pools, writes_status, elsewhere]);
}
