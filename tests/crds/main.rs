//! The custom resources: generated files, and what a real API server makes of them.

#[path = "../common/cluster.rs"]
mod cluster;

mod argocd;
mod bed;
mod bounds;
mod changes;
mod examples;
mod generated;
mod metrics;
mod reading;
mod reference;
mod rules;
mod versions;
