//! The text of `test_decoding`, as it is read.

use crate::common::wal::decode::{Line, columns, line};
use crate::common::wal::replay::Change;

#[test]
fn quotes_brackets_and_nulls_are_read() {
    let tuple = "a[integer]:1 b[text]:'it''s ]: here' c[text[]]:'{x y}' d[timestamp with time zone]:null e[jsonb]:'{\"[\": \"''\"}'";
    let columns = columns(tuple).expect("columns");
    let values = ["a", "b", "c", "d", "e"].map(|name| columns[name].as_str());
    assert_eq!(values, ["1", "it's ]: here", "{x y}", "null", "{\"[\": \"'\"}"]);
}

#[test]
fn row_changes_are_told_apart() {
    let id = uuid::Uuid::from_u128(7);
    let row =
        format!("track_id[uuid]:'{id}' lane_id[integer]:3 state[sluice.task_state]:'processing' attempt[integer]:2");
    let live = Change::Live { id, lane: 3, state: "processing".to_owned(), attempt: 2, is_new: false };
    let ended = Change::Ended { id, state: "processing".to_owned(), attempt: 2 };
    let cases = [
        ("BEGIN".to_owned(), Line::Begin),
        ("COMMIT".to_owned(), Line::Commit),
        (format!("table sluice.tasks: UPDATE: {row}"), Line::Row(live.clone())),
        (format!("table sluice.tasks: UPDATE: old-key: track_id[uuid]:'{id}' new-tuple: {row}"), Line::Row(live)),
        (format!("table sluice.tasks: DELETE: track_id[uuid]:'{id}'"), Line::Row(Change::Left { id })),
        (format!("table sluice.tasks_archive_w2026_01: INSERT: {row}"), Line::Row(ended)),
        (
            format!("table sluice.tasks_archive_default: DELETE: track_id[uuid]:'{id}'"),
            Line::Row(Change::Unended { id }),
        ),
        (
            "table sluice.lane_turns: UPDATE: lane_id[integer]:3 cap[integer]:4".to_owned(),
            Line::Row(Change::Cap { lane: 3, cap: 4 }),
        ),
        ("table sluice.workers: DELETE: (no-tuple-data)".to_owned(), Line::Other),
        ("message: transactional: 1 prefix: sluice, sz: 0 content:".to_owned(), Line::Other),
    ];
    for (text, expected) in cases {
        assert_eq!(line(&text), Ok(expected), "{text}");
    }
}

#[test]
fn row_without_its_columns_is_no_row() {
    assert!(line("table sluice.tasks: UPDATE: track_id[uuid]:'x'").is_err());
    assert!(line("table sluice.tasks_archive_default: UPDATE: lane_id[integer]:1").is_err());
}
