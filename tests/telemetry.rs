//! Log output through the real binary: format and filter.

use std::process::Command;

/// Standard error of a run that has exactly one thing to say: a clamp.
fn log(environment: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .arg("settings")
        .env_clear()
        .env("SLUICE_EXTRACT_PROVIDER", "ollama")
        .envs(environment.iter().copied())
        .output()
        .expect("the binary was built for this test");
    assert!(output.status.success());
    String::from_utf8(output.stderr).expect("the log is UTF-8")
}

#[test]
fn text_is_one_line_per_event_without_colours_in_a_pipe() {
    let log = log(&[]);
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("WARN") && log.contains("ollama"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log}");
}

#[test]
fn json_is_one_object_per_event_with_its_fields_on_top() {
    for variable in ["SLUICE_LOG_FORMAT", "EDGEQUAKE_LOG_FORMAT"] {
        let log = log(&[(variable, "json")]);
        let event: serde_json::Value = serde_json::from_str(&log).expect("one JSON object");
        assert_eq!(event["level"], "WARN");
        assert!(event["clamp"].as_str().is_some_and(|clamp| clamp.contains("ollama")), "{log}");
    }
}

#[test]
fn the_filter_is_read_under_each_of_its_names_and_ours_wins() {
    for variable in ["SLUICE_LOG", "EDGEQUAKE_LOG", "RUST_LOG"] {
        assert_eq!(log(&[(variable, "error")]), "", "{variable}");
        assert!(log(&[(variable, "sluice=warn,error")]).contains("WARN"), "{variable}");
    }
    assert_eq!(log(&[("SLUICE_LOG", "error"), ("RUST_LOG", "trace")]), "");
}
