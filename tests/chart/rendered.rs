//! What is rendered for which values.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::helm::{NAMESPACE, REQUIRED, Rendered, render, root, try_render_as};

const DEFAULT: [&str; 13] = [
    "ClusterRole/sluice-edit",
    "ClusterRole/sluice-operator",
    "ClusterRole/sluice-platform",
    "ClusterRole/sluice-view",
    "ClusterRoleBinding/sluice-operator",
    "Deployment/sluice",
    "Job/sluice-migrate",
    "Job/sluice-uninstall",
    "PodDisruptionBudget/sluice",
    "Role/sluice-operator",
    "RoleBinding/sluice-operator",
    "Service/sluice-metrics",
    "ServiceAccount/sluice",
];

/// All that can be switched on.
pub const EVERYTHING: &[&str] = &[
    "metrics.serviceMonitor.enabled=true",
    "metrics.podMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "networkPolicy.enabled=true",
    "defaultPool.enabled=true",
    "defaultPool.database.existingSecret=sluice-worker",
    "migrations.database.existingSecret=sluice-migrations",
    "imagePullSecrets[0].name=pull",
    "extraVolumes[0].name=ca",
    "extraVolumes[0].configMap.name=ca",
    "extraVolumeMounts[0].name=ca",
    "extraVolumeMounts[0].mountPath=/ca",
    "extraEnv[0].name=RUST_BACKTRACE",
    "extraEnv[0].value=full",
    "database.listenKey=listen",
    "defaultPool.database.listenKey=listen",
    "priorityClassName=system-cluster-critical",
    "nodeSelector.disk=fast",
    "tolerations[0].operator=Exists",
];

#[test]
fn defaults_render_what_they_should() {
    assert_eq!(render(&[]).names(), DEFAULT);
}

#[test]
fn each_switch_adds_or_takes_its_objects_alone() {
    const POOL: &str = "defaultPool.enabled=true,defaultPool.database.existingSecret=w";
    let cluster_wide = ["ClusterRole/sluice-operator", "ClusterRoleBinding/sluice-operator"];
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("replicas=1", &[], &["PodDisruptionBudget/sluice"]),
        ("podDisruptionBudget.enabled=false", &[], &["PodDisruptionBudget/sluice"]),
        ("migrations.enabled=false", &[], &["Job/sluice-migrate"]),
        ("uninstallHook.enabled=false", &[], &["Job/sluice-uninstall"]),
        ("serviceAccount.create=false", &[], &["ServiceAccount/sluice"]),
        ("rbac.aggregate=false", &[], &["ClusterRole/sluice-edit", "ClusterRole/sluice-view"]),
        ("rbac.platformRole=false", &[], &["ClusterRole/sluice-platform"]),
        (
            "rbac.create=false",
            &[],
            &[&cluster_wide[..], &["Role/sluice-operator", "RoleBinding/sluice-operator"]].concat(),
        ),
        ("metrics.serviceMonitor.enabled=true", &["ServiceMonitor/sluice"], &[]),
        ("metrics.podMonitor.enabled=true", &["PodMonitor/sluice-workers"], &[]),
        ("metrics.prometheusRule.enabled=true", &["PrometheusRule/sluice"], &[]),
        ("networkPolicy.enabled=true", &["NetworkPolicy/sluice"], &[]),
        (POOL, &["WorkerPool/default"], &[]),
        (
            "watchNamespaces={a}",
            &[
                "Role/sluice-tasks",
                "RoleBinding/sluice-tasks",
                "Role/sluice-system-sluice-cluster-id",
                "RoleBinding/sluice-system-sluice-cluster-id",
            ],
            &cluster_wide,
        ),
        ("watchNamespaces={a},clusterId=here", &["Role/sluice-tasks", "RoleBinding/sluice-tasks"], &cluster_wide),
    ];
    for (values, added, taken) in rows {
        let mut wanted: BTreeSet<_> = DEFAULT.into_iter().chain(added.iter().copied()).collect();
        taken.iter().for_each(|name| assert!(wanted.remove(name), "{values}: {name}"));
        assert_eq!(render(&[values]).names(), Vec::from_iter(wanted), "{values}");
    }
}

