//! The Kubernetes that the demo runs on: one of its own, or that of `KUBECONFIG`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, id};

use anyhow::{Context, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::documents::TENANTS;
use crate::tools::{run, run_to_end};

pub const SYSTEM: &str = "sluice-system";
/// What the demo's own cluster knows the built program by.
const OWN_IMAGE: &str = "sluice:demo";

pub struct Cluster {
    kubeconfig: PathBuf,
    /// The program that is cluster, kubectl and helm, and its directory; nothing where the cluster is another's.
    own: Option<(PathBuf, PathBuf)>,
    pub image: String,
}

impl Cluster {
    /// Built, if it is not; in a directory that it removes at its end.
    pub fn start(repository: &Path, directory: PathBuf, program: &Path) -> Result<Self> {
        let binary = run(&mut Command::new(repository.join("tests/cluster/build.sh")), None)?;
        let mut cluster = Self {
            kubeconfig: PathBuf::new(),
            own: Some((PathBuf::from(binary.trim()), directory)),
            image: OWN_IMAGE.to_owned(),
        };
        // Whatever becomes of this process, the cluster ends with it.
        cluster.command_of_own(&["up", "--with", &id().to_string()])?;
        let status: Value = serde_json::from_str(&cluster.command_of_own(&["status", "--json"])?)?;
        cluster.kubeconfig = PathBuf::from(status["kubeconfig"].as_str().context("the cluster has no kubeconfig")?);
        cluster.command_of_own(&["load", &format!("{OWN_IMAGE}={}", program.display())])?;
        Ok(cluster)
    }

    /// One where nothing of the demo's stands in the way, and nothing of others is touched.
    pub fn given(kubeconfig: PathBuf, image: String) -> Result<Self> {
        let cluster = Self { kubeconfig, own: None, image };
        for object in ["crd/ingesttasks.sluice.dev", &format!("namespace/{SYSTEM}")] {
            if cluster.has(object)? {
                bail!("the cluster of KUBECONFIG has {object} already: the demo needs one without Sluice");
            }
        }
        for tenant in TENANTS {
            if cluster.has(&format!("namespace/{tenant}"))? {
                bail!(
                    "the cluster of KUBECONFIG has a namespace {tenant} already, which the demo would use and remove"
                );
            }
        }
        Ok(cluster)
    }

    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        run(self.tool("kubectl").args(arguments), None)
    }

    pub fn apply(&self, manifest: &str) -> Result<String> {
        run(self.tool("kubectl").args(["apply", "--server-side", "--filename=-"]), Some(manifest))
    }

    pub fn helm(&self, arguments: &[&str], values: &str) -> Result<String> {
        run(self.tool("helm").args(arguments).arg("--values=-"), Some(values))
    }

    pub fn node_address(&self) -> Result<String> {
        let address = r#"--output=jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}"#;
        self.kubectl(&["get", "nodes", address])
    }

    pub async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).context("the kubeconfig cannot be read")?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// For people: what their shell needs to find kubectl and the cluster.
    pub fn shell_line(&self, directory: &Path) -> Result<String> {
        let kubeconfig = self.kubeconfig.display();
        let Some((binary, _)) = &self.own else { return Ok(format!("export KUBECONFIG={kubeconfig}")) };
        let tools = directory.join("bin");
        fs::create_dir(&tools)?;
        for tool in ["kubectl", "helm"] {
            // It is each of them, by the name that it is called by.
            symlink(binary, tools.join(tool))?;
        }
        Ok(format!("export KUBECONFIG={kubeconfig} PATH={}:$PATH", tools.display()))
    }

    /// All that the demo has put there; the own cluster ends as a whole.
    pub fn remove(&self) -> Result<()> {
        if self.own.is_some() {
            return self.command_of_own(&["down"]).map(drop);
        }
        let [first, second] = TENANTS;
        let steps: [&[&str]; 3] = [
            &["delete", "namespace", first, second, "--ignore-not-found", "--timeout=60s"],
            &[
                "delete",
                "crd",
                "ingesttasks.sluice.dev",
                "tenantlanes.sluice.dev",
                "workerpools.sluice.dev",
                "--ignore-not-found",
            ],
            &["delete", "namespace", SYSTEM, "--ignore-not-found", "--timeout=60s"],
        ];
        for release in ["sluice", "sluice-crds"] {
            let arguments = ["uninstall", release, "--namespace", SYSTEM, "--ignore-not-found", "--wait"];
            run(self.tool("helm").args(arguments), None)?;
        }
        steps.iter().try_for_each(|step| self.kubectl(step).map(drop))
    }

    fn has(&self, object: &str) -> Result<bool> {
        Ok(!self.kubectl(&["get", object, "--ignore-not-found", "--output=name"])?.trim().is_empty())
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = match &self.own {
            Some((binary, _)) => {
                let mut command = Command::new(binary);
                command.arg(name);
                command
            }
            None => Command::new(name),
        };
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    fn command_of_own(&self, arguments: &[&str]) -> Result<String> {
        let (binary, directory) = self.own.as_ref().context("the cluster is another's")?;
        run_to_end(Command::new(binary).args(arguments).env("CLUSTER_DIR", directory))
    }
}
