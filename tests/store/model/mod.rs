//! A model of the state machine and the caps, driven side by side with the real functions by random calls.
//!
//! `SLUICE_MODEL_CASES` says how many cases. A case that fails shrinks, prints as a list of calls with their answers, and
//! is kept in `regressions.txt`, which later runs try first.

mod call;
mod cases;
mod compare;
mod control;
mod drive;
mod ends;
mod found;
mod intake;
mod invariants;
mod perform;
mod permitted;
mod real;
mod state;
mod upkeep;

use std::panic::resume_unwind;
use std::thread;

use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner};

use crate::common::postgres::TestDb;

/// As many as take about 25 s.
const CASES: u32 = 150;
/// A failing case is worth half a minute of looking for a shorter one.
const SHRINK_MILLIS: u32 = 30_000;

/// Not optimised, what a driver awaits takes more than a test's thread has.
const STACK_BYTES: usize = 64 << 20;

#[test]
fn real_functions_answer_as_the_model_whatever_is_called() {
    let test = thread::Builder::new().stack_size(STACK_BYTES).spawn(compare).expect("a thread");
    if let Err(panic) = test.join() {
        resume_unwind(panic);
    }
}

fn compare() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let db = runtime.block_on(TestDb::new());
    if db.is_pooled() {
        // The settings of its sessions, and what it leaves open, are those of a connection of one's own.
        eprintln!("skipped the model: it does not go through pgbouncer");
        return;
    }
    let driver = std::cell::RefCell::new(runtime.block_on(drive::Driver::new(&db.admin_url())));
    let cases = std::env::var("SLUICE_MODEL_CASES").ok().map(|cases| cases.parse().expect("a number of cases"));
    let mut runner = TestRunner::new(Config {
        cases: cases.unwrap_or(CASES),
        max_shrink_time: SHRINK_MILLIS,
        max_shrink_iters: u32::MAX,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/store/model/regressions.txt"))),
        source_file: Some(file!()),
        ..Config::default()
    });

    let outcome = runner
        .run(&cases::case(), |steps| runtime.block_on(driver.borrow_mut().run(&steps)).map_err(TestCaseError::fail));

    if let Err(TestError::Fail(reason, _)) = outcome {
        panic!("the model and the database part after these calls:\n{reason}");
    }
    assert!(outcome.is_ok(), "{outcome:?}");
}
