//! Figures of the task controller, printed: `cargo test --test operator figures -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::json;
use sluice::domain::task::State;
use uuid::Uuid;

use crate::scene::Scene;

const TASKS: usize = 2_000;
const CANCELLED: usize = 60;

async fn create_all(scene: &Scene, count: usize) {
    let create = |n: usize| async move {
        let spec = json!({ "type": "Insert", "source": { "text": "hello ".repeat(100) } });
        scene.create(&format!("t{n}"), spec).await;
    };
    futures::stream::iter((0..count).map(create)).buffer_unordered(32).collect::<Vec<_>>().await;
}

async fn count(scene: &Scene, query: &'static str) -> usize {
    let rows: i64 = sqlx::query_scalar(query).fetch_one(scene.db.admin()).await.expect("a count");
    usize::try_from(rows).expect("a count")
}

fn percentile(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() * share / 100).min(sorted.len() - 1)]
}

#[tokio::test]
#[ignore = "it measures"]
async fn figures() {
    let Some(scene) = Scene::new("figures").await else { return };
    scene.accepted("first").await;
    let begun = Instant::now();
    let creating = async {
        create_all(&scene, TASKS).await;
        begun.elapsed()
    };
    let claimable = async {
        while count(&scene, "select count(*) from sluice.tasks").await < TASKS + 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        begun.elapsed()
    };
    let (created, claimable) = tokio::join!(creating, claimable);
    let shown =
        async || count(&scene, "select count(*) from sluice.mirrors where rev = mirrored_rev").await == TASKS + 1;
    while !shown().await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let all = begun.elapsed();
    println!("{TASKS} created in {created:.1?}, claimable after {claimable:.1?}, shown after {all:.1?}");
    println!("writes about tasks: {} for {} tasks", scene.writes().len(), TASKS + 1);
    println!("rss: {} MiB", scene.operator_rss_mib());

    let tracks: Vec<(String, Uuid)> = futures::stream::iter(0..CANCELLED)
        .then(|n| {
            let scene = &scene;
            async move { (format!("t{n}"), scene.track(&format!("t{n}")).await) }
        })
        .collect()
        .await;
    scene.run(tracks[0].1).await;
    let mut latencies = Vec::new();
    for (name, track_id) in &tracks {
        scene.patch(name, json!({ "cancel": true })).await;
        let begun = Instant::now();
        while scene.row(*track_id).await.state != State::Stopping {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        latencies.push(begun.elapsed());
    }
    latencies.sort();
    println!("answered patch to stopping: p50 {:?}, p99 {:?}", percentile(&latencies, 50), percentile(&latencies, 99));

    let before = scene.writes().len();
    let mut lags = Vec::new();
    for (name, track_id) in &tracks {
        let begun = Instant::now();
        sqlx::query("select sluice.reap(1)").execute(scene.db.admin()).await.expect("an answer");
        scene.expire_lease(*track_id).await;
        sqlx::query("select from sluice.reap(1000)").execute(scene.db.admin()).await.expect("an answer");
        while scene.get(name).await.and_then(|task| task.status).and_then(|status| status.finished_at).is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        lags.push(begun.elapsed());
    }
    lags.sort();
    println!("row ended to status: p50 {:?}, p99 {:?}", percentile(&lags, 50), percentile(&lags, 99));
    let settled = scene.writes().len();
    println!("writes for {CANCELLED} ends: {}", settled - before);
    tokio::time::sleep(Duration::from_secs(10)).await;
    println!("writes in 10 idle seconds: {}", scene.writes().len() - settled);
}
