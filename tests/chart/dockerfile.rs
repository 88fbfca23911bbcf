//! The image cannot be built here; what can be read of it is held against the code and the chart.

use std::fs;

use crate::helm::{render, root};

#[test]
fn image_is_static_and_runs_as_the_user_of_the_chart() {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let instructions: Vec<_> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let last = |name: &str| instructions.iter().rfind(|(instruction, _)| *instruction == name).map(|(_, rest)| *rest);
    assert_eq!(last("FROM"), Some("scratch"));
    assert_eq!(last("ENTRYPOINT"), Some(r#"["/sluice"]"#));
    assert!(text.contains("x86_64-unknown-linux-musl") && text.contains("aarch64-unknown-linux-musl"));

    let user = last("USER").unwrap();
    let (user, group) = user.split_once(':').unwrap();
    let (user, group): (u32, u32) = (user.parse().unwrap(), group.parse().unwrap());
    assert!(user > 0 && group > 0);
    let rendered = render(&[]);
    let context = &rendered.get("Deployment/sluice")["spec"]["template"]["spec"]["securityContext"];
    assert_eq!((&context["runAsUser"], &context["runAsGroup"]), (&user.into(), &group.into()));
}

#[test]
fn image_is_built_with_the_compiler_that_the_crate_names() {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let version = env!("CARGO_PKG_RUST_VERSION");
    assert!(text.contains(&format!("FROM rust:{version}-slim")), "the crate wants Rust {version}");
}

#[test]
fn builder_gets_every_file_that_cargo_reads() {
    let ignore = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let kept: Vec<_> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for needed in ["Cargo.toml", "Cargo.lock", "build.rs", "src", "migrations", "benches", "convert", "tests/postgres"]
    {
        assert!(kept.contains(&needed), "{needed} is not in .dockerignore");
    }
    for path in kept {
        assert!(root().join(path).exists(), "{path} of .dockerignore is not there");
    }
}
