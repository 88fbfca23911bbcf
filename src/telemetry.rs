//! Log output: text or JSON, filtered.

use std::io::IsTerminal;

use tracing_subscriber::util::TryInitError;
use tracing_subscriber::{fmt, prelude::*};

use crate::config::{LogArgs, LogFormat};

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("a log subscriber is already installed")]
    Installed(#[from] TryInitError),
}

/// Installs the subscriber of the process; standard output stays free for what commands print.
pub fn init(settings: &LogArgs) -> Result<(), TelemetryError> {
    let registry = tracing_subscriber::registry().with(settings.log.clone());
    match settings.log_format {
        LogFormat::Text => {
            let is_terminal = std::io::stderr().is_terminal();
            registry.with(fmt::layer().with_writer(std::io::stderr).with_ansi(is_terminal)).try_init()?;
        }
        LogFormat::Json => {
            registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()?;
            log_panics();
        }
    }
    Ok(())
}

/// Who reads lines of JSON reads no others: a panic is an event like the rest.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string);
        tracing::error!(location, "panicked: {}", panic.payload_as_str().unwrap_or("no message"));
    }));
}
