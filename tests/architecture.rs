//! The layer table of ARCHITECTURE.md, enforced: who may use whom, and what the domain may know.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each layer, and the layers that it may use besides itself. `cli` and `main` may use all.
const LAYERS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("api", &[]),
    ("store", &["domain"]),
    ("worker", &["store", "domain"]),
    ("ingest", &["worker", "store", "domain"]),
    ("operator", &["api", "store", "domain"]),
    ("http", &["api", "store", "domain"]),
    ("config", &["store", "domain"]),
    ("telemetry", &["config"]),
];
const ABOVE_ALL: &[&str] = &["cli", "main", "lib"];

/// What the domain must not name: decisions take time and facts as arguments.
const IMPURE_WORDS: &[&str] = &["async", "await", "tokio", "futures", "sqlx", "kube", "k8s_openapi", "tracing"];
/// What it must not name as part of a path; alone, these are ordinary words.
const IMPURE_SEGMENTS: &[&str] =
    &["Instant", "SystemTime", "Utc", "chrono", "env", "fs", "io", "net", "process", "thread", "rand"];

struct Source {
    path: PathBuf,
    layer: String,
    /// How many modules lie between this file's module and the root of the crate.
    depth: usize,
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        let modules: Vec<_> = inside.iter().filter(|part| *part != "mod").collect();
        Source {
            layer: modules[0].to_str().unwrap().to_owned(),
            depth: modules.len(),
            code: without_comments(&fs::read_to_string(&path).unwrap()),
            path,
        }
    };
    paths.into_iter().map(read).collect()
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| line.split(" // ").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The layers that code at this depth names through `crate::…` or enough of `super::…`, grouped imports included.
fn named_layers(code: &str, depth: usize) -> BTreeSet<String> {
    let tokens = tokens(code);
    let mut layers = BTreeSet::new();
    for start in 0..tokens.len() {
        let is_first = start == 0 || tokens[start - 1] != "::";
        let after_root = match tokens[start] {
            "crate" if is_first => start + 1,
            "super" if is_first => {
                let supers = tokens[start..].chunks(2).take_while(|pair| *pair == ["super", "::"]).count();
                if supers < depth {
                    continue;
                }
                start + 2 * depth - 1
            }
            _ => continue,
        };
        if tokens.get(after_root) == Some(&"::") {
            layers.extend(first_segments(&tokens[after_root + 1..]));
        }
    }
    layers
}

/// The first names of a path or of each path in a braced group.
fn first_segments(tokens: &[&str]) -> Vec<String> {
    if tokens.first() != Some(&"{") {
        return tokens.first().map(|name| (*name).to_owned()).into_iter().collect();
    }
    let mut names = Vec::new();
    let mut depth = 0;
    for pair in tokens.windows(2) {
        match pair[0] {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && ["{", ","].contains(&pair[0]) && pair[1] != "}" {
            names.push(pair[1].to_owned());
        }
    }
    names
}

/// Identifiers, `::` and single punctuation marks, in order.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

fn impurities(code: &str) -> Vec<&str> {
    let tokens = tokens(code);
    let is_in_path = |index: usize| {
        tokens.get(index + 1) == Some(&"::") || index.checked_sub(1).is_some_and(|before| tokens[before] == "::")
    };
    let is_impure = |(index, word): &(usize, &&str)| {
        IMPURE_WORDS.contains(*word) || (IMPURE_SEGMENTS.contains(*word) && is_in_path(*index))
    };
    tokens.iter().enumerate().filter(is_impure).map(|(_, word)| *word).collect()
}

fn may_use(layer: &str, target: &str) -> bool {
    let allowed = LAYERS.iter().find(|(name, _)| *name == layer).map(|(_, allowed)| *allowed);
    layer == target || ABOVE_ALL.contains(&layer) || allowed.is_some_and(|allowed| allowed.contains(&target))
}

#[test]
fn every_file_belongs_to_a_layer_of_the_table() {
    for source in sources() {
        let layer = source.layer.as_str();
        let known = ABOVE_ALL.contains(&layer) || LAYERS.iter().any(|(name, _)| *name == layer);
        assert!(known, "{} is in no layer: add it to the table, or move it", source.path.display());
    }
}

#[test]
fn no_layer_uses_another_that_the_table_does_not_allow() {
    let mut wrong = Vec::new();
    for source in sources() {
        for target in named_layers(&source.code, source.depth) {
            let is_layer = ABOVE_ALL.contains(&target.as_str()) || LAYERS.iter().any(|(name, _)| *name == target);
            if is_layer && !may_use(&source.layer, &target) {
                wrong.push(format!("{}: {} may not use {target}", source.path.display(), source.layer));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_domain_is_pure() {
    let mut wrong = Vec::new();
    for source in sources().into_iter().filter(|source| source.layer == "domain") {
        wrong.extend(impurities(&source.code).iter().map(|word| format!("{} names {word}", source.path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn impurities_are_seen_in_imports_and_paths_but_not_in_sentences() {
    assert_eq!(impurities("use std::time::Instant;"), ["Instant"]);
    assert_eq!(impurities("let now = Utc::now();"), ["Utc"]);
    assert_eq!(impurities("async fn read() { std::fs::read(path) }"), ["async", "fs"]);
    assert_eq!(impurities(r#"#[error("wakes its own process")]"#), [""; 0]);
}

#[test]
fn every_file_says_its_duty_in_its_first_line() {
    for source in sources().into_iter().filter(|source| !source.path.ends_with("tests.rs")) {
        let text = fs::read_to_string(&source.path).unwrap();
        assert!(text.starts_with("//! "), "{} does not begin with a `//!` line", source.path.display());
    }
}

#[test]
fn the_reader_of_imports_sees_every_way_to_name_a_layer() {
    let cases: [(&str, usize, &[&str]); 8] = [
        ("use crate::store::Task;", 1, &["store"]),
        ("use crate::{domain::task::{State, Event}, store, worker::Slot};", 1, &["domain", "store", "worker"]),
        ("use crate::{\n    store::Task,\n};", 1, &["store"]),
        ("fn f() -> crate::operator::Plan { crate::http::serve() }", 2, &["http", "operator"]),
        ("use super::worker;", 1, &["worker"]),
        ("use super::super::worker::Slot;", 2, &["worker"]),
        ("use super::lane; use super::super::inner;", 3, &[]),
        ("other::crate_name::store", 1, &[]),
    ];
    for (code, depth, expected) in cases {
        let layers = named_layers(code, depth);
        assert_eq!(layers.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{code}");
    }
}

#[test]
fn comments_name_no_layer() {
    let code = without_comments("//! See crate::worker.\n    // crate::store\nlet x = 1; // crate::http\n");
    assert_eq!(named_layers(&code, 1), BTreeSet::new());
}

#[test]
fn operator_and_worker_never_meet() {
    assert!(!may_use("operator", "worker") && !may_use("worker", "operator"));
    assert!(!may_use("ingest", "operator") && !may_use("http", "worker"));
    assert!(may_use("store", "domain") && !may_use("domain", "store"));
}
