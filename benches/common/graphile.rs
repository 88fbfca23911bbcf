//! graphile_worker's program, in a package of its own and built as a release: theirs at its best.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::bed::Database;

pub struct Graphile {
    program: PathBuf,
}

impl Graphile {
    pub fn build() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = root.join("target/graphile");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
            .arg(root.join("benches/graphile/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status()
            .context("run cargo")?;
        ensure!(status.success(), "benches/graphile could not be built");
        Ok(Self { program: target.join("release/graphile-bench") })
    }

    /// One of its commands against an empty database; answers what it prints.
    pub fn run(&self, database: &Database, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("DATABASE_URL", &database.url)
            .output()
            .context("run graphile-bench")?;
        ensure!(output.status.success(), "graphile-bench: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).context("graphile-bench's answer")
    }
}
