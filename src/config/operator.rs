//! What the operator's process is told.

use std::net::SocketAddr;

use clap::Args;

use super::{ConfigError, DatabaseArgs, DatabaseSettings, DeliveryArgs, ValueError};
use crate::domain::delivery::check_boot;

/// All that the operator's process is told.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Operator")]
pub struct OperatorArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// The pod's name, by which the Lease tells who leads [default: random]
    #[arg(long, env = "SLUICE_POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    #[command(flatten)]
    pub database: DatabaseArgs,

    #[command(flatten)]
    pub delivery: DeliveryArgs,
}

/// What is served in the cluster.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Operator")]
pub struct ClusterArgs {
    /// Tells the clusters on one database apart [default: the uid of the namespace kube-system]
    #[arg(long, env = "SLUICE_CLUSTER_ID", value_name = "ID", value_parser = parse_cluster)]
    pub cluster_id: Option<String>,

    /// The operator's own namespace: of its Lease, and of the worker pools [default: the pod's, else `default`]
    #[arg(long, env = "SLUICE_NAMESPACE", value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,

    /// The only namespaces whose tasks and lanes are served, with commas between [default: all]
    #[arg(long, env = "SLUICE_WATCH_NAMESPACES", value_name = "NAMES", value_delimiter = ',',
          value_parser = parse_namespace)]
    pub watch_namespaces: Vec<String>,

    /// Where /live, /ready and /metrics are served; `off` serves none
    #[arg(long, env = "SLUICE_OPERATOR_LISTEN", default_value = "0.0.0.0:8081", value_name = "ADDRESS",
          value_parser = parse_listen)]
    pub operator_listen: Listen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    Off,
    On(SocketAddr),
}

/// The same, checked.
#[derive(Clone, Debug)]
pub struct OperatorSettings {
    pub database: DatabaseSettings,
    pub cluster_id: Option<String>,
    pub namespace: Option<String>,
    /// Each once; none is all.
    pub watch_namespaces: Vec<String>,
    pub pod_name: Option<String>,
    pub listen: Option<SocketAddr>,
}

impl OperatorArgs {
    /// Applies the boot rule: what workers would be told must be able to run.
    pub fn resolve(self) -> Result<OperatorSettings, ConfigError> {
        let Self { cluster, pod_name, database, delivery } = self;
        check_boot(delivery.replicas, delivery.task_delivery)?;
        Ok(cluster.resolve(pod_name, database.resolve()?))
    }
}

impl ClusterArgs {
    pub fn resolve(self, pod_name: Option<String>, database: DatabaseSettings) -> OperatorSettings {
        let Self { cluster_id, namespace, mut watch_namespaces, operator_listen } = self;
        watch_namespaces.sort();
        watch_namespaces.dedup();
        let listen = match operator_listen {
            Listen::Off => None,
            Listen::On(address) => Some(address),
        };
        OperatorSettings { database, cluster_id, namespace, watch_namespaces, pod_name, listen }
    }
}

fn parse_namespace(text: &str) -> Result<String, ValueError> {
    let name = text.trim();
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=63).contains(&name.len()) && name.chars().all(is_inner);
    if !is_name || name.starts_with('-') || name.ends_with('-') {
        return Err(ValueError::Namespace);
    }
    Ok(name.to_owned())
}

fn parse_cluster(text: &str) -> Result<String, ValueError> {
    let id = text.trim();
    if !(1..=253).contains(&id.chars().count()) {
        return Err(ValueError::Cluster);
    }
    Ok(id.to_owned())
}

fn parse_listen(text: &str) -> Result<Listen, ValueError> {
    match text.trim() {
        "off" => Ok(Listen::Off),
        address => address.parse().map(Listen::On).map_err(|_| ValueError::Listen),
    }
}
