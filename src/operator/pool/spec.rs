//! What a WorkerPool asks for, with its defaults filled in, its boot rule checked and its clamp applied.

use std::num::NonZeroU32;

use serde_json::{Map, Value};

use crate::api::WorkerPool;
use crate::api::worker_pool::{Delivery, MAX_REPLICAS_DEFAULT, MIN_REPLICAS_DEFAULT, PoolMode};
use crate::domain::delivery::{BootRefused, LeaseTtl, WakeMode, check_boot};
use crate::domain::lane::{Cap, Capacity, CapacityRequest, Class, ExtractProvider};
use crate::domain::scaling::Limits;
use crate::store::lanes::{Setting, WorkerPoolSettings};
use crate::store::reads::PoolSettingsRow;

const SCALE_DOWN_DELAY_DEFAULT_SECS: u32 = 300;
const DRAIN_DEFAULT_SECS: u32 = 60;
/// Of a worker on one processor; those that run say how many they have.
const THREADS_DEFAULT: u32 = 4;

#[derive(Clone, Debug, PartialEq)]
pub struct PoolSpec {
    pub name: String,
    pub mode: PoolMode,
    pub delivery: WakeMode,
    /// What holds: at most one replica if the boot rule is broken.
    pub limits: Limits,
    pub boot: Result<(), BootRefused>,
    /// Tasks that one worker runs at once, if it is said.
    pub threads: Option<NonZeroU32>,
    pub drain_secs: u32,
    pub provider: Option<String>,
    pub template: Map<String, Value>,
    pub row: RowSettings,
}

/// What the pool's row has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSettings {
    /// `None`: the operator does not know, and leaves it.
    pub ingest_cap: Option<Cap>,
    pub lifecycle_cap: Option<Cap>,
    pub ingest_clamp: Option<u32>,
    pub lifecycle_clamp: Option<u32>,
    pub clamp_reason: Option<String>,
    pub lease_secs: u32,
    pub auto_resume: bool,
}

impl PoolSpec {
    pub fn of(pool: &WorkerPool) -> Self {
        let spec = &pool.spec;
        let delivery = match spec.delivery.unwrap_or_default() {
            Delivery::Local => WakeMode::Local,
            Delivery::Bridged => WakeMode::Bridged,
            Delivery::NotifyOnly => WakeMode::NotifyOnly,
        };
        let max_replicas = spec.max_replicas.unwrap_or(MAX_REPLICAS_DEFAULT);
        let boot = check_boot(max_replicas, delivery);
        let max_replicas = if boot.is_ok() { max_replicas } else { max_replicas.min(1) };
        let environment = Environment::of(&spec.template);
        let provider = spec.provider.clone().or_else(|| environment.provider());
        let capacity = Capacity::resolve(CapacityRequest {
            cpus: 1,
            slots: spec.threads,
            ingest_cap: environment.cap("MAX_TASKS_PER_TENANT"),
            lifecycle_cap: environment.cap("MAX_LIFECYCLE_TASKS_PER_TENANT"),
            extract_provider: ExtractProvider::resolve([provider.as_deref()]),
            allow_local_high_concurrency: environment.switch("SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY").unwrap_or(false),
        });
        let clamp_of = |class| {
            let bound = capacity.clamp.as_ref().map(|clamp| clamp.bound(class, Cap::new(u32::MAX)));
            bound.map(Cap::get)
        };
        // Without `threads` only the worker knows its slots, and so the caps that follow from them.
        let is_known = |name| spec.threads.is_some() || environment.cap(name).is_some();
        let row = RowSettings {
            ingest_cap: is_known("MAX_TASKS_PER_TENANT").then_some(capacity.ingest_cap),
            lifecycle_cap: is_known("MAX_LIFECYCLE_TASKS_PER_TENANT").then_some(capacity.lifecycle_cap),
            ingest_clamp: clamp_of(Class::Ingest),
            lifecycle_clamp: clamp_of(Class::Lifecycle),
            clamp_reason: capacity.clamp.as_ref().map(ToString::to_string),
            lease_secs: environment.lease().unwrap_or(LeaseTtl::DEFAULT).secs(),
            auto_resume: environment.switch("SLUICE_STARTUP_AUTO_RESUME").unwrap_or(true),
        };
        Self {
            name: pool.metadata.name.clone().unwrap_or_default(),
            mode: spec.mode.unwrap_or_default(),
            delivery,
            limits: Limits {
                min_replicas: spec.min_replicas.unwrap_or(MIN_REPLICAS_DEFAULT).min(max_replicas),
                max_replicas,
                scale_down_delay_secs: u64::from(
                    spec.scale_down_delay_seconds.unwrap_or(SCALE_DOWN_DELAY_DEFAULT_SECS),
                ),
            },
            boot,
            threads: spec.threads.and_then(|_| NonZeroU32::new(capacity.slots)),
            drain_secs: spec.drain_seconds.unwrap_or(DRAIN_DEFAULT_SECS),
            provider,
            template: spec.template.clone(),
            row,
        }
    }

