//! `sluice-convert`: a PDF on stdin, its pages as markdown on stdout, as lines of JSON (`frames`). Files that are made to
//! break a converter break this process, which has no files, no network and little memory, and nobody else.

#[path = "../../src/ingest/convert/frames.rs"]
mod frames;
mod pdf;
mod sandbox;

use std::io::{self, Write};
use std::process::{self, ExitCode};
use std::thread;

use clap::Parser;

use crate::frames::{Frame, Problem};
use crate::sandbox::Limits;

/// The library allocates all the time.
#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const WATCHER_STACK_BYTES: usize = 64 << 10;

/// Turns the PDF on stdin into markdown on stdout, a line of JSON for each page
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Address space, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u64).range(128..=65_536))]
    memory_mib: u64,

    /// CPU time until the number of pages is known, in seconds; each page adds half a second
    #[arg(long, default_value_t = 60, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    cpu_secs: u64,
}

fn main() -> ExitCode {
    let Args { memory_mib, cpu_secs } = Args::parse();
    let limits = Limits { memory_bytes: memory_mib << 20, cpu_secs };
    if let Err(error) = limits.apply() {
        return failed(&format!("the limits could not be set: {error}"));
    }
    match watched(limits) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

fn failed(why: &str) -> ExitCode {
    eprintln!("sluice-convert: {why}");
    ExitCode::FAILURE
}

/// Converts, while a thread ends the process when nobody reads any more: the worker is gone, and the work is for nobody.
#[expect(clippy::disallowed_methods, reason = "nobody is there who could miss anything")]
fn watched(limits: Limits) -> io::Result<()> {
    thread::Builder::new().stack_size(WATCHER_STACK_BYTES).spawn(|| {
        let waited = sandbox::enter().and_then(|()| sandbox::wait_until_nobody_reads());
        process::exit(match waited {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("sluice-convert: {error}");
                1
            }
        })
    })?;
    sandbox::enter()?;
    pdf::warm_up();
    convert(limits)
}

fn convert(limits: Limits) -> io::Result<()> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::stdin().lock(), &mut bytes)?;
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut say = |frame: &Frame| -> io::Result<()> {
        serde_json::to_writer(&mut output, frame)?;
        output.write_all(b"\n")?;
        output.flush()
    };
    let last = match pdf::pages(bytes) {
        Ok(pages) => {
            let number = pages.len();
            limits.allow_cpu_for(number)?;
            say(&Frame::Pages(number))?;
            let mut failed = None;
            for page in pages {
                match page {
                    Ok(markdown) => say(&Frame::Page(markdown))?,
                    Err(failure) => {
                        failed = Some(failure);
                        break;
                    }
                }
            }
            failed
        }
        Err(failure) => Some(failure),
    };
    match last {
        None => say(&Frame::Done),
        Some((problem, message)) => say(&Frame::Failed { problem, message }),
    }
}

/// Why it ends before its end, for people.
type Failure = (Problem, String);
