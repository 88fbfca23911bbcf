//! The PDFs that are converted: those of `../shared/corpus`, or our own few where it is not there.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::common::report::Report;

pub struct Corpus {
    pub folder: PathBuf,
    pub files: Vec<PathBuf>,
}

impl Corpus {
    pub fn find(report: &mut Report) -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let others = root.join("../shared/corpus/pdf");
        let folder = if others.exists() {
            others
        } else {
            report.note(
                "the corpus of other people's PDFs is not at ../shared/corpus: examples/documents stands for it"
                    .to_owned(),
            );
            root.join("examples/documents")
        };
        // The worker follows no link below its root.
        let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "pdf") {
                files.push(path);
            }
        }
        files.sort();
        anyhow::ensure!(!files.is_empty(), "there is no PDF in {}", folder.display());
        Ok(Self { folder, files })
    }
}
