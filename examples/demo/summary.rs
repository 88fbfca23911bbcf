//! What came of it: a table for people, and one line of JSON for machines.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

pub struct Ingested {
    pub tenant: String,
    pub title: String,
    /// Text that was no PDF has none.
    pub pages: Option<i64>,
    pub chunks: i64,
    pub entities: i64,
    pub vectors: i64,
}

/// What was measured, to be held against what was wanted.
pub struct Outcome {
    pub tasks: usize,
    pub completed: usize,
    pub published: usize,
    pub time: Duration,
    pub cancel: Option<Duration>,
    pub max_running: BTreeMap<String, u64>,
    pub caps: BTreeMap<String, u64>,
    /// Of workers that were ready, each number that differs from the one before.
    pub workers: Vec<u32>,
    /// What ended as it should not.
    pub surprises: Vec<String>,
}

impl Outcome {
    /// What is not as it should be, in one sentence.
    pub fn problem(&self) -> Option<String> {
        if let Some(surprise) = self.surprises.first() {
            return Some(surprise.clone());
        }
        if self.cancel.is_none() {
            return Some("no task was cancelled".to_owned());
        }
        for (tenant, cap) in &self.caps {
            match self.max_running.get(tenant) {
                Some(running) if running > cap => {
                    return Some(format!("{tenant} ran {running} tasks at once, and its cap is {cap}"));
                }
                Some(1..) => {}
                Some(0) | None => return Some(format!("no task of {tenant} was seen running")),
            }
        }
        if self.published != self.completed {
            return Some(format!("{} tasks completed, and {} documents are published", self.completed, self.published));
        }
        let (first, last) = (self.workers.first(), self.workers.last());
        if (first, last) != (Some(&0), Some(&0)) || self.workers.len() < 3 {
            return Some(format!("the pool went {} and not from 0 up and back to 0", self.way_of_workers()));
        }
        None
    }

    pub fn way_of_workers(&self) -> String {
        self.workers.iter().map(u32::to_string).collect::<Vec<_>>().join(" → ")
    }

    pub fn json(&self) -> String {
        let line = json!({
            "ok": self.problem().is_none(),
            "tasks": self.tasks,
            "seconds": (self.time.as_secs_f64() * 10.0).round() / 10.0,
            "cancel_ms": self.cancel.map(|time| time.as_millis().min(u128::from(u32::MAX)) as u64),
            "max_running_seen": self.max_running,
            "caps": self.caps,
        });
        line.to_string()
    }
}

pub fn table(rows: &[Ingested]) -> String {
    let head = ["tenant", "document", "pages", "chunks", "entities", "vectors"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let Ingested { tenant, title, pages, chunks, entities, vectors } = row;
        let pages = pages.map_or_else(|| "-".to_owned(), |pages| pages.to_string());
        [tenant.clone(), cut(title, 40), pages, chunks.to_string(), entities.to_string(), vectors.to_string()]
    });
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += &cells.collect::<Vec<_>>().join("  ");
        text.push('\n');
    }
    text
}

pub fn cut(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    text.chars().take(max_chars - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let of = |acme, globex| BTreeMap::from([("acme".to_owned(), acme), ("globex".to_owned(), globex)]);
        Outcome {
            tasks: 6,
            completed: 5,
            published: 5,
            time: Duration::from_millis(31_456),
            cancel: Some(Duration::from_millis(123)),
            max_running: of(2, 1),
            caps: of(2, 1),
            workers: vec![0, 1, 2, 1, 0],
            surprises: Vec::new(),
        }
    }

    #[test]
    fn good_outcome_is_one_line_of_json() {
        let outcome = outcome();
        assert_eq!(outcome.problem(), None);
        assert_eq!(
            outcome.json(),
            r#"{"cancel_ms":123,"caps":{"acme":2,"globex":1},"max_running_seen":{"acme":2,"globex":1},"ok":true,"seconds":31.5,"tasks":6}"#
        );
    }

    #[test]
    fn whatever_is_not_as_it_should_be_is_said() {
        let above = BTreeMap::from([("acme".to_owned(), 3), ("globex".to_owned(), 1)]);
        let rows: [(Outcome, &str); 5] = [
            (Outcome { max_running: above, ..outcome() }, "acme ran 3 tasks at once, and its cap is 2"),
            (Outcome { max_running: BTreeMap::new(), ..outcome() }, "no task of acme was seen running"),
            (Outcome { cancel: None, ..outcome() }, "no task was cancelled"),
            (Outcome { published: 4, ..outcome() }, "5 tasks completed, and 4 documents are published"),
            (Outcome { workers: vec![0, 1], ..outcome() }, "the pool went 0 → 1 and not from 0 up and back to 0"),
        ];
        for (outcome, problem) in rows {
            assert_eq!(outcome.problem().as_deref(), Some(problem));
            assert!(outcome.json().contains(r#""ok":false"#));
        }
    }

    #[test]
    fn table_lines_up_and_cuts_long_titles() {
        let row = |title: &str, pages| Ingested {
            tenant: "acme".to_owned(),
            title: title.to_owned(),
            pages,
            chunks: 12,
            entities: 345,
            vectors: 12,
        };
        let text = table(&[row("Ein Tag im Hafen — für alle", Some(2)), row(&"x".repeat(50), None)]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{text}");
        assert!(lines[2].contains("xxx…") && lines[2].contains("  -  "), "{text}");
    }
}
