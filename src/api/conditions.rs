//! Conditions: the closed lists of their types and reasons, with what each means and what to do about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time::Time;

/// As Kubernetes defines it. Types and reasons are text on the wire, so that tools may add conditions of their own.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it speaks of.
    #[serde(rename = "type")]
    #[schemars(
        length(min = 1, max = 316),
        regex(pattern = r"^([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")
    )]
    pub type_: String,

    /// True, False or Unknown.
    pub status: ConditionStatus,

    /// The generation of the spec that it speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_i64))]
    pub observed_generation: Option<i64>,

    /// When the status last changed.
    pub last_transition_time: Time,

    /// Why, in one word from a closed list.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"))]
    pub reason: String,

    /// Why, and what to do about it.
    #[schemars(length(max = 32_768))]
    pub message: String,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl Condition {
    /// The message is cut to its limit, at a character.
    pub fn new(
        type_: ConditionType,
        status: ConditionStatus,
        reason: Reason,
        message: &str,
        observed_generation: Option<i64>,
        last_transition_time: Time,
    ) -> Self {
        Self {
            type_: type_.as_str().to_owned(),
            status,
            observed_generation,
            last_transition_time,
            reason: reason.as_str().to_owned(),
            message: cut(message, super::CONDITION_MESSAGE_MAX_BYTES).to_owned(),
        }
    }

    pub fn is(&self, type_: ConditionType) -> bool {
        self.type_ == type_.as_str()
    }
}

