//! What has bitten other queues, each as a test that plays it by hand: transactions stay open between the steps, so that
//! two sessions meet where they must.

mod ends;
mod faults;
mod invariants;
mod lanes;
mod locks;
mod marks;
mod plans;
mod scene;
mod turmoil;
