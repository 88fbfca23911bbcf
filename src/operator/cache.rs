//! What the API server holds of one kind, kept up to date: one object that does not parse stops no other.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Debug};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures::StreamExt;
use kube::core::DeserializeGuard;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::instrument::{Kind, Metrics};

/// A watch is begun again after this long: one that went silent without closing is noticed no later.
const WATCH_SECS: u32 = 60;
/// Objects of one answer to a list: each is in memory several times until it has been read.
const PAGE: u32 = 200;
/// Between two watches of an API server that refuses them.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where an object is; of a cluster-scoped one the namespace is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a watch said.
pub enum Change<K> {
    Applied(Arc<K>),
    /// As it was last seen.
    Gone(Arc<K>),
    /// The object is there, but is not what its schema says.
    Unreadable(Unreadable),
}

#[derive(Clone, Debug)]
pub struct Unreadable {
    pub key: Key,
    pub uid: String,
    pub problem: String,
}

/// The objects of one kind in all namespaces that are watched. Cheap to read; it fills whether this process leads or not.
pub struct Cache<K> {
    objects: RwLock<HashMap<Key, Arc<K>>>,
    unreadable: RwLock<HashMap<Key, Unreadable>>,
    /// Watches that have not yet listed; one until it is known how many there are.
    missing: watch::Sender<usize>,
}

impl<K: Resource<DynamicType = ()>> Cache<K> {
    pub fn new() -> Self {
        Self { objects: RwLock::default(), unreadable: RwLock::default(), missing: watch::Sender::new(1) }
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        read(&self.objects).get(key).cloned()
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        read(&self.objects).values().cloned().collect()
    }

    pub fn keys(&self) -> Vec<Key> {
        read(&self.objects).keys().cloned().collect()
    }

    pub fn len(&self) -> usize {
        read(&self.objects).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Objects that do not parse.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        read(&self.unreadable).values().cloned().collect()
    }

    /// Takes in what a write answered, so that the next look need not wait for the watch.
    pub fn put(&self, object: K) {
        let key = Key::of(&object);
        let mut objects = write(&self.objects);
        // What is gone stays gone.
        if objects.get(&key).is_some_and(|held| held.uid() == object.uid() && !is_older(&object, &**held)) {
            objects.insert(key, Arc::new(object));
        }
    }

    pub fn is_synced(&self) -> bool {
        *self.missing.borrow() == 0
    }

    /// Waits until every watch has listed.
    pub async fn synced(&self) {
        // Fails only without a sender, and that is ours.
        let _ = self.missing.subscribe().wait_for(|missing| *missing == 0).await;
    }

    /// The new object, if it is newer than what is held, and a stranger that had its name. A list is believed whatever
    /// its versions are: an etcd that was restored begins again with lower ones.
    fn apply(&self, object: K, is_listed: bool) -> Option<(Arc<K>, Option<Arc<K>>)> {
        let key = Key::of(&object);
        write(&self.unreadable).remove(&key);
        let mut objects = write(&self.objects);
        let mut replaced = None;
        if let Some(held) = objects.get(&key) {
            if held.uid() != object.uid() {
                replaced = Some(held.clone());
            } else if held.resource_version() == object.resource_version() || !is_listed && is_older(&object, &**held) {
                return None;
            }
        }
        let object = Arc::new(object);
        objects.insert(key, object.clone());
        Some((object, replaced))
    }

    fn remove(&self, key: &Key) -> Option<Arc<K>> {
        write(&self.unreadable).remove(key);
        write(&self.objects).remove(key)
    }

    fn keys_of(&self, namespace: Option<&str>) -> Vec<Key> {
        let is_ours = |key: &&Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        let mut keys: Vec<_> = read(&self.objects).keys().filter(is_ours).cloned().collect();
        keys.extend(read(&self.unreadable).keys().filter(is_ours).cloned());
        keys
    }
}

impl<K: Resource<DynamicType = ()>> Default for Cache<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// How to keep a cache.
pub struct Follow<K: 'static, N> {
    pub client: Client,
    pub kind: Kind,
    /// One watch for each; empty is one for the whole cluster.
    pub namespaces: Vec<String>,
    /// Takes out what nobody reads, before it is kept.
    pub strip: fn(&mut K),
    pub notice: N,
    pub metrics: Metrics,
}