    /// Tasks that one worker runs at once: as set, else as those that run say, else as the smallest worker has.
    pub fn threads_or(&self, slots_of_workers: impl Iterator<Item = u32>) -> NonZeroU32 {
        let fewest = || slots_of_workers.filter_map(NonZeroU32::new).min();
        self.threads.or_else(fewest).or(NonZeroU32::new(THREADS_DEFAULT)).unwrap_or(NonZeroU32::MIN)
    }
}

impl RowSettings {
    /// What the row does not say yet; nothing is to be written if it is `None`.
    pub fn difference<'a>(&'a self, row: Option<&PoolSettingsRow>) -> Option<WorkerPoolSettings<'a>> {
        let Self { ingest_cap, lifecycle_cap, ingest_clamp, lifecycle_clamp, clamp_reason, lease_secs, auto_resume } =
            self;
        let now = row.and_then(|row| row.clamp_reason.as_deref());
        let wanted = WorkerPoolSettings {
            ingest_cap: ingest_cap.filter(|cap| row.is_none_or(|row| row.ingest_cap != *cap)),
            lifecycle_cap: lifecycle_cap.filter(|cap| row.is_none_or(|row| row.lifecycle_cap != *cap)),
            ingest_clamp: changed(*ingest_clamp, row.and_then(|row| row.ingest_clamp)),
            lifecycle_clamp: changed(*lifecycle_clamp, row.and_then(|row| row.lifecycle_clamp)),
            clamp_reason: match clamp_reason.as_deref() {
                reason if reason == now => Setting::Keep,
                Some(reason) => Setting::To(reason),
                None => Setting::Reset,
            },
            lease_secs: Some(*lease_secs).filter(|secs| row.is_none_or(|row| row.lease_secs != *secs)),
            auto_resume: Some(*auto_resume).filter(|resume| row.is_none_or(|row| row.auto_resume != *resume)),
        };
        (row.is_none() || wanted != WorkerPoolSettings::default()).then_some(wanted)
    }
}

fn changed<T: PartialEq>(wanted: Option<T>, now: Option<T>) -> Setting<T> {
    match wanted {
        _ if wanted == now => Setting::Keep,
        Some(wanted) => Setting::To(wanted),
        None => Setting::Reset,
    }
}

/// The plain values of the worker's environment; what comes from a Secret or a ConfigMap is never read here.
struct Environment<'a> {
    variables: Vec<(&'a str, &'a str)>,
}

impl<'a> Environment<'a> {
    fn of(template: &'a Map<String, Value>) -> Self {
        let container = template.get("spec").and_then(|spec| spec["containers"].as_array()).and_then(|all| all.first());
        let variables = container.and_then(|container| container["env"].as_array()).into_iter().flatten();
        let plain = |variable: &'a Value| Some((variable["name"].as_str()?, variable["value"].as_str()?.trim()));
        Self { variables: variables.filter_map(plain).filter(|(_, value)| !value.is_empty()).collect() }
    }

