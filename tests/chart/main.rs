//! The chart of the operator, its image, its alerts and its pages: what helm makes of values, and what a real API server,
//! with Pod Security and RBAC, makes of that.

#[path = "../common/cluster.rs"]
mod cluster;

mod accepted;
mod dashboards;
mod dockerfile;
mod helm;
mod install;
mod pages;
mod rendered;
mod rights;
mod uninstall;
mod values;
