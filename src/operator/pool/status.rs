//! What a pool's resource shows: its workers, why there are so many, and what keeps it from having others.

use super::plan::{DriftState, Plan, Wait};
use super::rollout::Progress;
use super::spec::PoolSpec;
use crate::api::conditions::{ConditionType, Reason, cut};
use crate::api::{ConditionStatus, SUMMARY_MAX_CHARS, Time, WorkerPoolStatus};
use crate::domain::scaling;
use crate::operator::condition_list::{ConditionList, Standing};
use crate::operator::events::EventReason;

/// What is known of one pool.
pub struct Known<'a> {
    pub spec: &'a PoolSpec,
    pub generation: Option<i64>,
    pub before: Option<&'a WorkerPoolStatus>,
    pub counts: Counts,
    pub demand: Option<Demand>,
    pub template: Template<'a>,
    pub scale: Scale<'a>,
    pub progress: Progress,
    /// Why the row is not ours to write, if it is not.
    pub conflict: Option<&'a str>,
    /// Why workers do not start, if some do not.
    pub problem: Option<&'a str>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub replicas: u32,
    pub ready: u32,
    pub desired: u32,
    pub draining: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Demand {
    pub slots: u64,
    pub running: u64,
}

#[derive(Clone, Copy, Debug)]
pub enum Template<'a> {
    /// Not tried since the process began; what was said before holds.
    Untried,
    Accepted,
    Refused(&'a str),
}

#[derive(Clone, Copy, Debug)]
pub enum Scale<'a> {
    Workers(&'a Plan),
    /// Of mode Job: whether more could start than may.
    Jobs {
        is_full: bool,
    },
}

/// `now` is for the conditions whose status changes.
pub fn status(known: &Known<'_>, now: Time) -> WorkerPoolStatus {
    let Known { spec, generation, before, counts, demand, template, scale, progress, conflict, problem } = known;
    let before_conditions = before.map_or(&[][..], |status| &status.conditions);
    let mut conditions = ConditionList::new(before_conditions, *generation, now);
    let boot = match &spec.boot {
        Ok(()) => None,
        Err(refused) => Some(format!("{refused}; until then the pool is held at one replica")),
    };
    match &boot {
        None => conditions.set(
            ConditionType::DeliveryRule,
            ConditionStatus::True,
            Reason::DeliveryAllowed,
            "the delivery suits maxReplicas",
        ),
        Some(why) => {
            conditions.set(ConditionType::DeliveryRule, ConditionStatus::False, Reason::DeliveryLocalWithReplicas, why)
        }
    }
    match template {
        Template::Untried => conditions.keep(ConditionType::TemplateValid),
        Template::Accepted => conditions.set(
            ConditionType::TemplateValid,
            ConditionStatus::True,
            Reason::TemplateAccepted,
            "Kubernetes takes the template",
        ),
        Template::Refused(why) => {
            let why = format!("{why}; the workers stay as they are");
            conditions.set(ConditionType::TemplateValid, ConditionStatus::False, Reason::TemplateRefused, &why);
        }
    }
    let (is_scaled, reason, why) = scaled(*scale);
    let is_scaled = if is_scaled { ConditionStatus::True } else { ConditionStatus::False };
    conditions.set(ConditionType::Scaled, is_scaled, reason, &why);
    let other = conflict.map(|why| (Reason::Conflict, why)).or(problem.map(|why| (Reason::PodsNotReady, why)));
    let standing = match (template, &boot, other) {
        (Template::Refused(message), _, _) => {
            Standing::Stalled { reason: Reason::TemplateRefused, message: (*message).to_owned() }
        }
        (_, Some(message), _) => {
            Standing::Stalled { reason: Reason::DeliveryLocalWithReplicas, message: message.clone() }
        }
        (_, _, Some((reason, message))) => Standing::Stalled { reason, message: message.to_owned() },
        _ if is_scaled == ConditionStatus::False => Standing::Reconciling { reason, message: why.clone() },
        _ => progressed(*progress),
    };
    let summary = match &standing {
        Standing::Stalled { message, .. } | Standing::Reconciling { message, .. } => message.clone(),
        Standing::Ready { .. } => why,
    };
    conditions.stand(&standing);
    WorkerPoolStatus {
        observed_generation: *generation,
        replicas: Some(counts.replicas),
        ready_replicas: Some(counts.ready),
        desired_replicas: Some(counts.desired),
        draining: Some(counts.draining),
        // Unknown is not zero: what was last seen stays.
        demand: demand.map(|demand| demand.slots).or(before.and_then(|status| status.demand)),
        running: demand.map(|demand| demand.running).or(before.and_then(|status| status.running)),
        summary: Some(shorten(&summary)),
        conditions: conditions.finish(),
    }
}

/// A pool that lives where none may.
pub fn misplaced(
    before: Option<&WorkerPoolStatus>,
    generation: Option<i64>,
    home: &str,
    now: Time,
) -> WorkerPoolStatus {
    let message = format!("pools live in the operator's namespace: make it in {home} and delete this one");
    let mut conditions = ConditionList::new(before.map_or(&[], |status| &status.conditions), generation, now);
    conditions.stand(&Standing::Stalled { reason: Reason::WrongNamespace, message: message.clone() });
    WorkerPoolStatus {
        observed_generation: generation,
        summary: Some(shorten(&message)),
        conditions: conditions.finish(),
        ..WorkerPoolStatus::default()
    }
}

