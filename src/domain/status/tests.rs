use proptest::prelude::*;

use super::*;

/// Signals by name, so that a row reads as in the rules; "" is unset.
fn signals(task: &str, document: &str, stage: &str, pdf: &str, class: &str, cancel_asked: bool) -> Signals {
    Signals {
        task: (!task.is_empty()).then(|| State::parse(task).unwrap()),
        document: Stage::parse(document),
        stage: Stage::parse(stage),
        pdf: (!pdf.is_empty()).then(|| PdfStatus::parse(pdf).unwrap()),
        failure_class: (!class.is_empty()).then(|| FailureClass::parse(class).unwrap()),
        cancel_asked,
    }
}

/// Task, document, stage, PDF, failure class, cancel asked; display status, UI phase.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, bool, &'static str, &'static str);

fn check(rows: &[Row]) {
    for (task, document, stage, pdf, class, cancel_asked, display_status, ui_phase) in rows {
        let signals = signals(task, document, stage, pdf, class, *cancel_asked);
        let shown = present(&signals);
        assert_eq!(
            (shown.display_status.as_ref(), shown.ui_phase.as_str()),
            (*display_status, *ui_phase),
            "{signals:?}"
        );
    }
}

#[test]
fn each_example_of_the_rules_shows_as_written() {
    check(&[
        ("", "cancelled", "extracting", "", "", false, "cancelled", "terminal"),
        ("cancelled", "processing", "converting", "", "", false, "cancelled", "terminal"),
        ("", "processing", "converting", "cancelled", "", false, "cancelled", "terminal"),
        ("", "failed", "", "", "invalid_document", false, "failed", "terminal"),
        ("", "completed", "extracting", "", "", false, "completed", "terminal"),
        ("completed", "processing", "extracting", "", "", false, "extracting", "running"),
        ("completed", "", "", "", "", false, "completed", "terminal"),
        ("completed", "processing", "preprocessing", "", "", false, "preprocessing", "running"),
        ("", "processing", "converting", "", "", false, "converting", "running"),
        ("", "processing", "extracting", "", "", false, "extracting", "running"),
        ("", "processing", "re_embedding", "", "", false, "re_embedding", "running"),
        ("", "processing", "extracting", "", "", true, "extracting", "stopping"),
        ("", "processing", "extracting", "completed", "", false, "extracting", "running"),
        ("", "pending", "", "", "", false, "uploading", "idle"),
    ]);
}

#[test]
fn a_task_without_document_or_stage_shows_its_own_state() {
    check(&[
        ("pending", "", "", "", "", false, "pending", "idle"),
        ("processing", "", "", "", "", false, "processing", "running"),
        ("stopping", "", "", "", "", false, "processing", "stopping"),
        ("stopping", "", "", "", "", true, "processing", "stopping"),
        ("completed", "", "", "", "", false, "completed", "terminal"),
        ("failed", "", "", "", "", false, "failed", "terminal"),
        ("cancelled", "", "", "", "", false, "cancelled", "terminal"),
        ("", "", "", "", "", false, "pending", "idle"),
    ]);
}

#[test]
fn any_signal_of_a_cancel_wins_over_everything() {
    check(&[
        ("cancelled", "completed", "completed", "completed", "", false, "cancelled", "terminal"),
        ("completed", "cancelled", "", "", "", false, "cancelled", "terminal"),
        ("processing", "processing", "cancelled", "", "", true, "cancelled", "terminal"),
        ("completed", "completed", "", "cancelled", "", false, "cancelled", "terminal"),
        ("failed", "failed", "", "failed", "cancelled", false, "cancelled", "terminal"),
    ]);
}

#[test]
fn a_document_that_ended_well_wins_over_its_task_and_stage() {
    check(&[
        ("failed", "completed", "", "", "unknown", false, "completed", "terminal"),
        ("processing", "completed", "extracting", "", "", true, "completed", "terminal"),
        ("completed", "partial_success", "", "", "", false, "partial_success", "terminal"),
        ("failed", "partial_success", "", "", "", false, "partial_success", "terminal"),
        ("", "indexed", "", "", "", false, "completed", "terminal"),
    ]);
}

#[test]
fn a_completed_task_wins_over_a_failed_document_that_is_not_in_flight() {
    check(&[
        ("completed", "failed", "", "", "", false, "completed", "terminal"),
        ("completed", "partial_failure", "failed", "", "", false, "completed", "terminal"),
    ]);
}

#[test]
fn a_failed_document_fails_whatever_its_stage() {
    check(&[
        ("failed", "failed", "extracting", "", "unknown", false, "failed", "terminal"),
        ("completed", "failed", "extracting", "", "", false, "failed", "terminal"),
        ("", "partial_failure", "", "", "", false, "partial_failure", "terminal"),
        ("failed", "partial_failure", "", "", "", true, "partial_failure", "terminal"),
    ]);
}

#[test]
fn a_failed_task_does_not_beat_a_document_in_flight() {
    check(&[
        ("failed", "processing", "extracting", "", "unknown", false, "extracting", "running"),
        ("failed", "processing", "", "", "unknown", false, "preprocessing", "running"),
        ("failed", "processing", "failed", "", "unknown", false, "failed", "terminal"),
        ("failed", "", "", "", "unknown", false, "failed", "terminal"),
    ]);
}

