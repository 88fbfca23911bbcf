//! The same functions with nothing around them: one claimer and one completer, each on its connection.

use std::time::Instant;

use tokio::sync::mpsc;

use crate::common::bed::Database;
use crate::common::client::{Claimed, Client};

/// What is claimed waits for the completer: as much as keeps both busy.
const AHEAD: usize = 2;

/// Claims `want` at a time and completes what it gets, until the time is over.
pub async fn drain(database: &Database, want: i32, quantum: i32, until: Instant) -> anyhow::Result<()> {
    let mut claimer = Client::register(database, "default").await?;
    let mut completer = Client::register(database, "default").await?;
    let (sender, mut receiver) = mpsc::channel::<Claimed>(AHEAD);
    let claims = async move {
        while Instant::now() < until {
            let claimed = claimer.claim(want, quantum).await?;
            if sender.send(claimed).await.is_err() {
                break;
            }
        }
        anyhow::Ok(())
    };
    let ends = async move {
        while let Some(claimed) = receiver.recv().await {
            if Instant::now() >= until {
                break;
            }
            completer.complete(&claimed).await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(claims, ends).map(|_| ())
}