#[test]
fn watched_namespaces_need_roles_alone() {
    let rendered = render(&["watchNamespaces={a,b}", "rbac.aggregate=false", "rbac.platformRole=false"]);
    assert!(!rendered.text.contains("kind: ClusterRole"), "{}", rendered.text);
    let namespaces = |kind| -> BTreeSet<_> {
        rendered.of_kind(kind).filter_map(|object| object["metadata"]["namespace"].as_str()).collect()
    };
    let wanted = BTreeSet::from(["a", "b", NAMESPACE, "kube-system"]);
    assert_eq!(namespaces("Role"), wanted);
    assert_eq!(namespaces("RoleBinding"), wanted);
    assert_eq!(env(operator(&rendered), "SLUICE_WATCH_NAMESPACES"), &json!("a,b"));
}

#[test]
fn every_object_says_whose_it_is() {
    let rendered = render(&[EVERYTHING, &["commonLabels.team=ingest", "watchNamespaces={a}"]].concat());
    for object in &rendered.objects {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], "sluice", "{object}");
        assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{object}");
        assert_eq!(labels["team"], "ingest", "{object}");
        let is_of_cluster = object["kind"].as_str().unwrap().starts_with("ClusterRole");
        assert_eq!(object["metadata"]["namespace"].is_string(), !is_of_cluster, "{object}");
    }
}

#[test]
fn every_pod_is_restricted_and_every_secret_a_reference() {
    let rendered = render(EVERYTHING);
    assert_eq!(rendered.of_kind("Secret").count(), 0);
    let templates = rendered.pod_templates();
    assert_eq!(templates.len(), 4, "operator, two hooks, pool");
    for (name, template) in templates {
        let pod = &template["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        assert!(pod["securityContext"]["runAsUser"].as_u64().is_some_and(|user| user > 0), "{name}");
        assert_eq!(pod["imagePullSecrets"], json!([{ "name": "pull" }]), "{name}");
        for container in pod["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
            assert!(container["resources"]["requests"]["memory"].is_string(), "{name}");
            assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
            for variable in container["env"].as_array().unwrap() {
                let is_secret = variable["name"].as_str().unwrap().ends_with("DATABASE_URL");
                assert_eq!(variable["valueFrom"]["secretKeyRef"].is_object(), is_secret, "{name}: {variable}");
            }
        }
    }
}

#[test]
fn each_process_gets_the_database_role_that_it_needs() {
    let secret = |rendered: &Rendered, object: &str, variable: &str| {
        let container = &rendered.get(object)["spec"]["template"]["spec"]["containers"][0];
        let found = container["env"].as_array().unwrap().iter().find(|env| env["name"] == variable).cloned();
        found.map(|env| {
            let from = &env["valueFrom"]["secretKeyRef"];
            format!("{}.{}", from["name"].as_str().unwrap(), from["key"].as_str().unwrap())
        })
    };
    let own = render(EVERYTHING);
    for (object, variable, wanted) in [
        ("Deployment/sluice", "DATABASE_URL", Some("sluice-database.url")),
        ("Deployment/sluice", "SLUICE_LISTEN_DATABASE_URL", Some("sluice-database.listen")),
        ("Job/sluice-migrate", "DATABASE_URL", Some("sluice-migrations.url")),
        ("Job/sluice-migrate", "SLUICE_LISTEN_DATABASE_URL", None),
        ("Job/sluice-uninstall", "DATABASE_URL", None),
        ("WorkerPool/default", "DATABASE_URL", Some("sluice-worker.url")),
        ("WorkerPool/default", "SLUICE_LISTEN_DATABASE_URL", Some("sluice-worker.listen")),
    ] {
        assert_eq!(secret(&own, object, variable).as_deref(), wanted, "{object} {variable}");
    }
    let shared = render(&["database.key=uri"]);
    assert_eq!(secret(&shared, "Job/sluice-migrate", "DATABASE_URL").as_deref(), Some("sluice-database.uri"));
    assert_eq!(secret(&shared, "Deployment/sluice", "SLUICE_LISTEN_DATABASE_URL"), None);
}

#[test]
fn image_is_named_by_tag_or_by_digest() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let by_digest = format!("image.tag=v2,image.digest={digest}");
    for (values, image) in [
        (vec![], "registry.example.com/sluice:0.1.0".to_owned()),
        (vec!["image.tag=v2"], "registry.example.com/sluice:v2".to_owned()),
        (vec![by_digest.as_str()], format!("registry.example.com/sluice@{digest}")),
    ] {
        let rendered = render(&values);
        for (name, template) in rendered.pod_templates() {
            assert_eq!(template["spec"]["containers"][0]["image"], image.as_str(), "{name}");
        }
    }
}

