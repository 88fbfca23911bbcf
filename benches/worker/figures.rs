//! The figures of the worker, and what each has to reach.

use crate::common::report::Bound::{AtLeast, AtMost, Open};
use crate::common::report::{Figure, figure};

pub const FIGURES: [Figure; 9] = [
    figure("noop_ratio", "no-op tasks/s ÷ one bare claimer and one bare completer", AtLeast(0.85), AtLeast(1.0)),
    figure("graphile_ratio", "no-op tasks/s ÷ graphile_worker's worker", AtLeast(0.6), AtLeast(1.0)),
    figure("pickup_p99_ms", "enqueue committed → handler started, p99, 1,000 tasks/s", AtMost(20.0), Open),
    figure("pickup_poll_p99_ms", "the same with LISTEN dead", AtMost(2_100.0), Open),
    figure("cancel_notified_p99_ms", "cancel committed → token fired, p99", AtMost(100.0), Open),
    figure("cancel_poll_p99_ms", "the same with LISTEN dead", AtMost(2_500.0), Open),
    figure("drain_s", "SIGTERM when idle, or a second one when busy → process gone, s", AtMost(1.0), Open),
    figure("rss_idle_mb", "memory of an idle worker, MiB", AtMost(32.0), Open),
    figure("idle_queries_per_s", "queries per second of an idle worker", AtMost(2.0), Open),
];
