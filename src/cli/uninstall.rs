//! `sluice uninstall`: what the chart runs before it is removed.

use std::process::ExitCode;

use clap::Args;

use crate::operator::uninstall::{self, Uninstall};

#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    /// The operator's Deployment, which is ended first [default: none, the operator has ended]
    #[arg(long, value_name = "NAME")]
    deployment: Option<String>,

    /// The operator's namespace [default: that of the service account or kubeconfig]
    #[arg(long, env = "SLUICE_NAMESPACE", value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// The namespaces that the operator served, with commas between [default: all]
    #[arg(long, env = "SLUICE_WATCH_NAMESPACES", value_name = "NAMESPACES", value_delimiter = ',')]
    watch_namespaces: Vec<String>,
}

pub(super) async fn run(args: UninstallArgs) -> anyhow::Result<ExitCode> {
    let UninstallArgs { deployment, namespace, watch_namespaces } = args;
    let freed = uninstall::run(&Uninstall { namespace, watch_namespaces, deployment }).await?;
    println!("IngestTasks that wait for the operator no more: {freed}");
    Ok(ExitCode::SUCCESS)
}
