//! A real API server takes what is rendered, also where Pod Security is `restricted`.

use serde_json::{Value, json};

use crate::cluster::{Cluster, Kubectl, Namespace};
use crate::helm::{REQUIRED, Rendered, root, try_render_as};
use crate::rendered::EVERYTHING;

/// The shared cluster with the definitions in force.
pub fn installed() -> &'static Cluster {
    let cluster = Cluster::shared();
    let definitions = root().join("charts/sluice-crds/templates");
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename", definitions.to_str().unwrap()];
    cluster.admin().run(&apply);
    for kind in ["ingesttasks", "tenantlanes", "workerpools"] {
        let name = format!("crd/{kind}.sluice.dev");
        cluster.admin().run(&["wait", "--for=condition=Established", "--timeout=60s", &name]);
    }
    cluster
}

pub fn apply(kubectl: &Kubectl, options: &[&str], manifest: &str) -> Result<String, String> {
    let args = [&["apply", "--server-side", "--force-conflicts", "--filename=-"][..], options].concat();
    kubectl.try_run_with(&args, manifest)
}

/// Pods that are not restricted are refused in it, and what would make such pods is warned of.
pub fn restricted<'c>(cluster: &'c Cluster, purpose: &str) -> Namespace<'c> {
    let namespace = cluster.namespace(purpose);
    let level = |mode: &str| format!("pod-security.kubernetes.io/{mode}=restricted");
    cluster.admin().run(&["label", "namespace", &namespace.name, &level("enforce"), &level("warn")]);
    namespace
}

/// The chart, rendered for that namespace, with names that no other test has.
pub fn rendered_for(namespace: &str, values: &[&str]) -> Rendered {
    let name = format!("fullnameOverride={namespace}");
    let mut rendered = try_render_as("sluice", &[&REQUIRED[..], &[name.as_str()], values].concat()).unwrap();
    for object in &mut rendered.objects {
        for place in ["/metadata/namespace", "/subjects/0/namespace"] {
            if let Some(place) = object.pointer_mut(place).filter(|place| *place == crate::helm::NAMESPACE) {
                *place = json!(namespace);
            }
        }
    }
    rendered
}

#[test]
fn server_takes_everything_without_a_warning() {
    let cluster = installed();
    let namespace = restricted(cluster, "chart");
    for values in [&[][..], EVERYTHING] {
        let mut rendered = rendered_for(&namespace.name, values);
        // Their definitions are not ours.
        rendered.objects.retain(|object| object["apiVersion"] != "monitoring.coreos.com/v1");
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": rendered.objects });
        let answered =
            apply(cluster.admin(), &["--dry-run=server", "--warnings-as-errors"], &list.to_string()).unwrap();
        assert_eq!(answered.lines().count(), rendered.objects.len(), "{answered}");
    }
}

#[test]
fn every_pod_may_run_where_pods_are_restricted() {
    let cluster = Cluster::shared();
    let namespace = restricted(cluster, "chart-pods");
    let templates = rendered_for(&namespace.name, EVERYTHING);
    for (name, template) in templates.pod_templates() {
        let mut pod = as_pod(template);
        // Admission looks for it; here it is the pods' rules that are asked.
        pod["spec"]["serviceAccountName"] = json!("default");
        namespace.try_apply_dry(&pod).unwrap_or_else(|refused| panic!("{name}: {refused}"));
        pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        let refused = namespace.try_apply_dry(&pod).unwrap_err();
        assert!(refused.contains("violates PodSecurity \"restricted"), "{name}: {refused}");
    }
}

fn as_pod(template: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "pod", "labels": template["metadata"]["labels"] },
        "spec": template["spec"],
    })
}

trait DryRun {
    fn try_apply_dry(&self, object: &Value) -> Result<String, String>;
}

impl DryRun for Namespace<'_> {
    fn try_apply_dry(&self, object: &Value) -> Result<String, String> {
        let options = ["--dry-run=server", "--namespace", &self.name];
        apply(Cluster::shared().admin(), &options, &object.to_string())
    }
}
