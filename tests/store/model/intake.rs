//! Calls whose answers bring ids that only the database can make, and time that passes, on both sides.

use sqlx::{Row, query};
use uuid::Uuid;

use super::call::{Item, Passing, Pick, TENANTS};
use super::control::Given;
use super::drive::{Done, Driver, Site};
use super::perform::one;
use super::real::{self, Answer, sorted};
use super::state::{LONG, Model};

type Outcome = Result<Option<Done>, String>;

impl Driver {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) async fn enqueue(&mut self, site: &Site, items: &[Item]) -> Outcome {
        let json = serde_json::Value::Array(items.iter().map(Item::json).collect());
        let answer = self.ask(site, query(real::ENQUEUE_MANY).bind(json)).await;
        let mut after = site.before.clone();
        let Ok(lines) = &answer else { return self.equal(site, Ok(Vec::new()), answer, after) };
        if lines.len() != items.len() {
            return Err(format!("{} items, {} answers", items.len(), lines.len()));
        }
        let mut given = Vec::new();
        for line in lines {
            given.push(self.given(site, line).await);
        }
        let mut expected = vec![String::new(); items.len()];
        // All without a name come first, the others in the order of their names.
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_cached_key(|n| items[*n].turn());
        for n in order {
            let made = Self::enqueue_in_model(&mut after, site, &items[n], given[n])?;
            expected[n] = format!("{:04} {made}", n + 1);
        }
        let answer = answer.map(|lines| lines.iter().map(|line| first_words(line, 3)).collect());
        self.equal(site, Ok(sorted(expected)), answer, after)
    }

    pub(super) async fn enqueue_one(&mut self, site: &Site, item: &Item) -> Outcome {
        let json = item.json();
        let ask = query(real::ENQUEUE)
            .bind(json["type"].as_str().map(str::to_owned))
            .bind(item.tenant_name())
            .bind(json["payload"].clone())
            .bind(json.clone());
        let answer = self.ask(site, ask).await;
        let mut after = site.before.clone();
        let given = match answer.as_deref() {
            Ok([line]) => self.given(site, line).await,
            _ => None,
        };
        let made = Self::enqueue_in_model(&mut after, site, item, given)?;
        let expected = if made == "invalid" { Err("22023".to_owned()) } else { one(&format!("0001 {made}")) };
        self.equal(site, expected, answer, after)
    }

    pub(super) async fn complete_with_next(&mut self, site: &Site, task: Pick, next: &Item) -> Outcome {
        let mut after = site.before.clone();
        let Some((id, attempt)) = self.pick(&after, task) else { return Ok(None) };
        let ask = query(real::COMPLETE_WITH_NEXT).bind(id).bind(attempt).bind(next.json());
        let answer = self.ask(site, ask).await;
        let outcome = after.complete(id, attempt);
        if outcome != "completed" {
            return self.equal(site, one(outcome), answer, after);
        }
        let row = &after.tasks[&id];
        let mut item = next.clone();
        item.tenant = TENANTS.iter().position(|name| *name == row.tenant()).expect("one of them");
        item.workspace |= row.workspace.is_some();
        item.document = row.document.or(next.document);
        let next_id = answer.as_ref().ok().and_then(|lines| real::second_word(&lines[0]).parse::<Uuid>().ok());
        let is_known = next_id.is_some_and(|id| after.tasks.contains_key(&id));
        let given = match next_id.filter(|_| !is_known) {
            Some(track_id) => self.given(site, &format!("0001 created {track_id}")).await,
            None => None,
        };
        let made = Self::enqueue_in_model(&mut after, site, &item, given)?;
        let expected = match (made.split(' ').next(), next_id) {
            (Some("created" | "existing"), _) => {
                one(&made.replace("created", "completed").replace("existing", "completed"))
            }
            _ => Err("22023".to_owned()),
        };
        if let (Some("created"), Some(next_id)) = (made.split(' ').next(), next_id) {
            after.adopt_follow_on(id, next_id);
        }
        self.equal(site, expected, answer, after)
    }

    /// Outcome and task; `invalid` has none.
    fn enqueue_in_model(after: &mut Model, site: &Site, item: &Item, given: Option<Given>) -> Result<String, String> {
        // Where the database made no task, the model answers with a stand-in, and the answers differ.
        let stand_in = Given { track_id: Uuid::nil(), arrival: 0, document: item.document };
        let (outcome, id) = after.enqueue(site.now, item, given.unwrap_or(stand_in));
        if outcome != "created" && given.is_some() {
            return Err(format!("the database made a task, the model answers {outcome}"));
        }
        Ok([Some(outcome.to_owned()), id.map(|id| id.to_string())].into_iter().flatten().collect::<Vec<_>>().join(" "))
    }

    /// The ids of a task that was just made: `line` is its number, outcome and track id. None if it was not made now: a key
    /// may lead to one that the retention has let go.
    async fn given(&mut self, site: &Site, line: &str) -> Option<Given> {
        let track_id: Uuid = match line.split(' ').collect::<Vec<_>>()[..] {
            [_, "created", id, ..] => id.parse().expect("a track id"),
            _ => return None,
        };
        let look = query("select document_id, id from sluice.tasks where track_id = $1").bind(track_id);
        let row = look.fetch_optional(&mut self.connections[site.connection]).await.expect("a look at the tasks")?;
        self.names.push(track_id);
        Some(Given { track_id, document: row.get(0), arrival: row.get(1) })
    }

    pub(super) async fn promote(&mut self, site: &Site) -> Outcome {
        let mut after = site.before.clone();
        let answer = self.ask(site, query(real::PROMOTE)).await;
        if answer.is_err() {
            return self.equal(site, Ok(Vec::new()), answer, after);
        }
        let (mut due, mut rested) = (after.due(site.now), after.rested(site.now));
        if let Some(held) = &site.held {
            // What another session holds may be left to the next: look which.
            let ids: Vec<Uuid> = due.iter().copied().collect();
            let left =
                query("select track_id::text from sluice.tasks where track_id = any ($1) and not ready").bind(ids);
            let left = real::lines(&mut self.admin, left).await?;
            due.retain(|id| !(held.tasks.contains(id) && left.contains(&id.to_string())));
            let resting = "select l.tenant || ' ' || l.class from sluice.tenant_lanes l join sluice.lane_turns t using (lane_id) where t.is_held";
            let resting = real::lines(&mut self.admin, query(resting)).await?;
            rested.retain(|(tenant, class)| !resting.contains(&format!("{tenant} {class}")));
        }
        due.iter().for_each(|id| after.promote(*id));
        rested.iter().for_each(|lane| after.apply_lane(site.now, lane));
        self.equal(site, one(&due.len().to_string()), answer, after)
    }

    /// What the clock would do, done by a superuser.
    pub(super) async fn pass(&mut self, site: &Site, passing: &Passing) -> Outcome {
        let mut after = site.before.clone();
        let past = site.now - 1;
        let ask = match passing {
            Passing::LeaseRunsOut(task) | Passing::DeadlinePasses(task) => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let Some(row) = after.tasks.get_mut(&id).filter(|row| row.is_leased()) else { return Ok(None) };
                if let Passing::LeaseRunsOut(_) = passing {
                    row.lease_until = past;
                    query("update sluice.tasks set lease_until = now() - interval '1 hour' where track_id = $1")
                        .bind(id)
                } else {
                    row.deadline = past - LONG;
                    query("update sluice.tasks set deadline = now() - interval '3 days' where track_id = $1").bind(id)
                }
            }
            Passing::BecomesDue(task) => {
                let Some((id, _)) = self.pick(&after, *task) else { return Ok(None) };
                let Some(row) = after.tasks.get_mut(&id).filter(|row| row.is_live()) else { return Ok(None) };
                row.available_at = past;
                query("update sluice.tasks set available_at = now() - interval '1 hour' where track_id = $1").bind(id)
            }
            Passing::RestEnds { tenant, is_forgotten } => {
                let name = TENANTS[*tenant];
                for (_, lane) in
                    after.lanes.iter_mut().filter(|((tenant, _), lane)| tenant == name && lane.cooled_until.is_some())
                {
                    lane.cooled_until = Some(past);
                    lane.cool_forgotten = if *is_forgotten { past } else { site.now + LONG };
                }
                query("update sluice.tenant_lanes set cooled_until = now() - case when $2 then interval '1 hour' else interval '1 s' end
                        where tenant = $1 and cooled_until is not null").bind(name).bind(*is_forgotten)
            }
            Passing::KeysAge => {
                after.keys.values_mut().for_each(|key| key.is_old = true);
                query("update sluice.task_keys set created_at = created_at - interval '40 days'")
            }
            Passing::WorkerIsForgotten(n) => {
                let id = self.workers[*n];
                let Some(worker) = after.workers.get_mut(&id) else { return Ok(None) };
                worker.forgotten = true;
                query("update sluice.workers set alive_until = now() - interval '2 days' where worker_id = $1").bind(id)
            }
            Passing::ArchiveIsDropped(nth) => {
                let ended: Vec<Uuid> = self
                    .names
                    .iter()
                    .filter(|id| after.tasks.get(id).is_some_and(|task| !task.is_live()))
                    .copied()
                    .collect();
                let Some(id) = ended.get(usize::from(*nth) % ended.len().max(1)) else { return Ok(None) };
                after.tasks.remove(id);
                query("delete from sluice.tasks_archive where track_id = $1").bind(*id)
            }
        };
        let answer: Answer = real::lines(&mut self.admin, ask).await;
        self.equal(site, Ok(Vec::new()), answer, after)
    }
}

fn first_words(line: &str, count: usize) -> String {
    line.split(' ').take(count).collect::<Vec<_>>().join(" ")
}
