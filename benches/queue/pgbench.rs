//! Runs one script with pgbench: the client that costs the two cores least, the same for all that are compared with it.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::common::bed::{Bed, Database};

/// What a claim's script does when it found nothing.
const EMPTY: &str = "\\else\n\\sleep 1 ms\n\\endif\n";

pub struct Load<'a> {
    pub script: &'a str,
    pub clients: u32,
    pub length: Length,
}

pub enum Length {
    Seconds(u32),
    /// Of each client.
    Transactions(u32),
}

pub struct Outcome {
    pub transactions: u64,
    pub seconds: f64,
}

impl Load<'_> {
    pub fn run(&self, bed: &Bed, database: &Database) -> anyhow::Result<Outcome> {
        let (option, length) = match self.length {
            Length::Seconds(seconds) => ("-T", seconds),
            Length::Transactions(transactions) => ("-t", transactions),
        };
        let mut child = Command::new(bed.program("pgbench"))
            // `round` is a script's own counter, kept by each client.
            .args(["-n", "-M", "prepared", "-j", "2", "-D", "round=-1"])
            .args(["-c", &self.clients.to_string(), option, &length.to_string()])
            .args(["-f", "-"])
            .arg(&database.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("run pgbench")?;
        child.stdin.take().context("pgbench's input")?.write_all(self.script.as_bytes())?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("pgbench: {}", String::from_utf8_lossy(&output.stderr));
        }
        let failed = after(&text, "number of failed transactions: ").unwrap_or(0.0);
        ensure!(failed == 0.0, "pgbench: {}", String::from_utf8_lossy(&output.stderr));
        let transactions = after(&text, "number of transactions actually processed: ").context("pgbench's count")?;
        let rate = after(&text, "tps = ").context("pgbench's rate")?;
        Ok(Outcome { transactions: transactions as u64, seconds: transactions / rate })
    }
}

/// Claim, wait for the disk, handler, complete, with our functions: as `store::claim` does it.
pub fn ours(want: u32, quantum: u32, handler_ms: u32) -> String {
    let claim = format!("sluice.claim(md5(:client_id::text)::uuid, 1, {want}, {quantum}, false)");
    let complete = "select count(*) from sluice.complete_many(:ids::uuid[], :attempts::int[]);";
    cycle(&claim, "select sluice.flush();\n", handler_ms, complete)
}

/// The same with one of the sketch's: `row` or `shared`.
pub fn sketch(kind: &str, want: u32, quantum: u32, handler_ms: u32) -> String {
    let claim = format!("sketch.claim_{kind}(md5(:client_id::text)::uuid, {want}, {quantum})");
    let complete = format!("select sketch.complete_{kind}(:ids::uuid[], :attempts::int[]);");
    cycle(&claim, "", handler_ms, &complete)
}

fn cycle(claim: &str, flush: &str, handler_ms: u32, complete: &str) -> String {
    let handler = if handler_ms == 0 { String::new() } else { format!("\\sleep {handler_ms} ms\n") };
    format!(
        "select coalesce(array_agg(track_id), '{{}}') as ids, coalesce(array_agg(attempt), '{{}}') as attempts, \
         count(*) as got from {claim} \\gset\n\\if :got\n{flush}{handler}{complete}\n{EMPTY}"
    )
}

fn after(text: &str, label: &str) -> Option<f64> {
    let rest = &text[text.find(label)? + label.len()..];
    rest.split(|character: char| !character.is_ascii_digit() && character != '.').next()?.parse().ok()
}
