//! Scan: looks through a folder or a bucket, and enqueues what is new or changed.

use std::io::{self, Read};

use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::place;
use crate::domain::failure::FailureClass;
use crate::domain::task::TaskType;
use crate::ingest::source::{FILE_MAX_BYTES, Listed, SourcePayload, Sources};
use crate::ingest::{graph, stages};
use crate::store::enqueue::{Enqueued, NewTask, enqueue};
use crate::worker::{Context, Done, Handled, Handler, NotDone};

pub struct Scan {
    pub sources: Sources,
}

const BLOCK_BYTES: usize = 64 << 10;

#[derive(Default)]
struct Counts {
    enqueued: u32,
    unchanged: u32,
    /// No document by its name, or not to be read.
    skipped: u32,
}

impl Handler for Scan {
    async fn handle(&self, context: Context) -> Handled {
        let payload: SourcePayload = context.payload()?;
        let Some(url) = payload.url.as_deref() else {
            return Err(NotDone::failed(FailureClass::InvalidDocument, "a scan needs a folder: set url"));
        };
        context.reporter().stage("preprocessing").progress(0.0);
        let files = self.sources.list(&context, url).await?;
        let mut counts = Counts::default();
        for (done, file) in files.iter().enumerate() {
            context.check()?;
            self.take(&context, file, &mut counts).await?;
            stages::report_share(&context, done + 1, files.len(), (0.0, 1.0));
            context.reporter().message(format!("{} of {} files", done + 1, files.len()));
        }
        let Counts { enqueued, unchanged, skipped } = counts;
        let result = json!({ "files": files.len(), "enqueued": enqueued, "unchanged": unchanged, "skipped": skipped });
        Ok(Done::new().with_result(result))
    }
}

impl Scan {
    async fn take(&self, context: &Context, file: &Listed, counts: &mut Counts) -> Result<(), NotDone> {
        let Listed { url, version } = file;
        let Some(task_type) = type_of(url) else {
            counts.skipped += 1;
            return Ok(());
        };
        let key = match self.key(context, url, version.as_deref()).await {
            Ok(key) => key,
            Err(NotDone::Failed { message, .. }) => {
                tracing::info!(url, %message, "a scan leaves a file out");
                counts.skipped += 1;
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let task = NewTask {
            workspace: context.task.workspace.clone(),
            payload: json!({ "url": url }),
            document_id: Some(document_of(context, url)),
            // Whatever became of it: the same content is not taken in twice.
            idempotency_key: Some(key),
            ..NewTask::new(task_type, context.task.tenant.clone())
        };
        match enqueue(context.database(), &task).await? {
            Enqueued::Created { .. } => counts.enqueued += 1,
            Enqueued::Existing { .. } | Enqueued::ConflictIdempotency { .. } | Enqueued::ConflictActive { .. } => {
                counts.unchanged += 1;
            }
            Enqueued::Invalid { message } => return Err(NotDone::failed(FailureClass::InvalidDocument, message)),
        }
        Ok(())
    }

    /// Of the file's place, and of what its store says of the content, else of the content itself.
    async fn key(&self, context: &Context, url: &str, version: Option<&str>) -> Result<String, NotDone> {
        let place = place(context);
        let mut hash = Sha256::new();
        for part in [place.tenant.as_str(), place.workspace.as_str(), url] {
            hash.update(part);
            hash.update([0]);
        }
        if let Some(version) = version {
            hash.update(version);
            return Ok(format!("scan-version:{}", hex(&hash.finalize())));
        }
        let mut file = self.sources.open(context, url, FILE_MAX_BYTES).await?;
        let hashing = spawn_blocking(move || -> io::Result<_> {
            let mut block = vec![0; BLOCK_BYTES];
            loop {
                match file.read(&mut block)? {
                    0 => return Ok(hash.finalize()),
                    read => hash.update(&block[..read]),
                }
            }
        });
        let hash = context.unless_stopped(hashing).await???;
        Ok(format!("scan:{}", hex(&hash)))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What takes a file in, by its ending.
fn type_of(url: &str) -> Option<TaskType> {
    let (_, ending) = url.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "pdf" => Some(TaskType::PdfProcessing),
        "md" | "markdown" | "txt" => Some(TaskType::Upload),
        _ => None,
    }
}

/// The same file is the same document, whatever it says today.
fn document_of(context: &Context, url: &str) -> Uuid {
    graph::hashed(&place(context), &["document", url])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_told_by_their_names() {
        let rows = [
            ("file:///a/b.pdf", Some(TaskType::PdfProcessing)),
            ("file:///a/b.PDF", Some(TaskType::PdfProcessing)),
            ("file:///a/b.md", Some(TaskType::Upload)),
            ("file:///a/b.txt", Some(TaskType::Upload)),
            ("file:///a/b.png", None),
            ("file:///a/b", None),
            ("file:///a.pdf/b", None),
            ("s3://bucket/a%20b.pdf", Some(TaskType::PdfProcessing)),
        ];
        for (url, expected) in rows {
            assert_eq!(type_of(url), expected, "{url}");
        }
    }
}
