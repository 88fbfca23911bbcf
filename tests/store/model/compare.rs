//! The rows of the database beside those of the model.

use std::collections::BTreeMap;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row};
use uuid::Uuid;

use super::state::Model;

/// What both know of each row, as text, by table and key.
pub type Rows = BTreeMap<String, String>;

/// What a look at the database found.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub rows: Rows,
    pub tasks: BTreeMap<Uuid, SeenTask>,
    /// What runs in each lane, and its cap in force (`None`: no cap).
    pub lanes: BTreeMap<String, (i64, Option<i32>)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeenTask {
    pub state: String,
    pub attempt: i32,
    pub retries: i32,
    pub cancel_asked: bool,
    /// All of the row that an end may not change any more.
    pub whole: String,
}

const TASK: &str = "track_id, state::text as state, attempt, retries::int as retries, cancel_at is not null as asked, t::text as whole,
    concat_ws(' ', l.tenant, l.class, state, 'p', priority, case when ready and state = 'pending' then 'ready' end, case when suspended then 'suspended' end,
      'a', attempt, failures, 'r', retries, 'l', lost_leases, 't', timeouts, 'w', worker_id, 's', claim_sequence,
      'stage', stage, 'doc', document_id, 'parent', parent_id, 'root', root_id, 'class', failure_class,
      case when cancel_at is not null then 'asked' end, case when progressed then 'progressed' end) as line";

const OTHERS: &str = "
    select 'document ' || document_id,
           concat_ws(' ', tenant, workspace, status, 'stage', stage, 'pdf', pdf_status, 'class', failure_class,
                     'published', published_status, task_id)
      from sluice.documents
    union all
    select 'lane ' || l.tenant || ' ' || l.class,
           concat_ws(' ', p.pool, l.max_running, l.effective_max_running, l.is_default, l.weight, l.policy, l.cool_downs, t.is_held)
      from sluice.tenant_lanes l join sluice.lane_turns t on t.lane_id = l.lane_id and t.pool_id = l.pool_id and t.weight = l.weight
           and t.cap = coalesce(nullif(l.effective_max_running, 0), 2147483647)
      join sluice.pools p on p.pool_id = l.pool_id
    union all
    select 'pool ' || pool, concat_ws(' ', ingest_cap, 'clamp', ingest_clamp, auto_resume, held) from sluice.pools
    union all
    select 'worker ' || worker_id, draining::text from sluice.workers where pod_name is distinct from 'probe'
    union all
    select concat_ws(' ', kind, scope, key), track_id::text from sluice.task_keys";

const LANES: &str = "
    select l.tenant || ' ' || l.class, count(t.track_id), nullif(l.effective_max_running, 0)
      from sluice.tenant_lanes l left join sluice.tasks t on t.lane_id = l.lane_id and t.state in ('processing', 'stopping')
     group by l.lane_id";

pub async fn look(admin: &mut PgConnection) -> Seen {
    let tasks = format!(
        "select {TASK} from sluice.tasks t join sluice.tenant_lanes l using (lane_id)
         union all select {TASK} from sluice.tasks_archive t join sluice.tenant_lanes l using (lane_id)"
    );
    let mut seen = Seen::default();
    for row in fetch(admin, tasks).await {
        let id: Uuid = row.get("track_id");
        let line: String = row.get("line");
        let task = SeenTask {
            state: row.get("state"),
            attempt: row.get("attempt"),
            retries: row.get("retries"),
            cancel_asked: row.get("asked"),
            whole: row.get("whole"),
        };
        assert!(seen.tasks.insert(id, task).is_none(), "{id} is both live and archived");
        seen.rows.insert(format!("task {id}"), line);
    }
    for row in fetch(admin, OTHERS.to_owned()).await {
        seen.rows.insert(row.get(0), row.get(1));
    }
    for row in fetch(admin, LANES.to_owned()).await {
        seen.lanes.insert(row.get(0), (row.get(1), row.get(2)));
    }
    seen
}

