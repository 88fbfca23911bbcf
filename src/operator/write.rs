//! Writes of a status: only what differs, only on the object that was looked at, only by the leader.

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::cache::Key;
use super::context::{Context, FIELD_MANAGER};
use super::controller::Fault;
use super::instrument::{ApiWrite, Kind};

/// What became of a status.
#[derive(Debug)]
pub enum StatusWrite<K> {
    /// It was so already; nothing was sent.
    Unchanged,
    /// As the API server has it now: for the cache.
    Written(Box<K>),
}

/// Brings the status of `object` from `held` (null if it has none) to `wanted`. [`Fault::Stale`]: the object has
/// changed or is gone; what comes by its watch will be looked at.
pub async fn write_status<K>(
    context: &Context,
    kind: Kind,
    object: &K,
    held: &impl Serialize,
    wanted: &impl Serialize,
) -> Result<StatusWrite<K>, Fault>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let changes = merge_patch(&to_value(held)?, &to_value(wanted)?);
    let Some(changes) = changes else { return Ok(StatusWrite::Unchanged) };
    if !context.leadership.is_held() {
        return Err(Fault::Stale);
    }
    // Names a version, so that a status made from an older look never lands on a newer object.
    let patch = json!({
        "metadata": { "uid": object.uid(), "resourceVersion": object.resource_version() },
        "status": changes,
    });
    let Key { namespace, name } = Key::of(object);
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    context.metrics.wrote(kind, ApiWrite::Status);
    match api.patch_status(&name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(&patch)).await {
        Ok(written) => Ok(StatusWrite::Written(Box::new(written))),
        Err(error) if is_gone_or_changed(&error) => Err(Fault::Stale),
        Err(error) => Err(error.into()),
    }
}

pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// 409: another version, or another object under the name.
pub fn is_gone_or_changed(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

fn to_value(part: &impl Serialize) -> Result<Value, Fault> {
    serde_json::to_value(part).map_err(|error| Fault::Api(kube::Error::SerdeError(error)))
}

/// The JSON merge patch (RFC 7386) that makes `held` into `wanted`; `None` if nothing differs.
fn merge_patch(held: &Value, wanted: &Value) -> Option<Value> {
    match (held, wanted) {
        _ if held == wanted => None,
        (Value::Object(held), Value::Object(wanted)) => {
            let mut changes = Map::new();
            for (name, value) in wanted {
                let before = held.get(name).unwrap_or(&Value::Null);
                changes.extend(merge_patch(before, value).map(|change| (name.clone(), change)));
            }
            for name in held.keys().filter(|name| !wanted.contains_key(*name)) {
                changes.insert(name.clone(), Value::Null);
            }
            (!changes.is_empty()).then_some(Value::Object(changes))
        }
        (_, wanted) => Some(wanted.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_names_only_what_differs_and_takes_away_what_is_gone() {
        let held = json!({ "a": 1, "b": { "c": 2, "d": 3 }, "e": [1, 2], "f": "old" });
        let wanted = json!({ "a": 1, "b": { "c": 2, "d": 4 }, "e": [1], "g": true });

        let patch = merge_patch(&held, &wanted);

        assert_eq!(patch, Some(json!({ "b": { "d": 4 }, "e": [1], "f": null, "g": true })));
    }

    #[test]
    fn equal_parts_make_no_patch() {
        let status = json!({ "a": { "b": [1, { "c": null }] } });
        assert_eq!(merge_patch(&status, &status.clone()), None);
        assert_eq!(merge_patch(&json!({}), &json!({})), None);
    }

    #[test]
    fn first_status_is_sent_whole() {
        assert_eq!(merge_patch(&Value::Null, &json!({ "a": 1 })), Some(json!({ "a": 1 })));
    }
}
