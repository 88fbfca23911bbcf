//! Settings of what a worker may read.

use std::path::PathBuf;

use clap::Args;

use super::ValueError;

/// Sources of documents.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sources")]
pub struct SourceArgs {
    /// The directory below which file:// sources are read, without following links [default: no files are read]
    #[arg(long, env = "SLUICE_FILE_ROOT", value_name = "DIRECTORY", value_parser = parse_directory)]
    pub file_root: Option<PathBuf>,
}

fn parse_directory(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(ValueError::Directory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_an_absolute_path() {
        assert_eq!(parse_directory("/data"), Ok(PathBuf::from("/data")));
        for given in ["data", "./data", "~", ""] {
            assert_eq!(parse_directory(given), Err(ValueError::Directory), "{given:?}");
        }
    }
}
