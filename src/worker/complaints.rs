//! Trouble with the database, logged once when it begins and once when it is over.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A trouble that lasts is named again after this long: it must not look like silence.
const REMIND: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Complaints {
    open: Mutex<HashMap<&'static str, Complaint>>,
}

struct Complaint {
    since: Instant,
    logged: Instant,
    text: String,
}

impl Complaints {
    /// `what` could not be done; it is tried again.
    pub fn failed(&self, what: &'static str, error: &dyn Display) {
        let (now, text) = (Instant::now(), error.to_string());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(what) {
            Some(known) if known.text == text && now - known.logged < REMIND => return,
            Some(known) => {
                known.logged = now;
                known.text.clone_from(&text);
            }
            None => {
                open.insert(what, Complaint { since: now, logged: now, text: text.clone() });
            }
        }
        drop(open);
        tracing::warn!(error = text, "{what} failed and is tried again");
    }

    pub fn succeeded(&self, what: &'static str) {
        let over = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
        if let Some(complaint) = over {
            tracing::info!(seconds = complaint.since.elapsed().as_secs_f32(), "{what} works again");
        }
    }
}
