//! The figures of the queue, and what each has to reach.

use crate::common::report::Bound::{AtLeast, AtMost, Open};
use crate::common::report::{Figure, figure};

pub const FIGURES: [Figure; 22] = [
    figure("claim_growth", "claim of 16, p99: all lanes but 10 full ÷ 10 lanes, 1,000 rows", AtMost(2.0), AtMost(1.3)),
    figure(
        "delayed_head_ratio",
        "the same with a million delayed rows before each head ÷ without",
        AtMost(1.2),
        AtMost(1.0),
    ),
    figure(
        "drain_ratio_sketch",
        "claim + complete ÷ the better sketch, worst of three shapes",
        AtLeast(0.8),
        AtLeast(1.2),
    ),
    figure("drain_ratio_graphile", "first shape ÷ graphile_worker", AtLeast(0.6), AtLeast(1.0)),
    figure("drain_ratio_graphile_1000", "1,000 lanes × 8 ÷ graphile_worker", AtLeast(0.9), AtLeast(1.3)),
    figure("drain_ratio_floor", "first shape ÷ two bare batched updates", AtLeast(0.45), AtLeast(0.8)),
    figure("hot_lane_empty", "1 × 200, one at a time, 48 clients: empty claims ÷ claims", AtMost(0.1), AtMost(0.0)),
    figure("hot_lane_ratio", "the same: tasks/s ÷ the shared sketch", AtLeast(0.8), AtLeast(1.5)),
    figure("open_producer_empty", "empty claims beside an open producer", AtMost(0.0), AtMost(0.0)),
    figure("caps_on_ratio", "caps on ÷ caps off", AtLeast(0.8), AtLeast(0.95)),
    figure("pinned_rate", "2,000 tasks/s beside an open transaction: rate held", AtLeast(1.0), AtLeast(1.0)),
    figure("pinned_claim_p99_ms", "the same: claim p99, ms", AtMost(50.0), AtMost(10.0)),
    figure("jain", "1,000 tenants, one floods 90 %: Jain index", AtLeast(0.95), AtLeast(0.99)),
    figure("small_wait_ratio", "a small tenant's wait p99 with the flood ÷ without", AtMost(2.0), AtMost(1.2)),
    figure("woken_share_min", "share of a lane that woke ÷ its fair share, least", AtLeast(0.8), AtLeast(0.95)),
    figure("woken_share_max", "the same, most", AtMost(1.2), AtMost(1.05)),
    figure("enqueue_ratio_graphile", "bulk enqueue ÷ graphile_worker's", AtLeast(0.8), AtLeast(1.2)),
    figure("terminal_ratio", "claim beside 5 million ended rows and `retain` ÷ with none", AtMost(1.2), AtMost(1.0)),
    figure("idle_statements_per_s", "statements per second of an idle claimer", AtMost(1.0), AtMost(0.6)),
    figure("claim_buffers", "buffers of a claim of 16, wrong statistics", AtMost(1_000.0), Open),
    figure("complete_buffers", "buffers of a completion of 512, wrong statistics", AtMost(30_000.0), Open),
    figure("claim_p99_ms", "claim of 16, p99, ms, in the large database", Open, Open),
];
