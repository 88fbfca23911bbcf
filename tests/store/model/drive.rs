//! Makes each call on the real functions and on the model, and says where they part.

use std::collections::BTreeSet;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::call::{Among, CONNECTIONS, Call, POOLS, Pick, Step, WORKERS};
use super::compare::{self, Seen};
use super::invariants;
use super::permitted::{self, Asked, Held};
use super::real::{self, Answer, BLOCKED, Statement, lines};
use super::state::{Model, Pool, Tick, Worker};

/// Short, since only a lock that the one open transaction holds is ever waited for.
const SETTINGS: &str = "set lock_timeout = '30ms'; set statement_timeout = '20s'";
/// A vacuum that cuts a table's end off keeps all others out for a moment.
const NO_CUTTING: &str = "
    set lock_timeout = 0;
    do $$ declare v_table regclass; begin
      for v_table in select oid from pg_class where relnamespace = 'sluice'::regnamespace and relkind = 'r' loop
        execute format('alter table %s set (vacuum_truncate = off)', v_table);
      end loop;
    end $$";
const RESET: &str = "
    rollback;
    delete from sluice.tasks; delete from sluice.tasks_archive; delete from sluice.documents; delete from sluice.task_keys;
    delete from sluice.mirrors; delete from sluice.mirror_dirty; delete from sluice.task_events; delete from sluice.workers;
    delete from sluice.lane_wakes; delete from sluice.lane_turns; delete from sluice.tenant_lanes; delete from sluice.pools;
    insert into sluice.pools (pool, lease_secs) values ('default', 86400), ('second', 86400);
    insert into sluice.workers (worker_id, pool_id, pod_name, alive_until)
    select gen_random_uuid(), pool_id, 'probe', now() + interval '1 day' from sluice.pools";
const PROBE: &str = "
    select c.track_id::text
      from sluice.workers w join sluice.pools p on p.pool_id = w.pool_id and p.pool = $1
     cross join lateral sluice.claim(w.worker_id, 1, 1000, 1000) c
     where w.pod_name = 'probe'";

pub struct Driver {
    pub(super) admin: PgConnection,
    pub(super) connections: Vec<PgConnection>,
    pub(super) committed: Model,
    pub(super) open: Option<Open>,
    pub(super) tick: Tick,
    pub(super) workers: [Uuid; WORKERS],
    pub(super) sequences: [i64; WORKERS],
    /// Ids in the order in which they came, for names that a reader can follow.
    pub(super) names: Vec<Uuid>,
    trace: Vec<String>,
    seen: Seen,
}

/// The one transaction that is left open.
pub struct Open {
    connection: usize,
    inside: Model,
    since: Tick,
    held: Held,
}

/// Where a call is made: what it sees, and what it must not touch.
pub struct Site {
    pub connection: usize,
    pub now: Tick,
    pub before: Model,
    /// Of another session.
    pub held: Option<Held>,
}

/// What a call came to.
pub struct Done {
    pub after: Model,
    pub answer: Answer,
}

