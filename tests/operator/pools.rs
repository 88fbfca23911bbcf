//! WorkerPools: real workers, as many as the permitted work wants, and none removed while it is at work.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{io, thread};

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice::api::{IngestTaskStatus, WorkerPool, WorkerPoolStatus};
use sluice::domain::task::TaskType;
use sluice::store::Role;
use sluice::store::enqueue::{NewTask, enqueue_many};
use sluice::store::lanes::{WorkerPoolSettings, set_pool};
use sqlx::Row;
use uuid::Uuid;

use crate::scene::{Scene, condition};

const IMAGE: &str = "sluice.test/worker:1";
/// Pods start and end meanwhile.
const LIMIT: Duration = Duration::from_secs(60);
const DEPLOYMENT: &str = "deployment/sluice-default";

/// Lets pods reach a server that listens on this machine alone. Answers the port; it ends with the process.
fn forward(to: String) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for inside in listener.incoming().flatten() {
            let Ok(outside) = TcpStream::connect(&to) else { continue };
            for (mut from, mut into) in
                [(inside.try_clone().expect("a handle"), outside.try_clone().expect("a handle")), (outside, inside)]
            {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    port
}

pub struct Pools {
    pub scene: Scene,
    pools: Api<WorkerPool>,
    template: Value,
}

impl Pools {
    pub async fn new(purpose: &str) -> Option<Self> {
        Some(Self::of(Scene::new(purpose).await?))
    }

    fn of(scene: Scene) -> Self {
        scene.own().load(IMAGE, env!("CARGO_BIN_EXE_sluice"));
        let url = scene.db.url(Role::Worker);
        let (user, rest) = url.split_once('@').expect("a user");
        let (server, database) = rest.split_once('/').expect("a database");
        let port = forward(server.to_owned());
        let template = json!({ "spec": { "containers": [{
            "name": "worker",
            "image": IMAGE,
            "args": ["worker", "--test-handlers=all"],
            "env": [
                { "name": "HOST_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } },
                { "name": "DATABASE_URL", "value": format!("{user}@$(HOST_IP):{port}/{database}") },
                { "name": "MAX_TASKS_PER_TENANT", "value": "0" },
            ],
        }] } });
        Self { pools: Api::namespaced(scene.client.clone(), &scene.namespace.name), scene, template }
    }

    pub async fn make(&self, name: &str, spec: Value) -> Result<WorkerPool, kube::Error> {
        let mut spec = spec;
        if spec["template"].is_null() {
            spec["template"] = self.template.clone();
        }
        let object = json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "WorkerPool", "metadata": { "name": name }, "spec": spec,
        });
        self.pools.create(&PostParams::default(), &serde_json::from_value(object).expect("a pool")).await
    }

    pub async fn shown(&self, name: &str, is_so: impl Fn(&WorkerPoolStatus) -> bool) -> WorkerPoolStatus {
        let begun = Instant::now();
        loop {
            let status = self.pools.get(name).await.expect("an answer").status.unwrap_or_default();
            if is_so(&status) {
                return status;
            }
            if begun.elapsed() >= LIMIT {
                panic!("{name} is not as it should be: {status:#?}\n{}", self.scene.log());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn enqueue(&self, sleeps_ms: &[u64]) {
        let task = |ms: &u64| NewTask {
            payload: json!({ "handler": "sleep", "ms": ms }),
            ..NewTask::new(TaskType::Insert, self.scene.namespace.name.clone())
        };
        let tasks: Vec<_> = sleeps_ms.iter().map(task).collect();
        enqueue_many(&self.scene.worker, &tasks).await.expect("they are taken in");
    }

    async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query(sql).fetch_one(self.scene.db.admin()).await.expect(sql).get(0)
    }

    async fn all_completed(&self, count: i64) {
        let begun = Instant::now();
        let done = "select count(*) from sluice.tasks_archive where state = 'completed'";
        while self.number(done).await < count {
            assert!(begun.elapsed() < LIMIT, "the tasks do not end\n{}", self.scene.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn replicas(&self, wanted: u64) {
        self.scene.namespace.wait(DEPLOYMENT, LIMIT, |it| it["spec"]["replicas"] == wanted);
    }
}

pub fn says(status: &WorkerPoolStatus, type_: &str, value: &str, reason: &str) -> bool {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_);
    found.is_some_and(|found| format!("{:?}", found.status) == value && found.reason == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_scales_from_nothing_and_back_and_no_busy_worker_goes() {
    let Some(mut pools) = Pools::new("scale").await else { return };
    let spec = json!({
        "delivery": "bridged", "maxReplicas": 3, "threads": 2, "scaleDownDelaySeconds": 1, "drainSeconds": 10,
    });
    pools.make("default", spec).await.expect("it is made");
    let idle = pools.shown("default", |status| says(status, "Ready", "True", "UpToDate")).await;
    assert_eq!(idle.desired_replicas, Some(0));
    pools.replicas(0);

    // All three pods are wanted until they are ready, and fewer while some still work. All tasks outlive a drain: a worker that
    // was told to end has 10 s.
    let begun = Instant::now();
    pools.enqueue(&[14_000, 14_000, 14_000, 18_000, 18_000, 18_000]).await;
    pools.replicas(3);
    println!("scaled {:?} after the first pending row", begun.elapsed());
    pools.shown("default", |status| status.ready_replicas == Some(3)).await;

    // By hand, while all are wanted: set back.
    pools.scene.namespace.kubectl(&["scale", DEPLOYMENT, "--replicas=4"]);
    pools.replicas(3);

    pools.all_completed(6).await;
    let attempts = "select max(attempt)::bigint from sluice.tasks_archive";
    assert_eq!(pools.number(attempts).await, 1, "an attempt was taken from a worker");
    assert_eq!(pools.number("select count(*) from sluice.task_events where kind in ('released', 'lost')").await, 0);
    pools.replicas(0);
    let is_scaled = |status: &_| ["NothingToDo", "MatchesDemand"].iter().any(|why| says(status, "Scaled", "True", why));
    let is_down = |status: &WorkerPoolStatus| (status.replicas, status.demand) == (Some(0), Some(0));
    pools.shown("default", |status| is_down(status) && is_scaled(status)).await;

    // Another process looks at everything anew; only what is new makes it write.
    pools.shown("default", |status| says(status, "Ready", "True", "UpToDate")).await;
    pools.scene.stop_operator();
    let before = pools.scene.writes().len();
    pools.scene.start_operator();
    let bad =
        json!({ "template": { "spec": { "containers": [{ "name": "worker", "image": IMAGE, "ports": "none" }] } } });
    pools.make("bad", bad).await.expect("it is made");
    let refused = pools.shown("bad", |status| says(status, "TemplateValid", "False", "TemplateRefused")).await;
    assert!(
        refused.summary.is_some_and(|summary| summary.contains("ports") && summary.contains("correct spec.template"))
    );
    let of_first =
        |event: &&crate::common::cluster::AuditEvent| ["default", "sluice-default"].contains(&event.name.as_str());
    let writes = pools.scene.writes();
    let later: Vec<_> =
        writes.iter().skip(before).filter(of_first).map(|event| (&event.verb, &event.resource)).collect();
    assert!(later.is_empty(), "{later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_under_load_loses_no_attempt() {
    let Some(pools) = Pools::new("rollout").await else { return };
    is_restarted(&pools, 2, Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: make soak"]
async fn rollouts_every_half_minute_under_load_lose_no_attempt() {
    let Some(pools) = Pools::new("rollouts").await else { return };
    is_restarted(&pools, 10, Duration::from_secs(30)).await;
}

/// Each time with work for as long as the pause.
async fn is_restarted(pools: &Pools, times: usize, pause: Duration) {
    const TASK_MS: u64 = 700;
    const SLOTS: u64 = 8;

    let spec = json!({
        "delivery": "bridged", "minReplicas": 2, "maxReplicas": 2, "threads": 4, "drainSeconds": 5,
    });
    pools.make("default", spec).await.expect("it is made");
    pools.shown("default", |status| status.ready_replicas == Some(2)).await;
    let tasks = usize::try_from(SLOTS * u64::try_from(pause.as_millis()).unwrap_or(0) / TASK_MS).expect("a few");
    for _ in 0..times {
        pools.enqueue(&vec![TASK_MS; tasks]).await;
        pools.scene.namespace.kubectl(&["rollout", "restart", DEPLOYMENT]);
        tokio::time::sleep(pause).await;
    }
    pools.scene.namespace.kubectl(&["rollout", "status", DEPLOYMENT, "--timeout=60s"]);
    pools.all_completed(i64::try_from(times * tasks).expect("a few")).await;
    let lost = "select coalesce(sum(lost_leases + failures), 0)::bigint from sluice.tasks_archive";
    assert_eq!(pools.number(lost).await, 0);
    let restarted = pools.scene.namespace.get(DEPLOYMENT).expect("it is there");
    assert!(
        restarted
            .pointer("/spec/template/metadata/annotations")
            .is_some_and(|it| it.to_string().contains("restartedAt"))
    );

    // Of a new template, kubectl waits until nobody else claims.
    let mut template = pools.template.clone();
    let variables = template["spec"]["containers"][0]["env"].as_array_mut().expect("variables");
    variables.push(json!({ "name": "SLUICE_FILE_ROOT", "value": "/documents" }));
    let patch = Patch::Merge(json!({ "spec": { "template": template } }));
    pools.enqueue(&[1_500; 8]).await;
    pools.pools.patch("default", &PatchParams::default(), &patch).await.expect("it is taken");
    pools.scene.namespace.kubectl(&["wait", "workerpool/default", "--for=condition=Ready", "--timeout=60s"]);
    let of_new: Value =
        serde_json::from_str(&pools.scene.namespace.kubectl(&["get", "pods", "--output=json"])).expect("JSON");
    let of_new: Vec<String> = of_new["items"]
        .as_array()
        .expect("pods")
        .iter()
        .filter_map(|pod| {
            let variables = pod["spec"]["containers"][0]["env"].as_array()?;
            let is_new = variables.iter().any(|variable| variable["name"] == "SLUICE_FILE_ROOT");
            is_new.then(|| pod["metadata"]["uid"].as_str().map(str::to_owned))?
        })
        .collect();
    let claiming: Vec<String> = sqlx::query_scalar(
        "select pod_uid from sluice.pool_workers('default') where alive and not draining and pod_uid is not null",
    )
    .fetch_all(pools.scene.db.admin())
    .await
    .expect("workers");
    assert_eq!(claiming.len(), 2, "{claiming:?}");
    assert!(claiming.iter().all(|uid| of_new.contains(uid)), "{claiming:?} are not all of {of_new:?}");
    pools.all_completed(i64::try_from(times * tasks + 8).expect("a few")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn template_that_does_not_run_is_told_with_the_words_of_kubernetes() {
    let Some(pools) = Pools::new("unable").await else { return };
    let rows = [
        (
            "secret",
            json!({ "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "nowhere", "key": "k" } } }] }),
            "secret \"nowhere\" not found; make what is missing, or name another in spec.template",
        ),
        ("image", json!({ "image": "sluice.test/none:1" }), "; correct the image in spec.template"),
        (
            "crash",
            json!({ "args": ["worker", "--none-such"] }),
            "CrashLoopBackOff: container worker ends with exit code 2",
        ),
    ];
    for (name, container, _) in &rows {
        let mut worker = json!({ "name": "worker", "image": IMAGE });
        worker.as_object_mut().expect("an object").extend(container.as_object().expect("an object").clone());
        let spec =
            json!({ "delivery": "bridged", "minReplicas": 1, "template": { "spec": { "containers": [worker] } } });
        pools.make(name, spec).await.expect("it is made");
    }
    for (name, _, words) in rows {
        let told = |status: &WorkerPoolStatus| {
            says(status, "Stalled", "True", "PodsNotReady")
                && status.summary.as_ref().is_some_and(|it| it.contains(words))
        };
        let status = pools.shown(name, told).await;
        assert!(says(&status, "Ready", "False", "PodsNotReady"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_of_a_pool_that_is_not_there_says_what_to_make() {
    let Some(pools) = Pools::new("missing").await else { return };
    set_pool(&pools.scene.operator_role, "heavy", WorkerPoolSettings::default(), None).await.expect("a row");
    let lane = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TenantLane", "metadata": { "name": "ingest" },
        "spec": { "class": "ingest", "pool": "heavy" },
    });
    let lane = serde_json::from_value(lane).expect("a lane");
    pools.scene.lanes.create(&PostParams::default(), &lane).await.expect("it is made");
    pools.scene.accepted("one").await;
    let status = pools.scene.wait_condition("one", "LanePermitted", "False", "PoolMissing").await;
    assert!(status.summary.is_some_and(|summary| summary.contains("heavy")));

    pools.make("heavy", json!({ "delivery": "bridged" })).await.expect("it is made");
    pools.scene.wait("one", |status| says_of_task(status, "LanePermitted", "True")).await;
}

fn says_of_task(status: &IngestTaskStatus, type_: &str, value: &str) -> bool {
    condition(status, type_).is_some_and(|(held, _)| held == value)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_scale_downs_end_no_busy_worker() {
    let Some(pools) = Pools::new("shrinks").await else { return };
    is_scaled_down(&pools, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes most of an hour: make soak"]
async fn five_hundred_random_scale_downs_end_no_busy_worker() {
    let Some(pools) = Pools::new("shrinks-long").await else { return };
    is_scaled_down(&pools, 500).await;
}

/// Tasks outlive a drain, so a busy worker that is told to end gives one back.
async fn is_scaled_down(pools: &Pools, workers: i64) {
    let spec = json!({
        "delivery": "bridged", "maxReplicas": 4, "threads": 1, "scaleDownDelaySeconds": 0, "drainSeconds": 1,
    });
    pools.make("default", spec).await.expect("it is made");
    let mut enqueued = 0;
    let removed = "select count(*) from sluice.workers where draining and not stands_for_pool";
    let begun = Instant::now();
    let limit = LIMIT * u32::try_from(workers).expect("a few");
    let mut dice = Uuid::new_v4().into_bytes().into_iter().cycle();
    while pools.number(removed).await < workers {
        assert!(begun.elapsed() < limit, "no worker goes\n{}", pools.scene.log());
        let mut up_to = |most: u64| u64::from(dice.next().unwrap_or(0)) * most / 256;
        let sleeps: Vec<u64> = (0..=up_to(4)).map(|_| 1_500 + up_to(2_500)).collect();
        let pause = 1_500 + up_to(6_000);
        pools.enqueue(&sleeps).await;
        enqueued += i64::try_from(sleeps.len()).expect("a few");
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    pools.all_completed(enqueued).await;
    println!("{workers} scaled down among {enqueued} tasks in {:?}", begun.elapsed());
    assert_eq!(pools.number("select max(attempt)::bigint from sluice.tasks_archive").await, 1);
    assert_eq!(pools.number("select count(*) from sluice.task_events where kind in ('released', 'lost')").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn boot_rule_holds_a_pool_that_an_older_schema_let_through() {
    let Some(scene) = Scene::of_changing_kinds("boot").await else { return };
    let (cluster, pools) = (scene.cluster, Pools::of(scene));
    let against = json!({ "maxReplicas": 3, "minReplicas": 2 });
    let refused = pools.make("default", against.clone()).await.expect_err("it is refused").to_string();
    assert!(refused.contains("spec.maxReplicas") && refused.contains("bridged"), "{refused}");

    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations";
    let patch_schema = |operation: Value| {
        let patch = json!([operation]).to_string();
        let name = "crd/workerpools.sluice.dev";
        cluster.admin().run(&["patch", name, "--type=json", &format!("--patch={patch}")]);
    };
    let crd: Value =
        serde_json::from_str(&cluster.admin().run(&["get", "crd/workerpools.sluice.dev", "--output=json"]))
            .expect("JSON");
    let rules = crd.pointer(schema).expect("rules").clone();
    patch_schema(json!({ "op": "remove", "path": schema }));
    let begun = Instant::now();
    // The API server takes the new schema in after a moment.
    while pools.make("default", against.clone()).await.is_err() {
        assert!(begun.elapsed() < LIMIT, "the relaxed schema does not hold");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let held =
        pools.shown("default", |status| says(status, "DeliveryRule", "False", "DeliveryLocalWithReplicas")).await;
    assert_eq!(held.desired_replicas, Some(1));
    pools.shown("default", |status| status.ready_replicas == Some(1)).await;
    pools.enqueue(&[100; 20]).await;
    pools.all_completed(20).await;
    let deployment = pools.scene.namespace.get(DEPLOYMENT).expect("it is there");
    assert_eq!(deployment["spec"]["replicas"], 1);
    // Only now: a status of an object that breaks a rule of its schema is not taken.
    patch_schema(json!({ "op": "add", "path": schema, "value": rules }));
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_of_jobs_runs_one_pod_for_each_attempt() {
    let Some(pools) = Pools::new("jobs").await else { return };
    let spec = json!({ "mode": "Job", "delivery": "bridged", "maxReplicas": 2 });
    pools.make("default", spec).await.expect("it is made");
    pools.shown("default", |status| says(status, "TemplateValid", "True", "TemplateAccepted")).await;
    pools.enqueue(&[300; 4]).await;
    pools.all_completed(4).await;
    assert_eq!(pools.number("select max(attempt)::bigint from sluice.tasks_archive").await, 1);
    let jobs: Value =
        serde_json::from_str(&pools.scene.namespace.kubectl(&["get", "jobs", "--output=json"])).expect("JSON");
    assert_eq!(jobs["items"].as_array().map(Vec::len), Some(4));
    assert!(pools.scene.namespace.get(DEPLOYMENT).is_none());

    // To workers: the template, the row and the work stay the same.
    let patch = json!({ "spec": { "mode": "Deployment" } });
    pools.pools.patch("default", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("it is taken");
    pools.enqueue(&[100; 2]).await;
    pools.all_completed(6).await;
}
