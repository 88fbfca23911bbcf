//! From the submission to the end of the last task and the last worker: what is seen, and the one cancel.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use crate::cluster::{Cluster, SYSTEM};
use crate::database::Database;
use crate::documents::{LONG, TENANTS};
use crate::install;
use crate::screen::Screen;
use crate::tools::apart;
use crate::view::{End, Seen, TaskView, View};

const TASKS_LIMIT: Duration = Duration::from_secs(180);
/// A Kubernetes of one's own may take its time with pods.
const WORKERS_LIMIT: Duration = Duration::from_secs(120);
const EVENTS_MAX: usize = 1_000;
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// The long document is cancelled after so long at the latest, whatever it does.
const CANCEL_AFTER: Duration = Duration::from_secs(5);

pub struct Watch {
    events: Receiver<Seen>,
    pub view: View,
    /// From the API server's word that a cancel is asked to its word that it is done.
    pub cancel: Option<Duration>,
    cancel_asked: Option<Instant>,
    running_since: Option<Instant>,
    patch: Option<JoinHandle<Result<()>>>,
}

/// The most that was seen running at once, of each tenant.
pub type MaxRunning = Arc<Mutex<BTreeMap<String, u64>>>;

pub fn count_running(database: Arc<Database>) -> MaxRunning {
    let most = MaxRunning::default();
    let shared = Arc::clone(&most);
    tokio::spawn(async move {
        loop {
            if let (Ok(running), Ok(mut most)) = (database.running().await, shared.lock()) {
                for (tenant, running) in running {
                    let entry = most.entry(tenant).or_default();
                    *entry = running.max(*entry);
                }
            }
            sleep(LOOK_EVERY).await;
        }
    });
    most
}

impl Watch {
    pub fn start(client: &Client) -> Self {
        let (sender, events) = channel(EVENTS_MAX);
        follow(Api::all(client.clone()), Seen::Task, sender.clone());
        follow(Api::all(client.clone()), Seen::Lane, sender.clone());
        follow(Api::namespaced(client.clone(), SYSTEM), Seen::Pool, sender);
        Self { events, view: View::default(), cancel: None, cancel_asked: None, running_since: None, patch: None }
    }

    pub async fn until_no_workers(&mut self, screen: &mut Screen) -> Result<()> {
        self.until(screen, WORKERS_LIMIT, View::has_no_workers, "the pool has not gone to 0 workers").await
    }

    pub async fn until_ended(&mut self, screen: &mut Screen, cluster: &Arc<Cluster>, tasks: usize) -> Result<()> {
        let deadline = Instant::now() + TASKS_LIMIT;
        let mut tick = interval(LOOK_EVERY);
        while self.view.tasks.len() < tasks || !self.view.not_ended().is_empty() {
            tokio::select! {
                seen = self.events.recv() => self.take(screen, &seen.context("the watches ended")?),
                _ = tick.tick() => {}
            }
            self.cancel_when_due(screen, cluster).await?;
            if Instant::now() > deadline {
                bail!("not ended after {} s: {}", TASKS_LIMIT.as_secs(), self.view.not_ended().join(", "));
            }
        }
        Ok(())
    }

    async fn until(&mut self, screen: &mut Screen, limit: Duration, is_so: fn(&View) -> bool, not: &str) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !is_so(&self.view) {
            tokio::select! {
                seen = self.events.recv() => self.take(screen, &seen.context("the watches ended")?),
                () = sleep(deadline.saturating_duration_since(Instant::now())) => bail!("{not} after {} s", limit.as_secs()),
            }
        }
        Ok(())
    }

    fn take(&mut self, screen: &mut Screen, seen: &Seen) {
        if !is_ours(seen) {
            return;
        }
        let change = self.view.take(seen);
        let Some(long) = self.long() else { return screen.show(&self.view, &change) };
        let (is_asked, is_running, end) = (long.is_cancel_asked, long.is_running, long.end);
        if is_running && self.running_since.is_none() {
            self.running_since = Some(Instant::now());
        }
        if is_asked && self.cancel_asked.is_none() {
            self.cancel_asked = Some(Instant::now());
        }
        if end == Some(End::Cancelled) && self.cancel.is_none() {
            self.cancel = self.cancel_asked.map(|asked| asked.elapsed());
        }
        screen.show(&self.view, &change);
    }

    async fn cancel_when_due(&mut self, screen: &Screen, cluster: &Arc<Cluster>) -> Result<()> {
        if let Some(patch) = self.patch.take_if(|patch| patch.is_finished()) {
            return patch.await?;
        }
        let Some(long) = self.long() else { return Ok(()) };
        let is_over_due = self.running_since.is_some_and(|since| since.elapsed() > CANCEL_AFTER);
        let is_due = long.is_running && (["extracting", "embedding"].contains(&long.word.as_str()) || is_over_due);
        if self.patch.is_none() && self.cancel_asked.is_none() && is_due {
            let (tenant, name) = LONG;
            screen.step(&format!(
                r#"kubectl --namespace {tenant} patch ingesttask {name} --type=merge --patch '{{"spec":{{"cancel":true}}}}'"#
            ));
            let cluster = Arc::clone(cluster);
            self.patch = Some(tokio::spawn(apart(move || install::cancel(&cluster, LONG))));
        }
        Ok(())
    }

    fn long(&self) -> Option<&TaskView> {
        self.view.tasks.get(&(LONG.0.to_owned(), LONG.1.to_owned()))
    }
}

fn is_ours(seen: &Seen) -> bool {
    let namespace = match seen {
        Seen::Task(task) => task.namespace(),
        Seen::Lane(lane) => lane.namespace(),
        Seen::Pool(_) => return true,
    };
    namespace.is_some_and(|namespace| TENANTS.contains(&namespace.as_str()))
}

/// Each state of each resource, until nobody listens.
fn follow<K>(api: Api<K>, seen: fn(Box<K>) -> Seen, sender: Sender<Seen>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    tokio::spawn(async move {
        let stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
        let mut stream = std::pin::pin!(stream);
        while let Some(object) = stream.next().await {
            // A watch that broke is begun again.
            let Ok(object) = object else { continue };
            if sender.send(seen(Box::new(object))).await.is_err() {
                return;
            }
        }
    });
}
