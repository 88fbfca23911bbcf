//! A PDF becomes markdown in a process of its own, `sluice-convert`: what breaks there fails one task.

mod frames;
mod process;
mod verdict;

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::ChildStdout;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use self::frames::Frame;
pub use self::process::Converters;
use self::verdict::{End, Ended, verdict};
use super::text::{self, MARKDOWN_MAX_BYTES};
use crate::domain::failure::FailureClass;
use crate::domain::timeout::{Conversion, DocumentProfile};
use crate::worker::{Context, DocumentUpdate, NotDone};

const CONVERTER: &str = "sluice-convert";
/// JSON may take six bytes for one.
const LINE_MAX_BYTES: usize = 6 * MARKDOWN_MAX_BYTES;
/// Of what the converter complains of, for the log.
const STDERR_MAX_BYTES: u64 = 4_096;
/// Between pages; what they say of headings is theirs.
const PAGE_BREAK: &str = "\n\n";

/// How files are converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertSettings {
    pub program: PathBuf,
    /// Address space of one conversion, in MiB.
    pub memory_mib: u32,
}

impl ConvertSettings {
    /// The converter stands beside this program, where the image and the build leave it, or wherever PATH leads, unless
    /// it is given.
    pub fn new(program: Option<PathBuf>, memory_mib: u32) -> Self {
        let beside =
            || std::env::current_exe().ok().map(|this| this.with_file_name(CONVERTER)).filter(|it| it.exists());
        let program = program.or_else(beside).unwrap_or_else(|| PathBuf::from(CONVERTER));
        Self { program, memory_mib }
    }
}

/// A converted file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    pub pages: u32,
    /// Cleaned, and with something to read in it.
    pub markdown: String,
}

/// Reads the file from where it stands. Progress and the number of pages are reported; a cancel kills the converter.
pub async fn convert(context: &Context, converters: &Converters, file: File) -> Result<Converted, NotDone> {
    let mut child = converters.start_on(file)?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(NotDone::failed(FailureClass::Unknown, "the converter has no output"));
    };
    let mut gathered = Gathered::default();
    let work = async {
        let gathering = async {
            let end = gather(context, stdout, &mut gathered).await;
            if end != End::Closed {
                // All is said. If it is gone already, the better.
                let _ = child.start_kill();
            }
            end
        };
        tokio::join!(gathering, tail(stderr))
    };
    // Dropped, the child is killed.
    let (end, complaints) = context.unless_stopped(work).await?;
    let status = child.wait().await?;
    if !complaints.is_empty() {
        tracing::debug!(%complaints, %status, "the converter complains");
    }
    let ended = Ended { end, status, complaints };
    verdict(gathered.pages, text::clean(&gathered.markdown), &ended)
        .map_err(|(class, message)| NotDone::failed(class, message))
}

/// CPU time of a file with so many pages.
fn allowed(pages: u32) -> Duration {
    Duration::from_secs(DocumentProfile::new(u64::from(pages), Conversion::Text, None).convert_secs())
}

/// By the clock, on a machine that has other things to do.
fn patience(pages: u32) -> Duration {
    allowed(pages) * 4
}

/// What the converter has said so far.
#[derive(Default)]
struct Gathered {
    pages: u32,
    converted: u32,
    markdown: String,
}

async fn gather(context: &Context, stdout: ChildStdout, gathered: &mut Gathered) -> End {
    let mut lines = FramedRead::new(stdout, LinesCodec::new_with_max_length(LINE_MAX_BYTES));
    let begun = tokio::time::Instant::now();
    loop {
        let next = tokio::time::timeout_at(begun + patience(gathered.pages), lines.next()).await;
        let frame = match next {
            Err(_) => return End::OutOfTime,
            Ok(None) => return End::Closed,
            Ok(Some(Err(LinesCodecError::MaxLineLengthExceeded))) => return End::TooLong,
            Ok(Some(Err(LinesCodecError::Io(_)))) => return End::Closed,
            Ok(Some(Ok(line))) => serde_json::from_str(&line),
        };
        match frame {
            Ok(Frame::Pages(pages)) => {
                gathered.pages = pages;
                context.reporter().document(DocumentUpdate::new().pages(pages));
            }
            Ok(Frame::Page(markdown)) => {
                if gathered.markdown.len() + markdown.len() > MARKDOWN_MAX_BYTES {
                    return End::TooLong;
                }
                if !gathered.markdown.is_empty() {
                    gathered.markdown.push_str(PAGE_BREAK);
                }
                gathered.markdown.push_str(markdown.trim_end());
                gathered.converted += 1;
                let Gathered { pages, converted, .. } = gathered;
                let share = f64::from(*converted) / f64::from((*pages).max(1));
                context.reporter().progress(share).message(format!("page {converted} of {pages}"));
            }
            Ok(Frame::Done) => return End::Done,
            Ok(Frame::Failed { problem, message }) => return End::Failed(problem, text::clean(&message)),
            Err(_) => return End::Closed,
        }
    }
}

/// The first of what it complains of; the rest is read, so that it need not wait, and forgotten.
async fn tail(mut stderr: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    // What cannot be read is not worth more than what was.
    let _ = (&mut stderr).take(STDERR_MAX_BYTES).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    text::from_bytes(&kept).trim().to_owned()
}
