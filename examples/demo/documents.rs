//! What is ingested: the documents, the tenant that each belongs to, and the resource that asks for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use url::Url;

use crate::tools::run;

pub const TENANTS: [&str; 2] = ["acme", "globex"];
/// The one that is cancelled; it belongs to the tenant with the lower cap, and goes first there.
pub const LONG: (&str, &str) = ("globex", "harbour-archive");
/// What is written for the run, with its days: long enough to be seen at work, and to be stopped.
const WRITTEN: [((&str, &str), u32); 2] = [(LONG, 800), (("acme", "harbour-summer"), 184)];
/// A screen has so many lines.
const DOCUMENTS_MAX: usize = 40;
const NAME_MAX: usize = 50;
const TASK: &str = include_str!("3-task.yaml");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    pub tenant: &'static str,
    /// Of the resource.
    pub name: String,
    /// Below the directory that the workers see.
    pub file: String,
    pub priority: i32,
}

/// Copies what is to be ingested to where the workers read it, and shares it out.
pub fn collect(from: &Path, into: &Path) -> Result<Vec<Document>> {
    let entries = fs::read_dir(from).with_context(|| format!("the documents in {} cannot be read", from.display()))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    let names = files.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect();
    let documents = share_out(names);
    if documents.is_empty() {
        bail!("there is no PDF and no markdown in {}: name another directory with DOCS=…", from.display());
    }
    for Document { file, .. } in &documents {
        fs::copy(from.join(file), into.join(file)).with_context(|| format!("{file} cannot be copied"))?;
        // Workers are another user.
        fs::set_permissions(into.join(file), fs::Permissions::from_mode(0o644))?;
    }
    Ok(documents)
}

/// Documents of some hundred pages, of the same kind as the others.
pub fn write_long(examples: &Path, into: &Path, as_pdf: bool) -> Result<Vec<Document>> {
    WRITTEN
        .iter()
        .map(|((tenant, name), days)| {
            let file = format!("{name}.{}", if as_pdf { "pdf" } else { "md" });
            let target = into.join(&file);
            let text = run(Command::new("python3").arg(examples.join("logbook.py")).arg(days.to_string()), None)?;
            if as_pdf {
                run(Command::new("python3").arg(examples.join("typeset.py")).arg("-").arg(&target), Some(&text))?;
            } else {
                fs::write(&target, text)?;
            }
            fs::set_permissions(&target, fs::Permissions::from_mode(0o644))?;
            Ok(Document { tenant, name: (*name).to_owned(), file, priority: 10 })
        })
        .collect()
}

impl Document {
    pub fn manifest(&self) -> String {
        let Self { tenant, name, file, priority } = self;
        let values = [
            ("${NAME}", name.as_str()),
            ("${TENANT}", tenant),
            ("${TYPE}", if is_pdf(file) { "PdfProcessing" } else { "Upload" }),
            ("${PRIORITY}", &priority.to_string()),
            ("${FILE}", &path_segment(file)),
        ];
        values.into_iter().fold(TASK.to_owned(), |text, (name, value)| text.replace(name, value))
    }
}

pub fn is_pdf(file: &str) -> bool {
    file.to_ascii_lowercase().ends_with(".pdf")
}

/// The PDFs, or the markdown where there are none: to the tenants in turn, in the order of their names.
fn share_out(mut files: Vec<String>) -> Vec<Document> {
    files.sort();
    let has_pdf = files.iter().any(|file| is_pdf(file));
    let is_wanted = |file: &String| if has_pdf { is_pdf(file) } else { file.to_ascii_lowercase().ends_with(".md") };
    let wanted = files.into_iter().filter(is_wanted).take(DOCUMENTS_MAX);
    let mut documents: Vec<Document> = Vec::new();
    for (number, file) in wanted.enumerate() {
        let name = resource_name(&file);
        let is_taken = WRITTEN.iter().any(|((_, written), _)| *written == name)
            || documents.iter().any(|document| document.name == name);
        let name = if is_taken { format!("{name}-{number}") } else { name };
        documents.push(Document { tenant: TENANTS[number % TENANTS.len()], name, file, priority: 0 });
    }
    documents
}

/// What Kubernetes takes for a name.
fn resource_name(file: &str) -> String {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let plain = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let plain: String = plain.take(NAME_MAX).collect();
    let name = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    if name.is_empty() { "document".to_owned() } else { name }
}

/// As it stands in a URL.
fn path_segment(file: &str) -> String {
    let mut url = Url::parse("file:///").expect("a URL");
    url.path_segments_mut().expect("a URL with a path").push(file);
    url.path().trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(files: &[&str]) -> Vec<(&'static str, String)> {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        share_out(files).into_iter().map(|document| (document.tenant, document.name)).collect()
    }

    #[test]
    fn pdfs_go_to_the_tenants_in_turn_and_markdown_only_where_there_are_none() {
        let pdfs = shared(&["b.pdf", "notes.md", "A.PDF", "c.pdf"]);
        assert_eq!(pdfs, [("acme", "a".to_owned()), ("globex", "b".to_owned()), ("acme", "c".to_owned())]);
        assert_eq!(shared(&["b.txt", "notes.md"]), [("acme", "notes".to_owned())]);
    }

    #[test]
    fn names_are_what_kubernetes_takes_and_none_is_used_twice() {
        let names: Vec<_> = shared(&["Über uns (2).pdf", "über uns 2.pdf", "--.pdf", "harbour-archive.pdf"])
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["document", "harbour-archive-1", "ber-uns-2", "ber-uns-2-3"]);
    }

    #[test]
    fn manifest_names_the_file_as_a_url_does() {
        let document = Document { tenant: "acme", name: "a-b".to_owned(), file: "a b #1.pdf".to_owned(), priority: 0 };
        let manifest = document.manifest();
        assert!(manifest.contains("url: file:///documents/a%20b%20%231.pdf\n"), "{manifest}");
        assert!(manifest.contains("type: PdfProcessing\n") && !manifest.contains("${"), "{manifest}");
    }

    #[test]
    fn pdfs_of_the_examples_are_what_typeset_makes_of_their_text() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/documents");
        let scratch = tempfile::tempdir().expect("a directory");
        let made = scratch.path().join("made.pdf");
        let mut count = 0;
        for file in fs::read_dir(&directory).expect("the documents").flatten().map(|entry| entry.path()) {
            if file.extension().is_none_or(|extension| extension != "pdf") {
                continue;
            }
            let mut typeset = Command::new("python3");
            typeset.arg(directory.join("typeset.py")).arg(file.with_extension("md")).arg(&made);
            run(&mut typeset, None).expect("a PDF");
            assert!(fs::read(&file).expect("a PDF") == fs::read(&made).expect("a PDF"), "{}", file.display());
            count += 1;
        }
        assert!(count >= 3, "{count}");
    }
}
