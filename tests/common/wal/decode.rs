//! Reads the text of the `test_decoding` plugin: a line for each row change.

use std::collections::HashMap;

use super::replay::Change;

/// A line of the log, as far as it concerns the queue.
#[derive(Debug, PartialEq)]
pub enum Line {
    Begin,
    Commit,
    Row(Change),
    Other,
}

pub fn line(text: &str) -> Result<Line, String> {
    if text.starts_with("BEGIN") {
        return Ok(Line::Begin);
    }
    if text.starts_with("COMMIT") {
        return Ok(Line::Commit);
    }
    // What `sluice.flush` writes, to see it flushed.
    if text.starts_with("message: ") {
        return Ok(Line::Other);
    }
    let wrong = || format!("not understood: {}", text.chars().take(200).collect::<String>());
    let (table, rest) = text.strip_prefix("table ").and_then(|rest| rest.split_once(": ")).ok_or_else(wrong)?;
    let (action, tuple) = rest.split_once(": ").ok_or_else(wrong)?;
    // Only an update of the key names the old row.
    let tuple =
        tuple.split_once("new-tuple: ").filter(|_| tuple.starts_with("old-key: ")).map_or(tuple, |(_, new)| new);
    let is_archive = table.starts_with("sluice.tasks_archive");
    if !(is_archive || matches!(table, "sluice.tasks" | "sluice.lane_turns")) {
        return Ok(Line::Other);
    }
    let columns = columns(tuple).ok_or_else(wrong)?;
    change(table, is_archive, action, &columns).map(|change| change.map_or(Line::Other, Line::Row)).ok_or_else(wrong)
}

/// The outer `None`: a column is missing; the inner: nothing that the replay looks at.
fn change(table: &str, is_archive: bool, action: &str, columns: &HashMap<&str, String>) -> Option<Option<Change>> {
    let number = |name| columns.get(name)?.parse::<i32>().ok();
    let id = || columns.get("track_id")?.parse().ok();
    let state = || columns.get("state").cloned();
    Some(Some(match (table, action) {
        ("sluice.lane_turns", "DELETE") => return Some(None),
        ("sluice.lane_turns", _) => Change::Cap { lane: number("lane_id")?, cap: number("cap")? },
        (_, "INSERT") if is_archive => Change::Ended { id: id()?, state: state()?, attempt: number("attempt")? },
        (_, "DELETE") if is_archive => Change::Unended { id: id()? },
        (_, "INSERT" | "UPDATE") if !is_archive => Change::Live {
            id: id()?,
            lane: number("lane_id")?,
            state: state()?,
            attempt: number("attempt")?,
            is_new: action == "INSERT",
        },
        (_, "DELETE") => Change::Left { id: id()? },
        // Nothing updates an ended row.
        _ => return None,
    }))
}

/// `name[type]:value` by name; values are quoted as in SQL, or bare words.
pub fn columns(mut tuple: &str) -> Option<HashMap<&str, String>> {
    let mut columns = HashMap::new();
    while !tuple.is_empty() {
        let (name, rest) = tuple.split_once('[')?;
        let (_, rest) = rest.split_once("]:")?;
        let (value, rest) = match rest.strip_prefix('\'') {
            Some(quoted) => until_quote(quoted)?,
            None => {
                let end = rest.find(' ').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        columns.insert(name, value);
        tuple = rest.strip_prefix(' ').unwrap_or(rest);
    }
    Some(columns)
}

fn until_quote(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = quoted;
    loop {
        let (part, after) = rest.split_once('\'')?;
        value.push_str(part);
        let Some(more) = after.strip_prefix('\'') else { return Some((value, after)) };
        value.push('\'');
        rest = more;
    }
}
