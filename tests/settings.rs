//! Settings through the real binary: names, precedence, defaults, refusals.

use std::process::{Command, Output};

/// `sluice` with nothing in its environment but what the test sets.
fn sluice(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .expect("the binary was built for this test")
}

/// The printed value of one setting.
fn setting(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = sluice(&[&["settings"], arguments].concat(), environment);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name:?} in:\n{text}")).trim().to_owned()
}

/// The sentence and nothing else of a start that is refused for its settings.
fn refusal(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = sluice(&[&["settings"], arguments].concat(), environment);
    assert_eq!(output.status.code(), Some(78), "{environment:?}");
    assert!(output.stdout.is_empty());
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    sentence.trim().to_owned()
}

#[test]
fn settings_have_the_documented_defaults() {
    for (name, value) in [
        ("replicas", "1"),
        ("delivery", "local"),
        ("lease", "120 s, heartbeat every 40 s"),
        ("interrupted tasks", "go on"),
        ("timeout", "by pages"),
        ("pending, elevated from", "100"),
        ("pending, critical from", "500"),
        ("pool use, elevated from", "0.75"),
        ("pool use, critical from", "0.9"),
        ("quarantine, elevated from", "1"),
        ("quarantine, critical from", "5"),
    ] {
        assert_eq!(setting(name, &[], &[]), value, "{name}");
    }
}

#[test]
fn every_prefixed_setting_is_also_read_under_its_old_name() {
    for (variable, value, name, shown) in [
        ("REPLICAS", "1", "replicas", "1"),
        ("TASK_DELIVERY", "notify_only", "delivery", "notify_only"),
        ("TASK_LEASE_TTL_SECS", "60", "lease", "60 s, heartbeat every 20 s"),
        ("STARTUP_AUTO_RESUME", "0", "interrupted tasks", "fail"),
        ("EXTRACT_PROVIDER", "ollama", "slots", "4"),
        ("DEFAULT_EXTRACT_PROVIDER", "ollama", "ingest cap per tenant", "2"),
        ("DEFAULT_LLM_PROVIDER", "lmstudio", "lifecycle cap per tenant", "4"),
        ("LLM_PROVIDER", "lm-studio", "slots", "4"),
        ("QUEUE_PENDING_WARN", "200", "pending, critical from", "1000"),
        ("QUEUE_PENDING_CRITICAL", "700", "pending, critical from", "700"),
        ("DB_POOL_UTIL_WARN", "0.5", "pool use, elevated from", "0.5"),
        ("DB_POOL_UTIL_CRITICAL", "1", "pool use, critical from", "1"),
        ("COMPENSATION_QUARANTINE_WARN", "2", "quarantine, elevated from", "2"),
        ("COMPENSATION_QUARANTINE_CRITICAL", "9", "quarantine, critical from", "9"),
    ] {
        for prefix in ["SLUICE_", "EDGEQUAKE_"] {
            let variable = format!("{prefix}{variable}");
            let environment = [(variable.as_str(), value), ("WORKER_THREADS", "16")];
            assert_eq!(setting(name, &[], &environment), shown, "{variable}");
        }
    }
}

#[test]
fn a_flag_wins_over_the_new_name_and_that_over_the_old_one() {
    let old = ("EDGEQUAKE_TASK_LEASE_TTL_SECS", "60");
    let new = ("SLUICE_TASK_LEASE_TTL_SECS", "90");
    assert_eq!(setting("lease", &[], &[old]), "60 s, heartbeat every 20 s");
    assert_eq!(setting("lease", &[], &[old, new]), "90 s, heartbeat every 30 s");
    assert_eq!(setting("lease", &["--task-lease-ttl-secs", "30"], &[old, new]), "30 s, heartbeat every 10 s");
}

#[test]
fn an_empty_variable_counts_as_unset() {
    assert_eq!(setting("delivery", &[], &[("SLUICE_TASK_DELIVERY", "")]), "local");
    let environment = [("SLUICE_TASK_DELIVERY", " "), ("EDGEQUAKE_TASK_DELIVERY", "bridged")];
    assert_eq!(setting("delivery", &[], &environment), "bridged");
}

