//! Settings of what a worker may read, and what makes text of it.

use std::path::PathBuf;

use clap::Args;
use ipnet::IpNet;

use super::{ValueError, whole};

/// Sources of documents.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sources")]
pub struct SourceArgs {
    /// The directory below which file:// sources are read, without following links [default: no files are read]
    #[arg(long, env = "SLUICE_FILE_ROOT", value_name = "DIRECTORY", value_parser = parse_directory)]
    pub file_root: Option<PathBuf>,

    /// Networks that https:// sources and the endpoints of object stores may be in although they are not public, as in
    /// 10.1.0.0/16,fd00::/8 [default: none]
    #[arg(long, env = "SLUICE_ALLOWED_NETWORKS", value_name = "NETWORKS", value_delimiter = ',',
          value_parser = parse_network)]
    pub allowed_networks: Vec<IpNet>,

    /// The program that makes text of PDFs [default: sluice-convert, beside this one]
    #[arg(long, env = "SLUICE_CONVERTER", value_name = "PROGRAM", value_parser = parse_program)]
    pub converter: Option<PathBuf>,

    /// Address space of one conversion, in MiB, between 128 and 65536; PDFs that need more fail as too large
    #[arg(long, env = "SLUICE_CONVERTER_MEMORY_MIB", default_value = "1024", value_name = "MIB", value_parser = parse_memory)]
    pub converter_memory_mib: u32,
}

/// What other programs are told, by names of their own; there are secrets among the values.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn parse_directory(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(ValueError::Directory) }
}

fn parse_network(text: &str) -> Result<IpNet, ValueError> {
    text.trim().parse().map_err(|_| ValueError::Network)
}

fn parse_program(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(ValueError::Program) }
}

fn parse_memory(text: &str) -> Result<u32, ValueError> {
    whole(text, 128, 65_536)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_length() {
        assert_eq!(parse_network(" 10.1.0.0/16"), Ok("10.1.0.0/16".parse().unwrap()));
        for given in ["10.1.0.0", "10.1.0.0/33", "example.com", ""] {
            assert_eq!(parse_network(given), Err(ValueError::Network), "{given:?}");
        }
    }

    #[test]
    fn a_converter_is_a_program_with_memory() {
        assert_eq!(parse_program("/opt/convert"), Ok(PathBuf::from("/opt/convert")));
        assert_eq!(parse_program("convert"), Err(ValueError::Program));
        assert_eq!(parse_memory("128"), Ok(128));
        for given in ["127", "65537", "-1", "1.5", "much", ""] {
            assert!(parse_memory(given).is_err(), "{given:?}");
        }
    }

    #[test]
    fn a_root_is_an_absolute_path() {
        assert_eq!(parse_directory("/data"), Ok(PathBuf::from("/data")));
        for given in ["data", "./data", "~", ""] {
            assert_eq!(parse_directory(given), Err(ValueError::Directory), "{given:?}");
        }
    }
}
