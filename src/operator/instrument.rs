//! What is counted, and under which names; label values are closed sets, so that nothing grows with the work.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::domain::closed_set;

closed_set! {
    /// What a reconcile or a watch is about.
    pub enum Kind("kind") {
        Task = "task",
        Lane = "lane",
        Pool = "pool",
        Other = "other",
    }
}

closed_set! {
    pub enum Outcome("outcome of a reconcile") {
        Done = "done",
        /// It waits for something, and says so.
        Waiting = "waiting",
        Error = "error",
    }
}

closed_set! {
    /// What was written to the API server.
    pub enum ApiWrite("write") {
        Status = "status",
        Event = "event",
        Finalizer = "finalizer",
        Create = "create",
        Update = "update",
        Delete = "delete",
    }
}

impl EncodeLabelValue for Kind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(self.as_str())
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(self.as_str())
    }
}

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(self.0)
    }
}

impl EncodeLabelValue for ApiWrite {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        encoder.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconciled {
    kind: Kind,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    kind: Kind,
    write: ApiWrite,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    class: Name,
    state: Name,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLane {
    tenant: String,
    class: Name,
    state: Name,
}

/// A name of a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub &'static str);

/// How many tasks of a lane, or of all lanes of a class, are in a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth<'a> {
    /// `None`: of all.
    pub tenant: Option<&'a str>,
    pub class: Name,
    pub state: Name,
    pub tasks: u64,
}

/// In seconds; finest where the promises are (150 ms for a cancel, 500 ms for a status).
const BUCKETS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// The metrics of this process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<Reconciled, Counter>,
    reconcile_seconds: Family<OfKind, Histogram>,
    queue_length: Family<OfKind, Gauge>,
    api_writes: Family<Written, Counter>,
    watch_failures: Family<OfKind, Counter>,
    mirror_seconds: Histogram,
    mirror_behind: Gauge,
    cancel_seconds: Histogram,
    leader: Gauge,
    tasks: Family<OfClass, Gauge>,
    lane_tasks: Family<OfLane, Gauge>,
}

impl Metrics {
    pub fn new() -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix("sluice_operator"))),
            reconciles: Family::default(),
            reconcile_seconds: Family::new_with_constructor(seconds),
            queue_length: Family::default(),
            api_writes: Family::default(),
            watch_failures: Family::default(),
            mirror_seconds: seconds(),
            mirror_behind: Gauge::default(),
            cancel_seconds: seconds(),
            leader: Gauge::default(),
            tasks: Family::default(),
            lane_tasks: Family::default(),
        };
        metrics.with_registry(|registry| {
            registry.register(
                "reconciles",
                "Looks at objects, by kind and by how they ended",
                metrics.reconciles.clone(),
            );
            registry.register("reconcile_seconds", "How long a look took", metrics.reconcile_seconds.clone());
            registry.register("queue_length", "Objects that wait for a look", metrics.queue_length.clone());
            registry.register("api_writes", "Writes to the API server", metrics.api_writes.clone());
            registry.register("watch_failures", "Watches that broke", metrics.watch_failures.clone());
            registry.register(
                "mirror_seconds",
                "From the row's change being seen to its status written",
                metrics.mirror_seconds.clone(),
            );
            registry.register("mirror_behind", "Statuses that are behind their rows", metrics.mirror_behind.clone());
            registry.register(
                "cancel_seconds",
                "From spec.cancel being seen to the row told",
                metrics.cancel_seconds.clone(),
            );
            registry.register("leader", "1 while this process leads", metrics.leader.clone());
            registry.register("tasks", "Live tasks of all lanes, by class and state", metrics.tasks.clone());
            registry.register(
                "lane_tasks",
                "Live tasks by lane and state, of the hundred lanes that have the most",
                metrics.lane_tasks.clone(),
            );
        });
        metrics
    }

    /// For metrics that a controller adds of its own; their labels must be closed sets or bounded.
    pub fn with_registry(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// In the OpenMetrics text format.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }

    pub fn reconciled(&self, kind: Kind, outcome: Outcome, took: Duration) {
        self.reconciles.get_or_create(&Reconciled { kind, outcome }).inc();
        self.reconcile_seconds.get_or_create(&OfKind { kind }).observe(took.as_secs_f64());
    }

    pub fn queue_length(&self, kind: Kind, length: usize) {
        self.queue_length.get_or_create(&OfKind { kind }).set(i64::try_from(length).unwrap_or(i64::MAX));
    }

    pub fn wrote(&self, kind: Kind, write: ApiWrite) {
        self.api_writes.get_or_create(&Written { kind, write }).inc();
    }

    pub fn watch_failed(&self, kind: Kind) {
        self.watch_failures.get_or_create(&OfKind { kind }).inc();
    }

    pub fn mirrored(&self, lag: Duration) {
        self.mirror_seconds.observe(lag.as_secs_f64());
    }

    pub fn mirror_behind(&self, resources: usize) {
        self.mirror_behind.set(i64::try_from(resources).unwrap_or(i64::MAX));
    }

    pub fn cancelled(&self, latency: Duration) {
        self.cancel_seconds.observe(latency.as_secs_f64());
    }

    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// All that was said of lanes before is taken back; nobody reads a half of it.
    pub fn lanes(&self, depths: &[Depth<'_>]) {
        self.with_registry(|_| {
            self.tasks.clear();
            self.lane_tasks.clear();
            for Depth { tenant, class, state, tasks } in depths {
                let tasks = i64::try_from(*tasks).unwrap_or(i64::MAX);
                match tenant {
                    None => self.tasks.get_or_create(&OfClass { class: *class, state: *state }).set(tasks),
                    Some(tenant) => {
                        let lane = OfLane { tenant: (*tenant).to_owned(), class: *class, state: *state };
                        self.lane_tasks.get_or_create(&lane).set(tasks)
                    }
                };
            }
        });
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn seconds() -> Histogram {
    Histogram::new(BUCKETS)
}
