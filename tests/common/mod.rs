//! Fixtures that integration tests share: include it as a module of a test binary.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod cluster;
pub mod pdf;
pub mod postgres;
pub mod proxy;
pub mod wal;
