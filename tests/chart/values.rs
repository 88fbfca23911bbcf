//! Values that cannot work are refused by helm, with the value's path or with what to do.

use crate::cluster::Cluster;
use crate::helm::{self, REQUIRED, root, try_render, try_render_as};

#[test]
fn charts_have_no_complaints_of_lint() {
    for chart in ["sluice", "sluice-crds"] {
        let chart = root().join("charts").join(chart);
        let lint = ["lint", "--strict", chart.to_str().unwrap()];
        helm::run(Cluster::shared().admin().helm(&lint)).unwrap();
    }
}

#[test]
fn missing_value_says_what_to_set() {
    for (missing, words) in [
        ("image.repository", "image.repository is not set: name the image that you have built"),
        ("database.existingSecret", "database.existingSecret is not set: name a Secret in this namespace"),
    ] {
        let others: Vec<_> = REQUIRED.into_iter().filter(|value| !value.starts_with(missing)).collect();
        let Err(refused) = try_render_as("sluice", &others) else { panic!("{missing} may be left out") };
        assert!(refused.contains(words), "{missing}: {refused}");
    }
}

#[test]
fn wrong_value_is_refused_with_its_path() {
    let rows: &[(&str, &str)] = &[
        ("replica=3", "additional properties 'replica' not allowed"),
        ("image.tga=1", "additional properties 'tga' not allowed"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("replicas=-1", "at '/replicas': minimum"),
        ("replicas=11", "at '/replicas': maximum"),
        ("replicas=1.5", "at '/replicas': got string, want integer"),
        ("image.pullPolicy=always", "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'"),
        ("image.digest=sha256:abc", "at '/image/digest'"),
        ("watchNamespaces={a,a}", "at '/watchNamespaces': items at 0 and 1 are equal"),
        ("watchNamespaces={A_b}", "at '/watchNamespaces/0'"),
        ("watchNamespaces=team", "at '/watchNamespaces': got string, want array"),
        ("database.existingSecret=My_Secret", "at '/database/existingSecret'"),
        ("database.key=", "at '/database/key'"),
        ("database.url=postgres://somewhere", "additional properties 'url' not allowed"),
        ("log.format=xml", "at '/log/format': value must be one of 'json', 'text'"),
        ("metrics.serviceMonitor.interval=often", "at '/metrics/serviceMonitor/interval'"),
        ("networkPolicy.databasePorts={0}", "at '/networkPolicy/databasePorts/0': minimum"),
        ("networkPolicy.databasePorts={}", "at '/networkPolicy/databasePorts"),
        ("podDisruptionBudget.maxUnavailable=0", "at '/podDisruptionBudget/maxUnavailable'"),
        ("extraEnv[0].value=x", "at '/extraEnv/0': missing property 'name'"),
        ("extraEnv[0].name=A,extraEnv[0].value=1", "at '/extraEnv/0/value': got number, want string"),
        ("defaultPool.delivery=bridge", "at '/defaultPool/delivery'"),
        ("defaultPool.threads=0", "at '/defaultPool/threads': minimum"),
        ("terminationGracePeriodSeconds=1", "at '/terminationGracePeriodSeconds': minimum"),
        ("podLabels.a=1", "at '/podLabels/a': got number, want string"),
        // What a schema cannot say well.
        ("defaultPool.enabled=true", "defaultPool.database.existingSecret is not set"),
        (
            "defaultPool.enabled=true,defaultPool.database.existingSecret=w,defaultPool.delivery=local",
            "set delivery to bridged or notify_only, or maxReplicas to 1",
        ),
        (
            "defaultPool.enabled=true,defaultPool.database.existingSecret=w,defaultPool.minReplicas=6",
            "defaultPool.minReplicas is above defaultPool.maxReplicas",
        ),
    ];
    for (value, words) in rows {
        let Err(refused) = try_render(&[value]) else { panic!("{value} is taken") };
        assert!(refused.contains(words), "{value}: {refused}");
    }
}
