//! The figures of the operator, and what each has to reach.

use crate::common::report::Bound::{AtLeast, AtMost, Open};
use crate::common::report::{Figure, figure};

pub const FIGURES: [Figure; 12] = [
    figure("tasks_per_s", "resources created → rows claimable, a second, 1,000 lanes", AtLeast(130.0), Open),
    figure("api_writes_per_task", "the operator's writes per task life", AtMost(3.0), Open),
    figure("cancel_p50_ms", "patch of spec.cancel received → row stopping, p50", Open, Open),
    figure("cancel_p99_ms", "the same, p99", AtMost(150.0), Open),
    figure("scale_p50_ms", "first pending row of an empty pool → Deployment scaled, p50", Open, Open),
    figure("scale_p99_ms", "the same, p99", AtMost(1_000.0), Open),
    figure("mirror_lag_p50_ms", "row changed → status shows it, p50", Open, Open),
    figure("mirror_lag_p99_ms", "the same, p99, 20 changes/s", AtMost(500.0), Open),
    figure("rss_mb_10k", "memory with the live resources, MiB", AtMost(128.0), Open),
    figure("idle_writes_60s", "writes in an idle minute with them", AtMost(0.0), Open),
    figure("restart_10k_s", "start with them → first new task served, s", AtMost(10.0), Open),
    figure("connections", "connections to Postgres, 200 lanes, 20 pools", AtMost(10.0), Open),
];