/// The longest beginning of whole characters that fits.
pub fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// An enum whose names are the wire's, each with a text for people.
macro_rules! described {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $variant:ident = $description:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $( #[doc = $description] $variant, )+
        }

        impl $name {
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => stringify!($variant), )+
                }
            }

            /// For the reference.
            pub const fn description(self) -> &'static str {
                match self {
                    $( Self::$variant => $description, )+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use described;

described! {
    pub enum ConditionType {
        Accepted = "The database has taken it over. False: nothing happens until the spec, or what it names, is changed.",
        LanePermitted = "Its lane lets it run. False: it waits, and costs nothing.",
        Running = "A worker holds it, or a task that follows from it.",
        Stopping = "A worker was told to stop it; it ends as cancelled, whatever the worker says.",
        Succeeded = "It and what follows from it ended well. Unknown until it ends; False: it failed or was cancelled.",
        SpecIgnored = "A part of the spec changes nothing. It goes when the spec asks for nothing that cannot be.",
        Held = "The lane starts nothing new.",
        DeliveryRule = "The pool's delivery suits its replicas. False: it is held at one replica.",
        TemplateValid = "Kubernetes takes the pool's template. False: the workers stay as they are.",
        Scaled = "The pool has as many workers as it should.",
        Ready = "What the spec asks for is so; of a pool, all workers are of its template and ready. For kstatus, Flux and Argo CD.",
        Reconciling = "It is on its way there. For kstatus, Flux and Argo CD.",
        Stalled = "It will not get there by itself. For kstatus, Flux and Argo CD.",
    }
}

described! {
    pub enum Reason {
        // Of all kinds.
        Accepted = "It was taken over.",
        UpToDate = "Nothing is left to do.",
        InProgress = "It is being worked on.",
        Invalid = "The database does not take the spec. The message says which value; change it.",
        Unreadable = "The stored object does not fit this version. The message says where; write it anew.",
        TenantNotAllowed = "The namespace may not name this tenant. Add it to the namespace's annotation sluice.dev/tenants.",
        DatabaseUnavailable = "The database does not answer. It is tried again; work that runs goes on.",
        PoolMissing = "There is no such pool. Make the WorkerPool, or name another in the TenantLane.",

        // Of tasks: acceptance.
        Duplicate = "Another resource has used the idempotencyKey. The message names its task; this one makes none.",
        IdempotencyConflict = "The idempotencyKey was used for other content. Use another key.",
        ExclusiveKeyActive = "A task with the same exclusiveKey is active. It is tried again when that has ended.",
        SourceNotAllowed = "The url begins with none of the lane's allowedSources. Change the url or the lane.",
        SourceMissing = "The ConfigMap or its key is not there. It is tried again; make it, or delete this resource.",
        SourceTooLarge = "The source does not fit into 1 MiB. Put the content behind a url.",
        DocumentNotFound = "The tenant has no document with this id in this workspace. Look at documentId and workspace.",
        TaskNotFound = "The tenant has no task with this trackId, or its retention is over.",
        ResourceRecreated = "The task of this trackId belongs to another resource. Make a new one without a trackId.",

        // Of tasks: what they wait for and do.
        LaneOpen = "The lane has a free slot, or the task has one.",
        LaneAtCapacity = "The lane runs as many tasks as it may. It starts when one ends or the cap is raised.",
        LaneHeld = "Somebody holds the lane. The message says why; set the lane's policy to None.",
        PoolHeld = "Somebody holds the pool. The message says why.",
        LaneResting = "The provider asked for fewer calls (429). The lane goes on by itself.",
        Suspended = "spec.suspend is true. Set it to false to let it run.",
        BackingOff = "The last attempt failed. The next one starts at the time in the message.",
        Waiting = "No worker has taken it yet.",
        Claimed = "A worker holds it.",
        FollowOnRunning = "A task that follows from it is being worked on.",
        CancelRequested = "A cancel was asked for. It ends when the worker stops, or when its lease runs out.",
        NotAsked = "Nobody asked for it.",
        Completed = "It ended well.",
        PartlyCompleted = "It ended, and a part of the document was taken in.",
        Failed = "It failed for good. status.failure says why and what to do; raise spec.retries to try again.",
        Cancelled = "It was cancelled.",
        Ended = "It has ended.",
        Expired = "The database no longer keeps the task. The resource shows what was last known.",

        // Of tasks: what of the spec is ignored.
        CancelIsFinal = "spec.cancel was taken back, which changes nothing. Raise spec.retries to run it again.",
        CancelTooLate = "It had ended before the cancel was asked for.",
        RetryBlockedByCancel = "spec.retries was raised while spec.cancel is true. Set cancel to false first.",
        RetryWhileActive = "spec.retries was raised while the task, or one that follows from it, is active.",
        RetryOfCompleted = "spec.retries was raised, but the task ended well. Make a new resource to run it again.",
        MaxRetriesExceeded = "It was retried by hand as often as it may be. Look at the document, and make a new resource.",

        // Of lanes.
        Conflict = "Another resource sets the same lane or pool: an older TenantLane, or one of another operator on this database. Delete one of the two.",
        HeldByPolicy = "The lane's policy is Hold or HoldAndDrain.",
        NotHeld = "The lane lets work start.",
        Clamped = "A local extract provider bounds the lane's cap below maxRunning.",

        // Of pools.
        DeliveryAllowed = "The delivery suits the replicas.",
        DeliveryLocalWithReplicas = "maxReplicas is above 1 with delivery local, which wakes only its own process. Set delivery to bridged or notify_only.",
        WrongNamespace = "Pools live in the operator's namespace. Make it there.",
        TemplateAccepted = "Kubernetes takes the template.",
        TemplateRefused = "Kubernetes does not take the template. The message has its words.",
        PodsNotReady = "Workers do not become ready. Look at the pods of the Deployment.",
        MatchesDemand = "There are as many workers as the permitted work wants.",
        DemandRose = "More work is permitted: workers are being added.",
        DemandFell = "Less work is permitted: workers are being removed.",
        NothingToDo = "Nothing is ready, running or stopping: there are no workers.",
        WaitsToScaleDown = "Less work is permitted, but not for scaleDownDelaySeconds yet.",
        AtMaximum = "The permitted work wants more workers than maxReplicas.",
        AtMinimum = "The permitted work wants fewer workers than minReplicas.",
        DemandUnknown = "The database did not answer: the number of workers stays.",
        Draining = "Workers that are to go finish what they hold.",
        WorkersStarting = "Not all workers are there and ready yet.",
        RollingOut = "Workers of an earlier template are being replaced. Until then they may take work, and none are removed for a lower demand.",
        DriftCorrected = "Somebody else changed the workers' number or template. It was set back.",
        DriftTolerated = "Somebody else keeps changing the workers. It is left to them; find out who.",
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn every_name_is_one_that_kubernetes_takes_as_a_reason() {
        let reasons = Reason::ALL.iter().map(|reason| (reason.as_str(), reason.description()));
        let types = ConditionType::ALL.iter().map(|type_| (type_.as_str(), type_.description()));
        for (name, description) in reasons.chain(types) {
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
            assert!(description.ends_with('.') && description.is_ascii(), "{name}: {description}");
        }
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let time = Time::from(DateTime::from_timestamp(0, 0).unwrap());
        let condition = Condition::new(
            ConditionType::Accepted,
            ConditionStatus::False,
            Reason::Invalid,
            &"€".repeat(3_000_000),
            Some(1),
            time,
        );
        assert_eq!(condition.message, "€".repeat(crate::api::CONDITION_MESSAGE_MAX_BYTES / 3));
    }
}
