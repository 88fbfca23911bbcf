//! What a task's payload says of its content, and which document it is about.

mod address;
mod file;
mod guard;
mod https;
mod object;
mod spool;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use url::Url;
use uuid::Uuid;

use self::file::FileError;
use self::guard::Guard;
use self::https::Fetcher;
use self::object::{Place, Stores};
use super::text::{self, MARKDOWN_MAX_BYTES};
use crate::domain::failure::FailureClass;
use crate::domain::source::{SourceRefusal, check_form, check_named};
use crate::store::lanes::lane_sources;
use crate::worker::{Context, NotDone, Task};

pub use self::object::StoreVariables;

/// Of a title, in characters.
const TITLE_MAX_CHARS: usize = 500;
/// A text is read whole.
const TEXT_MAX_BYTES: u64 = MARKDOWN_MAX_BYTES as u64;
/// What is larger is no document that one conversion could hold.
pub const FILE_MAX_BYTES: u64 = 256 << 20;
/// Files or objects of one scan.
const LISTED_MAX: usize = 100_000;
const PDF_MAGIC: &[u8] = b"%PDF-";
/// Of characters that were no UTF-8: with more, it is no text. One in so many.
const BROKEN_ONE_IN: usize = 10;

/// What a worker may read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceSettings {
    /// Files below it; `None`: no files.
    pub file_root: Option<PathBuf>,
    /// Addresses that are connected to although they are not public.
    pub allowed_networks: Vec<IpNet>,
    /// Where object stores are, and what lets the worker in.
    pub stores: StoreVariables,
}

/// Where content is read from.
#[derive(Clone)]
pub struct Sources {
    file_root: Option<PathBuf>,
    fetcher: Fetcher,
    stores: Arc<Stores>,
}

/// A file that a scan finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub url: String,
    /// Another one means another content; `None`: its content alone tells.
    pub version: Option<String>,
}

/// A URL that the task may read.
struct Permitted {
    url: Url,
    /// Of its lane, for where the URL leads from there.
    allowed: Vec<String>,
}

impl Sources {
    pub fn new(settings: SourceSettings) -> anyhow::Result<Self> {
        let SourceSettings { file_root, allowed_networks, stores } = settings;
        let guard = Guard::new(allowed_networks);
        let fetcher = Fetcher::new(guard.clone()).context("https sources cannot be read")?;
        let stores = Arc::new(Stores::new(stores, guard).context("object stores cannot be read")?);
        Ok(Self { file_root, fetcher, stores })
    }

    /// The file that a URL names, to be read from its beginning; of all but local files, a temporary one.
    pub async fn open(&self, context: &Context, url: &str, max_bytes: u64) -> Result<File, NotDone> {
        let Permitted { url, allowed } = permitted(context, url).await?;
        if url.scheme() == "https" {
            return self.fetcher.fetch(context, &url, &allowed, max_bytes).await;
        }
        if let Some(place) = Place::of(&url)? {
            return self.stores.fetch(context, &place, max_bytes).await;
        }
        let (root, path) = (self.file_root.clone(), file_path(&url)?);
        let opening = spawn_blocking(move || file::open(root.as_deref(), &path, max_bytes));
        context.unless_stopped(opening).await??.map_err(FileError::into_not_done)
    }

    /// The files below the place that a URL names, in the order of their names.
    pub async fn list(&self, context: &Context, url: &str) -> Result<Vec<Listed>, NotDone> {
        let Permitted { url, .. } = permitted(context, url).await?;
        if let Some(place) = Place::of(&url)? {
            return self.stores.list(context, &place).await;
        }
        let (root, path) = (self.file_root.clone(), file_path(&url)?);
        let listing = spawn_blocking(move || file::list(root.as_deref(), &path));
        let files = context.unless_stopped(listing).await??.map_err(FileError::into_not_done)?;
        let urls = files.iter().filter_map(|file| Url::from_file_path(file).ok());
        Ok(urls.map(|url| Listed { url: url.into(), version: None }).collect())
    }

    /// All that a URL names, as bytes.
    async fn read(&self, context: &Context, url: &str) -> Result<Vec<u8>, NotDone> {
        let file = self.open(context, url, TEXT_MAX_BYTES).await?;
        let reading = spawn_blocking(move || file::read(file, TEXT_MAX_BYTES));
        context.unless_stopped(reading).await??.map_err(FileError::into_not_done)
    }
}

/// By the lane's word of this moment, whoever has enqueued the task.
async fn permitted(context: &Context, url: &str) -> Result<Permitted, NotDone> {
    let url = check_form(url).map_err(not_permitted)?;
    let allowed = lane_sources(context.database(), &context.task.tenant, context.task.task_type.class()).await?;
    // Below the worker's root, a file needs no other word, unless there is one.
    if !(allowed.is_empty() && url.scheme() == "file") {
        check_named(&url, &allowed).map_err(not_permitted)?;
    }
    Ok(Permitted { url, allowed })
}

