//! A small object store that speaks as S3, Google Cloud Storage and Azure do when they are read, and misbehaves on demand.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Of a listing.
const PAGE_OBJECTS: usize = 2;
/// What a cut transfer sends.
const FIRST_PART: usize = 300;

pub struct ObjectServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// By bucket/key.
    objects: Mutex<BTreeMap<String, Object>>,
    asked: Mutex<Vec<Asked>>,
}

#[derive(Clone)]
pub struct Object {
    pub content: Vec<u8>,
    pub e_tag: &'static str,
    pub mood: Mood,
}

/// How an object answers.
#[derive(Clone, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// Whole transfers are cut after their first part; what goes on where it was cut is not.
    Cut,
    /// The first transfer is cut; then it is this content, with another ETag.
    CutAndChange(Vec<u8>),
    /// One byte now and then, without an end.
    Slow,
    /// Says that it is larger than anything.
    Huge,
    /// A status, and a body of a store's kind with this code.
    Refuse(&'static str, &'static str),
}

/// One request.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// With the query.
    pub target: String,
    pub headers: BTreeMap<String, String>,
}

impl ObjectServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::<Shared>::default();
        let kept = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&kept);
                // A client that is gone is its own affair.
                tokio::spawn(async move { serve(stream, &shared).await.ok() });
            }
        });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn put(&self, name: &str, content: impl Into<Vec<u8>>, e_tag: &'static str) {
        self.put_in(Mood::Good, name, content, e_tag);
    }

    pub fn put_in(&self, mood: Mood, name: &str, content: impl Into<Vec<u8>>, e_tag: &'static str) {
        let object = Object { content: content.into(), e_tag, mood };
        self.shared.objects.lock().expect("a lock").insert(name.to_owned(), object);
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("a lock").clone()
    }
}

