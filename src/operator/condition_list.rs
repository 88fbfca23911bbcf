//! The conditions of a status: a time moves only when its condition's status does, and others' conditions stay.

use crate::api::conditions::{ConditionType, Reason};
use crate::api::{Condition, ConditionStatus, Time};

/// As the schemas allow.
const CONDITIONS_MAX: usize = 16;

/// How a resource stands, for tools that know nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// What the spec asks for is so.
    Ready { reason: Reason, message: String },
    /// On its way.
    Reconciling { reason: Reason, message: String },
    /// It does not get there by itself.
    Stalled { reason: Reason, message: String },
}

pub struct ConditionList<'a> {
    before: &'a [Condition],
    generation: Option<i64>,
    now: Time,
    conditions: Vec<Condition>,
}

impl<'a> ConditionList<'a> {
    pub fn new(before: &'a [Condition], generation: Option<i64>, now: Time) -> Self {
        Self { before, generation, now, conditions: Vec::new() }
    }

    pub fn set(&mut self, type_: ConditionType, status: ConditionStatus, reason: Reason, message: &str) {
        let before = self.before.iter().find(|condition| condition.is(type_));
        let since = before.filter(|before| before.status == status).map_or(self.now, |same| same.last_transition_time);
        self.conditions.push(Condition::new(type_, status, reason, message, self.generation, since));
    }

    /// Keeps one as it was, if it was there.
    pub fn keep(&mut self, type_: ConditionType) {
        self.conditions.extend(self.before.iter().find(|condition| condition.is(type_)).cloned());
    }

    /// `Ready`, `Reconciling` and `Stalled`.
    pub fn stand(&mut self, standing: &Standing) {
        let (ready, reconciling, stalled) = match standing {
            Standing::Ready { .. } => (ConditionStatus::True, ConditionStatus::False, ConditionStatus::False),
            Standing::Reconciling { .. } => (ConditionStatus::False, ConditionStatus::True, ConditionStatus::False),
            Standing::Stalled { .. } => (ConditionStatus::False, ConditionStatus::False, ConditionStatus::True),
        };
        let (Standing::Ready { reason, message }
        | Standing::Reconciling { reason, message }
        | Standing::Stalled { reason, message }) = standing;
        self.set(ConditionType::Ready, ready, *reason, message);
        self.set(ConditionType::Reconciling, reconciling, *reason, message);
        self.set(ConditionType::Stalled, stalled, *reason, message);
    }

    pub fn finish(self) -> Vec<Condition> {
        let Self { before, conditions: mut all, .. } = self;
        let is_ours = |condition: &Condition| ConditionType::ALL.iter().any(|type_| condition.is(*type_));
        all.extend(before.iter().filter(|condition| !is_ours(condition)).cloned());
        all.truncate(CONDITIONS_MAX);
        all
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    fn at(secs: i64) -> Time {
        Time::from(DateTime::from_timestamp(secs, 0).unwrap())
    }

    #[test]
    fn time_moves_with_the_status_alone() {
        let mut first = ConditionList::new(&[], Some(1), at(1));
        first.set(ConditionType::Held, ConditionStatus::False, Reason::NotHeld, "a");
        let first = first.finish();

        let mut same = ConditionList::new(&first, Some(2), at(2));
        same.set(ConditionType::Held, ConditionStatus::False, Reason::NotHeld, "b");
        let same = same.finish();
        assert_eq!((same[0].last_transition_time, same[0].message.as_str()), (at(1), "b"));

        let mut other = ConditionList::new(&same, Some(2), at(3));
        other.set(ConditionType::Held, ConditionStatus::True, Reason::HeldByPolicy, "b");
        assert_eq!(other.finish()[0].last_transition_time, at(3));
    }

    #[test]
    fn conditions_of_others_stay_and_ours_go_when_they_are_not_set() {
        let theirs = Condition { type_: "example.com/Checked".to_owned(), ..ours() };
        let before = [ours(), theirs.clone()];
        assert_eq!(ConditionList::new(&before, None, at(2)).finish(), [theirs]);
    }

    fn ours() -> Condition {
        Condition::new(ConditionType::Held, ConditionStatus::True, Reason::LaneHeld, "", None, at(1))
    }
}
