//! Pools that sleep until somebody brings work: how soon their Deployments grow, and what all of it costs in connections.

use std::time::Duration;

use anyhow::{Context, ensure};
use chrono::{DateTime, Utc};
use futures::future::try_join_all;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use sluice::api::{TenantLane, WorkerPool};
use sluice::domain::lane::Class;
use sluice::domain::task::TaskType;
use sluice::store::control::{Request, Scope, cancel};
use sluice::store::enqueue::NewTask;
use sluice::store::lanes::{LaneSettings, Setting, set_lane};

use crate::common::asking::enqueue;
use crate::common::bed::Bed;
use crate::common::report::{Report, percentile};
use crate::scale::Scale;
use crate::stand::{Stand, between, moment, tenant};

/// A program that does nothing until it is told to end: what a pod does is not what is measured.
const IMAGE: &str = "sluice.bench/nothing:1";
/// Between the first tasks of two pools.
const STEP: Duration = Duration::from_millis(310);

const CONNECTIONS: &str = "select count(*) from pg_stat_activity where usename = 'bench_operator'";

/// From the call that enqueues to the API server's answer to the write that scales, by the audit log.
pub async fn pools(bed: &Bed, scale: &Scale, report: &mut Report) -> anyhow::Result<()> {
    let stand = Stand::new(bed, "pools", scale.lanes).await?;
    stand.load(IMAGE, "/bin/sleep")?;
    make_lanes(&stand, scale.lanes).await?;
    let pools: Api<WorkerPool> = Api::namespaced(stand.client.clone(), &stand.namespace.name);
    for number in 0..scale.pools {
        pools.create(&PostParams::default(), &pool(number)?).await?;
    }
    let operator = stand.operator()?;
    let made = "select count(*) from sluice.pools";
    stand.until("all pools", made, |count| usize::try_from(count).is_ok_and(|count| count > scale.pools)).await?;
    for number in 0..scale.pools {
        let (name, tenant) = (pool_name(number), tenant(number));
        let lane = LaneSettings { pool: Setting::To(&name), ..LaneSettings::default() };
        set_lane(&stand.store, &tenant, Class::Lifecycle, &lane, None).await?;
    }
    stand.until_scaled(scale.pools, 0).await?;

    let mut connections = 0;
    let mut asked = Vec::new();
    for round_number in 1..=scale.rounds {
        let mut round = Vec::new();
        for number in 0..scale.pools {
            tokio::time::sleep(STEP).await;
            let now = Utc::now();
            let task = NewTask::new(TaskType::Deletion, tenant(number));
            round.push((number, now, enqueue(&stand.store, &[task]).await?));
            connections = connections.max(stand.database.number(CONNECTIONS).await?);
        }
        stand.until_scaled(scale.pools, 1).await?;
        let ended = round.iter().flat_map(|(_, _, track_ids)| track_ids);
        try_join_all(ended.map(|track_id| cancel(&stand.store, *track_id, Request::default(), Scope::default())))
            .await?;
        if round_number < scale.rounds {
            stand.until_scaled(scale.pools, 0).await?;
        }
        asked.extend(round.into_iter().map(|(number, at, _)| (number, at)));
    }
    let waits = waits(&stand, &asked)?;
    report.note(format!("scale from nothing: longest {:.0} ms of {}", percentile(&waits, 1.0), waits.len()));
    report.set("scale_p50_ms", percentile(&waits, 0.5));
    report.set("scale_p99_ms", percentile(&waits, 0.99));
    report.set("connections", connections as f64);
    operator.stop().await?;
    stand.end(bed).await
}

async fn make_lanes(stand: &Stand, number: usize) -> anyhow::Result<()> {
    let lanes: Api<TenantLane> = Api::namespaced(stand.client.clone(), &stand.namespace.name);
    for number in 0..number {
        let lane = json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane", "metadata": { "name": format!("lane-{number}") },
            "spec": { "tenant": tenant(number), "class": "ingest", "maxRunning": 3 },
        });
        lanes.create(&PostParams::default(), &serde_json::from_value(lane)?).await?;
    }
    Ok(())
}

fn pool_name(number: usize) -> String {
    format!("pool-{number}")
}

fn pool(number: usize) -> anyhow::Result<WorkerPool> {
    let container = json!({ "name": "worker", "image": IMAGE, "args": ["86400"] });
    Ok(serde_json::from_value(json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "WorkerPool", "metadata": { "name": pool_name(number) },
        "spec": {
            "delivery": "bridged", "maxReplicas": 2, "threads": 2, "scaleDownDelaySeconds": 1, "drainSeconds": 1,
            "template": { "spec": { "containers": [container] } },
        },
    }))?)
}

fn waits(stand: &Stand, asked: &[(usize, DateTime<Utc>)]) -> anyhow::Result<Vec<f64>> {
    let mut scaled = stand.writes()?;
    scaled.retain(|write| write.resource == "deployments");
    ensure!(scaled.iter().all(|write| write.code < 300), "a Deployment could not be scaled");
    let wait = |(number, at): &(usize, DateTime<Utc>)| {
        let name = format!("sluice-{}", pool_name(*number));
        for write in scaled.iter().filter(|write| write.name == name) {
            let answered = moment(&write.answered_at)?;
            if answered > *at {
                return Ok(between(*at, answered));
            }
        }
        Err(anyhow::anyhow!("{name} was not scaled"))
    };
    asked.iter().map(wait).collect::<anyhow::Result<_>>().context("the audit log")
}
