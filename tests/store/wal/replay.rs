//! What the replay accepts, and what it finds.

use uuid::Uuid;

use crate::common::wal::replay::{Change, Replay};

const LANE: i32 = 1;

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn new(n: u128) -> Change {
    Change::Live { id: id(n), lane: LANE, state: "pending".to_owned(), attempt: 0, is_new: true }
}

fn to(n: u128, state: &str, attempt: i32) -> Change {
    Change::Live { id: id(n), lane: LANE, state: state.to_owned(), attempt, is_new: false }
}

fn left(n: u128) -> Change {
    Change::Left { id: id(n) }
}

fn ended(n: u128, state: &str, attempt: i32) -> Change {
    Change::Ended { id: id(n), state: state.to_owned(), attempt }
}

fn replay(transactions: &[&[Change]]) -> Result<Replay, String> {
    let mut replay = Replay::default();
    replay.apply(&[Change::Cap { lane: LANE, cap: 1 }])?;
    for transaction in transactions {
        replay.apply(transaction)?;
    }
    Ok(replay)
}

fn violation(transactions: &[&[Change]]) -> String {
    replay(transactions).expect_err("the log is wrong")
}

#[test]
fn orderly_log_is_accepted() {
    let again = Change::Live { id: id(1), lane: LANE, state: "pending".to_owned(), attempt: 1, is_new: true };
    let retry = [again, Change::Unended { id: id(1) }];
    let log = replay(&[
        &[new(1), new(2)],
        &[to(1, "processing", 1)],
        &[left(1), ended(1, "failed", 1)],
        &[to(2, "processing", 1)],
        &retry,
        &[to(2, "stopping", 1)],
        &[left(2), ended(2, "cancelled", 1)],
        &[to(1, "processing", 2)],
        &[left(1), ended(1, "completed", 2)],
    ])
    .expect("it is orderly");
    assert_eq!((log.enqueued, log.attempts(), log.ends, log.retried, log.filled), (2, 3, 3, 1, 3));
}

#[test]
fn claim_above_the_cap_is_found() {
    let error = violation(&[&[new(1), new(2)], &[to(1, "processing", 1)], &[to(2, "processing", 1)]]);
    assert!(error.contains("2 running and a cap of 1"), "{error}");
}

#[test]
fn stopping_task_takes_its_slot() {
    let error =
        violation(&[&[new(1), new(2)], &[to(1, "processing", 1)], &[to(1, "stopping", 1)], &[to(2, "processing", 1)]]);
    assert!(error.contains("2 running and a cap of 1"), "{error}");
}

#[test]
fn lowered_cap_holds_for_later_claims_only() {
    let raise = [Change::Cap { lane: LANE, cap: 3 }];
    let lower = [Change::Cap { lane: LANE, cap: 2 }];
    let first = [new(1), new(2), new(3), new(4)];
    let two = [to(1, "processing", 1), to(2, "processing", 1)];
    assert!(replay(&[&first, &raise, &two, &[to(3, "processing", 1)], &lower]).is_ok());
    let error = violation(&[&first, &raise, &two, &lower, &[to(3, "processing", 1)]]);
    assert!(error.contains("3 running and a cap of 2"), "{error}");
}

#[test]
fn second_end_is_found() {
    let end = [left(1), ended(1, "completed", 1)];
    let error = violation(&[&[new(1)], &[to(1, "processing", 1)], &end, &[ended(1, "completed", 1)]]);
    assert!(error.contains("ended without leaving"), "{error}");
    let twice = [left(1), ended(1, "completed", 1), ended(1, "failed", 1)];
    let error = violation(&[&[new(1)], &[to(1, "processing", 1)], &twice]);
    assert!(error.contains("ended without leaving"), "{error}");
}

#[test]
fn end_of_a_lost_attempt_is_found() {
    let error = violation(&[
        &[new(1)],
        &[to(1, "processing", 1)],
        &[to(1, "pending", 1)],
        &[to(1, "processing", 2)],
        &[left(1), ended(1, "completed", 1)],
    ]);
    assert!(error.contains("at attempt 2 and ended as attempt 1"), "{error}");
}

#[test]
fn attempt_handed_out_twice_is_found() {
    let error = violation(&[&[new(1)], &[to(1, "processing", 1)], &[to(1, "pending", 1)], &[to(1, "processing", 1)]]);
    assert!(error.contains("from attempt 1 to 1"), "{error}");
}

#[test]
fn lost_task_is_found() {
    let error = violation(&[&[new(1)], &[left(1)]]);
    assert!(error.contains("did not end"), "{error}");
    let error = violation(&[&[new(1)], &[left(1), ended(1, "cancelled", 0)], &[Change::Unended { id: id(1) }]]);
    assert!(error.contains("did not come back"), "{error}");
}

#[test]
fn completed_task_that_comes_back_is_found() {
    let error = violation(&[
        &[new(1)],
        &[to(1, "processing", 1)],
        &[left(1), ended(1, "completed", 1)],
        &[Change::Unended { id: id(1) }],
    ]);
    assert!(error.contains("had completed"), "{error}");
}

#[test]
fn accepted_cancel_that_ends_otherwise_is_found() {
    let error = violation(&[
        &[new(1)],
        &[to(1, "processing", 1)],
        &[to(1, "stopping", 1)],
        &[left(1), ended(1, "completed", 1)],
    ]);
    assert!(error.contains("was stopping and ended as completed"), "{error}");
}
