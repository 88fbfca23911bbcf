//! Objects of S3, Google Cloud Storage and Azure, and of what speaks like them: streamed into a temporary file, and listed.

mod connect;
mod failure;
mod place;
mod settings;

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use object_store::{GetOptions, GetRange, GetResult, ObjectStore};

use self::connect::Connector;
use self::place::Bucket;
use super::guard::Guard;
use super::spool::{RESUMES_MAX, Spool, cut_too_often};
use super::{LISTED_MAX, Listed};
use crate::domain::failure::FailureClass;
use crate::worker::{Context, NotDone};

pub use self::place::Place;
pub use self::settings::StoreVariables;

/// Kept open, so that credentials which were given for a while are used for as long.
const OPEN_MAX: usize = 64;
/// A listing says how far it is with each so many.
const SAY_EACH: usize = 1_000;

pub struct Stores {
    variables: StoreVariables,
    connector: Connector,
    open: Mutex<HashMap<Bucket, Arc<dyn ObjectStore>>>,
}

impl Stores {
    pub fn new(variables: StoreVariables, guard: Guard) -> reqwest::Result<Self> {
        Ok(Self { variables, connector: Connector::new(guard)?, open: Mutex::default() })
    }

    /// A temporary file without a name, at its beginning.
    pub async fn fetch(&self, context: &Context, place: &Place, max_bytes: u64) -> Result<File, NotDone> {
        let store = self.open(&place.bucket)?;
        let mut spool = Spool::new(max_bytes)?;
        let mut version: Option<String> = None;
        for _ in 0..=RESUMES_MAX {
            let from = spool.kept();
            let options = GetOptions {
                range: (from > 0).then_some(GetRange::Offset(from)),
                if_match: version.clone(),
                ..GetOptions::default()
            };
            let found = match context.unless_stopped(store.get_opts(&place.key, options)).await? {
                Ok(found) if from == 0 || found.meta.e_tag == version => found,
                Err(error) if from == 0 || !failure::has_changed(&error) => {
                    return Err(failure::not_done(&error, &place.bucket));
                }
                // It is another object by now.
                Ok(_) | Err(_) => {
                    spool.start_over()?;
                    version = None;
                    continue;
                }
            };
            let total = found.meta.size;
            spool.expect(total)?;
            version = found.meta.e_tag.clone().filter(|version| !version.starts_with("W/"));
            match receive(context, found, &mut spool).await? {
                None => return spool.finish(),
                Some(_) if spool.kept() == total => return spool.finish(),
                Some(cause) => tracing::info!(key = %place.key, kept = spool.kept(), %cause, "a transfer was cut"),
            }
            if version.is_none() {
                spool.start_over()?;
            }
        }
        Err(cut_too_often())
    }

    /// All below a place, in the order of the store.
    pub async fn list(&self, context: &Context, place: &Place) -> Result<Vec<Listed>, NotDone> {
        let store = self.open(&place.bucket)?;
        let mut objects = store.list(Some(&place.key));
        let mut listed = Vec::new();
        while let Some(object) = context.unless_stopped(objects.next()).await? {
            let object = object.map_err(|error| failure::not_done(&error, &place.bucket))?;
            if listed.len() == LISTED_MAX {
                let message = format!("there are more than {LISTED_MAX} objects: scan their parts one by one");
                return Err(NotDone::failed(FailureClass::DocumentTooLarge, message));
            }
            if let Some(url) = place.bucket.url_of(&object.location) {
                listed.push(Listed { url, version: object.e_tag });
            }
            if listed.len().is_multiple_of(SAY_EACH) {
                context.reporter().message(format!("{} objects found", listed.len()));
            }
        }
        Ok(listed)
    }

    fn open(&self, bucket: &Bucket) -> Result<Arc<dyn ObjectStore>, NotDone> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = open.get(bucket) {
            return Ok(Arc::clone(store));
        }
        let store = self.variables.open(bucket, &self.connector)?;
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(bucket.clone(), Arc::clone(&store));
        Ok(store)
    }
}

/// `None`: all of it is there; else what cut it.
async fn receive(context: &Context, found: GetResult, spool: &mut Spool) -> Result<Option<String>, NotDone> {
    let total = found.meta.size;
    let mut parts = found.into_stream();
    while let Some(part) = context.unless_stopped(parts.next()).await? {
        match part {
            Ok(part) => spool.write(context, &part, Some(total))?,
            Err(error) => return Ok(Some(failure::cause(&error))),
        }
    }
    Ok(None)
}