fn not_permitted(refusal: SourceRefusal) -> NotDone {
    let class = match refusal {
        SourceRefusal::NotUrl(_) => FailureClass::InvalidDocument,
        SourceRefusal::Climbs | SourceRefusal::Credentials | SourceRefusal::NotNamed | SourceRefusal::NotAllowed(_) => {
            FailureClass::SourceForbidden
        }
    };
    NotDone::failed(class, refusal.to_string())
}

/// What a person or a resource says of a document's content. All that is not here is refused: a misspelt field must not be
/// taken for none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourcePayload {
    /// Text or markdown.
    pub text: Option<String>,
    /// Where text, markdown or a PDF is: `https://…`, `s3://…`, `gs://…`, `az://…`, or `file:///…` below the worker's root.
    pub url: Option<String>,
    pub title: Option<String>,
    /// Of a document that is there; the task's own, if it names one.
    pub document_id: Option<Uuid>,
    /// Of a content that an earlier task took in.
    pub content_id: Option<i64>,
}

/// Text that a task brought, cleaned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenText {
    pub title: Option<String>,
    pub markdown: String,
    /// For people.
    pub source: String,
}

impl SourcePayload {
    pub fn has_text(&self) -> bool {
        self.text.is_some() || self.url.is_some()
    }

    /// `None` if the payload names no text.
    pub async fn given_text(&self, context: &Context, sources: &Sources) -> Result<Option<GivenText>, NotDone> {
        match (&self.text, &self.url) {
            (None, None) => Ok(None),
            (Some(text), None) => self.given(text::clean(text), "text".to_owned()).map(Some),
            (None, Some(url)) => {
                let bytes = sources.read(context, url).await?;
                self.given(text_of(&bytes)?, url.clone()).map(Some)
            }
            (Some(_), Some(_)) => {
                Err(NotDone::failed(FailureClass::InvalidDocument, "text and url are set: leave one of them out"))
            }
        }
    }

    fn given(&self, markdown: String, source: String) -> Result<GivenText, NotDone> {
        check_content(&markdown)?;
        let title = self.title_of(&markdown);
        Ok(GivenText { title, markdown, source })
    }

    /// The title that was given, else the first heading.
    pub fn title_of(&self, markdown: &str) -> Option<String> {
        let given = self.title.as_deref().map(text::clean).filter(|title| !title.trim().is_empty());
        given.as_deref().or(text::first_heading(markdown)).map(bounded_title)
    }
}

fn bounded_title(title: &str) -> String {
    text::cut(title.trim(), TITLE_MAX_CHARS).to_owned()
}

/// The name of the file that a URL names, without its ending: a title for what has none.
pub fn file_stem(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let name = percent_decode_str(url.path_segments()?.next_back()?).decode_utf8_lossy();
    let stem = text::clean(Path::new(name.as_ref()).file_stem()?.to_str()?);
    (!stem.trim().is_empty()).then(|| bounded_title(&stem))
}

fn file_path(url: &Url) -> Result<PathBuf, NotDone> {
    if url.scheme() != "file" {
        let message = format!("this worker reads no {} URLs here", url.scheme());
        return Err(NotDone::failed(FailureClass::SourceForbidden, message));
    }
    url.to_file_path().map_err(|()| {
        NotDone::failed(FailureClass::InvalidDocument, "url names no local file: write it as file:///directory/name")
    })
}

/// What is not even roughly text is not taken for it.
fn text_of(bytes: &[u8]) -> Result<String, NotDone> {
    if bytes.starts_with(PDF_MAGIC) {
        let message = "it is a PDF, not text: use PdfProcessing";
        return Err(NotDone::failed(FailureClass::InvalidDocument, message));
    }
    let text = text::from_bytes(bytes);
    let broken = text.chars().filter(|character| *character == char::REPLACEMENT_CHARACTER).count();
    if broken > text.chars().count() / BROKEN_ONE_IN {
        let message = format!("it is no text in UTF-8: {broken} of its characters are none");
        return Err(NotDone::failed(FailureClass::InvalidDocument, message));
    }
    Ok(text)
}

/// Whether there is something to ingest, and not too much of it.
pub fn check_content(markdown: &str) -> Result<(), NotDone> {
    if markdown.len() > MARKDOWN_MAX_BYTES {
        let message =
            format!("the text has {} bytes, at most {MARKDOWN_MAX_BYTES} are taken: split it", markdown.len());
        return Err(NotDone::failed(FailureClass::DocumentTooLarge, message));
    }
    if !text::has_content(markdown) {
        let message = "there is no letter and no digit in the text: nothing to ingest";
        return Err(NotDone::failed(FailureClass::EmptyDocument, message));
    }
    Ok(())
}