    /// As the worker reads it: an old name serves where the new one is not set.
    fn get(&self, name: &str) -> Option<&'a str> {
        let of = |name: &str| self.variables.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
        of(name).or_else(|| of(&format!("EDGEQUAKE_{}", name.strip_prefix("SLUICE_")?)))
    }

    fn provider(&self) -> Option<String> {
        let chain = [
            "SLUICE_EXTRACT_PROVIDER",
            "SLUICE_DEFAULT_EXTRACT_PROVIDER",
            "SLUICE_DEFAULT_LLM_PROVIDER",
            "SLUICE_LLM_PROVIDER",
        ];
        chain.into_iter().find_map(|name| self.get(name)).map(str::to_owned)
    }

    fn cap(&self, name: &str) -> Option<Cap> {
        /// As `set_pool` takes it; a worker with more says what is wrong when it starts.
        const CAP_MAX: u32 = 1_000_000;
        self.get(name)?.parse().ok().filter(|cap| *cap <= CAP_MAX).map(Cap::new)
    }

    fn lease(&self) -> Option<LeaseTtl> {
        LeaseTtl::from_secs(self.get("SLUICE_TASK_LEASE_TTL_SECS")?.parse().ok()?).ok()
    }

    fn switch(&self, name: &str) -> Option<bool> {
        match self.get(name)?.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(spec: Value) -> PoolSpec {
        let mut spec = spec;
        if spec["template"].is_null() {
            spec["template"] = json!({});
        }
        let object = json!({ "apiVersion": "sluice.dev/v1alpha1", "kind": "WorkerPool", "metadata": { "name": "p" }, "spec": spec });
        PoolSpec::of(&serde_json::from_value(object).unwrap())
    }

    fn with_env(env: Value) -> Value {
        json!({ "spec": { "containers": [{ "name": "worker", "env": env }] } })
    }

    #[test]
    fn boot_rule_holds_a_stored_pool_at_one_replica() {
        let rows = [
            (json!({ "maxReplicas": 3 }), 1, false),
            (json!({ "maxReplicas": 3, "minReplicas": 2 }), 1, false),
            (json!({ "maxReplicas": 3, "delivery": "bridged" }), 3, true),
            (json!({}), 1, true),
            (json!({ "maxReplicas": 0 }), 0, true),
        ];
        for (spec, max, allowed) in rows {
            let pool = pool(spec.clone());
            assert_eq!((pool.limits.max_replicas, pool.boot.is_ok()), (max, allowed), "{spec}");
            assert!(pool.limits.min_replicas <= max, "{spec}");
        }
    }

    #[test]
    fn caps_follow_from_the_threads_and_the_environment() {
        let row = pool(json!({ "threads": 8 })).row;
        assert_eq!((row.ingest_cap, row.lifecycle_cap), (Some(Cap::new(6)), Some(Cap::new(6))));
        let env = with_env(json!([{ "name": "MAX_TASKS_PER_TENANT", "value": "0" }]));
        let row = pool(json!({ "threads": 8, "template": env })).row;
        assert_eq!((row.ingest_cap, row.lifecycle_cap), (Some(Cap::NONE), Some(Cap::NONE)));
        let row = pool(json!({})).row;
        assert_eq!((row.ingest_cap, row.lifecycle_cap), (None, None), "only the worker knows");
    }

    #[test]
    fn local_provider_clamps_slots_and_lanes() {
        for provider in [
            json!({ "provider": "ollama" }),
            json!({ "template": with_env(json!([{ "name": "EDGEQUAKE_LLM_PROVIDER", "value": "LMStudio" }])) }),
        ] {
            let mut spec = provider;
            spec["threads"] = json!(16);
            let pool = pool(spec);
            assert_eq!(pool.threads, NonZeroU32::new(4));
            assert_eq!((pool.row.ingest_clamp, pool.row.lifecycle_clamp), (Some(2), Some(4)));
            assert!(pool.row.clamp_reason.is_some());
        }
        let allowed = with_env(json!([{ "name": "SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY", "value": "yes" }]));
        let pool = pool(json!({ "provider": "ollama", "threads": 16, "template": allowed }));
        assert_eq!((pool.threads, pool.row.ingest_clamp), (NonZeroU32::new(16), None));
    }

    #[test]
    fn secret_of_the_environment_is_not_read() {
        let env = with_env(
            json!([{ "name": "SLUICE_TASK_LEASE_TTL_SECS", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]),
        );
        assert_eq!(pool(json!({ "template": env })).row.lease_secs, 120);
        let env = with_env(json!([{ "name": "SLUICE_TASK_LEASE_TTL_SECS", "value": "30" }]));
        assert_eq!(pool(json!({ "template": env })).row.lease_secs, 30);
    }

    #[test]
    fn row_that_says_so_already_is_not_written() {
        let wanted = pool(json!({ "threads": 8, "provider": "ollama" })).row;
        let row = PoolSettingsRow {
            pool: "p".to_owned(),
            ingest_cap: Cap::new(2),
            lifecycle_cap: Cap::new(4),
            ingest_clamp: Some(2),
            lifecycle_clamp: Some(4),
            clamp_reason: wanted.clamp_reason.clone(),
            lease_secs: 120,
            auto_resume: true,
            is_held: true,
            hold_reason: None,
        };
        assert_eq!(wanted.difference(Some(&row)), None);
        assert!(wanted.difference(None).is_some());
        let open = pool(json!({ "threads": 8 })).row;
        let change = open.difference(Some(&row)).unwrap();
        assert_eq!((change.ingest_clamp, change.clamp_reason), (Setting::Reset, Setting::Reset));
        assert_eq!((change.ingest_cap, change.lease_secs), (Some(Cap::new(6)), None));
    }
}