/// Whether there are as many workers as there should be, and why. Without a clock: a status must not change with time.
fn scaled(scale: Scale<'_>) -> (bool, Reason, String) {
    let plan = match scale {
        Scale::Workers(plan) => plan,
        Scale::Jobs { is_full: true } => {
            return (true, Reason::AtMaximum, "as many Jobs run as may: the rest waits".to_owned());
        }
        Scale::Jobs { is_full: false } => {
            return (true, Reason::MatchesDemand, "each task that may start has a Job".to_owned());
        }
    };
    let stays = |reason, why: &str| (false, reason, why.to_owned());
    match (plan.wait, plan.drift) {
        (Wait::ForOthers, _) => {
            return stays(
                Reason::DriftTolerated,
                "somebody else keeps changing the Deployment's replicas: it is left to them for some minutes; find out who",
            );
        }
        (Wait::ForRollout, _) => {
            return stays(Reason::RollingOut, "a rollout is under way: workers go when it is over");
        }
        (Wait::ForDrain, _) => {
            return stays(Reason::Draining, "fewer workers are wanted: those that are to go finish what they hold");
        }
        (Wait::Nothing, DriftState::Corrected) => {
            return stays(Reason::DriftCorrected, "somebody changed the Deployment's replicas: they were set back");
        }
        (Wait::Nothing, DriftState::None | DriftState::Tolerated) => {}
    }
    let text = plan.decision.reason.to_string();
    match plan.decision.reason {
        scaling::Reason::MatchesDemand => (true, Reason::MatchesDemand, text),
        scaling::Reason::DemandRose => (true, Reason::MatchesDemand, scaling::Reason::MatchesDemand.to_string()),
        scaling::Reason::DemandFell => (true, Reason::MatchesDemand, scaling::Reason::MatchesDemand.to_string()),
        scaling::Reason::NothingToDo => (true, Reason::NothingToDo, text),
        scaling::Reason::WaitsToScaleDown { .. } => {
            (true, Reason::WaitsToScaleDown, "less work is permitted: scales down unless that changes".to_owned())
        }
        scaling::Reason::AtMaximum { .. } => (true, Reason::AtMaximum, text),
        scaling::Reason::AtMinimum { .. } => (true, Reason::AtMinimum, text),
        scaling::Reason::DemandUnknown => (false, Reason::DemandUnknown, text),
    }
}

/// What is worth waiting for after a change of the template.
fn progressed(progress: Progress) -> Standing {
    match progress {
        Progress::Done => {
            Standing::Ready { reason: Reason::UpToDate, message: "the pool is as its spec says".to_owned() }
        }
        Progress::Starting => Standing::Reconciling {
            reason: Reason::WorkersStarting,
            message: "not all workers are there and ready yet".to_owned(),
        },
        Progress::RollingOut => Standing::Reconciling {
            reason: Reason::RollingOut,
            message: "workers of an earlier template may still take work: they are being replaced".to_owned(),
        },
    }
}

/// What has come to be with this status, for an event.
pub fn news(before: Option<&WorkerPoolStatus>, after: &WorkerPoolStatus) -> Option<(EventReason, String)> {
    const NEWS: [Reason; 5] = [
        Reason::DeliveryLocalWithReplicas,
        Reason::Conflict,
        Reason::TemplateRefused,
        Reason::PodsNotReady,
        Reason::WrongNamespace,
    ];

    let stalled = |status: &WorkerPoolStatus| {
        status.conditions.iter().find(|condition| condition.is(ConditionType::Stalled)).cloned()
    };
    let after = stalled(after)?;
    if before.and_then(stalled).is_some_and(|before| before.reason == after.reason) {
        return None;
    }
    let is_news = NEWS.iter().any(|reason| reason.as_str() == after.reason);
    is_news.then_some((EventReason::InvalidPool, after.message))
}