/// The document that a task is about: its own, or its payload's, which may not differ.
pub fn document_id(task: &Task, in_payload: Option<Uuid>) -> Result<Uuid, NotDone> {
    let invalid = |message| Err(NotDone::failed(FailureClass::InvalidDocument, message));
    match (task.document_id, in_payload) {
        (Some(own), Some(other)) if own != other => {
            invalid("documentId of the payload is not the task's document: leave one of them out")
        }
        (Some(id), _) | (None, Some(id)) => Ok(id),
        (None, None) => invalid("the task names no document: set document_id"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::task::TaskType;
    use crate::store::claim::Attempt;

    fn given(payload: Value) -> Result<GivenText, NotDone> {
        let payload = SourcePayload::deserialize(payload).expect("a payload");
        payload.given(text::clean(payload.text.as_deref().expect("a text")), "text".to_owned())
    }

    fn class<T: std::fmt::Debug>(answer: Result<T, NotDone>) -> FailureClass {
        match answer {
            Err(NotDone::Failed { class, .. }) => class,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn text_is_cleaned_and_has_a_title() {
        let rows = [
            (json!({ "text": "# Plan\n\nGo\u{0}." }), Some("Plan"), "# Plan\n\nGo."),
            (json!({ "text": "a", "title": " My \u{0}title " }), Some("My title"), "a"),
            (json!({ "text": "a", "title": "  " }), None, "a"),
            (json!({ "text": "a\r\nb" }), None, "a\nb"),
        ];
        for (payload, title, markdown) in rows {
            let expected =
                GivenText { title: title.map(str::to_owned), markdown: markdown.to_owned(), source: "text".to_owned() };
            assert_eq!(given(payload.clone()).unwrap(), expected, "{payload}");
        }
    }

    #[test]
    fn text_with_nothing_in_it_or_too_much_is_refused() {
        for empty in ["", " \n", "\u{0}", "***"] {
            assert_eq!(class(given(json!({ "text": empty }))), FailureClass::EmptyDocument, "{empty:?}");
        }
        let large = "a".repeat(MARKDOWN_MAX_BYTES + 1);
        assert_eq!(class(given(json!({ "text": large }))), FailureClass::DocumentTooLarge);
    }

    #[test]
    fn urls_name_a_local_file_or_are_refused() {
        let rows = [
            ("file:///data/a%20b.md", Ok("/data/a b.md")),
            ("file:///data/../etc/passwd", Err(FailureClass::SourceForbidden)),
            ("file:///data/%2e%2e/etc", Err(FailureClass::SourceForbidden)),
            ("file:///data/..%2fetc", Err(FailureClass::SourceForbidden)),
            ("file://localhost/data/a", Ok("/data/a")),
            ("file://elsewhere/data/a", Err(FailureClass::InvalidDocument)),
            ("/data/a", Err(FailureClass::InvalidDocument)),
            ("https://a.example/b", Err(FailureClass::SourceForbidden)),
            ("s3://bucket/b", Err(FailureClass::SourceForbidden)),
        ];
        let path = |url| check_form(url).map_err(not_permitted).and_then(|url| file_path(&url));
        for (url, expected) in rows {
            match expected {
                Ok(expected) => assert_eq!(path(url).unwrap(), PathBuf::from(expected), "{url}"),
                Err(expected) => assert_eq!(class(path(url)), expected, "{url}"),
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        assert_eq!(text_of("caf\u{e9} au lait\0".as_bytes()).unwrap(), "caf\u{e9} au lait");
        assert_eq!(text_of(b"a little broken \xff text").unwrap(), "a little broken \u{fffd} text");
        assert_eq!(class(text_of(b"%PDF-1.7 ...")), FailureClass::InvalidDocument);
        assert_eq!(class(text_of(&[0x89, b'P', 0xff, 0xfe, 0xfd, 0xfc, 0xff])), FailureClass::InvalidDocument);
    }

    #[test]
    fn misspelt_fields_are_refused() {
        let error = SourcePayload::deserialize(json!({ "txt": "a" })).unwrap_err().to_string();

        assert!(error.contains("unknown field `txt`"), "{error}");
    }

    #[test]
    fn a_task_and_its_payload_agree_on_the_document() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let task = |document_id| Task {
            attempt: Attempt { track_id: one, number: 1 },
            task_type: TaskType::Reindex,
            tenant: "t".to_owned(),
            workspace: None,
            document_id,
            payload: Value::Null,
            timeout_secs: 1,
            failures: 0,
        };
        assert_eq!(document_id(&task(Some(one)), None).unwrap(), one);
        assert_eq!(document_id(&task(None), Some(one)).unwrap(), one);
        assert_eq!(document_id(&task(Some(one)), Some(one)).unwrap(), one);
        assert!(document_id(&task(Some(one)), Some(other)).is_err());
        assert!(document_id(&task(None), None).is_err());
    }
}
