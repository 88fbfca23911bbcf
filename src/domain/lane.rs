//! Lanes: classes, policies, caps, and the clamp that a local provider puts on them.

use std::fmt;

use super::closed_set::closed_set;

closed_set! {
    pub enum Class("lane class") {
        Ingest = "ingest",
        Lifecycle = "lifecycle",
    }
}

closed_set! {
    pub enum Policy("lane policy") {
        None = "none",
        /// Nothing new starts; running work goes on.
        Hold = "hold",
        /// Nothing new starts; running work is given back.
        HoldAndDrain = "hold_and_drain",
    }
}

impl Policy {
    pub const fn admits(self) -> bool {
        match self {
            Policy::None => true,
            Policy::Hold | Policy::HoldAndDrain => false,
        }
    }
}

/// How many tasks of a lane may run at once; on the wire 0 means that there is no cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cap(u32);

impl Cap {
    pub const NONE: Cap = Cap(0);

    pub const fn new(max_running: u32) -> Self {
        Cap(max_running)
    }

    /// The wire value: 0 = no cap.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Slots left beside `running` tasks; `None` when there is no cap.
    pub fn free(self, running: u64) -> Option<u64> {
        match self {
            Cap::NONE => None,
            Cap(max) => Some(u64::from(max).saturating_sub(running)),
        }
    }

    fn clamp_to(self, most: u32) -> Self {
        match self {
            Cap::NONE => Cap::NONE,
            Cap(max) => Cap(max.clamp(1, most)),
        }
    }
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cap::NONE => f.write_str("no cap"),
            Cap(max) => write!(f, "{max}"),
        }
    }
}

/// Turns of a lane relative to the others of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Weight(u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "weight {0} is out of range: allowed are whole numbers from {min} to {max}",
    min = Weight::MIN,
    max = Weight::MAX
)]
pub struct WeightOutOfRange(i64);

impl Weight {
    pub const MIN: u16 = 1;
    /// Above it, one quantum of the lightest lane would be a million turns of the heaviest.
    pub const MAX: u16 = 1_000;

    pub fn new(weight: i64) -> Result<Self, WeightOutOfRange> {
        match u16::try_from(weight) {
            Ok(weight @ Self::MIN..=Self::MAX) => Ok(Weight(weight)),
            Ok(_) | Err(_) => Err(WeightOutOfRange(weight)),
        }
    }

    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The provider that extracts; it alone decides on the clamp, whatever model the rest uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtractProvider(String);

impl ExtractProvider {
    /// The first non-empty name of the chain, given in its order:
    /// extract, default extract, default LLM, LLM.
    pub fn resolve<'a>(chain: impl IntoIterator<Item = Option<&'a str>>) -> Option<Self> {
        let name = chain.into_iter().flatten().map(str::trim).find(|name| !name.is_empty())?;
        Some(ExtractProvider(name.to_lowercase()))
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    /// It runs on this machine's hardware, which many tasks at once only slow down.
    pub fn is_local(&self) -> bool {
        ["ollama", "lmstudio", "lm-studio", "lm_studio"].contains(&self.0.as_str())
    }
}

const LOCAL_SLOTS_MAX: u32 = 4;
const LOCAL_INGEST_MAX: u32 = 2;
const LOCAL_LIFECYCLE_MAX: u32 = 4;

/// What the settings ask for; `None` is unset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityRequest {
    pub cpus: u32,
    pub slots: Option<u32>,
    pub ingest_cap: Option<Cap>,
    pub lifecycle_cap: Option<Cap>,
    pub extract_provider: Option<ExtractProvider>,
    pub allow_local_high_concurrency: bool,
}

/// What holds: slots of one worker process and the default caps of its pool's lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub slots: u32,
    pub ingest_cap: Cap,
    pub lifecycle_cap: Cap,
    /// Set while a local provider bounds the above, and every lane of the pool.
    pub clamp: Option<LocalClamp>,
}

impl Capacity {
    pub fn resolve(request: CapacityRequest) -> Self {
        let CapacityRequest { cpus, slots, ingest_cap, lifecycle_cap, extract_provider, allow_local_high_concurrency } =
            request;
        let clamp = extract_provider
            .filter(|provider| provider.is_local() && !allow_local_high_concurrency)
            .map(|provider| LocalClamp { provider });
        let asked_slots = slots.unwrap_or_else(|| cpus.saturating_mul(4).max(4)).max(1);
        match clamp {
            None => {
                let ingest_cap = ingest_cap.unwrap_or_else(|| default_ingest_cap(asked_slots));
                let lifecycle_cap = lifecycle_cap.unwrap_or(ingest_cap);
                Capacity { slots: asked_slots, ingest_cap, lifecycle_cap, clamp: None }
            }
            Some(clamp) => {
                let slots = asked_slots.clamp(1, LOCAL_SLOTS_MAX);
                let ingest_cap = ingest_cap.unwrap_or_else(|| default_ingest_cap(slots));
                let lifecycle_cap = lifecycle_cap.unwrap_or(Cap(LOCAL_LIFECYCLE_MAX));
                Capacity {
                    slots,
                    ingest_cap: clamp.bound(Class::Ingest, ingest_cap),
                    lifecycle_cap: clamp.bound(Class::Lifecycle, lifecycle_cap),
                    clamp: Some(clamp),
                }
            }
        }
    }
}

fn default_ingest_cap(slots: u32) -> Cap {
    // Three quarters without overflow, rounded down; never 0, which would lift the cap.
    Cap((slots - slots.div_ceil(4)).max(1))
}

/// A local provider is in use and high concurrency was not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalClamp {
    provider: ExtractProvider,
}

impl LocalClamp {
    /// The cap that holds instead of `asked`; no cap stays no cap.
    pub fn bound(&self, class: Class, asked: Cap) -> Cap {
        asked.clamp_to(match class {
            Class::Ingest => LOCAL_INGEST_MAX,
            Class::Lifecycle => LOCAL_LIFECYCLE_MAX,
        })
    }
}

impl fmt::Display for LocalClamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the local extract provider {} bounds slots to {LOCAL_SLOTS_MAX}, ingest lanes to {LOCAL_INGEST_MAX} and \
             lifecycle lanes to {LOCAL_LIFECYCLE_MAX}; SLUICE_ALLOW_LOCAL_HIGH_CONCURRENCY=1 lifts this",
            self.provider.name(),
        )
    }
}

#[cfg(test)]
mod tests;
