//! Questions to the database from many looks at once, put together while the one before is on its way: no look waits for
//! a batch to fill, and a burst costs few statements.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::controller::Fault;
use crate::store::StoreError;

/// What one statement may carry.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub items: usize,
    pub bytes: usize,
    /// Statements on their way at once: each holds a connection.
    pub calls: usize,
}

/// Asked questions; more wait with whoever asks.
const WAITING_MAX: usize = 1_024;

struct Item<Q, A> {
    question: Q,
    answer: oneshot::Sender<Result<A, Arc<StoreError>>>,
}

/// Cheap to clone.
pub struct Batcher<Q, A> {
    sender: mpsc::Sender<Item<Q, A>>,
}

impl<Q: Send + Sync + 'static, A: Send + 'static> Batcher<Q, A> {
    /// `call` answers all questions in their order, or fails for all.
    pub fn start<F, Fut>(limits: Limits, weigh: fn(&Q) -> usize, call: F) -> Self
    where
        F: Fn(Arc<Vec<Q>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(collect(limits, weigh, Arc::new(call), receiver));
        Self { sender }
    }

    /// [`Fault::Stale`] if nobody answers any more.
    pub async fn ask(&self, question: Q) -> Result<A, Fault> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(Item { question, answer }).await.map_err(|_| Fault::Stale)?;
        answered.await.map_err(|_| Fault::Stale)?.map_err(Fault::Shared)
    }

    /// The same for whoever need not know: what is lost will be said again.
    pub fn tell(&self, question: Q) {
        let (answer, _) = oneshot::channel();
        // Full: as if it were lost.
        let _ = self.sender.try_send(Item { question, answer });
    }
}

async fn collect<Q, A, F, Fut>(
    limits: Limits,
    weigh: fn(&Q) -> usize,
    call: Arc<F>,
    mut receiver: mpsc::Receiver<Item<Q, A>>,
) where
    Q: Send + Sync + 'static,
    A: Send + 'static,
    F: Fn(Arc<Vec<Q>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(limits.calls));
    // A permit first: what comes while all are taken travels together.
    while let Ok(permit) = permits.clone().acquire_owned().await {
        let Some(first) = receiver.recv().await else { return };
        let mut bytes = weigh(&first.question);
        let mut items = vec![first];
        while items.len() < limits.items && bytes < limits.bytes {
            let Ok(item) = receiver.try_recv() else { break };
            bytes += weigh(&item.question);
            items.push(item);
        }
        let call = call.clone();
        tokio::spawn(async move {
            answer(&*call, items).await;
            drop(permit);
        });
    }
}

async fn answer<Q, A, F, Fut>(call: &F, items: Vec<Item<Q, A>>)
where
    F: Fn(Arc<Vec<Q>>) -> Fut,
    Fut: Future<Output = Result<Vec<A>, StoreError>>,
{
    let (questions, answers): (Vec<_>, Vec<_>) = items.into_iter().map(|item| (item.question, item.answer)).unzip();
    let questions = Arc::new(questions);
    match call(questions.clone()).await {
        Ok(answered) => {
            for (answer, sender) in answered.into_iter().zip(answers) {
                // Whoever asked may be gone.
                let _ = sender.send(Ok(answer));
            }
        }
        // One question that the database cannot take must not cost the others their answers.
        Err(StoreError::BadInput { .. }) if answers.len() > 1 => {
            let Some(questions) = Arc::into_inner(questions) else { return };
            for (question, sender) in questions.into_iter().zip(answers) {
                let answered = call(Arc::new(vec![question])).await;
                if let Some(answer) = answered.map(|mut answers| answers.pop()).map_err(Arc::new).transpose() {
                    let _ = sender.send(answer);
                }
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for sender in answers {
                let _ = sender.send(Err(error.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::join_all;

    use super::*;

    const LIMITS: Limits = Limits { items: 3, bytes: 100, calls: 1 };

    fn bad_input() -> StoreError {
        StoreError::BadInput { cause: "no".to_owned(), driver: None }
    }

    #[tokio::test]
    async fn each_question_gets_its_own_answer_and_batches_are_bounded() {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = sizes.clone();
        let batcher = Batcher::start(
            LIMITS,
            |_| 1,
            move |questions: Arc<Vec<u32>>| {
                seen.lock().unwrap().push(questions.len());
                async move { Ok(questions.iter().map(|question| question * 2).collect()) }
            },
        );

        let answers = join_all((0..10).map(|question| batcher.ask(question))).await;

        let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..10).map(|question| question * 2).collect::<Vec<_>>());
        assert!(sizes.lock().unwrap().iter().all(|size| *size <= 3));
    }

    #[tokio::test]
    async fn one_bad_question_costs_the_others_nothing() {
        let batcher = Batcher::start(
            LIMITS,
            |_| 1,
            move |questions: Arc<Vec<u32>>| async move {
                if questions.contains(&1) { Err(bad_input()) } else { Ok(questions.to_vec()) }
            },
        );

        let answers = join_all((0..3).map(|question| batcher.ask(question))).await;

        assert!(matches!(&answers[..], [Ok(0), Err(Fault::Shared(_)), Ok(2)]), "{answers:?}");
    }
}