/// Keeps a cache until the future is dropped: as many watches as there are namespaces.
pub async fn follow<K, N>(cache: Arc<Cache<K>>, how: Follow<K, N>)
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    N: Fn(Change<K>) + Send + Sync,
{
    let Follow { client, kind, namespaces, strip, notice, metrics } = how;
    let scopes: Vec<Option<String>> =
        if namespaces.is_empty() { vec![None] } else { namespaces.into_iter().map(Some).collect() };
    cache.missing.send_replace(scopes.len());
    let watches = scopes.into_iter().map(|scope| {
        let api: Api<DeserializeGuard<K>> = match &scope {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        watch_scope(api, scope, &cache, strip, &notice, kind, &metrics)
    });
    futures::future::join_all(watches).await;
}

/// A watch that failed begins anew, with a list: what is behind the API server may be an older state of its store, and a
/// watch from a later version than that would wait for it in silence.
async fn watch_scope<K>(
    api: Api<DeserializeGuard<K>>,
    scope: Option<String>,
    cache: &Cache<K>,
    strip: fn(&mut K),
    notice: &(impl Fn(Change<K>) + Sync),
    kind: Kind,
    metrics: &Metrics,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut backoff = DefaultBackoff::default();
    let mut was_synced = false;
    let mut is_broken = false;
    loop {
        let mut events = watcher(api.clone(), watcher::Config::default().timeout(WATCH_SECS).page_size(PAGE)).boxed();
        let mut listed: Option<HashSet<Key>> = None;
        let error = loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => break error,
                None => return,
            };
            match event {
                watcher::Event::Init => listed = Some(HashSet::new()),
                watcher::Event::InitApply(object) => {
                    if let Some(listed) = &mut listed {
                        listed.insert(Key::of(&object));
                    }
                    take_in(cache, object, true, strip, notice);
                }
                watcher::Event::InitDone => {
                    is_broken = false;
                    let_go(cache, scope.as_deref(), &listed.take().unwrap_or_default(), notice);
                    if !std::mem::replace(&mut was_synced, true) {
                        cache.missing.send_modify(|missing| *missing = missing.saturating_sub(1));
                    }
                }
                // A list alone is no sign that watches work again.
                watcher::Event::Apply(object) => {
                    backoff.reset();
                    take_in(cache, object, false, strip, notice);
                }
                watcher::Event::Delete(object) => {
                    backoff.reset();
                    take_out(cache, object, strip, notice);
                }
            }
        };
        metrics.watch_failed(kind);
        // It may say the same for hours.
        if !std::mem::replace(&mut is_broken, true) {
            tracing::warn!(kind = kind.as_str(), %error, "a watch failed and begins anew");
        }
        tokio::time::sleep(backoff.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// Those that a list does not have any more.
fn let_go<K>(cache: &Cache<K>, scope: Option<&str>, listed: &HashSet<Key>, notice: &impl Fn(Change<K>))
where
    K: Resource<DynamicType = ()> + Clone,
{
    for key in cache.keys_of(scope).into_iter().filter(|key| !listed.contains(key)) {
        if let Some(object) = cache.remove(&key) {
            notice(Change::Gone(object));
        }
    }
}

fn take_out<K: Resource<DynamicType = ()> + Clone>(
    cache: &Cache<K>,
    object: DeserializeGuard<K>,
    strip: fn(&mut K),
    notice: &impl Fn(Change<K>),
) {
    let held = cache.remove(&Key::of(&object));
    // What was deleted may be newer than what is held.
    let gone = object.0.ok().map(|mut object| {
        strip(&mut object);
        Arc::new(object)
    });
    if let Some(object) = gone.or(held) {
        notice(Change::Gone(object));
    }
}

fn take_in<K: Resource<DynamicType = ()>>(
    cache: &Cache<K>,
    object: DeserializeGuard<K>,
    is_listed: bool,
    strip: fn(&mut K),
    notice: &impl Fn(Change<K>),
) {
    match object.0 {
        Ok(mut object) => {
            strip(&mut object);
            if let Some((object, replaced)) = cache.apply(object, is_listed) {
                if let Some(replaced) = replaced {
                    notice(Change::Gone(replaced));
                }
                notice(Change::Applied(object));
            }
        }
        Err(invalid) => {
            let key = Key {
                namespace: invalid.metadata.namespace.unwrap_or_default(),
                name: invalid.metadata.name.unwrap_or_default(),
            };
            let uid = invalid.metadata.uid.unwrap_or_default();
            let unreadable = Unreadable { key: key.clone(), uid, problem: invalid.error };
            write(&cache.unreadable).insert(key, unreadable.clone());
            notice(Change::Unreadable(unreadable));
        }
    }
}

/// Versions of one object are numbers that grow; what is no number is not compared.
fn is_older(object: &impl Resource, than: &impl Resource) -> bool {
    let version = |meta: &kube::core::ObjectMeta| meta.resource_version.as_deref()?.parse::<u64>().ok();
    matches!((version(object.meta()), version(than.meta())), (Some(new), Some(held)) if new < held)
}

/// For `strip`: what takes up most of an object and is read by nobody here.
pub fn strip_metadata(object: &mut impl Resource) {
    const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

    let meta = object.meta_mut();
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    use super::*;

    fn map(uid: &str, version: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("n".to_owned()),
                name: Some("a".to_owned()),
                uid: Some(uid.to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn version(cache: &Cache<ConfigMap>) -> Option<String> {
        cache.all().first().and_then(|held| held.resource_version())
    }

    #[test]
    fn watch_that_lags_behind_a_write_takes_nothing_back_and_a_list_is_believed() {
        let cache = Cache::new();
        assert!(cache.apply(map("u", "10"), true).is_some());
        cache.put(map("u", "12"));
        assert!(cache.apply(map("u", "11"), false).is_none());
        assert_eq!(version(&cache).as_deref(), Some("12"));
        assert!(cache.apply(map("u", "5"), true).is_some());
        assert_eq!(version(&cache).as_deref(), Some("5"));
    }

    #[test]
    fn name_that_is_used_again_tells_of_the_one_that_is_gone() {
        let cache = Cache::new();
        cache.apply(map("u", "10"), true);
        let (_, gone) = cache.apply(map("v", "11"), false).unwrap();
        assert_eq!(gone.and_then(|gone| gone.metadata.uid.clone()).as_deref(), Some("u"));
        // What is gone stays gone, whatever a write on its way answers.
        cache.put(map("u", "12"));
        assert_eq!(version(&cache).as_deref(), Some("11"));
    }
}