#[test]
fn selectors_match_the_operator_and_nothing_else() {
    let rendered = render(EVERYTHING);
    let selects = |selector: &Value, labels: &Value| {
        selector.as_object().unwrap().iter().all(|(name, value)| labels[name] == *value)
    };
    let selectors = [
        &rendered.get("Deployment/sluice")["spec"]["selector"]["matchLabels"],
        &rendered.get("Service/sluice-metrics")["spec"]["selector"],
        &rendered.get("PodDisruptionBudget/sluice")["spec"]["selector"]["matchLabels"],
    ];
    for (name, template) in rendered.pod_templates() {
        for selector in selectors {
            let found = selects(selector, &template["metadata"]["labels"]);
            assert_eq!(found, name == "Deployment/sluice", "{name} {selector}");
        }
    }
    let monitor = &rendered.get("ServiceMonitor/sluice")["spec"];
    let service = rendered.get("Service/sluice-metrics");
    assert!(selects(&monitor["selector"]["matchLabels"], &service["metadata"]["labels"]));
    assert_eq!(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
}

#[test]
fn hooks_run_when_they_should_and_leave_what_failed() {
    let rendered = render(&[]);
    for (job, hook) in [("Job/sluice-migrate", "pre-install,pre-upgrade"), ("Job/sluice-uninstall", "pre-delete")] {
        let annotations = &rendered.get(job)["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], hook, "{job}");
        assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded", "{job}");
        let spec = &rendered.get(job)["spec"];
        assert!(spec["activeDeadlineSeconds"].is_u64() && spec["backoffLimit"].is_u64(), "{job}");
    }
    let migrate = &rendered.get("Job/sluice-migrate")["spec"]["template"]["spec"];
    assert_eq!(migrate["automountServiceAccountToken"], false);
    assert!(migrate["serviceAccountName"].is_null(), "the chart's account is not there yet");
}

#[test]
fn long_names_leave_room_for_what_is_appended() {
    let release = "a-release-with-a-name-as-long-as-helm-takes-53-of-it";
    let rendered = try_render_as(release, &[&REQUIRED[..], &["watchNamespaces={a}"][..]].concat()).unwrap();
    for object in &rendered.objects {
        let name = object["metadata"]["name"].as_str().unwrap();
        // Roles are no labels of anything.
        let is_role = object["kind"].as_str().unwrap().contains("Role");
        assert!(name.len() <= if is_role { 253 } else { 63 }, "{name}");
        for value in object["metadata"]["labels"].as_object().unwrap().values() {
            assert!(value.as_str().unwrap().len() <= 63, "{value}");
        }
    }
    let rendered = render(&["fullnameOverride=other"]);
    assert!(rendered.has("Deployment/other") && rendered.has("ClusterRole/other-platform"), "{:?}", rendered.names());
}

#[test]
fn alerts_are_those_of_the_dashboards() {
    let shared = fs::read_to_string(root().join("dashboards/alerts.yaml")).unwrap();
    let own = fs::read_to_string(root().join("charts/sluice/alerts.yaml")).unwrap();
    assert_eq!(own, shared, "cp dashboards/alerts.yaml charts/sluice/alerts.yaml");
    let rules: Value = serde_saphyr::from_str(&shared).unwrap();
    let rendered = render(&["metrics.prometheusRule.enabled=true", "metrics.prometheusRule.labels.release=prometheus"]);
    let rule = rendered.get("PrometheusRule/sluice");
    assert_eq!(rule["spec"], rules);
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
}

fn operator(rendered: &Rendered) -> &Value {
    &rendered.get("Deployment/sluice")["spec"]["template"]["spec"]["containers"][0]
}

fn env<'v>(container: &'v Value, name: &str) -> &'v Value {
    let found = container["env"].as_array().unwrap().iter().find(|variable| variable["name"] == name);
    &found.unwrap_or_else(|| panic!("{name} is not set"))["value"]
}
