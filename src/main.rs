//! The `sluice` binary: hands over to `cli`, and turns what comes back into an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    // More than one dependency may link a crypto provider: choose before any of them connects.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("sluice: a crypto provider was installed twice");
        return ExitCode::FAILURE;
    }
    sluice::cli::run()
}
