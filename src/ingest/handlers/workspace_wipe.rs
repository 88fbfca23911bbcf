//! WorkspaceWipe: removes all documents of a workspace, a few in each transaction; each is there whole or not at all.

use serde::Deserialize;
use serde_json::json;

use super::place;
use crate::domain::failure::FailureClass;
use crate::ingest::publish;
use crate::store::ingest::removal;
use crate::store::leases::{Report, ReportOutcome, report};
use crate::worker::{Context, Done, Handled, Handler, NotDone};

/// Short enough that publishers of other documents need not wait for long.
const BATCH_DOCUMENTS: u32 = 20;

pub struct WorkspaceWipe;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {}

impl Handler for WorkspaceWipe {
    async fn handle(&self, context: Context) -> Handled {
        let Payload {} = context.payload()?;
        let place = place(&context);
        if place.workspace.is_empty() {
            let message = "a wipe must name its workspace";
            return Err(NotDone::failed(FailureClass::InvalidDocument, message));
        }
        context.reporter().stage("cleaning");
        let total = removal::count_documents(context.database(), &place).await?;
        let mut gone = 0_u64;
        loop {
            context.check()?;
            let mut transaction = context.begin().await?;
            publish::lock_graph(&context, &mut transaction, &place).await?;
            let documents = removal::documents(&mut transaction, &place, BATCH_DOCUMENTS).await?;
            if documents.is_empty() {
                // The graph is held until the end is written, which takes the documents' rows too: nobody publishes between.
                return Ok(Done::new().with_result(json!({ "documents": gone })).publish(transaction));
            }
            for document_id in &documents {
                removal::drop_document(&mut transaction, &place, *document_id).await?;
            }
            gone += u64::try_from(documents.len())?;
            let message = format!("{gone} documents removed");
            let progress = Report { progress: Some(share(gone, total)), message: Some(&message), ..Report::default() };
            // Said in the same transaction, so that an attempt that was cancelled or lost removes nothing more.
            if report(&mut transaction, context.task.attempt, &progress).await? != ReportOutcome::Ok {
                transaction.rollback().await?;
                return Err(NotDone::Stopped);
            }
            transaction.commit().await?;
        }
    }
}

fn share(done: u64, of: u64) -> f64 {
    let number = |number| u32::try_from(number).map_or(f64::from(u32::MAX), f64::from);
    (number(done) / number(of.max(1))).min(1.0)
}
