//! Waiting for what will come.

use std::time::Duration;

use tokio::time::Instant;

/// Long enough for a loaded machine; a condition that will come has come long before.
const DEADLINE: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_millis(10);

/// Polls until the condition holds.
#[track_caller]
pub fn until<F: AsyncFnMut() -> bool>(what: &str, condition: F) -> impl Future<Output = ()> {
    until_within(DEADLINE, what, condition)
}

pub async fn until_within<F: AsyncFnMut() -> bool>(limit: Duration, what: &str, mut condition: F) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "it never came: {what}");
        tokio::time::sleep(PACE).await;
    }
}
