//! The figures, what each has to reach, and the two ways to read them: a table, and JSON on the last line.

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Map, Value, json};

/// What a figure has to reach.
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Open,
}

use Bound::{AtLeast, AtMost, Open};

pub struct Figure {
    key: &'static str,
    what: &'static str,
    target: Bound,
    aim: Bound,
}

pub const fn figure(key: &'static str, what: &'static str, target: Bound, aim: Bound) -> Figure {
    Figure { key, what, target, aim }
}

/// A ratio within this of its bound is at it: no run repeats the third digit.
const ROUNDING: f64 = 0.005;

pub struct Report {
    figures: &'static [Figure],
    started: Instant,
    load_before: f64,
    values: BTreeMap<&'static str, f64>,
    notes: Vec<String>,
}

impl Report {
    pub fn new(figures: &'static [Figure]) -> Self {
        Self { figures, started: Instant::now(), load_before: load(), values: BTreeMap::new(), notes: Vec::new() }
    }

    pub fn progress(&self, text: impl AsRef<str>) {
        eprintln!("[{:>5.0} s] {}", self.started.elapsed().as_secs_f64(), text.as_ref());
    }

    /// A number behind a figure, printed below the table.
    pub fn note(&mut self, text: String) {
        self.progress(&text);
        self.notes.push(text);
    }

    pub fn set(&mut self, key: &'static str, value: f64) {
        assert!(self.figures.iter().any(|figure| figure.key == key), "{key} is no figure");
        self.progress(format!("{key} = {}", shown(value)));
        self.values.insert(key, value);
    }

    pub fn print(&self, database_version: u32) {
        println!("\n| figure | key | measured | target | aim | verdict |\n|---|---|---|---|---|---|");
        for figure in self.figures {
            let Some(&value) = self.values.get(figure.key) else { continue };
            let verdict = match (reached(value, &figure.target), reached(value, &figure.aim), &figure.aim) {
                (false, _, _) => "MISSED",
                (true, _, Open) => "ok",
                (true, true, _) => "aim",
                (true, false, _) => "target",
            };
            println!(
                "| {} | `{}` | {} | {} | {} | {verdict} |",
                figure.what,
                figure.key,
                shown(value),
                bound(&figure.target),
                bound(&figure.aim)
            );
        }
        println!();
        for note in &self.notes {
            println!("- {note}");
        }
        println!("- {:.0} s in all, PostgreSQL {database_version}\n", self.started.elapsed().as_secs_f64());
        println!("{}", Value::Object(self.json()));
    }

    fn json(&self) -> Map<String, Value> {
        let round = |value: f64| (value * 10_000.0).round() / 10_000.0;
        let mut object: Map<String, Value> = self
            .figures
            .iter()
            .filter_map(|figure| Some((figure.key.to_owned(), json!(round(*self.values.get(figure.key)?)))))
            .collect();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        object.insert("host".to_owned(), json!({ "cores": cores, "load": self.load_before }));
        object
    }
}

pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The nearest rank.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    assert!(!values.is_empty(), "nothing was measured");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

fn reached(value: f64, bound: &Bound) -> bool {
    match bound {
        AtMost(most) => value <= most + if *most == 0.0 { 0.0 } else { ROUNDING },
        AtLeast(least) => value >= least - ROUNDING,
        Open => true,
    }
}

fn bound(bound: &Bound) -> String {
    match bound {
        AtMost(most) => format!("≤ {}", shown(*most)),
        AtLeast(least) => format!("≥ {}", shown(*least)),
        Open => "–".to_owned(),
    }
}

fn shown(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

/// How busy the machine was before the run: a reader's first question.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}
