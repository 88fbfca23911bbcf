use serde_json::json;
use uuid::Uuid;

use super::*;

fn spec(spec: Value) -> PoolSpec {
    named("heavy", spec)
}

fn named(name: &str, spec: Value) -> PoolSpec {
    let object = json!({ "apiVersion": "sluice.dev/v1alpha1", "kind": "WorkerPool", "metadata": { "name": name }, "spec": spec });
    PoolSpec::of(&serde_json::from_value(object).unwrap())
}

fn template() -> Value {
    json!({
        "metadata": { "labels": { "team": "a" } },
        "spec": { "containers": [
            {
                "name": "worker", "image": "sluice:1",
                "env": [
                    { "name": "DATABASE_URL", "valueFrom": { "secretKeyRef": { "name": "db", "key": "url" } } },
                    { "name": "SLUICE_REPLICAS", "value": "99" },
                ],
            },
            { "name": "beside", "image": "beside:1" },
        ] },
    })
}

fn variable<'v>(container: &'v Value, name: &str) -> &'v Value {
    container["env"].as_array().unwrap().iter().find(|variable| variable["name"] == name).unwrap()
}

fn owned() -> OwnerReference {
    owner("heavy", "uid")
}

#[test]
fn worker_is_told_what_the_pool_says() {
    let spec = spec(json!({
        "maxReplicas": 5, "delivery": "bridged", "threads": 8, "drainSeconds": 90, "provider": "builtin",
        "template": template(),
    }));
    let deployment = deployment(&spec, &owned(), 2);
    assert_eq!(deployment["spec"]["replicas"], 2);
    let pod = &deployment["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["team"], "a");
    assert_eq!(pod["metadata"]["labels"][POOL_LABEL], deployment["spec"]["selector"]["matchLabels"][POOL_LABEL]);
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 105);
    let worker = &pod["spec"]["containers"][0];
    assert_eq!(worker["args"], json!(["worker"]));
    let expected = [
        ("SLUICE_POOL", "heavy"),
        ("SLUICE_REPLICAS", "5"),
        ("SLUICE_TASK_DELIVERY", "bridged"),
        ("WORKER_THREADS", "8"),
        ("SLUICE_DRAIN_SECS", "90"),
        ("SLUICE_EXTRACT_PROVIDER", "builtin"),
    ];
    for (name, value) in expected {
        assert_eq!(variable(worker, name)["value"], value, "{name}");
    }
    assert_eq!(variable(worker, "SLUICE_POD_UID")["valueFrom"]["fieldRef"]["fieldPath"], "metadata.uid");
    assert_eq!(variable(worker, "DATABASE_URL")["valueFrom"]["secretKeyRef"]["name"], "db");
    assert_eq!(worker["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(pod["spec"]["containers"][1], json!({ "name": "beside", "image": "beside:1" }));
}

#[test]
fn scaling_is_no_rollout_and_a_new_template_is() {
    let spec_of = |template| spec(json!({ "maxReplicas": 5, "delivery": "bridged", "template": template }));
    let one = deployment(&spec_of(template()), &owned(), 1);
    let five = deployment(&spec_of(template()), &owned(), 5);
    assert_eq!(made_of(&one), made_of(&five));
    assert_eq!(one["spec"]["template"], five["spec"]["template"]);
    let other = deployment(&spec_of(json!({})), &owned(), 1);
    assert_ne!(made_of(&one), made_of(&other));
}

#[test]
fn local_delivery_never_has_a_second_process() {
    let local = deployment(&spec(json!({ "template": template() })), &owned(), 1);
    assert_eq!(local["spec"]["strategy"]["rollingUpdate"]["maxSurge"], 0);
    let held = deployment(&spec(json!({ "maxReplicas": 7, "template": template() })), &owned(), 1);
    assert_eq!(variable(&held["spec"]["template"]["spec"]["containers"][0], "SLUICE_REPLICAS")["value"], "1");
}

#[test]
fn job_is_one_pod_for_one_attempt() {
    let attempt = Attempt { track_id: Uuid::nil(), number: 3 };
    let mut template = template();
    template["spec"]["containers"][0]["args"] = json!(["worker", "--test-handlers=all"]);
    let job = job(&spec(json!({ "mode": "Job", "template": template })), &owned(), attempt);
    assert_eq!(job["metadata"]["name"], "00000000-0000-0000-0000-000000000000-3");
    assert_eq!(job["spec"]["backoffLimit"], 0);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    let args = json!(["worker", "--test-handlers=all", "--task=00000000-0000-0000-0000-000000000000", "--attempt=3"]);
    assert_eq!(pod["containers"][0]["args"], args);
    assert!(pod["containers"][0]["readinessProbe"].is_null());
}

#[test]
fn names_and_labels_of_any_pool_are_valid_and_distinct() {
    let long = "x".repeat(240);
    let names = ["a", "heavy", "a.b", "a-b", &format!("{long}a"), &format!("{long}b"), "9-a", "a."];
    let mut seen = std::collections::HashSet::new();
    for name in names {
        let (label, workload) = (pool_label(name), workload_name(name));
        for text in [&label, &workload] {
            assert!(text.len() <= 63, "{text}");
            assert!(text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{text}");
            assert!(!text.starts_with('-') && !text.ends_with('-'), "{text}");
        }
        assert!(seen.insert(label) && seen.insert(workload), "{name}");
    }
}

#[test]
fn template_that_is_no_template_is_left_for_the_api_server() {
    for template in [json!({}), json!({ "metadata": 1, "spec": [] }), json!({ "spec": { "containers": "none" } })] {
        let spec = spec(json!({ "template": template }));
        deployment(&spec, &owned(), 1);
        job(&spec, &owned(), Attempt { track_id: Uuid::nil(), number: 1 });
    }
}

#[test]
fn deployment_that_says_all_that_is_wanted_is_left_alone() {
    let spec = spec(json!({ "maxReplicas": 5, "delivery": "bridged", "template": template() }));
    let wanted = deployment(&spec, &owned(), 1);
    let stored = |change: &dyn Fn(&mut Value)| {
        let mut stored = wanted.clone();
        stored["spec"]["progressDeadlineSeconds"] = json!(600);
        stored["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
        change(&mut stored);
        serde_json::from_value::<Deployment>(stored).unwrap()
    };
    assert!(holds(&stored(&|_| {}), &wanted), "what the API server fills in does not matter");
    assert!(holds(&stored(&|it| it["spec"]["replicas"] = json!(4)), &wanted), "replicas are another matter");
    let restart = |it: &mut Value| it["spec"]["template"]["metadata"]["annotations"]["restartedAt"] = json!("now");
    assert!(holds(&stored(&restart), &wanted), "a restart by hand is no drift");
    let image = |it: &mut Value| it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("other:1");
    assert!(!holds(&stored(&image), &wanted));
    let fewer = |it: &mut Value| {
        it["spec"]["template"]["spec"]["containers"][0]["env"].as_array_mut().unwrap().pop();
    };
    assert!(!holds(&stored(&fewer), &wanted));
}
