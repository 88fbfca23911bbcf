//! docs/worker.md against the program, and its example against a real Postgres.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::postgres::TestDb;
use serde_json::json;
use sluice::domain::task::{State, TaskType};
use sluice::store::control::{CancelOutcome, Request, Scope, cancel};
use sluice::store::enqueue::{Enqueued, NewTask, enqueue};
use sluice::store::status::{TaskStatus, task_status};
use sluice::store::{Database, Role};
use sqlx::Executor;
use uuid::Uuid;

const DOCUMENT: &str = "docs/worker.md";
const EXAMPLE: &str = "examples/workers/word_count.rs";
/// For what takes a moment on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// What stands in backquotes in the first cells of a table, below a heading and above the next one.
fn first_column(document: &str, heading: &str) -> BTreeSet<String> {
    let text = read(document);
    let mut sections = text.split("\n## ").flat_map(|section| section.split("\n### "));
    let section = sections.find(|section| section.starts_with(heading)).expect(heading);
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    cells.flat_map(|cell| cell.split('`').step_by(2)).map(str::to_owned).collect()
}

#[test]
fn quoted_example_is_the_file_and_stays_short() {
    let example = read(EXAMPLE);
    assert!(read(DOCUMENT).contains(&format!("\n{example}```\n")), "{DOCUMENT} does not quote {EXAMPLE}");
    assert!(example.lines().count() < 40, "{EXAMPLE} has {} lines", example.lines().count());
}

#[test]
fn every_setting_of_the_worker_is_documented_and_nothing_else_is() {
    let help = Command::new(env!("CARGO_BIN_EXE_sluice")).args(["worker", "--help"]).output().expect("help");
    let help = String::from_utf8(help.stdout).expect("text");
    let variables = help.split("[env: ").skip(1).filter_map(|rest| rest.split([']', '=']).next());
    // The manual names the provider's only by how they begin.
    let mut documented = first_column(DOCUMENT, "Settings");
    documented.retain(|name| !name.ends_with('…'));
    documented.extend(first_column("docs/pipeline.md", "An endpoint"));
    assert_eq!(documented, variables.map(str::to_owned).collect());
}

/// A process that ends with this value.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("it starts"))
    }

    /// As Kubernetes does, which wants a good end.
    fn terminate(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
        let status = self.0.wait().expect("an end");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn every_endpoint_answers_and_shows_only_what_is_documented() {
    let db = TestDb::new().await;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).expect("a port").port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("worker").env_clear().env("SLUICE_TEST_HANDLERS", "all").env("DATABASE_URL", db.url(Role::Worker));
    let worker = Process::start(command.env("SLUICE_HEALTH_LISTEN", format!("127.0.0.1:{port}")));

    let is_ready = async || get(port, "/readyz").ok().filter(|answer| answer.starts_with("HTTP/1.1 200"));
    until("the worker to be ready", is_ready).await;

    for path in first_column(DOCUMENT, "Endpoints") {
        let answer = get(port, &path).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let (documented, metrics) = (first_column(DOCUMENT, "Metrics"), get(port, "/metrics").expect("metrics"));
    let mut families = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(families.find(|family| !is_documented(family, &documented)), None);
    worker.terminate();
}

fn is_documented(family: &str, documented: &BTreeSet<String>) -> bool {
    let Some((name, kind)) = family.strip_prefix("sluice_worker_").and_then(|rest| rest.split_once(' ')) else {
        return false;
    };
    documented.contains(&if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
}

/// Those that count nothing yet are not shown.
#[test]
fn every_metric_of_the_code_is_documented_and_nothing_else_is() {
    let code = read("src/worker/metrics.rs");
    let registered =
        code.split("registry.register(").skip(1).filter_map(|rest| Some(rest.split('"').nth(1)?.to_owned()));
    let documented = first_column(DOCUMENT, "Metrics");
    let names = documented.iter().map(|name| name.trim_end_matches("_total").to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), registered.collect());
}

/// What Cargo tells a test and not itself, by how it begins: build scripts ask for some of it, and if it changes, all that they are
/// part of is built anew.
const OF_TESTS: [&str; 5] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "OUT_DIR"];

/// Cargo has built it where it builds all tests; a test that is run by itself builds it now.
fn example() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--example", "word_count"]);
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| OF_TESTS.iter().any(|start| name.starts_with(start))).for_each(|name| {
        cargo.env_remove(name);
    });
    assert!(cargo.status().is_ok_and(|status| status.success()), "the example does not build");
    let this = std::env::current_exe().expect("a path");
    this.parent().and_then(Path::parent).expect("target/…/deps").join("examples/word_count")
}

async fn enqueue_text(operator: &Database, text: &str) -> Uuid {
    let mut task = NewTask::new(TaskType::Insert, "acme");
    task.payload = json!({ "text": text });
    match enqueue(operator, &task).await.expect("an answer") {
        Enqueued::Created { track_id } => track_id,
        other => panic!("{other:?}"),
    }
}

async fn until_state(operator: &Database, track_id: Uuid, state: State) -> TaskStatus {
    let look = async || task_status(operator, track_id).await.expect("an answer").filter(|task| task.state == state);
    until(&format!("{state:?}"), look).await
}

#[tokio::test]
async fn example_counts_words_and_leaves_nothing_of_what_was_cancelled() {
    let db = TestDb::new().await;
    let table = "create table word_counts (track_id uuid primary key, words bigint not null);
                 grant insert on word_counts to sluice_worker";
    db.admin().execute(sqlx::raw_sql(table)).await.expect("a table");
    let operator = db.operator();
    let short = enqueue_text(&operator, "one two\nthree").await;
    let unfit = enqueue_text(&operator, "").await;
    let set = sqlx::query("update sluice.tasks set payload = '{}' where track_id = $1").bind(unfit);
    db.admin().execute(set).await.expect("a payload without text");
    let long = enqueue_text(&operator, &"a b c\n".repeat(100_000)).await;

    let worker = Process::start(Command::new(example()).env_clear().env("DATABASE_URL", db.url(Role::Worker)));

    assert_eq!(until_state(&operator, short, State::Completed).await.result, Some(json!(3)));
    let failed = until_state(&operator, unfit, State::Failed).await;
    assert!(failed.error.is_some_and(|error| error.contains("text")));
    until_state(&operator, long, State::Processing).await;
    let outcome = cancel(&operator, long, Request::default(), Scope::default()).await.expect("an answer");
    assert_eq!(outcome, CancelOutcome::Stopping);
    until_state(&operator, long, State::Cancelled).await;
    worker.terminate();

    let rows: Vec<(Uuid, i64)> =
        sqlx::query_as("select track_id, words from word_counts").fetch_all(db.admin()).await.expect("rows");
    assert_eq!(rows, [(short, 3)]);
}
