//! What a task has spent, all its attempts together: told with its progress, and held against its budget.

use super::Provider;
use crate::domain::failure::FailureClass;
use crate::domain::provider::{Budget, Prices, Spent, Usage};
use crate::store::status::task_statuses_without_content;
use crate::worker::{Context, NotDone};

pub struct Spending {
    terms: Option<(Prices, Budget)>,
    spent: Spent,
}

impl Spending {
    /// With what earlier attempts have spent.
    pub async fn begin(context: &Context, provider: &Provider) -> Result<Self, NotDone> {
        let terms = provider.terms;
        let mut spent = Spent::default();
        if terms.is_some() {
            let ids = [context.task.attempt.track_id];
            for status in task_statuses_without_content(context.database(), &ids).await? {
                spent = Spent { tokens: u64::try_from(status.tokens).unwrap_or(0), cost: status.cost };
            }
        }
        Ok(Self { terms, spent })
    }

    /// Before something is asked that will use about so much.
    pub fn allow(&self, next: Usage) -> Result<(), NotDone> {
        let refusal = self.terms.and_then(|(prices, budget)| budget.refusal(self.spent, next, prices));
        match refusal {
            Some(refusal) => {
                let message =
                    format!("{refusal}: split the document, or raise the budget of its pool (SLUICE_PROVIDER_TASK_…)");
                Err(NotDone::failed(FailureClass::DocumentTooLarge, message))
            }
            None => Ok(()),
        }
    }

    pub fn add(&mut self, context: &Context, usage: Usage) {
        if let Some((prices, _)) = self.terms.filter(|_| usage != Usage::default()) {
            self.spent.add(usage, prices);
            context.reporter().cost(self.spent.cost, self.spent.tokens);
        }
    }
}