/// One request, and the end.
async fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut asked = Asked::default();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(": ") {
            asked.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        } else if let Some(target) = line.split(' ').nth(1) {
            asked.target = target.to_owned();
        }
    }
    shared.asked.lock().expect("a lock").push(asked.clone());
    let url = Url::parse(&format!("http://store{}", asked.target)).expect("a target");
    let name = percent_encoding::percent_decode_str(&url.path()[1..]).decode_utf8_lossy().into_owned();
    let object = shared.objects.lock().expect("a lock").get(&name).cloned();
    let answer = match object {
        Some(object) => get(&name, object, &asked, shared),
        None if name.trim_end_matches('/').contains('/') => refusal("404 Not Found", "NoSuchKey"),
        None => list(name.trim_end_matches('/'), &url, shared),
    };
    stream.write_all(&answer.bytes).await?;
    if !answer.is_endless {
        return stream.shutdown().await;
    }
    loop {
        stream.write_all(b" ").await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

struct Answer {
    bytes: Vec<u8>,
    is_endless: bool,
}

fn answer(status: &str, headers: &str, length: usize, body: &[u8]) -> Answer {
    let dated = "Last-Modified: Tue, 01 Dec 2026 00:00:00 GMT\r\nConnection: close\r\n";
    let head = format!("HTTP/1.1 {status}\r\n{dated}Content-Length: {length}\r\n{headers}\r\n");
    Answer { bytes: [head.as_bytes(), body].concat(), is_endless: false }
}

/// As real ones do, it repeats whom it refuses.
fn refusal(status: &str, code: &str) -> Answer {
    let body = format!(
        "<Error><Code>{code}</Code><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId><StringToSign>{SECRET}</StringToSign></Error>"
    );
    answer(status, "", body.len(), body.as_bytes())
}

/// Of whoever may read; neither is ever seen outside of a request.
pub const KEY_ID: &str = "AKIDLIGHTHOUSE";
pub const SECRET: &str = "a2VlcC1pdC10by15b3Vyc2VsZg==";

fn get(name: &str, object: Object, asked: &Asked, shared: &Shared) -> Answer {
    let Object { content, e_tag, mood } = object;
    if asked.headers.get("if-match").is_some_and(|wanted| wanted != e_tag) {
        return refusal("412 Precondition Failed", "PreconditionFailed");
    }
    let versioned = format!("ETag: {e_tag}\r\nAccept-Ranges: bytes\r\n");
    let from =
        asked.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-')?.0.parse().ok());
    match (mood, from) {
        (Mood::Refuse(status, code), _) => refusal(status, code),
        (Mood::Huge, _) => answer("200 OK", &versioned, 1 << 40, b""),
        (Mood::Slow, _) => Answer { is_endless: true, ..answer("200 OK", &versioned, 1 << 20, b"") },
        (Mood::Cut, None) => answer("200 OK", &versioned, content.len(), &content[..FIRST_PART]),
        (Mood::CutAndChange(next), _) => {
            let changed = Object { content: next, e_tag: "\"changed\"", mood: Mood::Good };
            shared.objects.lock().expect("a lock").insert(name.to_owned(), changed);
            answer("200 OK", &versioned, content.len(), &content[..FIRST_PART])
        }
        (Mood::Good | Mood::Cut, Some(from)) => {
            let rest: &[u8] = &content[from..];
            let range = format!("Content-Range: bytes {from}-{}/{}\r\n", content.len() - 1, content.len());
            answer("206 Partial Content", &(versioned + &range), rest.len(), rest)
        }
        (Mood::Good, None) => answer("200 OK", &versioned, content.len(), &content),
    }
}

/// A page, in the words of S3 and Google, or in those of Azure. A bucket without objects is not there.
fn list(bucket: &str, url: &Url, shared: &Shared) -> Answer {
    let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    let is_azure = query.get("comp").is_some_and(|comp| comp == "list");
    let prefix = format!("{bucket}/{}", query.get("prefix").map_or("", String::as_str));
    let objects = shared.objects.lock().expect("a lock");
    if !objects.keys().any(|name| name.starts_with(&format!("{bucket}/"))) {
        return refusal("404 Not Found", "NoSuchBucket");
    }
    let from = query.get("continuation-token").or(query.get("marker"));
    let from: usize = from.map_or(0, |token| token.parse().expect("our own token"));
    let found: Vec<_> = objects.iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
    let mut body = String::new();
    for (name, Object { content, e_tag, .. }) in found.iter().skip(from).take(PAGE_OBJECTS) {
        let key = name[bucket.len() + 1..].replace('&', "&amp;");
        let size = content.len();
        let e_tag = e_tag.replace('"', "&quot;");
        let written = if is_azure {
            write!(
                body,
                "<Blob><Name>{key}</Name><Properties><Last-Modified>Tue, 01 Dec 2026 00:00:00 GMT</Last-Modified>\
                 <Content-Length>{size}</Content-Length><Content-Type>x/y</Content-Type><Etag>{e_tag}</Etag></Properties></Blob>"
            )
        } else {
            write!(
                body,
                "<Contents><Key>{key}</Key><LastModified>2026-12-01T00:00:00.000Z</LastModified><ETag>{e_tag}</ETag>\
                 <Size>{size}</Size></Contents>"
            )
        };
        written.expect("a string");
    }
    let next = from + PAGE_OBJECTS;
    let has_more = next < found.len();
    let body = match (is_azure, has_more) {
        (true, true) => {
            format!("<EnumerationResults><Blobs>{body}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>")
        }
        (true, false) => format!("<EnumerationResults><Blobs>{body}</Blobs><NextMarker/></EnumerationResults>"),
        (false, true) => format!(
            "<ListBucketResult>{body}<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken></ListBucketResult>"
        ),
        (false, false) => format!("<ListBucketResult>{body}<IsTruncated>false</IsTruncated></ListBucketResult>"),
    };
    answer("200 OK", "", body.len(), body.as_bytes())
}
