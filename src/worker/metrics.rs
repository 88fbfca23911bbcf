//! What a worker counts. Labels are closed sets, so their number is bounded.

use std::fmt::{Error, Write};
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::domain::task::TaskType;

/// A name of a closed set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(pub &'static str);

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), Error> {
        encoder.write_str(self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Outcome {
    pub outcome: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Cause {
    pub cause: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TypeOutcome {
    pub r#type: Name,
    pub outcome: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Type {
    pub r#type: Name,
}

pub struct Metrics {
    pub(super) slots: Gauge,
    pub(super) slots_busy: Gauge,
    pub(super) leases: Gauge,
    pub(super) claims: Family<Outcome, Counter>,
    pub(super) claimed: Counter,
    pub(super) claim_seconds: Histogram,
    pub(super) handler_seconds: Family<Type, Histogram>,
    pub(super) ends: Family<TypeOutcome, Counter>,
    pub(super) stops: Family<Cause, Counter>,
    pub(super) cancel_seconds: Histogram,
    pub(super) given_up: Counter,
    pub(super) heartbeats: Family<Outcome, Counter>,
    pub(super) flush_tasks: Histogram,
    pub(super) flush_seconds: Histogram,
    pub(super) listening: Gauge,
    pub(super) since_claim: Gauge<f64, std::sync::atomic::AtomicU64>,
    last_claim: std::sync::Mutex<Instant>,
}

impl Metrics {
    pub(super) fn new(slots: u32) -> Self {
        let metrics = Self {
            slots: Gauge::default(),
            slots_busy: Gauge::default(),
            leases: Gauge::default(),
            claims: Family::default(),
            claimed: Counter::default(),
            claim_seconds: fast(),
            handler_seconds: Family::new_with_constructor(slow),
            ends: Family::default(),
            stops: Family::default(),
            cancel_seconds: slow(),
            given_up: Counter::default(),
            heartbeats: Family::default(),
            flush_tasks: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_000.0]),
            flush_seconds: fast(),
            listening: Gauge::default(),
            since_claim: Gauge::default(),
            last_claim: std::sync::Mutex::new(Instant::now()),
        };
        metrics.slots.set(i64::from(slots));
        metrics
    }

    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("sluice_worker");
        registry.register("slots", "Tasks that may run at once", self.slots.clone());
        registry.register(
            "slots_busy",
            "Handlers that run, those that were given up included",
            self.slots_busy.clone(),
        );
        registry.register("leases", "Attempts that are held", self.leases.clone());
        registry.register("claims", "Claims by what they brought", self.claims.clone());
        registry.register("tasks_claimed", "Tasks that claims brought", self.claimed.clone());
        registry.register("claim_seconds", "Time of a claim's round trip", self.claim_seconds.clone());
        registry.register("handler_seconds", "Time that handlers took", self.handler_seconds.clone());
        registry.register("ends", "Ends that the database answered", self.ends.clone());
        registry.register("stops", "Handlers that were told to stop", self.stops.clone());
        registry.register(
            "cancel_seconds",
            "Time from hearing of a cancel to the handler's end",
            self.cancel_seconds.clone(),
        );
        registry.register("handlers_given_up", "Handlers that ignored their abort", self.given_up.clone());
        registry.register("heartbeats", "Heartbeats by outcome", self.heartbeats.clone());
        registry.register("flush_tasks", "Tasks completed by one statement", self.flush_tasks.clone());
        registry.register("flush_seconds", "Time of that statement", self.flush_seconds.clone());
        registry.register("listening", "1 while notifications are heard", self.listening.clone());
        registry.register("last_claim_age_seconds", "Time since the last claim", self.since_claim.clone());
    }

    pub(super) fn claim_done(&self, outcome: &'static str, tasks: usize, time: Duration) {
        self.claims.get_or_create(&Outcome { outcome: Name(outcome) }).inc();
        self.claimed.inc_by(u64::try_from(tasks).unwrap_or(u64::MAX));
        self.claim_seconds.observe(time.as_secs_f64());
        *self.last_claim.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn handlers_done(&self, times: &[(TaskType, Duration)]) {
        for alike in times.chunk_by(|(one, _), (other, _)| one == other) {
            let label = Type { r#type: Name(alike[0].0.as_str()) };
            let seconds = self.handler_seconds.get_or_create(&label);
            alike.iter().for_each(|(_, time)| seconds.observe(time.as_secs_f64()));
        }
    }

    /// Ages grow by themselves: sets them for who reads now.
    pub(super) fn refresh(&self) {
        let last = *self.last_claim.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.since_claim.set(last.elapsed().as_secs_f64());
    }
}

/// From 0.5 ms to 16 s.
fn fast() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 16))
}

/// From 1 ms to 4.5 hours.
fn slow() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 13))
}
