use serde_json::json;

use super::*;

fn failed(class: FailureClass) -> Answer {
    Answer::NotDone(NotDone::failed(class, "why"))
}

/// The end in a word.
fn word(end: &End) -> String {
    match end {
        End::Complete(_) => "complete".to_owned(),
        End::Fail { class, .. } => class.to_string(),
        End::Release { cool_down: CoolDown::Lanes { retry_after_secs }, .. } => {
            assert_eq!(*retry_after_secs, Some(7));
            "release, cool".to_owned()
        }
        End::Release { cool_down: CoolDown::No, .. } => "release".to_owned(),
        End::Stopped => "stopped".to_owned(),
        End::Nothing => "nothing".to_owned(),
    }
}

#[test]
fn the_end_follows_from_the_answer_and_from_why_the_token_fired() {
    use StopCause::{Cancel, Drain, LeaseOver, Lost, Shutdown, Timeout};
    let causes = [None, Some(Cancel), Some(Drain), Some(Shutdown), Some(Timeout), Some(Lost), Some(LeaseOver)];
    let class = FailureClass::ProviderUnavailable;
    let timeout = "timeout_phase_extract";
    type Row = (&'static str, fn() -> Answer, [&'static str; 7]);
    let rows: [Row; 8] = [
        (
            "done",
            || Answer::Done(Done::new()),
            ["complete", "complete", "complete", "complete", "complete", "nothing", "complete"],
        ),
        (
            "failed",
            || failed(FailureClass::ProviderUnavailable),
            [class.as_str(), "stopped", "release", "release", timeout, "nothing", "release"],
        ),
        (
            "failed for good",
            || failed(FailureClass::NoTextLayer),
            ["no_text_layer", "stopped", "no_text_layer", "no_text_layer", "no_text_layer", "nothing", "no_text_layer"],
        ),
        (
            "given back",
            || Answer::NotDone(NotDone::give_back("why")),
            ["release", "stopped", "release", "release", timeout, "nothing", "release"],
        ),
        (
            "rate limited",
            || Answer::NotDone(NotDone::rate_limited("429", Some(7))),
            ["release, cool", "stopped", "release, cool", "release, cool", "release, cool", "nothing", "release, cool"],
        ),
        (
            "stopped",
            || Answer::NotDone(NotDone::Stopped),
            ["unknown", "stopped", "release", "release", timeout, "nothing", "release"],
        ),
        (
            "panicked",
            || Answer::Panicked("why".to_owned()),
            ["unknown", "stopped", "unknown", "unknown", "unknown", "nothing", "unknown"],
        ),
        ("aborted", || Answer::Aborted, ["release", "stopped", "release", "release", timeout, "nothing", "release"]),
    ];
    for (name, answer, expected) in rows {
        let ends = causes.map(|cause| word(&end_of(TaskType::Insert, 60, cause, answer())));
        assert_eq!(ends, expected.map(str::to_owned), "{name}");
    }
}

#[test]
fn a_handler_cannot_say_cancelled() {
    assert_eq!(word(&end_of(TaskType::Scan, 60, None, failed(FailureClass::Cancelled))), "unknown");
}

#[test]
fn a_huge_result_fails_instead_of_being_sent() {
    let fits = Done::new().with_result("x".repeat(RESULT_MAX_BYTES - 10));
    let huge = Done::new().with_result(json!({ "a": ["x".repeat(RESULT_MAX_BYTES)] }));

    assert_eq!(word(&end_of(TaskType::Scan, 60, None, Answer::Done(fits))), "complete");
    assert_eq!(word(&end_of(TaskType::Scan, 60, None, Answer::Done(huge))), "unknown");
}

#[test]
fn only_a_conversion_times_out_in_its_convert_phase() {
    for task_type in TaskType::ALL {
        let expected = match task_type {
            TaskType::PdfProcessing => FailureClass::TimeoutPhaseConvert,
            _ => FailureClass::TimeoutPhaseExtract,
        };
        assert_eq!(timeout_class(*task_type), expected, "{task_type}");
    }
}

#[test]
fn a_claim_wants_the_free_slots_while_ends_keep_up() {
    for (slots, occupied, ending, expected) in [
        (8, 0, 0, 8),
        (8, 5, 3, 3),
        (8, 8, 0, 0),
        (8, 9, 0, 0),
        (8, 0, 63, 8),
        (8, 0, 64, 0),
        (100, 0, 199, 100),
        (100, 0, 200, 0),
        (256, 0, 0, 128),
        (1_000, 100, 0, 500),
        (1_000, 700, 0, 300),
        (10_000, 0, 0, 1_000),
    ] {
        assert_eq!(want(slots, occupied, ending), expected, "{slots} {occupied} {ending}");
    }
}

#[test]
fn a_turn_is_a_part_of_a_claim() {
    for (want, expected) in [(1, 1), (8, 1), (15, 1), (16, 2), (100, 12), (1_000, 32)] {
        assert_eq!(quantum(want), expected, "{want}");
    }
}

#[test]
fn short_leases_are_renewed_in_time_and_long_ones_at_leisure() {
    for (lease_secs, millis) in [(1, 333), (3, 1_000), (29, 9_666), (30, 10_000), (120, 40_000)] {
        assert_eq!(heartbeat_interval(lease_secs).as_millis(), millis, "{lease_secs}");
    }
}

#[test]
fn a_handler_is_gone_before_its_lease_is() {
    let patient = Duration::from_secs(10);
    for lease in [1, 30, 120].map(Duration::from_secs) {
        assert!(stop_grace(StopCause::LeaseOver, lease, patient) < lease_margin(lease));
        assert!(stop_grace(StopCause::Cancel, lease, patient) <= lease / 2);
    }
    let hasty = Duration::from_millis(20);
    assert_eq!(stop_grace(StopCause::Timeout, Duration::from_secs(30), hasty), hasty);
}

#[test]
fn jitter_only_shortens() {
    let poll = Duration::from_secs(2);
    assert_eq!(jittered(poll, 0.0), poll);
    assert_eq!(jittered(poll, 1.0), Duration::from_millis(1_600));
}

#[test]
fn tries_get_rarer_up_to_a_bound() {
    let max = Duration::from_secs(2);
    for (failures, millis) in [(0, 100), (1, 100), (2, 200), (5, 1_600), (6, 2_000), (u32::MAX, 2_000)] {
        assert_eq!(retry_pause(failures, max, 0.0).as_millis(), millis, "{failures}");
        assert_eq!(retry_pause(failures, max, 1.0).as_millis(), millis / 2, "{failures}");
    }
}

#[test]
fn only_ability_makes_a_worker_ready() {
    for (is_registered, is_draining, is_closing, held, expected) in [
        (true, false, false, 0, Ok(())),
        (false, false, false, 0, Err(Unready::Starting)),
        (true, true, false, 0, Err(Unready::Drained)),
        (true, true, false, 1, Ok(())),
        (true, false, true, 0, Err(Unready::Ending)),
        (true, true, true, 3, Ok(())),
    ] {
        assert_eq!(readiness(is_registered, is_draining, is_closing, held), expected);
    }
}