#[test]
fn in_flight_shows_the_stage_else_the_document() {
    check(&[
        ("processing", "pending", "chunking", "", "", false, "chunking", "running"),
        ("processing", "processing", "", "", "", false, "preprocessing", "running"),
        ("processing", "indexing", "", "", "", false, "storing", "running"),
        ("pending", "", "queued", "", "", false, "queued", "idle"),
        ("pending", "pending", "", "", "", false, "uploading", "idle"),
        ("pending", "", "uploading", "", "", true, "uploading", "stopping"),
        ("stopping", "processing", "embedding", "", "", false, "embedding", "stopping"),
        ("processing", "processing", "translating", "", "", false, "translating", "running"),
    ]);
}

#[test]
fn a_last_stage_does_not_end_a_document_that_is_still_worked_on() {
    check(&[
        ("processing", "processing", "completed", "", "", false, "processing", "running"),
        ("processing", "processing", "indexed", "", "", true, "processing", "stopping"),
        ("pending", "processing", "failed", "", "", false, "pending", "idle"),
        ("", "processing", "completed", "", "", false, "completed", "terminal"),
    ]);
}

#[test]
fn a_finished_pdf_alone_never_ends_anything() {
    check(&[
        ("processing", "", "", "completed", "", false, "processing", "running"),
        ("pending", "pending", "", "completed", "", false, "uploading", "idle"),
        ("pending", "", "", "failed", "", false, "pending", "idle"),
    ]);
}

#[test]
fn stages_take_their_display_names() {
    let rows = [
        ("pending", "uploading"),
        ("processing", "preprocessing"),
        ("indexing", "storing"),
        ("indexed", "completed"),
        ("converting", "converting"),
        ("chunking", "chunking"),
        ("extracting", "extracting"),
        ("embedding", "embedding"),
        ("re_embedding", "re_embedding"),
        ("storing", "storing"),
        ("cleaning", "cleaning"),
        ("queued", "queued"),
        ("some_new_stage", "some_new_stage"),
        (" Extracting\n", "extracting"),
    ];
    for (given, shown) in rows {
        assert_eq!(Stage::parse(given).unwrap().as_str(), shown);
    }
    for blank in ["", "  ", "\0", "\t\u{7f}"] {
        assert_eq!(Stage::parse(blank), None, "{blank:?}");
    }
}

#[test]
fn failure_and_cancel_are_told_apart() {
    let failed = present(&signals("failed", "", "", "", "unknown", false));
    assert!(failed.is_terminal() && failed.is_failure && !failed.is_cancelled);
    let cancelled = present(&signals("cancelled", "", "", "", "", false));
    assert!(cancelled.is_terminal() && !cancelled.is_failure && cancelled.is_cancelled);
    let partial = present(&signals("", "partial_failure", "", "", "", false));
    assert!(partial.is_failure);
    let well = present(&signals("", "partial_success", "", "", "", false));
    assert!(well.is_terminal() && !well.is_failure && !well.is_cancelled);
}

fn any_stage() -> impl Strategy<Value = Option<Stage>> {
    let known = prop::sample::select(vec![
        "pending",
        "processing",
        "indexing",
        "indexed",
        "completed",
        "partial_success",
        "failed",
        "partial_failure",
        "cancelled",
        "extracting",
        "queued",
        "stopping",
    ]);
    prop_oneof![known.prop_map(Stage::parse), any::<String>().prop_map(|name| Stage::parse(&name))]
}

fn any_signals() -> impl Strategy<Value = Signals> {
    (
        prop::option::of(prop::sample::select(State::ALL)),
        any_stage(),
        any_stage(),
        prop::option::of(prop::sample::select(PdfStatus::ALL)),
        prop::option::of(prop::sample::select(FailureClass::ALL)),
        any::<bool>(),
    )
        .prop_map(|(task, document, stage, pdf, failure_class, cancel_asked)| Signals {
            task,
            document,
            stage,
            pdf,
            failure_class,
            cancel_asked,
        })
}

proptest! {
    #[test]
    fn every_combination_has_one_consistent_answer(signals in any_signals()) {
        let shown = present(&signals);
        let name = shown.display_status.as_ref();
        prop_assert!(!name.is_empty() && name.chars().count() <= Stage::MAX_CHARS);
        prop_assert_eq!(name.to_lowercase(), name);
        prop_assert!(!(shown.is_failure && shown.is_cancelled));
        prop_assert_eq!(shown.is_cancelled, name == "cancelled");
        prop_assert_eq!(shown.is_failure, ["failed", "partial_failure"].contains(&name));
        let ends = ["completed", "partial_success", "failed", "partial_failure", "cancelled"];
        prop_assert_eq!(shown.is_terminal(), ends.contains(&name));
    }

    #[test]
    fn a_cancel_intent_never_changes_what_is_shown_but_the_phase(signals in any_signals()) {
        let asked = present(&Signals { cancel_asked: true, ..signals.clone() });
        let plain = present(&Signals { cancel_asked: false, ..signals });
        prop_assert_eq!(&asked.display_status, &plain.display_status);
        let expected = if plain.is_terminal() { UiPhase::Terminal } else { UiPhase::Stopping };
        prop_assert_eq!(asked.ui_phase, expected);
    }

    #[test]
    fn a_pdf_that_is_not_cancelled_changes_nothing(signals in any_signals()) {
        let without = present(&Signals { pdf: None, ..signals.clone() });
        for pdf in PdfStatus::ALL.iter().filter(|pdf| **pdf != PdfStatus::Cancelled) {
            prop_assert_eq!(&present(&Signals { pdf: Some(*pdf), ..signals.clone() }), &without);
        }
    }

    #[test]
    fn a_stage_of_any_text_stays_bounded_and_printable(name: String) {
        if let Some(stage) = Stage::parse(&name) {
            prop_assert!((1..=Stage::MAX_CHARS).contains(&stage.as_str().chars().count()));
            prop_assert!(!stage.as_str().chars().any(char::is_control));
        }
    }
}
