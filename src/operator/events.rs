//! Events: stable reasons, one object for each reason of a resource however often it happens, and never waited for.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::cache::Unreadable;
use super::context::FIELD_MANAGER;
use super::instrument::{ApiWrite, Kind, Metrics};
use super::leader::Leadership;
use crate::api::conditions::described;

/// Events that wait to be written; what comes on top is dropped, since an event is only a hint.
const WAITING_MAX: usize = 256;
/// What the API server takes is 1,024 bytes.
const NOTE_MAX_BYTES: usize = 1_000;
const INSTANCE_MAX_BYTES: usize = 128;
/// A name has 253 bytes, and a hash follows.
const NAME_PART_MAX_BYTES: usize = 230;
/// Events whose number is remembered; one that is forgotten counts anew.
const COUNTS_MAX: usize = 10_000;

described! {
    /// What an event of ours may be about; `docs/reference.md` is made from it.
    pub enum EventReason {
        Refused = "The task or lane is not taken over. The condition Accepted says why.",
        Failed = "The task has failed, and is not tried again by itself. status.failure says why.",
        Cancelled = "The task was cancelled, and not by its spec.",
        Unreadable = "The stored object does not fit this version. The note says where; write it anew.",
        Conflict = "An older TenantLane has the same tenant and class, and wins.",
        Clamped = "A lane's cap is lower than asked for.",
        Scaled = "A pool's Deployment was scaled. The note says from what to what, and why.",
        DriftCorrected = "Somebody else changed what the operator manages. It was set back.",
        InvalidPool = "A pool's settings, template or pods cannot run. The condition Stalled says the same.",
    }
}

impl EventReason {
    /// Else it is `Normal`.
    pub const fn is_warning(self) -> bool {
        match self {
            Self::Refused
            | Self::Failed
            | Self::Unreadable
            | Self::Conflict
            | Self::InvalidPool
            | Self::DriftCorrected => true,
            Self::Cancelled | Self::Clamped | Self::Scaled => false,
        }
    }
}

struct Notice {
    kind: Kind,
    reason: EventReason,
    note: String,
    about: ObjectReference,
}

/// Where events go. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Notice>,
}

impl Events {
    /// They are written by a task of their own, for as long as a handle is left.
    pub fn start(client: Client, instance: String, leadership: Leadership, metrics: Metrics) -> Self {
        let (sender, mut notices) = mpsc::channel::<Notice>(WAITING_MAX);
        tokio::spawn(async move {
            let mut counts: HashMap<String, i32> = HashMap::new();
            while let Some(notice) = notices.recv().await {
                if !leadership.is_held() {
                    continue;
                }
                metrics.wrote(notice.kind, ApiWrite::Event);
                if let Err(error) = write(&client, &instance, &notice, &mut counts).await {
                    tracing::debug!(%error, reason = notice.reason.as_str(), "an event was not written");
                }
            }
        });
        Self { sender }
    }

    pub fn publish<K: Resource<DynamicType = ()>>(&self, kind: Kind, object: &K, reason: EventReason, note: &str) {
        let about = ObjectReference {
            // Without it, each version of the object would begin a new event.
            resource_version: None,
            ..object.object_ref(&())
        };
        self.send(kind, about, reason, note);
    }

    pub fn publish_unreadable<K: Resource<DynamicType = ()>>(&self, kind: Kind, unreadable: &Unreadable) {
        let Unreadable { key, uid, problem } = unreadable;
        let about = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        self.send(kind, about, EventReason::Unreadable, problem);
    }

    fn send(&self, kind: Kind, about: ObjectReference, reason: EventReason, note: &str) {
        // Full: the condition says the same.
        let _ = self.sender.try_send(Notice { kind, reason, note: cut(note, NOTE_MAX_BYTES).to_owned(), about });
    }
}

/// The first of its reason makes an object, the others count in it.
async fn write(
    client: &Client,
    instance: &str,
    notice: &Notice,
    counts: &mut HashMap<String, i32>,
) -> Result<(), kube::Error> {
    let Notice { kind: _, reason, note, about } = notice;
    let namespace = about.namespace.as_deref().unwrap_or("default");
    let name = event_name(about, *reason);
    let now = MicroTime(Timestamp::now());
    let event = Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(now.clone()),
        note: Some(note.clone()),
        reason: Some(reason.as_str().to_owned()),
        regarding: Some(about.clone()),
        reporting_controller: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(cut(instance, INSTANCE_MAX_BYTES).to_owned()),
        type_: Some(if reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => {
            counts.remove(&name);
            return Ok(());
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error),
    }
    if counts.len() >= COUNTS_MAX {
        counts.clear();
    }
    let count = counts.entry(name.clone()).or_insert(1);
    *count = count.saturating_add(1);
    let series = json!({ "series": { "count": *count, "lastObservedTime": now } });
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&series)).await.map(drop)
}

/// One for each reason of an object, in every process the same, and never too long.
fn event_name(about: &ObjectReference, reason: EventReason) -> String {
    let mut hash = Sha256::new();
    for part in [about.kind.as_deref(), about.uid.as_deref(), Some(reason.as_str())] {
        hash.update(part.unwrap_or_default());
        hash.update([0]);
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = cut(about.name.as_deref().unwrap_or_default(), NAME_PART_MAX_BYTES).trim_end_matches(['-', '.']);
    format!("{name}.{digest}")
}

/// At most so many bytes, and no half character.
pub fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_an_event_is_valid_and_tells_reasons_and_objects_apart() {
        let about = |name: &str, uid: &str| ObjectReference {
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        };
        let long = format!("{}.{}", "a".repeat(229), "b".repeat(23));
        let names = [
            event_name(&about("one", "u"), EventReason::Failed),
            event_name(&about("one", "u"), EventReason::Refused),
            event_name(&about("one", "v"), EventReason::Failed),
            event_name(&about(&long, "u"), EventReason::Failed),
        ];
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
        assert!(names[3].starts_with(&"a".repeat(229)) && !names[3].contains(".."), "{}", names[3]);
        assert!(names.iter().all(|name| name.len() <= 253));
        assert_eq!(names[0], event_name(&about("one", "u"), EventReason::Failed));
    }

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("abc", 10), "abc");
        assert_eq!(cut("aüü", 2), "a");
        assert_eq!(cut("aüü", 3), "aü");
    }
}
