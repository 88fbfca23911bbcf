//! A complete worker in Rust: counts the words of each `insert` into a table of one's own, together with the task's end.
//!   create table word_counts (track_id uuid primary key, words bigint not null);  grant insert on word_counts to …;
//!   DATABASE_URL=… cargo run --example word_count
use std::time::Duration;

use serde::Deserialize;
use sluice::domain::task::TaskType;
use sluice::worker::{Context, Done, Handled, Handlers, Shutdown, WorkerSettings, run};

#[derive(Deserialize)]
struct Text {
    text: String,
}

async fn count_words(context: Context) -> Handled {
    let Text { text } = context.payload()?; // a payload that does not fit is a failure for good
    let lines: Vec<&str> = text.lines().collect();
    let mut words = 0_i64;
    for (done, line) in lines.iter().enumerate() {
        context.reporter().stage("counting").progress(done as f64 / lines.len() as f64);
        words += i64::try_from(line.split_whitespace().count())?; // any error is a failure that is tried again
        context.unless_stopped(tokio::time::sleep(Duration::from_millis(10))).await?; // a model is asked, say
    }
    let mut transaction = context.begin().await?;
    let row = sqlx::query("insert into word_counts (track_id, words) values ($1, $2)");
    transaction.execute(row.bind(context.task.attempt.track_id).bind(words)).await?;
    Ok(Done::new().with_result(words).publish(transaction)) // visible with the task's end, or never
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let settings = WorkerSettings::new(std::env::var("DATABASE_URL")?.parse()?, 8);
    let handlers = Handlers::new().on(TaskType::Insert, count_words);
    run(settings, handlers, Shutdown::on_signals()?).await?;
    Ok(())
}