async fn fetch(admin: &mut PgConnection, sql: String) -> Vec<PgRow> {
    sqlx::query(AssertSqlSafe(sql)).fetch_all(admin).await.expect("a look at the tables")
}

/// The model's rows, in the words of the queries above.
pub fn expected(model: &Model) -> Rows {
    let mut rows = Rows::new();
    for (id, task) in &model.tasks {
        let mut line = Line::default();
        line.word(task.tenant()).word(task.lane.1.as_str()).word(task.state.as_str()).word("p").word(task.priority);
        line.flag(task.ready, "ready").flag(task.suspended, "suspended");
        line.word("a").word(task.attempt).word(task.failures).word("r").word(task.retries);
        line.word("l").word(task.lost_leases).word("t").word(task.timeouts);
        line.word("w").maybe(task.worker).word("s").maybe(task.sequence).word("stage").maybe(task.stage.as_deref());
        line.word("doc").maybe(task.document).word("parent").maybe(task.parent).word("root").maybe(task.root);
        line.word("class").maybe(task.failure_class.as_deref());
        line.flag(task.cancel_asked, "asked").flag(task.progressed, "progressed");
        rows.insert(format!("task {id}"), line.0);
    }
    for (id, document) in &model.documents {
        let mut line = Line::default();
        line.word(&document.tenant).maybe(document.workspace.as_deref()).word(&document.status);
        line.word("stage").maybe(document.stage.as_deref()).word("pdf").maybe(document.pdf_status.as_deref());
        line.word("class").maybe(document.failure_class.as_deref());
        line.word("published").maybe(document.published_status.as_deref()).word(document.task);
        rows.insert(format!("document {id}"), line.0);
    }
    for (key, lane) in &model.lanes {
        let mut line = Line::default();
        line.word(&lane.pool).word(lane.max_running).word(model.effective_cap(key)).bit(lane.is_default);
        line.word(lane.weight).word(lane.policy.as_str()).word(lane.cool_downs).bit(lane.is_held);
        rows.insert(format!("lane {} {}", key.0, key.1), line.0);
    }
    for (name, pool) in &model.pools {
        let mut line = Line::default();
        line.word(pool.ingest_cap).word("clamp").maybe(pool.ingest_clamp).bit(pool.auto_resume).bit(pool.held);
        rows.insert(format!("pool {name}"), line.0);
    }
    for (id, worker) in &model.workers {
        rows.insert(format!("worker {id}"), worker.draining.to_string());
    }
    for ((scope, kind, name), key) in &model.keys {
        rows.insert(format!("{kind} {scope} {name}"), key.track_id.to_string());
    }
    rows
}

/// The rows that differ; empty if none does.
pub fn differences(expected: &Rows, real: &Rows) -> String {
    let keys: std::collections::BTreeSet<&String> = expected.keys().chain(real.keys()).collect();
    let none = "(none)".to_owned();
    let differing = keys.into_iter().filter(|key| expected.get(*key) != real.get(*key));
    differing
        .map(|key| {
            let (model, real) = (expected.get(key).unwrap_or(&none), real.get(key).unwrap_or(&none));
            format!("{key}\n    model    {model}\n    database {real}\n")
        })
        .collect()
}

/// Words apart by one space, as `concat_ws` makes them: what is missing leaves nothing.
#[derive(Default)]
struct Line(String);

impl Line {
    fn word(&mut self, word: impl ToString) -> &mut Self {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.push_str(&word.to_string());
        self
    }

    fn maybe(&mut self, word: Option<impl ToString>) -> &mut Self {
        match word {
            Some(word) => self.word(word),
            None => self,
        }
    }

    fn flag(&mut self, is_set: bool, word: &str) -> &mut Self {
        self.maybe(is_set.then_some(word))
    }

    /// As `concat_ws` writes a boolean.
    fn bit(&mut self, bit: bool) -> &mut Self {
        self.word(if bit { "t" } else { "f" })
    }
}