#[test]
fn settings_without_a_prefix_keep_their_names() {
    let environment = [("WORKER_THREADS", "8"), ("MAX_TASKS_PER_TENANT", "5"), ("MAX_LIFECYCLE_TASKS_PER_TENANT", "0")];
    assert_eq!(setting("slots", &[], &environment), "8");
    assert_eq!(setting("ingest cap per tenant", &[], &environment), "5");
    assert_eq!(setting("lifecycle cap per tenant", &[], &environment), "no cap");
    assert_eq!(setting("timeout", &[], &[("TASK_PROCESSING_TIMEOUT_SECS", "900")]), "900 s");
}

#[test]
fn caps_follow_the_slots_when_they_are_unset() {
    let environment = [("WORKER_THREADS", "8")];
    assert_eq!(setting("ingest cap per tenant", &[], &environment), "6");
    assert_eq!(setting("lifecycle cap per tenant", &[], &environment), "6");
}

#[test]
fn a_clamp_is_shown_and_can_be_lifted() {
    let local = ("SLUICE_EXTRACT_PROVIDER", "ollama");
    assert!(setting("clamped", &[], &[local]).contains("ollama"));
    let lifted = [local, ("WORKER_THREADS", "16"), ("SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY", "yes")];
    assert_eq!(setting("slots", &[], &lifted), "16");
    assert_eq!(setting("slots", &["--allow-local-high-concurrency"], &[local, ("WORKER_THREADS", "16")]), "16");
}

#[test]
fn switches_take_the_usual_words() {
    for (word, shown) in [
        ("1", "go on"),
        ("TRUE", "go on"),
        ("yes", "go on"),
        ("on", "go on"),
        ("0", "fail"),
        ("False", "fail"),
        ("no", "fail"),
        ("off", "fail"),
    ] {
        assert_eq!(setting("interrupted tasks", &[], &[("SLUICE_STARTUP_AUTO_RESUME", word)]), shown, "{word}");
    }
}

#[test]
fn a_bad_value_is_refused_with_its_variable_the_value_and_what_is_allowed() {
    for (variable, value, allowed) in [
        ("SLUICE_TASK_DELIVERY", "kafka", "local, bridged, notify_only"),
        ("EDGEQUAKE_TASK_DELIVERY", "Local", "local, bridged, notify_only"),
        ("SLUICE_REPLICAS", "0", "from 1 to 10000"),
        ("SLUICE_REPLICAS", "-1", "from 1 to 10000"),
        ("SLUICE_TASK_LEASE_TTL_SECS", "29", "30 to 86400 seconds"),
        ("SLUICE_TASK_LEASE_TTL_SECS", "two minutes", "whole numbers"),
        ("SLUICE_STARTUP_AUTO_RESUME", "perhaps", "1, true, yes, on and 0, false, no, off"),
        ("SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY", "2", "1, true, yes, on and 0, false, no, off"),
        ("WORKER_THREADS", "0", "from 1 to 10000"),
        ("WORKER_THREADS", "99999999999999999999", "from 1 to 10000"),
        ("MAX_TASKS_PER_TENANT", "-3", "from 0 to 2147483647"),
        ("MAX_LIFECYCLE_TASKS_PER_TENANT", "2147483648", "from 0 to 2147483647"),
        ("TASK_PROCESSING_TIMEOUT_SECS", "1h", "whole numbers"),
        ("SLUICE_QUEUE_PENDING_WARN", "many", "whole numbers"),
        ("SLUICE_DB_POOL_UTIL_WARN", "75", "from 0 to 1"),
        ("SLUICE_COMPENSATION_QUARANTINE_WARN", "1.5", "whole numbers"),
        ("SLUICE_LOG_FORMAT", "xml", "text, json"),
        ("SLUICE_LOG", "sluice=loud", "trace"),
    ] {
        let sentence = refusal(&[], &[(variable, value)]);
        assert!(sentence.contains(variable), "{sentence}");
        assert!(sentence.contains(&format!("{value:?}")), "{sentence}");
        assert!(sentence.contains(allowed), "{sentence}");
    }
}

