//! Which variable a setting is read from, and how a bad value is told.

use std::error::Error;
use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

const PREFIX: &str = "SLUICE_";
/// What existing deployments call the same settings.
const OLD_PREFIX: &str = "EDGEQUAKE_";

const HELP: &str = "A flag wins over its variable. Every SLUICE_X is also read as EDGEQUAKE_X; the SLUICE_ name wins.";

/// Points each setting to the first of its variables that is not empty.
pub fn with_other_names(command: Command) -> Command {
    command.after_help(HELP).mut_args(read_from_first_set).mut_subcommands(with_other_names)
}

fn read_from_first_set(arg: Arg) -> Arg {
    let Some(name) = arg.get_env().and_then(OsStr::to_str).map(str::to_owned) else {
        return arg;
    };
    let mut names = vec![name.clone()];
    names.extend(name.strip_prefix(PREFIX).map(|rest| format!("{OLD_PREFIX}{rest}")));
    names.extend((name == "SLUICE_LOG").then(|| "RUST_LOG".to_owned()));
    let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !is_blank(&value));
    match names.into_iter().find(is_set) {
        Some(first) => arg.env(first),
        // An empty variable would be parsed.
        None if std::env::var_os(&name).is_some() => arg.env(None::<&str>),
        None => arg,
    }
}

fn is_blank(value: &OsStr) -> bool {
    value.to_str().is_some_and(|text| text.trim().is_empty())
}

/// One sentence for a value that does not parse: its variable or flag, the value unless it is secret, and what is
/// allowed. `None` if the error is about something else, such as an unknown flag.
pub fn explain_bad_value(error: &clap::Error, command: &Command) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue | ErrorKind::InvalidUtf8) {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(_) | None => None,
    };
    let usage = text(ContextKind::InvalidArg)?;
    let flag = usage.split([' ', '=', '[']).next().unwrap_or(usage);
    let arg = find_arg(command, flag)?;
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let name = match arg.get_env() {
        Some(name) if std::env::var_os(name).is_some_and(|set| has(arg, &set, value)) => name.to_string_lossy(),
        Some(_) | None => flag.into(),
    };
    let allowed = error.source().map_or_else(|| "it has no value".to_owned(), ToString::to_string);
    Some(if arg.is_hide_env_values_set() {
        format!("{name} cannot be used: {allowed}")
    } else {
        format!("{name} is {value:?}: {allowed}")
    })
}

/// Whether a variable is set to the value, or to a list with it.
fn has(arg: &Arg, set: &OsStr, value: &str) -> bool {
    let is_part = |delimiter| set.to_str().is_some_and(|list| list.split(delimiter).any(|part| part == value));
    set == value || arg.get_value_delimiter().is_some_and(is_part)
}

fn find_arg<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    let long = flag.strip_prefix("--")?;
    let own = command.get_arguments().find(|arg| arg.get_long() == Some(long));
    own.or_else(|| command.get_subcommands().find_map(|subcommand| find_arg(subcommand, flag)))
}
