//! The way of docs/install.md from nothing to a task and back to nothing, with its own commands, and those of the other pages
//! and of README.md.

use std::io::{self, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use private_postgres::{Options, Server};
use serde_json::Value;

use crate::cluster::{Cluster, OwnCluster};
use crate::helm::root;
use crate::pages::commands;

const IMAGE: &str = "chart.test/sluice";
/// Of one block, on a machine that does other things as well.
const BLOCK_LIMIT: Duration = Duration::from_secs(150);
const OPERATOR: &str = "system:serviceaccount:sluice-system:sluice";

const SOME_NAMESPACES: &str = r#"
kubectl --namespace sluice-system scale deployment/sluice --replicas=0
kubectl --namespace sluice-system wait pods --selector=app.kubernetes.io/component=operator --for=delete --timeout=60s
helm upgrade sluice charts/sluice --namespace sluice-system --reset-then-reuse-values --set 'watchNamespaces={acme}' \
  --set rbac.aggregate=false --set rbac.platformRole=false
kubectl --namespace sluice-system rollout status deployment/sluice --timeout=120s
test -z "$(kubectl get clusterroles --selector=app.kubernetes.io/instance=sluice --output=name)"
kubectl --namespace acme apply --filename - <<'EOF'
apiVersion: v1
kind: ConfigMap
metadata: {name: text}
data: {text: Hello}
---
apiVersion: sluice.dev/v1alpha1
kind: IngestTask
metadata: {name: with-roles}
spec: {type: Upload, tenant: acme-archive, source: {configMapKeyRef: {name: text, key: text}}}
---
apiVersion: sluice.dev/v1alpha1
kind: TenantLane
metadata: {name: ingest}
spec: {class: ingest, maxRunning: 2}
---
apiVersion: sluice.dev/v1alpha1
kind: IngestTask
metadata: {name: kept}
spec: {type: Upload, suspend: true, deletionPolicy: CancelAndWait, source: {text: Later}}
EOF
kubectl --namespace acme wait ingesttask/with-roles --for=condition=Succeeded --timeout=120s
kubectl --namespace acme wait tenantlane/ingest --for=condition=Ready --timeout=60s
kubectl --namespace acme wait ingesttask/kept --for=jsonpath='{.metadata.finalizers[0]}'=sluice.dev/stop --timeout=60s
"#;

/// The section of README.md that begins where docs/install.md ends.
const FOLDER: &str = "A folder of PDFs, two tenants";
/// The image of the test is one program of this machine, and has no other one beside it. Mounted, wherever the checkout is: a
/// pod has a /tmp of its own.
const CONVERTER_IS_ELSEWHERE: &str = r#"
binaries=$(dirname "$(readlink --canonicalize "$(command -v sluice)")")
kubectl apply --filename - <<EOF
apiVersion: v1
kind: PersistentVolume
metadata: {name: converter}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadOnlyMany]
  storageClassName: converter
  hostPath: {path: "$binaries"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: converter, namespace: sluice-system}
spec: {accessModes: [ReadOnlyMany], storageClassName: converter, resources: {requests: {storage: 1Gi}}}
EOF
kubectl --namespace sluice-system patch workerpool default --type=json --patch '[
  {"op": "add", "path": "/spec/template/spec/volumes/-",
   "value": {"name": "converter", "persistentVolumeClaim": {"claimName": "converter", "readOnly": true}}},
  {"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-",
   "value": {"name": "converter", "mountPath": "/converter", "readOnly": true}},
  {"op": "add", "path": "/spec/template/spec/containers/0/env/-",
   "value": {"name": "SLUICE_CONVERTER", "value": "/converter/sluice-convert"}}]'
kubectl --namespace sluice-system wait workerpool/default --for=condition=Ready --timeout=120s
"#;
/// The PDFs and texts of examples/documents, for each of the two.
const FOLDER_IS_IN: &str = r#"
published() { psql "$ADMIN_URL" --quiet --tuples-only --no-align --command '\connect sluice' --command \
  "select count(*) from ingest.document_versions where tenant = '$1'" | tail -1; }
