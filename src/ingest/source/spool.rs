//! The temporary file that a source is streamed into: without a name, and bounded.

use std::fs::File;
use std::io::{self, Seek, Write};

use crate::domain::failure::FailureClass;
use crate::worker::{Context, NotDone};

/// Times that a cut transfer goes on where it was cut.
pub const RESUMES_MAX: u32 = 5;

pub struct Spool {
    file: File,
    kept: u64,
    max_bytes: u64,
}

impl Spool {
    pub fn new(max_bytes: u64) -> Result<Self, NotDone> {
        Ok(Self { file: tempfile::tempfile().map_err(unkept)?, kept: 0, max_bytes })
    }

    /// Bytes that are there.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    pub fn start_over(&mut self) -> Result<(), NotDone> {
        self.kept = 0;
        self.file.rewind().and_then(|()| self.file.set_len(0)).map_err(unkept)
    }

    /// Refuses what will have too many bytes before one of them is read.
    pub fn expect(&self, total: u64) -> Result<(), NotDone> {
        if total > self.max_bytes { Err(self.too_large()) } else { Ok(()) }
    }

    pub fn write(&mut self, context: &Context, part: &[u8], total: Option<u64>) -> Result<(), NotDone> {
        let kept = self.kept.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        if kept > self.max_bytes {
            return Err(self.too_large());
        }
        // To the page cache: as good as memory.
        self.file.write_all(part).map_err(unkept)?;
        self.kept = kept;
        let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
        context.reporter().message(format!("fetched {kept}{of} bytes"));
        Ok(())
    }

    /// The file, at its beginning.
    pub fn finish(mut self) -> Result<File, NotDone> {
        self.file.rewind().map_err(unkept)?;
        Ok(self.file)
    }

    fn too_large(&self) -> NotDone {
        let message = format!("the file has more than {} bytes: split it", self.max_bytes);
        NotDone::failed(FailureClass::DocumentTooLarge, message)
    }
}

/// After the last attempt to go on.
pub fn cut_too_often() -> NotDone {
    NotDone::failed(FailureClass::Unknown, format!("the transfer was cut {} times", RESUMES_MAX + 1))
}

fn unkept(error: io::Error) -> NotDone {
    NotDone::failed(FailureClass::Unknown, format!("the temporary file cannot be written: {error}"))
}