impl Driver {
    pub async fn new(url: &str) -> Self {
        let mut connections = Vec::new();
        for _ in 0..=CONNECTIONS {
            let mut connection = PgConnection::connect(url).await.expect("the server answers");
            sqlx::raw_sql(SETTINGS).execute(&mut connection).await.expect("settings");
            connections.push(connection);
        }
        let mut admin = connections.pop().expect("one more");
        sqlx::raw_sql(NO_CUTTING).execute(&mut admin).await.expect("settings");
        Self {
            admin,
            connections,
            committed: Model::default(),
            open: None,
            tick: 0,
            workers: [Uuid::nil(); WORKERS],
            sequences: [0; WORKERS],
            names: Vec::new(),
            trace: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// A case from a clean start; the error is the list of calls and where the last one went wrong.
    pub async fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        self.reset().await;
        for step in steps {
            self.tick += 1;
            let result = match self.perform(step).await {
                Ok(()) => self.look(matches!(step.call, Call::Commit)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                return Err(self.named(&format!("{}\n  => {error}", self.trace.join("\n"))));
            }
        }
        Ok(())
    }

    async fn reset(&mut self) {
        for connection in &mut self.connections {
            sqlx::raw_sql("rollback").execute(connection).await.expect("nothing is open");
        }
        sqlx::raw_sql(RESET).execute(&mut self.admin).await.expect("a clean start");
        (self.committed, self.open) = (Model::default(), None);
        self.names.clear();
        self.trace.clear();
        for pool in POOLS {
            let row = Pool { ingest_cap: 3, lifecycle_cap: 3, ingest_clamp: None, auto_resume: true, held: false };
            self.committed.pools.insert(pool.to_owned(), row);
        }
        for n in 0..WORKERS {
            self.workers[n] = Uuid::new_v4();
            self.sequences[n] = 0;
            let worker = worker(n);
            let register = sqlx::query(real::REGISTER)
                .bind(worker.pool.clone())
                .bind(worker.stands_for_pool)
                .bind(self.workers[n]);
            lines(&mut self.admin, register).await.expect("a worker");
            self.committed.workers.insert(self.workers[n], worker);
        }
        self.seen = compare::look(&mut self.admin).await;
    }

    async fn perform(&mut self, step: &Step) -> Result<(), String> {
        let place = format!("{}. connection {}: {:?}", self.trace.len(), step.connection, step.call);
        match step.call {
            Call::Begin | Call::Commit | Call::Rollback => {
                let is_done = self.transaction(step).await;
                self.trace.push(if is_done { place } else { format!("{place} -> nothing to do") });
                return Ok(());
            }
            _ => self.trace.push(place),
        }
        let site = self.site(step.connection);
        let Some(done) = self.call(&step.call, &site).await? else {
            self.note("nothing to do");
            return Ok(());
        };
        self.note(&match &done.answer {
            Ok(lines) => format!("[{}]", lines.join(" | ")),
            Err(code) => code.clone(),
        });
        self.keep(step, site, done).await
    }

    /// What the call changed, in the committed model or in the open transaction.
    async fn keep(&mut self, step: &Step, site: Site, done: Done) -> Result<(), String> {
        let named: Vec<Uuid> = self.named_tasks(&step.call, &site.before);
        match &mut self.open {
            Some(open) if open.connection == step.connection => {
                if done.answer.is_err() {
                    sqlx::raw_sql("rollback")
                        .execute(&mut self.connections[step.connection])
                        .await
                        .expect("a rollback");
                    self.open = None;
                    return Ok(());
                }
                open.held.hold(&site.before, &done.after, named, &step.call);
                open.inside = done.after;
            }
            _ if done.answer.is_err() => {}
            Some(open) => {
                super::state::carry_over(&self.committed, &done.after, &mut open.inside);
                self.committed = done.after;
            }
            None => self.committed = done.after,
        }
        Ok(())
    }

    fn site(&self, connection: usize) -> Site {
        match &self.open {
            Some(open) if open.connection == connection => {
                Site { connection, now: open.since, before: open.inside.clone(), held: None }
            }
            open => Site {
                connection,
                now: self.tick,
                before: self.committed.clone(),
                held: open.as_ref().map(|open| open.held.clone()),
            },
        }
    }

    async fn transaction(&mut self, step: &Step) -> bool {
        let is_ours = self.open.as_ref().is_some_and(|open| open.connection == step.connection);
        let connection = &mut self.connections[step.connection];
        let sql = match (&step.call, &self.open) {
            (Call::Begin, None) => "begin",
            (Call::Commit, Some(_)) if is_ours => "commit",
            (Call::Rollback, Some(_)) if is_ours => "rollback",
            _ => return false,
        };
        sqlx::raw_sql(sql).execute(connection).await.expect(sql);
        let open = self.open.take();
        match sql {
            "begin" => {
                let inside = self.committed.clone();
                self.open = Some(Open { connection: step.connection, inside, since: self.tick, held: Held::default() });
            }
            "commit" => self.committed = open.expect("one was open").inside,
            _ => {}
        }
        true
    }

    /// Both sides' rows are equal, the invariants hold, no mark is wrong, and all that is claimable can be claimed.
    async fn look(&mut self, is_commit: bool) -> Result<(), String> {
        let seen = compare::look(&mut self.admin).await;
        let differences = compare::differences(&compare::expected(&self.committed), &seen.rows);
        if !differences.is_empty() {
            return Err(format!("the database is not as the model:\n{differences}"));
        }
        // A commit is many calls at once.
        if !is_commit {
            invariants::check(&self.seen, &seen)?;
        }
        self.seen = seen;
        let settle = lines(&mut self.admin, sqlx::query("select sluice.settle()::text")).await;
        if settle != Ok(vec!["0".to_owned()]) {
            return Err(format!("settle() answered {settle:?}"));
        }
        if self.open.is_some() {
            return Ok(());
        }
        for pool in POOLS {
            self.probe(pool)
                .await
                .map_err(|error| format!("a worker of pool {pool} that asks for all gets {error}"))?;
        }
        Ok(())
    }

    /// Claims all that a pool has to give, and takes it back.
    async fn probe(&mut self, pool: &str) -> Result<(), String> {
        sqlx::raw_sql("begin").execute(&mut self.admin).await.expect("begin");
        let mut all = Vec::new();
        loop {
            let claimed = lines(&mut self.admin, sqlx::query(PROBE).bind(pool)).await?;
            if claimed.is_empty() {
                break;
            }
            all.extend(claimed.iter().map(|line| real::id_of(line)));
        }
        sqlx::raw_sql("rollback").execute(&mut self.admin).await.expect("rollback");
        let asked = Asked { pool, want: 1000, quantum: 1000 };
        let none_left = permitted::Left::Nothing;
        permitted::check(&self.committed, &asked, &all, &Held::default(), none_left)
    }

    pub(super) async fn ask(&mut self, site: &Site, statement: Statement<'_>) -> Answer {
        lines(&mut self.connections[site.connection], statement).await
    }

    /// The answer must be the model's, unless another session's lock kept the call waiting.
    pub(super) fn equal(
        &self,
        site: &Site,
        expected: Answer,
        answer: Answer,
        after: Model,
    ) -> Result<Option<Done>, String> {
        if answer == expected || Self::is_blocked(site, &answer) {
            Ok(Some(Done { after, answer }))
        } else {
            Err(format!("the model answers {expected:?}, the database {answer:?}"))
        }
    }

    pub(super) fn is_blocked(site: &Site, answer: &Answer) -> bool {
        site.held.is_some() && answer.as_ref().is_err_and(|code| code == BLOCKED)
    }

    /// The task that a pick means, with an attempt; none if there is no such task.
    pub(super) fn pick(&self, model: &Model, pick: Pick) -> Option<(Uuid, i32)> {
        use sluice::domain::task::State;
        if matches!(pick.among, Among::Unknown) {
            return Some((Uuid::from_u128(u128::from(pick.nth)), 1));
        }
        let is_meant = |state: State| match pick.among {
            Among::Pending => state == State::Pending,
            Among::Running => state.is_running(),
            Among::Stopping => state == State::Stopping,
            Among::Ended => state.is_terminal(),
            Among::All | Among::Unknown => true,
        };
        let all = self.names.iter().filter_map(|id| model.tasks.get(id).map(|task| (*id, task)));
        let meant: Vec<_> = all.filter(|(_, task)| is_meant(task.state)).collect();
        let (id, task) = meant.get(usize::from(pick.nth) % meant.len().max(1))?;
        Some((*id, task.attempt + pick.attempt))
    }

    pub(super) fn note(&mut self, what: &str) {
        if let Some(line) = self.trace.last_mut() {
            line.push_str(" -> ");
            line.push_str(what);
        }
    }

    /// Long ids by the order in which they came.
    fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (n, id) in self.names.iter().enumerate() {
            text = text.replace(&id.to_string(), &format!("t{n}"));
        }
        for (n, id) in self.workers.iter().enumerate() {
            text = text.replace(&id.to_string(), &format!("w{n}"));
        }
        text
    }

    fn named_tasks(&self, call: &Call, model: &Model) -> Vec<Uuid> {
        call.picks().into_iter().filter_map(|pick| self.pick(model, pick)).map(|(id, _)| id).collect()
    }
}

impl Held {
    fn hold(&mut self, before: &Model, after: &Model, named: Vec<Uuid>, call: &Call) {
        let changed = after.tasks.iter().filter(|(id, task)| before.tasks.get(id) != Some(task)).map(|(id, _)| *id);
        let touched: BTreeSet<Uuid> = changed.chain(named).collect();
        let lanes = touched.iter().filter_map(|id| after.tasks.get(id)).map(|task| task.lane.clone());
        self.lanes.extend(lanes);
        self.lanes.extend(after.lanes.keys().filter(|key| before.lanes.get(*key) != after.lanes.get(*key)).cloned());
        self.tasks.extend(touched);
        // A heartbeat locks what it names; the platform's calls and a claim lock lanes.
        if let Call::Heartbeat { .. } = call {
            self.tasks.extend(after.tasks.iter().filter(|(_, task)| task.is_leased()).map(|(id, _)| *id));
        }
        self.all_lanes |= call.locks_lanes();
    }
}

pub fn worker(n: usize) -> Worker {
    Worker { pool: POOLS[usize::from(n == 2)].to_owned(), draining: false, stands_for_pool: n == 3, forgotten: false }
}
