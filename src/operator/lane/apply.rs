//! Tells the rows of lanes what the plan says.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::plan::{Change, ChangeKind, Settings};
use super::status::Obstacle;
use crate::api::TenantLane;
use crate::operator::Context;
use crate::operator::context::FIELD_MANAGER;
use crate::operator::controller::Fault;
use crate::store::StoreError;
use crate::store::lanes::{LaneSettings, Setting, set_lane};

/// What was refused is tried again so much later, unless the resource changes.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// Changes that came to nothing, or that somebody undid, by the resource's uid.
#[derive(Default)]
pub struct Refusals {
    refused: HashMap<String, Refusal>,
}

struct Refusal {
    settings: Settings,
    obstacle: Option<Obstacle>,
    at: Instant,
}

impl Refusals {
    /// Why this change need not be tried again now.
    fn holds(&self, uid: &str, settings: &Settings) -> bool {
        let same = |refusal: &Refusal| refusal.settings == *settings && refusal.at.elapsed() < REFUSED_PAUSE;
        self.refused.get(uid).is_some_and(same)
    }

    pub fn obstacle(&self, uid: &str) -> Option<&Obstacle> {
        self.refused.get(uid)?.obstacle.as_ref()
    }

    fn note(&mut self, uid: &str, settings: &Settings, obstacle: Option<Obstacle>) {
        self.refused.insert(uid.to_owned(), Refusal { settings: settings.clone(), obstacle, at: Instant::now() });
    }

    /// Forgets those that the plan asks for no more.
    pub fn forget_others(&mut self, changes: &[Change]) {
        self.refused.retain(|uid, _| changes.iter().any(|change| change.uid() == uid));
    }
}

impl Change {
    fn uid(&self) -> &str {
        match &self.kind {
            ChangeKind::Of { uid, .. } | ChangeKind::Revoked { uid } | ChangeKind::Orphan { uid, .. } => uid,
        }
    }
}

/// Answers how many rows were told. A database that is away is a fault; what it refuses is noted, and stops nothing else.
pub async fn apply(context: &Context, changes: &[Change], refusals: &mut Refusals) -> Result<usize, Fault> {
    refusals.forget_others(changes);
    let mut told = 0;
    for change in changes {
        if refusals.holds(change.uid(), &change.settings) {
            continue;
        }
        let by = match &change.kind {
            ChangeKind::Of { by, .. } => by.as_str(),
            ChangeKind::Revoked { .. } => FIELD_MANAGER,
            ChangeKind::Orphan { namespace, uid } => {
                if !is_gone(context, namespace, uid).await? {
                    // Our cache is behind, or the object is one that we cannot read.
                    refusals.note(uid, &change.settings, None);
                    continue;
                }
                FIELD_MANAGER
            }
        };
        if !context.leadership.is_held() {
            return Err(Fault::Stale);
        }
        let settings = change.settings.borrowed();
        match set_lane(&context.database, &change.lane.tenant, change.lane.class, &settings, Some(by)).await {
            Ok(_) => {
                told += 1;
                // What does not stay so is not fought over.
                refusals.note(change.uid(), &change.settings, None);
                let lane = format!("{}/{}", change.lane.tenant, change.lane.class);
                tracing::info!(lane, by, "the lane's settings were written");
            }
            Err(StoreError::BadInput { cause, .. }) => {
                refusals.note(change.uid(), &change.settings, Some(Obstacle::Invalid(cause)));
            }
            // Its pool went away meanwhile: the next plan knows.
            Err(StoreError::Conflict { .. }) => refusals.note(change.uid(), &change.settings, None),
            Err(error) => return Err(Fault::Store(error)),
        }
    }
    Ok(told)
}

/// Whether the API server, and not only our cache, knows no such resource.
async fn is_gone(context: &Context, namespace: &str, uid: &str) -> Result<bool, Fault> {
    let lanes: Api<TenantLane> = Api::namespaced(context.client.clone(), namespace);
    let there = lanes.list_metadata(&ListParams::default()).await?;
    Ok(!there.items.iter().any(|lane| lane.uid().as_deref() == Some(uid)))
}

impl Settings {
    fn borrowed(&self) -> LaneSettings<'_> {
        LaneSettings {
            pool: text(&self.pool),
            max_running: self.max_running,
            weight: self.weight,
            policy: self.policy,
            policy_reason: text(&self.policy_reason),
            allowed_sources: self.allowed_sources.clone(),
            mirror_limit: self.mirror_limit,
            cluster: text(&self.cluster),
            resource_uid: text(&self.resource_uid),
        }
    }
}

fn text(setting: &Setting<String>) -> Setting<&str> {
    match setting {
        Setting::Keep => Setting::Keep,
        Setting::Reset => Setting::Reset,
        Setting::To(text) => Setting::To(text),
    }
}