expected=$(ls examples/documents/*.pdf examples/documents/*.md | wc -l)
until [ "$(published north)" -ge $expected ]; do sleep 1; done
# What was cancelled there is not taken in again, unless the scan was first.
until [ "$(published south)" -ge $((expected - 1)) ]; do sleep 1; done
kubectl delete namespace north south --timeout=60s
"#;

/// A shell that has kubectl, helm and what the first blocks of the page ask for.
struct Shell {
    directory: PathBuf,
    variables: Vec<(String, String)>,
}

impl Shell {
    fn new(cluster: &Cluster, variables: &[(&str, &str)]) -> Self {
        let directory = env::temp_dir().join(format!("sluice-chart-{}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let kubectl = cluster.admin().command(&[]);
        for tool in ["kubectl", "helm"] {
            symlink(kubectl.get_program(), directory.join(tool)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_sluice"), directory.join("sluice")).unwrap();
        let mut variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        for (name, value) in kubectl.get_envs() {
            variables.push((name.to_str().unwrap().to_owned(), value.unwrap().to_str().unwrap().to_owned()));
        }
        let path = format!("{}:{}", directory.display(), env::var("PATH").unwrap());
        variables.push(("PATH".to_owned(), path));
        Self { directory, variables }
    }

    /// What a block exports is there for the next.
    fn run(&mut self, heading: &str, block: &str) {
        let kept = self.directory.join("exported");
        let script = format!("set -euo pipefail\n{block}\nexport -p > '{}'\n", kept.display());
        let source = if kept.exists() { format!("source '{}'\n{script}", kept.display()) } else { script };
        let mut shell = Command::new("timeout");
        shell.arg(BLOCK_LIMIT.as_secs().to_string()).args(["bash", "-s"]).current_dir(root());
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = shell.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let writer = thread::spawn(move || input.write_all(source.as_bytes()));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join();
        eprintln!("{:.1} s: {heading}: {}", begun.elapsed().as_secs_f64(), block.lines().next().unwrap_or_default());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{heading}: {}\n{block}\n{}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Lets pods reach a server that listens on this machine alone: what comes in is passed on.
fn bridge(to_port: u16) -> io::Result<u16> {
    let listener = TcpListener::bind(("0.0.0.0", 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
            let (Ok(client_again), Ok(server_again)) = (client.try_clone(), server.try_clone()) else { continue };
            thread::spawn(move || pass(client, server));
            thread::spawn(move || pass(server_again, client_again));
        }
    });
    Ok(port)
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn node_address(cluster: &Cluster) -> String {
    let address = r#"--output=jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}"#;
    cluster.admin().run(&["get", "nodes", address])
}

/// What there is to see, if the test fails.
struct Witness<'c>(&'c Cluster);

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", describe(self.0));
        }
    }
}

fn describe(cluster: &Cluster) -> String {
    let workers = "--selector=app.kubernetes.io/name=sluice-worker";
    let asked: [&[&str]; 6] = [
        &["get", "all", "--namespace=sluice-system"],
        &["get", "events", "--namespace=sluice-system"],
        &["logs", "--namespace=sluice-system", "--selector=app.kubernetes.io/instance=sluice", "--prefix", "--tail=50"],
        &["logs", "--namespace=sluice-system", workers, "--prefix", "--tail=50"],
        &["get", "workerpools", "--namespace=sluice-system", "--output=yaml"],
        &["get", "ingesttasks", "--all-namespaces", "--output=yaml"],
    ];
    let answers = asked.map(|args| cluster.admin().try_run(args).unwrap_or_else(|error| error));
    answers.join("\n")
}

#[test]
fn pages_lead_from_nothing_to_a_task_and_back() {
    // It removes the definitions.
    let Some(cluster) = Cluster::private("install") else { return };
    let cluster = &cluster;
    let own = cluster.own("a loaded image and an audit log").unwrap();
    own.load(&format!("{IMAGE}:{}", env!("CARGO_PKG_VERSION")), env!("CARGO_BIN_EXE_sluice"));
    let server = Server::start(Options::fast()).unwrap();
    let host = format!("{}:{}", node_address(cluster), bridge(server.port()).unwrap());
    let admin_url = server.url("postgres");
    let _witness = Witness(cluster);
    let mut shell = Shell::new(cluster, &[("IMAGE", IMAGE), ("DATABASE_HOST", &host), ("ADMIN_URL", &admin_url)]);

    let install = commands("docs/install.md");
    let (before, after): (Vec<_>, Vec<_>) =
        install.iter().partition(|(heading, _)| !["Upgrade", "Uninstall"].contains(&heading.as_str()));
    before.iter().for_each(|(heading, block)| shell.run(heading, block));
    for page in ["docs/rbac.md", "docs/gitops.md", "docs/troubleshooting.md"] {
        commands(page).iter().for_each(|(heading, block)| shell.run(heading, block));
    }
    let readme = commands("README.md");
    for (number, (heading, block)) in readme.iter().filter(|(heading, _)| heading == FOLDER).enumerate() {
        shell.run(heading, block);
        if number == 0 {
            shell.run(heading, CONVERTER_IS_ELSEWHERE);
        }
    }
    shell.run(FOLDER, FOLDER_IS_IN);
    assert_operator_was_refused_nothing(cluster, own);
    let (upgrade, uninstall): (Vec<_>, Vec<_>) = after.into_iter().partition(|(heading, _)| heading == "Upgrade");
    upgrade.iter().for_each(|(heading, block)| shell.run(heading, block));

    // The other mode, with Roles alone. Those that serve all namespaces must be gone when their ClusterRole is.
    shell.run("Some namespaces", SOME_NAMESPACES);
    assert_operator_was_refused_nothing(cluster, own);

    let begun = Instant::now();
    let [remove, remove_all] = uninstall[..] else { panic!("Uninstall has two blocks, not {uninstall:?}") };
    shell.run("Uninstall", &remove.1);
    assert_operator_was_refused_nothing(cluster, own);
    let left = cluster.admin().run(&["get", "ingesttasks", "--all-namespaces", "--output=json"]);
    let left: Value = serde_json::from_str(&left).unwrap();
    for task in left["items"].as_array().unwrap() {
        assert!(task["metadata"]["finalizers"].is_null(), "{task}");
    }
    let objects = "all,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,workerpools";
    let selector = "--selector=app.kubernetes.io/instance=sluice";
    let names = ["get", objects, "--namespace=sluice-system", selector, "--output=name"];
    // Pods may be on their way out.
    let rest = cluster.admin().run(&names);
    let rest: Vec<_> = rest.lines().filter(|name| !name.starts_with("pod/")).collect();
    assert!(rest.is_empty(), "{rest:?}");
    shell.run("Uninstall", "kubectl delete namespace acme --timeout=60s");
    shell.run("Uninstall", &remove_all.1);
    assert!(begun.elapsed() < Duration::from_secs(120), "something hung for {:?}", begun.elapsed());
}

/// Neither in its log nor in the API server's.
fn assert_operator_was_refused_nothing(cluster: &Cluster, own: &OwnCluster) {
    let refused: Vec<_> = own
        .audit()
        .into_iter()
        .filter(|event| event.user == OPERATOR && event.code == 403)
        .map(|event| format!("{} {} {}/{}", event.verb, event.resource, event.namespace, event.name))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    let selector = "--selector=app.kubernetes.io/component=operator";
    let logs = cluster.admin().run(&["logs", "--namespace=sluice-system", selector, "--tail=-1", "--prefix"]);
    let words: Vec<_> = logs.lines().filter(|line| line.contains("forbidden")).collect();
    assert!(words.is_empty(), "{words:?}");
}

#[test]
fn tools_of_the_pages_are_there() {
    for tool in ["bash", "openssl", "psql", "timeout"] {
        let found = env::split_paths(&env::var_os("PATH").unwrap()).any(|path| Path::new(&path).join(tool).exists());
        assert!(found, "{tool} is missing");
    }
}
