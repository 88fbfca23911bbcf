//! Each call, made on both sides.

use serde_json::json;
use sluice::domain::task::State;
use sqlx::query;
use uuid::Uuid;

use super::call::{Call, LaneChange, POOLS, Pick, TENANTS};
use super::drive::{Done, Driver, Site};
use super::real::{self, Answer, sorted};
use super::state::{LaneKey, Model};

type Outcome = Result<Option<Done>, String>;

impl Driver {
    /// `None`: there is nothing that the call could be made of.
    pub(super) async fn call(&mut self, call: &Call, site: &Site) -> Outcome {
        let mut after = site.before.clone();
        let tenant_name = |tenant: &Option<usize>| tenant.map(|tenant| TENANTS[tenant]);
        match call {
            Call::Begin | Call::Commit | Call::Rollback => Ok(None),
            Call::Enqueue(items) => self.enqueue(site, items).await,
            Call::EnqueueOne(item) => self.enqueue_one(site, item).await,
            Call::Claim { worker, want, quantum } => self.claim(site, *worker, *want, *quantum).await,
            Call::Heartbeat { worker, forgets, one_old_attempt } => {
                self.heartbeat(site, *worker, *forgets, *one_old_attempt).await
            }
            Call::Watch { worker, also } => self.watch(site, *worker, *also).await,
            Call::Report { task, stage } => {
                let Some((id, attempt)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = after.report(id, attempt, *stage);
                let report = stage.map_or(json!({}), |stage| json!({"stage": stage}));
                let answer = self.ask(site, query(real::REPORT).bind(id).bind(attempt).bind(report)).await;
                self.equal(site, one(expected), answer, after)
            }
            Call::Complete(task) => {
                let Some((id, attempt)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = after.complete(id, attempt);
                let answer = self.ask(site, query(real::COMPLETE).bind(id).bind(attempt)).await;
                self.equal(site, one(expected), answer, after)
            }
            Call::CompleteWithNext { task, next } => self.complete_with_next(site, *task, next).await,
            Call::CompleteMany(tasks) => {
                let (ids, attempts) = self.twice(&after, tasks);
                let expected = each(&ids, &attempts, |id, attempt| after.complete(id, attempt));
                let answer = self.ask(site, query(real::COMPLETE_MANY).bind(&ids).bind(&attempts)).await;
                self.equal(site, expected, answer, after)
            }
            Call::Fail { task, class } => self.fail(site, *task, class).await,
            Call::Stopped(task) => {
                let Some((id, attempt)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = after.stopped(id, attempt);
                let answer = self.ask(site, query(real::STOPPED).bind(id).bind(attempt)).await;
                self.equal(site, one(expected), answer, after)
            }
            Call::Release { tasks, cool_down } => self.release(site, tasks, *cool_down).await,
            Call::Cancel { task, tenant } => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = after.cancel(id, tenant_name(tenant));
                let answer = self.ask(site, query(real::CANCEL).bind(id).bind(tenant_name(tenant))).await;
                self.equal(site, one(expected), answer, after)
            }
            Call::CancelLinked { task, tenant } => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = pairs(after.cancel_linked(id, tenant_name(tenant)));
                let answer = self.ask(site, query(real::CANCEL_LINKED).bind(id).bind(tenant_name(tenant))).await;
                self.equal(site, expected, answer, after)
            }
            Call::CancelActive { tenant, class } => {
                let expected = pairs(after.cancel_active(tenant_name(tenant), *class));
                let class = class.map(|class| class.as_str());
                let answer = self.ask(site, query(real::CANCEL_ACTIVE).bind(tenant_name(tenant)).bind(class)).await;
                self.equal(site, expected, answer, after)
            }
            Call::Retry { task, tenant } => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let answer = self.ask(site, query(real::RETRY).bind(id).bind(tenant_name(tenant))).await;
                let arrival = self.newest_arrival(site).await;
                let (outcome, which) = after.retry(site.now, arrival, id, tenant_name(tenant));
                self.equal(site, one(&format!("{outcome} {which}")), answer, after)
            }
            Call::Suspend { task, tenant } => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = after.suspend(id, tenant_name(tenant));
                let answer = self.ask(site, query(real::SUSPEND).bind(id).bind(tenant_name(tenant))).await;
                self.equal(site, one(expected), answer, after)
            }
            Call::Resume { task, tenant } => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = after.resume(site.now, id, tenant_name(tenant));
                let answer = self.ask(site, query(real::RESUME).bind(id).bind(tenant_name(tenant))).await;
                self.equal(site, one(expected), answer, after)
            }
            Call::SetPriority { task, priority } => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let expected = after.set_priority(id, *priority, None);
                let answer = self.ask(site, query(real::SET_PRIORITY).bind(id).bind(*priority)).await;
                self.equal(site, one(expected), answer, after)
            }
            Call::SetLane { tenant, class, change } => {
                let key: LaneKey = (TENANTS[*tenant].to_owned(), *class);
                let expected = after.set_lane(site.now, key.clone(), change);
                let ask = query(real::SET_LANE).bind(key.0).bind(class.as_str()).bind(change.json());
                let answer = self.ask(site, ask).await;
                self.equal(site, one(&expected.to_string()), answer, after)
            }
            Call::HoldLane { tenant, class, policy } => {
                let change = LaneChange { pool: None, cap: None, weight: None, policy: Some(*policy) };
                after.set_lane(site.now, (TENANTS[*tenant].to_owned(), *class), &change);
                let ask = query(real::HOLD_LANE).bind(TENANTS[*tenant]).bind(class.as_str()).bind(policy.as_str());
                let answer = self.ask(site, ask).await;
                self.equal(site, one(policy.as_str()), answer, after)
            }
            Call::HoldAll { held, pool } => {
                let pool = pool.map(|pool| POOLS[pool]);
                let expected = after.hold_all(*held, pool).to_string();
                let answer = self.ask(site, query(real::HOLD_ALL).bind(*held).bind(pool)).await;
                self.equal(site, one(&expected), answer, after)
            }
            Call::SetPool { pool, change } => {
                after.set_pool(site.now, POOLS[*pool], change);
                let answer = self.ask(site, query(real::SET_POOL).bind(POOLS[*pool]).bind(change.json())).await;
                self.equal(site, one(""), answer, after)
            }
            Call::Drain(worker) => self.set_draining(site, *worker, true).await,
            Call::Undrain(worker) => self.set_draining(site, *worker, false).await,
            Call::Adopt { worker, task } => {
                let Some((id, attempt)) = self.pick(&after, *task) else { return Ok(None) };
                let worker = self.workers[*worker];
                let is_registered = after.workers.contains_key(&worker);
                let is_taken = is_registered && after.adopt(site.now, worker, id, attempt);
                let line = is_taken.then(|| format!("{id} {attempt}"));
                let expected = if is_registered { Ok(line.into_iter().collect()) } else { Err("P0002".to_owned()) };
                let answer = self.ask(site, query(real::ADOPT).bind(worker).bind(id).bind(attempt)).await;
                self.equal(site, expected, answer, after)
            }
            Call::Register(n) => {
                let id = self.workers[*n];
                let mut row = super::drive::worker(*n);
                row.draining = after.workers.get(&id).is_some_and(|worker| worker.draining);
                let ask = query(real::REGISTER).bind(row.pool.clone()).bind(row.stands_for_pool).bind(id);
                after.workers.insert(id, row);
                let answer = self.ask(site, ask).await;
                self.equal(site, one(&id.to_string()), answer, after)
            }
            Call::Reap => self.reap(site).await,
            Call::Promote => self.promote(site).await,
            // It would wait for a worker's row as long as it may.
            Call::Retain if site.held.is_some() => Ok(None),
            Call::Retain => {
                let expected = Ok(sorted(after.retain()));
                let answer = self.ask(site, query(real::RETAIN)).await;
                self.equal(site, expected, answer, after)
            }
            Call::TimePasses(_) if self.is_open() => Ok(None),
            Call::TimePasses(passing) => self.pass(site, passing).await,
        }
    }

    async fn claim(&mut self, site: &Site, n: usize, want: i32, quantum: i32) -> Outcome {
        use super::permitted::{Asked, Left, check};
        let worker = self.workers[n];
        self.sequences[n] += 1;
        let ask = query(real::CLAIM).bind(worker).bind(self.sequences[n]).bind(want).bind(quantum);
        let answer = self.ask(site, ask).await;
        let mut after = site.before.clone();
        let Some(row) = after.workers.get(&worker).cloned() else {
            return self.equal(site, Err("P0002".to_owned()), answer, after);
        };
        let is_served = !row.draining && !after.pools[&row.pool].held;
        let (true, Ok(claimed)) = (is_served, &answer) else {
            return self.equal(site, Ok(Vec::new()), answer, after);
        };
        let ids: Vec<Uuid> = claimed.iter().map(|line| real::id_of(line)).collect();
        let count = |n: i32| usize::try_from(n).expect("positive");
        let asked = Asked { pool: &row.pool, want: count(want), quantum: count(quantum) };
        check(&after, &asked, &ids, &site.held.clone().unwrap_or_default(), Left::Something)
            .map_err(|error| format!("the claim gave {error}: {claimed:?}"))?;
        for id in &ids {
            after.claim(site.now, worker, self.sequences[n], *id);
        }
        let expected = ids.iter().map(|id| claimed_line(&after, *id)).collect();
        self.equal(site, Ok(sorted(expected)), answer, after)
    }

    async fn heartbeat(&mut self, site: &Site, n: usize, forgets: u8, one_old_attempt: bool) -> Outcome {
        let (worker, sequence) = (self.workers[n], self.sequences[n]);
        let mut after = site.before.clone();
        let holds =
            |id: &&Uuid| after.tasks.get(*id).is_some_and(|task| task.is_leased() && task.worker == Some(worker));
        let held: Vec<Uuid> = self.names.iter().filter(holds).copied().collect();
        let is_named = |(nth, _): &(usize, Uuid)| forgets & (1 << (nth % 8)) == 0;
        let ids: Vec<Uuid> = held.into_iter().enumerate().filter(is_named).map(|(_, id)| id).collect();
        let mut attempts: Vec<i32> = ids.iter().map(|id| after.tasks[id].attempt).collect();
        if let Some(first) = attempts.first_mut().filter(|_| one_old_attempt) {
            *first -= 1;
        }
        let ask = query(real::HEARTBEAT).bind(worker).bind(sequence).bind(&ids).bind(&attempts);
        let answer = self.ask(site, ask).await;

        let of_worker = match after.workers.get_mut(&worker) {
            None => "unregistered",
            Some(row) => {
                row.forgotten = false;
                if row.draining { "draining" } else { "serving" }
            }
        };
        let mut expected = vec![format!("- {of_worker}")];
        for (id, attempt) in ids.iter().zip(&attempts) {
            let mut word = after.heartbeat_answer(worker, *id, *attempt);
            let busy = format!("{id} {attempt} busy");
            let may_be_busy = site.held.as_ref().is_some_and(|held| held.tasks.contains(id));
            if matches!(word, "renewed" | "release") {
                if may_be_busy && answer.as_ref().is_ok_and(|lines| lines.contains(&busy)) {
                    word = "busy";
                } else {
                    after.renew(site.now, *id);
                }
            }
            expected.push(format!("{id} {attempt} {word}"));
        }
        let left = self.left_leased(site).await;
        for id in after.unnamed(worker, sequence, &ids).into_iter().filter(|id| !left.contains(id)) {
            after.release(id, after.tasks[&id].attempt);
        }
        self.equal(site, Ok(sorted(expected)), answer, after)
    }

    /// What another session may hold, and what the call left because of that.
    async fn left_leased(&mut self, site: &Site) -> Vec<Uuid> {
        let Some(held) = &site.held else { return Vec::new() };
        let held: Vec<Uuid> = held.tasks.iter().copied().collect();
        let look = query("select track_id::text from sluice.tasks where track_id = any ($1) and leased").bind(held);
        let left = real::lines(&mut self.admin, look).await.expect("a look at the tasks");
        left.iter().map(|line| real::id_of(line)).collect()
    }

    async fn newest_arrival(&mut self, site: &Site) -> i64 {
        let newest = query("select max(id)::text from sluice.tasks");
        let newest = self.ask(site, newest).await;
        newest.ok().and_then(|lines| lines[0].parse().ok()).unwrap_or_default()
    }

    async fn watch(&mut self, site: &Site, n: usize, also: Pick) -> Outcome {
        let (worker, after) = (self.workers[n], site.before.clone());
        let mut ids: Vec<Uuid> = self
            .names
            .iter()
            .filter(|id| after.tasks.get(id).is_some_and(|task| task.worker == Some(worker)))
            .copied()
            .collect();
        ids.extend(self.pick(&after, also).map(|(id, _)| id));
        let is_draining = after.workers.get(&worker).is_some_and(|worker| worker.draining);
        let mut expected: Vec<String> = is_draining.then(|| "- draining".to_owned()).into_iter().collect();
        expected.extend(ids.iter().filter_map(|id| after.watch_answer(worker, *id).map(|word| format!("{id} {word}"))));
        let answer = self.ask(site, query(real::WATCH).bind(worker).bind(&ids)).await;
        self.equal(site, Ok(sorted(expected)), answer, after)
    }

    async fn fail(&mut self, site: &Site, task: Pick, class: &str) -> Outcome {
        let mut after = site.before.clone();
        let Some((id, attempt)) = self.pick(&after, task) else { return Ok(None) };
        let expected = after.fail(site.now, id, attempt, class);
        let answer = self.ask(site, query(real::FAIL).bind(id).bind(attempt).bind(class)).await;
        self.stretch_back_off(site, expected == "retry" && answer.is_ok(), vec![id]).await;
        self.equal(site, one(expected), answer, after)
    }

    pub(super) async fn stretch_back_off(&mut self, site: &Site, is_due: bool, ids: Vec<Uuid>) {
        if is_due {
            let stretched = self.ask(site, query(real::STRETCH_BACK_OFF).bind(ids)).await;
            assert_eq!(stretched, Ok(Vec::new()), "each back-off is within its bounds");
        }
    }

    async fn release(&mut self, site: &Site, tasks: &[Pick], cool_down: bool) -> Outcome {
        let mut after = site.before.clone();
        let (ids, attempts) = self.twice(&after, tasks);
        let expected = each(&ids, &attempts, |id, attempt| after.release(id, attempt));
        if cool_down {
            let released =
                expected.iter().flatten().filter(|line| line.ends_with("released")).map(|line| real::id_of(line));
            let lanes: Vec<LaneKey> = released.map(|id| after.tasks[&id].lane.clone()).collect();
            lanes.iter().for_each(|lane| after.cool(site.now, lane));
        }
        let answer = self.ask(site, query(real::RELEASE).bind(&ids).bind(&attempts).bind(cool_down)).await;
        self.equal(site, expected, answer, after)
    }

    async fn set_draining(&mut self, site: &Site, n: usize, draining: bool) -> Outcome {
        let mut after = site.before.clone();
        let expected = match after.workers.get_mut(&self.workers[n]) {
            None => "not_found",
            Some(row) => {
                row.draining = draining;
                if draining { "draining" } else { "serving" }
            }
        };
        let sql = if draining { real::DRAIN } else { real::UNDRAIN };
        let answer = self.ask(site, query(sql).bind(self.workers[n])).await;
        self.equal(site, one(expected), answer, after)
    }

    async fn reap(&mut self, site: &Site) -> Outcome {
        let mut after = site.before.clone();
        let answer = self.ask(site, query(real::REAP)).await;
        let Ok(lines) = &answer else { return self.equal(site, Ok(Vec::new()), answer, after) };
        let reaped: Vec<Uuid> = lines.iter().map(|line| real::id_of(line)).collect();
        // What another session holds is left to the next.
        let is_left =
            |id: &Uuid| !reaped.contains(id) && site.held.as_ref().is_some_and(|held| held.tasks.contains(id));
        let ids: Vec<Uuid> = after.overdue(site.now).into_iter().filter(|id| !is_left(id)).collect();
        let expected: Vec<String> = ids.iter().map(|id| format!("{id} {}", after.reap(site.now, *id))).collect();
        let retried: Vec<Uuid> =
            ids.into_iter().filter(|id| after.tasks[id].state == State::Pending && !after.tasks[id].ready).collect();
        self.stretch_back_off(site, !retried.is_empty(), retried).await;
        self.equal(site, Ok(sorted(expected)), answer, after)
    }

    /// Both of every task in the second half, as a careless caller might.
    fn twice(&self, model: &Model, picks: &[Pick]) -> (Vec<Uuid>, Vec<i32>) {
        let again = &picks[picks.len() / 2..];
        picks.iter().chain(again).filter_map(|pick| self.pick(model, *pick)).unzip()
    }
}

fn claimed_line(model: &Model, id: Uuid) -> String {
    let task = &model.tasks[&id];
    let words = [
        Some(id.to_string()),
        Some(task.attempt.to_string()),
        Some(task.task_type.to_string()),
        Some(task.tenant().to_owned()),
        task.workspace.clone(),
        task.document.map(|id| id.to_string()),
        Some(task.failures.to_string()),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

pub fn one(line: &str) -> Answer {
    Ok(vec![line.to_owned()])
}

fn pairs(answers: Vec<(Uuid, &'static str)>) -> Answer {
    Ok(sorted(answers.into_iter().map(|(id, word)| format!("{id} {word}")).collect()))
}

fn each(ids: &[Uuid], attempts: &[i32], mut answer: impl FnMut(Uuid, i32) -> &'static str) -> Answer {
    let lines = ids.iter().zip(attempts).map(|(id, attempt)| format!("{id} {attempt} {}", answer(*id, *attempt)));
    Ok(sorted(lines.collect()))
}
