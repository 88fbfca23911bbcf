//! The figures of the pipeline, and what each has to reach.

use crate::common::report::Bound::{AtLeast, AtMost, Open};
use crate::common::report::{Figure, figure};

pub const FIGURES: [Figure; 6] = [
    figure("pages_ratio", "PDF → markdown, pages/s of a worker ÷ the library alone in a process", AtLeast(0.9), Open),
    figure("slots_ratio", "pages/s of a worker with 8 slots ÷ two bare converters side by side", AtLeast(0.85), Open),
    figure(
        "rss_convert_mb",
        "memory of a worker that converts with 4 slots, without its children, MiB",
        AtMost(96.0),
        Open,
    ),
    figure(
        "cancel_e2e_p99_ms",
        "patch of spec.cancel sent → token fired, p99 of the slowest stage",
        AtMost(250.0),
        Open,
    ),
    figure("resume_waste", "asked for again after a SIGKILL in the middle, in batches", AtMost(1.0), Open),
    figure("publish_ratio", "publish of 2,000 chunks, rows/s ÷ COPY of the same rows", AtLeast(0.5), Open),
];
