//! PDFs through a real worker and the real converter: the corpus, files that are made to break it, and a cancel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::control::{CancelOutcome, Request, Scope, cancel};
use sluice::store::enqueue::NewTask;
use sluice::store::status::TaskStatus;
use uuid::Uuid;

use crate::bed::{Bed, TENANT, task};
use crate::common::pdf::pdf;
use crate::folder::Folder;

fn convert_of(path: &Path) -> NewTask {
    let document_id = Some(Uuid::new_v4());
    let payload = json!({ "url": format!("file://{}", path.display()) });
    NewTask { document_id, ..task(TaskType::PdfProcessing, TENANT, payload) }
}

fn long_pdf(pages: usize) -> Vec<u8> {
    pdf(&(1..=pages).map(|page| format!("On page {page} the harbour master counts {page} ships.")).collect::<Vec<_>>())
}

/// What expected.tsv says of a file.
struct Expected {
    file: String,
    class: Option<FailureClass>,
    pages: Option<i64>,
    characters: usize,
}

fn corpus() -> Option<(PathBuf, Vec<Expected>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus");
    let Ok(table) = fs::read_to_string(folder.join("expected.tsv")) else {
        eprintln!("skipped: the corpus of other people's PDFs is not at ../shared/corpus");
        return None;
    };
    let rows = table.lines().skip(1).map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        Expected {
            file: columns[0].to_owned(),
            class: (columns[1] == "failed").then(|| FailureClass::parse(columns[2]).expect("a class")),
            pages: columns[3].parse().ok(),
            characters: columns[4].parse().expect("a number"),
        }
    });
    Some((folder.canonicalize().expect("it is there").join("pdf"), rows.collect()))
}

async fn pages_of(bed: &Bed, ended: &TaskStatus) -> Option<i64> {
    let document = ended.document.as_ref().expect("a document").document_id;
    let pages = format!("select coalesce(pages, -1)::bigint from sluice.documents where document_id = '{document}'");
    Some(bed.number(&pages).await).filter(|pages| *pages >= 0)
}

