//! The operator as a process, with the least rights, against a real API server and a real Postgres. Tasks are run through
//! the store, as a worker would.

#[path = "../common/mod.rs"]
mod common;
mod lanes;
mod leader;
mod neighbours;
mod outages;
mod pools;
mod scene;
mod second_look;
mod standalone;
mod task_admission;
mod task_cancel;
mod task_control;
mod task_deletion;
mod task_mirror;
mod task_outage;