#[test]
fn a_bad_flag_is_named_as_a_flag() {
    let sentence = refusal(&["--task-delivery", "kafka"], &[]);
    assert!(sentence.contains("--task-delivery is \"kafka\""), "{sentence}");
}

#[test]
fn several_replicas_with_local_delivery_do_not_start() {
    let sentence = refusal(&[], &[("SLUICE_REPLICAS", "2")]);
    assert!(sentence.contains("set SLUICE_TASK_DELIVERY to `bridged` or `notify_only`"), "{sentence}");
    for mode in ["bridged", "notify_only"] {
        let environment = [("SLUICE_REPLICAS", "2"), ("EDGEQUAKE_TASK_DELIVERY", mode)];
        assert_eq!(setting("delivery", &[], &environment), mode);
    }
}

#[test]
fn operator_that_cannot_hold_its_settings_does_not_start() {
    let database = ("DATABASE_URL", "postgres://app:hunter2@db/sluice");
    let rows: [(&[(&str, &str)], &str); 5] = [
        (&[], "DATABASE_URL is not set"),
        (&[database, ("SLUICE_REPLICAS", "2")], "2 replicas cannot run with delivery `local`"),
        (&[database, ("SLUICE_WATCH_NAMESPACES", "a,B")], "SLUICE_WATCH_NAMESPACES"),
        (&[database, ("SLUICE_OPERATOR_LISTEN", "8081")], "SLUICE_OPERATOR_LISTEN is \"8081\": allowed are an address"),
        (&[database, ("SLUICE_NAMESPACE", "-x")], "SLUICE_NAMESPACE is \"-x\": allowed are a namespace's name"),
    ];
    for (environment, sentence) in rows {
        let output = sluice(&["operator"], environment);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(78), "{environment:?}: {said}");
        assert!(said.contains(sentence) && said.lines().count() == 1 && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_mistyped_flag_is_a_usage_error() {
    assert_eq!(sluice(&["settings", "--delivry", "local"], &[]).status.code(), Some(2));
    assert_eq!(sluice(&["no-such-command"], &[]).status.code(), Some(2));
}

#[test]
fn help_documents_every_setting_with_its_variable() {
    let output = sluice(&["settings", "--help"], &[]);
    let help = String::from_utf8(output.stdout).unwrap();
    for variable in [
        "SLUICE_REPLICAS",
        "SLUICE_TASK_DELIVERY",
        "SLUICE_TASK_LEASE_TTL_SECS",
        "SLUICE_STARTUP_AUTO_RESUME",
        "TASK_PROCESSING_TIMEOUT_SECS",
        "WORKER_THREADS",
        "MAX_TASKS_PER_TENANT",
        "MAX_LIFECYCLE_TASKS_PER_TENANT",
        "SLUICE_EXTRACT_PROVIDER",
        "SLUICE_DEFAULT_EXTRACT_PROVIDER",
        "SLUICE_DEFAULT_LLM_PROVIDER",
        "SLUICE_LLM_PROVIDER",
        "SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY",
        "SLUICE_QUEUE_PENDING_WARN",
        "SLUICE_QUEUE_PENDING_CRITICAL",
        "SLUICE_DB_POOL_UTIL_WARN",
        "SLUICE_DB_POOL_UTIL_CRITICAL",
        "SLUICE_COMPENSATION_QUARANTINE_WARN",
        "SLUICE_COMPENSATION_QUARANTINE_CRITICAL",
        "SLUICE_LOG_FORMAT",
        "SLUICE_LOG",
    ] {
        assert!(help.contains(&format!("[env: {variable}=")), "{variable} is not in:\n{help}");
    }
    assert!(help.contains("Every SLUICE_X is also read as EDGEQUAKE_X"), "{help}");
}

#[test]
fn the_version_is_the_packages() {
    let output = sluice(&["--version"], &[]);
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), concat!("sluice ", env!("CARGO_PKG_VERSION")));
}