#[tokio::test]
async fn every_file_of_the_corpus_ends_as_it_must() {
    let Some((folder, rows)) = corpus() else { return };
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.clone());
    let worker = bed.work();
    let mut ids = Vec::new();
    for row in &rows {
        ids.push(bed.enqueue(convert_of(&folder.join(&row.file))).await);
    }

    let mut wrong = Vec::new();
    for (row, id) in rows.iter().zip(ids) {
        let ended = bed.until_ended(id).await;
        let pages = pages_of(&bed, &ended).await;
        if ended.failure_class != row.class || row.pages.is_some_and(|expected| pages != Some(expected)) {
            wrong.push(format!("{}: {:?}, {:?}, pages {pages:?}", row.file, ended.failure_class, ended.error));
        }
        if row.class.is_none() {
            let inserted = bed.follow_on(id).await;
            let document = ended.document.expect("a document").document_id;
            let counted = format!(
                "select length(regexp_replace(markdown, '\\s', '', 'g'))::bigint from ingest.contents where document_id = '{document}'"
            );
            let characters = usize::try_from(bed.number(&counted).await).expect("no negative length");
            if inserted.state != State::Completed || characters * 10 < row.characters * 9 {
                wrong
                    .push(format!("{}: {characters} of {} characters, {:?}", row.file, row.characters, inserted.error));
            }
        } else if ended.attempt != 1 {
            wrong.push(format!("{}: {} attempts", row.file, ended.attempt));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    worker.stop().await;
}

#[tokio::test]
async fn files_that_are_made_to_break_it_fail_once_and_break_nothing() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus/hostile.py");
    if !script.exists() {
        eprintln!("skipped: the maker of hostile PDFs is not at ../shared/corpus");
        return;
    }
    let folder = Folder::new();
    let made = Command::new("python3").arg(&script).arg(&folder.0).status().expect("python3 runs");
    assert!(made.success());
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    let worker = bed.work();
    let mut files: Vec<_> = fs::read_dir(&folder.0).expect("files").map(|entry| entry.expect("one").path()).collect();
    files.sort();
    let mut ids = Vec::new();
    for file in &files {
        ids.push(bed.enqueue(convert_of(file)).await);
    }

    let mut wrong = Vec::new();
    for (file, id) in files.iter().zip(ids) {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name");
        let ended = bed.until_ended(id).await;
        let is_permanent = ended.failure_class.is_some_and(FailureClass::is_permanent);
        let is_right = match name {
            "ok" | "nul_tounicode" | "one_line_3MB" | "deep_array" => ended.state == State::Completed,
            "form_self_recursion" => ended.state == State::Completed || is_permanent,
            _ => ended.state == State::Failed && is_permanent,
        };
        if !is_right || ended.attempt != 1 {
            wrong.push(format!("{name}: {} {:?} {:?}", ended.state, ended.failure_class, ended.error));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    worker.stop().await;
}

#[tokio::test]
async fn pdf_becomes_a_document_with_a_title_and_its_pages() {
    let folder = Folder::new();
    fs::write(folder.0.join("Harbour log.pdf"), long_pdf(3)).expect("a file");
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    let worker = bed.work();

    let url = format!("file://{}/Harbour%20log.pdf", folder.0.display());
    let document_id = Some(Uuid::new_v4());
    let converted =
        bed.done(NewTask { document_id, ..task(TaskType::PdfProcessing, TENANT, json!({ "url": url })) }).await;
    assert_eq!(converted.state, State::Completed, "{:?}", converted.error);
    let document = "select pdf_status || ' ' || pages || ' ' || status from sluice.documents";
    bed.follow_on(converted.track_id).await;

    assert_eq!(bed.texts(document).await.into_iter().collect::<Vec<_>>(), ["completed 3 completed"]);
    assert_eq!(
        bed.texts("select title from ingest.document_versions").await.first().map(String::as_str),
        Some("Harbour log")
    );
    let content = bed.texts("select content from ingest.chunks").await.into_iter().collect::<String>();
    assert!((1..=3).all(|page| content.contains(&format!("counts {page} ships"))), "{content}");
    worker.stop().await;
}

#[tokio::test]
async fn cancelled_conversion_ends_its_converter_and_leaves_nothing() {
    let folder = Folder::new();
    fs::write(folder.0.join("long.pdf"), long_pdf(20_000)).expect("a file");
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    let worker = bed.work_in_process();
    let id = bed.enqueue(convert_of(&folder.0.join("long.pdf"))).await;
    // The second one waits for the next file.
    bed.until("it converts", async || worker.children() == ["sluice-convert"; 2]).await;

    let outcome = cancel(&bed.operator, id, Request::default(), Scope::default()).await.expect("an answer");
    assert_eq!(outcome, CancelOutcome::Stopping);
    assert_eq!(bed.until_ended(id).await.state, State::Cancelled);

    assert_eq!(worker.children(), ["sluice-convert"]);
    assert_eq!(bed.rows_of("contents", TENANT).await, 0);
    assert_eq!(
        bed.texts("select pdf_status from sluice.documents").await.first().map(String::as_str),
        Some("cancelled")
    );
}

#[tokio::test]
async fn worker_without_a_converter_says_what_to_set() {
    let folder = Folder::new();
    fs::write(folder.0.join("a.pdf"), long_pdf(1)).expect("a file");
    let mut bed = Bed::new().await;
    bed.sources.file_root = Some(folder.0.clone());
    bed.convert.program = folder.0.join("none");
    let worker = bed.work();

    let mut once = convert_of(&folder.0.join("a.pdf"));
    once.max_attempts = Some(1);
    let ended = bed.done(once).await;

    assert_eq!(ended.state, State::Failed);
    assert!(ended.error.as_deref().is_some_and(|error| error.contains("SLUICE_CONVERTER")), "{:?}", ended.error);
    worker.stop().await;
}