/// The schema counts characters.
fn shorten(text: &str) -> String {
    cut(text, text.char_indices().nth(SUMMARY_MAX_CHARS).map_or(text.len(), |(at, _)| at)).to_owned()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::domain::scaling::Decision;

    fn at(secs: i64) -> Time {
        Time::from(DateTime::from_timestamp(secs, 0).unwrap())
    }

    fn spec(spec: serde_json::Value) -> PoolSpec {
        let object = json!({ "apiVersion": "sluice.dev/v1alpha1", "kind": "WorkerPool", "metadata": { "name": "p" }, "spec": spec });
        PoolSpec::of(&serde_json::from_value(object).unwrap())
    }

    fn plan(reason: scaling::Reason, wait: Wait) -> Plan {
        Plan {
            decision: Decision { replicas: 1, reason, quiet: None },
            replicas: None,
            drain: Vec::new(),
            undrain: Vec::new(),
            release: Vec::new(),
            draining: 0,
            wait,
            drift: DriftState::None,
        }
    }

    fn known<'a>(spec: &'a PoolSpec, plan: &'a Plan) -> Known<'a> {
        Known {
            spec,
            generation: Some(1),
            before: None,
            counts: Counts::default(),
            demand: Some(Demand { slots: 3, running: 2 }),
            template: Template::Accepted,
            scale: Scale::Workers(plan),
            progress: Progress::Done,
            conflict: None,
            problem: None,
        }
    }

    fn reason(status: &WorkerPoolStatus, type_: ConditionType) -> (ConditionStatus, &str) {
        let condition = status.conditions.iter().find(|condition| condition.is(type_)).unwrap();
        (condition.status, &condition.reason)
    }

    #[test]
    fn status_has_no_clock_in_it() {
        let spec = spec(json!({ "template": {} }));
        let shown = |remaining_secs, at| {
            let plan = plan(scaling::Reason::WaitsToScaleDown { remaining_secs }, Wait::Nothing);
            status(&known(&spec, &plan), at)
        };
        let first = shown(100, at(1));
        let plan = plan(scaling::Reason::WaitsToScaleDown { remaining_secs: 40 }, Wait::Nothing);
        let second = status(&Known { before: Some(&first), ..known(&spec, &plan) }, at(61));
        assert_eq!(second, first);
    }

    #[test]
    fn most_urgent_obstacle_is_what_stalls() {
        let good = spec(json!({ "template": {} }));
        let bad = spec(json!({ "maxReplicas": 3, "template": {} }));
        let plan = plan(scaling::Reason::MatchesDemand, Wait::Nothing);
        let ready = status(&known(&good, &plan), at(1));
        assert_eq!(reason(&ready, ConditionType::Ready), (ConditionStatus::True, "UpToDate"));
        let held = status(&known(&bad, &plan), at(1));
        assert_eq!(reason(&held, ConditionType::DeliveryRule).0, ConditionStatus::False);
        assert_eq!(reason(&held, ConditionType::Stalled), (ConditionStatus::True, "DeliveryLocalWithReplicas"));
        assert!(news(None, &held).is_some() && news(Some(&held), &held).is_none());
        let refused = status(&Known { template: Template::Refused("no"), ..known(&bad, &plan) }, at(1));
        assert_eq!(reason(&refused, ConditionType::Stalled), (ConditionStatus::True, "TemplateRefused"));
        let failing = status(&Known { problem: Some("pod x: ErrImagePull"), ..known(&good, &plan) }, at(1));
        assert_eq!(reason(&failing, ConditionType::Ready), (ConditionStatus::False, "PodsNotReady"));
        let shared =
            status(&Known { conflict: Some("another sets it"), problem: Some("x"), ..known(&good, &plan) }, at(1));
        assert_eq!(reason(&shared, ConditionType::Stalled), (ConditionStatus::True, "Conflict"));
    }

    #[test]
    fn unknown_demand_keeps_what_was_seen() {
        let spec = spec(json!({ "template": {} }));
        let plan = plan(scaling::Reason::MatchesDemand, Wait::Nothing);
        let first = status(&known(&spec, &plan), at(1));
        let unknown = self::plan(scaling::Reason::DemandUnknown, Wait::Nothing);
        let second = status(&Known { before: Some(&first), demand: None, ..known(&spec, &unknown) }, at(2));
        assert_eq!((second.demand, second.running), (Some(3), Some(2)));
        assert_eq!(reason(&second, ConditionType::Scaled), (ConditionStatus::False, "DemandUnknown"));
    }

    #[test]
    fn pool_is_ready_only_with_workers_of_its_template() {
        let spec = spec(json!({ "template": {} }));
        let plan = plan(scaling::Reason::MatchesDemand, Wait::Nothing);
        for (progress, expected) in [(Progress::Starting, "WorkersStarting"), (Progress::RollingOut, "RollingOut")] {
            let shown = status(&Known { progress, ..known(&spec, &plan) }, at(1));
            assert_eq!(reason(&shown, ConditionType::Ready), (ConditionStatus::False, expected));
            assert_eq!(reason(&shown, ConditionType::Reconciling), (ConditionStatus::True, expected));
            assert_eq!(reason(&shown, ConditionType::Scaled), (ConditionStatus::True, "MatchesDemand"));
            let ready = shown.conditions.iter().find(|condition| condition.is(ConditionType::Ready)).unwrap();
            assert_eq!(ready.observed_generation, Some(1), "kubectl wait looks at it");
        }
    }

    #[test]
    fn what_is_waited_for_shows() {
        let spec = spec(json!({ "template": {} }));
        for (wait, expected) in
            [(Wait::ForDrain, "Draining"), (Wait::ForRollout, "RollingOut"), (Wait::ForOthers, "DriftTolerated")]
        {
            let plan = plan(scaling::Reason::NothingToDo, wait);
            let shown = status(&known(&spec, &plan), at(1));
            assert_eq!(reason(&shown, ConditionType::Scaled), (ConditionStatus::False, expected));
            assert_eq!(reason(&shown, ConditionType::Reconciling), (ConditionStatus::True, expected));
        }
    }
}
