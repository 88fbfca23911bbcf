//! What it means how a converter ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::Converted;
use super::frames::Problem;
use crate::domain::failure::FailureClass;
use crate::ingest::text::{self, MARKDOWN_MAX_BYTES};

/// How its output ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Done,
    Failed(Problem, String),
    /// Without a last word: it died.
    Closed,
    OutOfTime,
    TooLong,
}

pub struct Ended {
    pub end: End,
    /// Says something only of a converter that died by itself.
    pub status: ExitStatus,
    pub complaints: String,
}

/// Numbers of signals, the same on every Linux.
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;

/// What Rust says when memory is at an end.
const OUT_OF_MEMORY: &str = "memory allocation of";
/// What a form in Adobe's own format shows to every other reader, instead of itself.
const PLACEHOLDER: [&str; 2] = ["Please wait...", "your PDF viewer may not be able to display this type of document"];

pub fn verdict(pages: u32, markdown: String, ended: &Ended) -> Result<Converted, (FailureClass, String)> {
    match &ended.end {
        End::Done => readable(pages, markdown),
        End::Failed(problem, message) => Err((class_of(*problem), message.clone())),
        End::OutOfTime => {
            Err((FailureClass::TimeoutPhaseConvert, format!("the conversion of {pages} pages took too long")))
        }
        End::TooLong => {
            let message = format!("the PDF has more than {MARKDOWN_MAX_BYTES} bytes of text: split it");
            Err((FailureClass::DocumentTooLarge, message))
        }
        End::Closed => Err(death(ended)),
    }
}

fn readable(pages: u32, markdown: String) -> Result<Converted, (FailureClass, String)> {
    let no_text = |message: &str| Err((FailureClass::NoTextLayer, message.to_owned()));
    if !text::has_content(&markdown) {
        return no_text("the PDF has pages and no text, as scans have: recognise its text (OCR) first");
    }
    if PLACEHOLDER.iter().all(|words| markdown.contains(words)) {
        return no_text("the PDF is a form that only its own program can show: print it to a PDF");
    }
    Ok(Converted { pages, markdown })
}

fn class_of(problem: Problem) -> FailureClass {
    match problem {
        Problem::Password => FailureClass::PasswordRequired,
        Problem::NoPages => FailureClass::EmptyDocument,
        Problem::Invalid => FailureClass::InvalidDocument,
    }
}

fn death(ended: &Ended) -> (FailureClass, String) {
    let Ended { status, complaints, .. } = ended;
    match status.signal() {
        Some(SIGXCPU) => (
            FailureClass::DocumentTooLarge,
            "the PDF takes more computing time than its pages may: split it".to_owned(),
        ),
        Some(SIGABRT) if complaints.contains(OUT_OF_MEMORY) => {
            (FailureClass::DocumentTooLarge, "the PDF takes more memory than one conversion may: split it".to_owned())
        }
        // By the kernel, for the memory of all, or by somebody: another try may do.
        Some(SIGKILL) => (FailureClass::Unknown, "the converter was killed".to_owned()),
        Some(signal) => {
            (FailureClass::InvalidDocument, format!("the PDF breaks the converter (signal {signal}): it is malformed"))
        }
        None => (FailureClass::Unknown, format!("the converter ended early ({status}): {complaints}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(end: End, status: i32, complaints: &str) -> Ended {
        Ended { end, status: ExitStatus::from_raw(status), complaints: complaints.to_owned() }
    }

    fn class(markdown: &str, ended: &Ended) -> Result<u32, FailureClass> {
        verdict(3, markdown.to_owned(), ended).map(|converted| converted.pages).map_err(|(class, _)| class)
    }

    #[test]
    fn each_end_has_its_class() {
        let failed = |problem| End::Failed(problem, "why".to_owned());
        let rows = [
            (ended(End::Done, 0, ""), "# A", Ok(3)),
            (ended(End::Done, 0, ""), " \n\n***", Err(FailureClass::NoTextLayer)),
            (
                ended(End::Done, 0, ""),
                "Please wait...\nIf this stays, your PDF viewer may not be able to display this type of document.",
                Err(FailureClass::NoTextLayer),
            ),
            (ended(failed(Problem::Password), 0, ""), "", Err(FailureClass::PasswordRequired)),
            (ended(failed(Problem::NoPages), 0, ""), "", Err(FailureClass::EmptyDocument)),
            (ended(failed(Problem::Invalid), 0, ""), "# A", Err(FailureClass::InvalidDocument)),
            (ended(End::TooLong, SIGKILL, ""), "# A", Err(FailureClass::DocumentTooLarge)),
            (ended(End::OutOfTime, SIGKILL, ""), "# A", Err(FailureClass::TimeoutPhaseConvert)),
            (ended(End::Closed, SIGXCPU, ""), "# A", Err(FailureClass::DocumentTooLarge)),
            (
                ended(End::Closed, SIGABRT, "memory allocation of 9 bytes failed"),
                "",
                Err(FailureClass::DocumentTooLarge),
            ),
            (ended(End::Closed, SIGABRT, "thread has overflowed its stack"), "", Err(FailureClass::InvalidDocument)),
            (ended(End::Closed, 11, ""), "# A", Err(FailureClass::InvalidDocument)),
            (ended(End::Closed, SIGKILL, ""), "# A", Err(FailureClass::Unknown)),
            (ended(End::Closed, 256, "no"), "# A", Err(FailureClass::Unknown)),
        ];
        for (ended, markdown, expected) in rows {
            assert_eq!(class(markdown, &ended), expected, "{:?} {}", ended.end, ended.status);
        }
    }
}
