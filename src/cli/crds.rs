//! `sluice crds`: the definitions of the custom resources, to be applied or kept in a repository.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::api;

#[derive(Debug, Args)]
pub(super) struct CrdsArgs {
    /// Write one file for each kind into this directory instead of printing them
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

pub(super) fn run(args: &CrdsArgs) -> anyhow::Result<ExitCode> {
    let mut documents = Vec::new();
    for definition in api::all_crds()? {
        let name = definition.metadata.name.clone().context("a definition has no name")?;
        documents.push((name, serde_saphyr::to_string(&api::plain_json(&definition)?)?));
    }
    match &args.output_dir {
        None => {
            let stream: String = documents.iter().map(|(_, text)| format!("---\n{text}")).collect();
            match io::stdout().write_all(stream.as_bytes()) {
                // Whoever reads has seen enough, such as `head`.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                written => written.context("cannot print the definitions")?,
            }
        }
        Some(directory) => {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
            for (name, text) in documents {
                let file = directory.join(format!("{name}.yaml"));
                let text = format!("# Made by `sluice crds`: change src/api, then run make generate.\n{text}");
                fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
