//! Which objects are to be looked at, and when: each one once at a time, urgent ones first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// A queue of keys. A key that is added while it is being looked at is looked at once more; it is never handed out twice
/// at a time.
pub struct WorkQueue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    /// Before every other turn: where urgent keys stand.
    epoch: Instant,
}

struct State<K> {
    order: BTreeMap<Turn, K>,
    turns: HashMap<K, Turn>,
    /// What is being looked at, and when it is to be looked at again.
    running: HashMap<K, Option<Instant>>,
    sequence: u64,
    is_open: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at: Instant,
    sequence: u64,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// Closed: it takes nothing until somebody is there who looks.
    pub fn new() -> Self {
        let state = State {
            order: BTreeMap::new(),
            turns: HashMap::new(),
            running: HashMap::new(),
            sequence: 0,
            is_open: false,
        };
        Self { state: Mutex::new(state), changed: Notify::new(), epoch: Instant::now() }
    }

    pub fn open(&self) {
        self.lock().is_open = true;
    }

    /// Forgets what waits. What is being looked at ends in its own time.
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_open = false;
        state.order.clear();
        state.turns.clear();
    }

    pub fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Before all that is not urgent: somebody waits for it.
    pub fn add_urgent(&self, key: K) {
        self.add_at(key, self.epoch);
    }

    /// The earlier of two times holds.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_at(key, Instant::now() + delay);
    }

    /// How many keys wait, those for a later time included.
    pub fn len(&self) -> usize {
        self.lock().turns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next key that is due; `done` must follow. Nothing is lost if this future is dropped.
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let due_at = match self.take(Instant::now()) {
                Ok(key) => return key,
                Err(due_at) => due_at,
            };
            match due_at {
                Some(due_at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(due_at) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// It has been looked at, and is to be looked at again after `again`, or when something changes.
    pub fn done(&self, key: &K, again: Option<Duration>) {
        let asked = self.lock().running.remove(key).flatten();
        let again = again.map(|delay| Instant::now() + delay);
        if let Some(at) = [asked, again].into_iter().flatten().min() {
            self.add_at(key.clone(), at);
        }
    }

    fn take(&self, now: Instant) -> Result<K, Option<Instant>> {
        let mut state = self.lock();
        match state.order.first_key_value() {
            Some((turn, _)) if turn.at <= now => {}
            Some((turn, _)) => return Err(Some(turn.at)),
            None => return Err(None),
        }
        let Some((_, key)) = state.order.pop_first() else { return Err(None) };
        state.turns.remove(&key);
        state.running.insert(key.clone(), None);
        Ok(key)
    }

    fn add_at(&self, key: K, at: Instant) {
        let mut state = self.lock();
        if !state.is_open {
            return;
        }
        if let Some(again) = state.running.get_mut(&key) {
            *again = Some(again.map_or(at, |before| before.min(at)));
            return;
        }
        if let Some(turn) = state.turns.get(&key).copied() {
            if turn.at <= at {
                return;
            }
            state.order.remove(&turn);
        }
        state.sequence += 1;
        let turn = Turn { at, sequence: state.sequence };
        state.turns.insert(key.clone(), turn);
        state.order.insert(turn, key);
        drop(state);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> WorkQueue<&'static str> {
        let queue = WorkQueue::new();
        queue.open();
        queue
    }

    #[tokio::test]
    async fn keys_come_in_order_and_once() {
        let queue = open();
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_eq!(queue.next().await, "a");
        assert_eq!(queue.next().await, "b");
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn urgent_key_overtakes_even_if_it_waited_before() {
        let queue = open();
        queue.add("a");
        queue.add("b");
        queue.add_after("c", Duration::from_secs(3_600));
        queue.add_urgent("c");
        assert_eq!(queue.next().await, "c");
    }

    #[tokio::test]
    async fn key_is_never_handed_out_twice_at_a_time() {
        let queue = open();
        queue.add("a");
        let key = queue.next().await;
        queue.add("a");
        assert!(queue.is_empty());
        queue.done(&key, None);
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test]
    async fn earlier_time_holds() {
        let queue = open();
        queue.add("a");
        let key = queue.next().await;
        queue.add_after("a", Duration::from_millis(5));
        queue.done(&key, Some(Duration::from_secs(3_600)));
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test]
    async fn closed_queue_takes_and_keeps_nothing() {
        let queue = open();
        queue.add("a");
        queue.close();
        queue.add("b");
        assert!(queue.is_empty());
    }
}
