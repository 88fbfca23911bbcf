//! Sources behind https: a real TLS server that can misbehave, read by a real worker.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::store::enqueue::NewTask;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::bed::{Bed, TENANT, task};
use crate::common::pdf::pdf;
use crate::folder::Folder;

/// Answers by path; its certificate is in a file that a client can be told to trust.
struct Server {
    address: SocketAddr,
    folder: Folder,
}

/// What a cut transfer sends at first.
const FIRST_PART: usize = 300;

impl Server {
    async fn start() -> Self {
        let folder = Folder::new();
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])
            .expect("a certificate");
        fs::write(folder.path("ca.pem"), own.cert.pem()).expect("a file");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .expect("a key that fits");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(AtomicU32::new(0));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, asked) = (acceptor.clone(), Arc::clone(&asked));
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        answer(stream, &asked).await;
                    }
                });
            }
        });
        Self { address, folder }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.address)
    }

    fn certificate(&self) -> String {
        self.folder.path("ca.pem").to_string_lossy().into_owned()
    }
}

/// Reads one request and answers it; the connection ends with the answer. A client that is gone is its own affair.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, asked: &AtomicU32) {
    let mut stream = BufReader::new(stream);
    let (mut path, mut range) = (String::new(), None);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(rest) = line.strip_prefix("GET ") {
            path = rest.split(' ').next().unwrap_or_default().to_owned();
        }
        if let Some(rest) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            range = rest.trim().trim_end_matches('-').parse::<usize>().ok();
        }
    }
    let file = pdf(&["The lighthouse of Genoa is lit."]);
    let head = |status: &str, headers: &str, length: usize| {
        format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n").into_bytes()
    };
    let to = |place: &str| head("302 Found", &format!("Location: {place}\r\n"), 0);
    let whole = || [head("200 OK", "", file.len()), file.clone()].concat();
    let versioned = "ETag: \"1\"\r\nAccept-Ranges: bytes\r\n";
    let said = match path.as_str() {
        "/lighthouse.pdf" => whole(),
        "/moved.pdf" => to("/lighthouse.pdf"),
        "/to-metadata" => to("https://169.254.169.254/latest/"),
        "/to-plain" => to("http://127.0.0.1/"),
        "/to-file" => to("file:///etc/passwd"),
        "/to-itself" => to("/to-itself"),
        "/to-user" => to("https://me:secret@127.0.0.1/"),
        "/cut.pdf" => match range {
            Some(from) => {
                let headers = format!("{versioned}Content-Range: bytes {from}-{}/{}\r\n", file.len() - 1, file.len());
                [head("206 Partial Content", &headers, file.len() - from), file[from..].to_vec()].concat()
            }
            None => [head("200 OK", versioned, file.len()), file[..FIRST_PART].to_vec()].concat(),
        },
        // It cannot go on from the middle, and cuts once.
        "/cut-once.pdf" if asked.fetch_add(1, Ordering::Relaxed) == 0 => {
            [head("200 OK", "", file.len()), file[..FIRST_PART].to_vec()].concat()
        }
        "/cut-once.pdf" => whole(),
        "/large.pdf" => head("200 OK", "", 1 << 40),
        "/secret.pdf" => head("401 Unauthorized", "", 0),
        "/teapot.pdf" => head("418 I'm a teapot", "", 0),
        "/broken.pdf" => head("500 Internal Server Error", "", 0),
        _ => head("404 Not Found", "", 0),
    };
    let _ = stream.write_all(&said).await;
    let _ = stream.flush().await;
    let _ = stream.shutdown().await;
}

fn convert_of(url: &str) -> NewTask {
    NewTask { max_attempts: Some(1), ..task(TaskType::PdfProcessing, TENANT, json!({ "url": url })) }
}

#[tokio::test]
async fn files_behind_https_are_read_through_redirects_and_cuts() {
    let server = Server::start().await;
    let mut bed = Bed::new().await;
    bed.sources.allowed_networks = vec!["127.0.0.0/8".parse().expect("a network")];
    let _worker = bed.work_with(&[("SSL_CERT_FILE", &server.certificate())]);

    let paths = ["lighthouse.pdf", "moved.pdf", "cut.pdf", "cut-once.pdf"];
    let mut ids = Vec::new();
    for path in paths {
        ids.push(bed.enqueue(convert_of(&server.url(path))).await);
    }
    for (path, id) in paths.into_iter().zip(ids) {
        let converted = bed.until_ended(id).await;
        assert_eq!(converted.state, State::Completed, "{path}: {:?}", converted.error);
        let inserted = bed.follow_on(converted.track_id).await;
        assert_eq!(inserted.state, State::Completed, "{path}: {:?}", inserted.error);
    }
    assert_eq!(bed.number("select count(*) from ingest.chunks where content like '%lighthouse of Genoa%'").await, 4);
    let titles = bed.texts("select title from ingest.document_versions").await;
    assert_eq!(titles.into_iter().collect::<Vec<_>>(), ["cut", "cut-once", "lighthouse", "moved"]);
}

#[tokio::test]
async fn what_may_not_or_cannot_be_read_fails_with_its_class() {
    let server = Server::start().await;
    let mut bed = Bed::new().await;
    bed.sources.allowed_networks = vec!["127.0.0.0/8".parse().expect("a network")];
    let _worker = bed.work_with(&[("SSL_CERT_FILE", &server.certificate())]);

    let rows = [
        ("to-metadata", FailureClass::SourceForbidden),
        ("to-plain", FailureClass::SourceForbidden),
        ("to-file", FailureClass::SourceForbidden),
        ("to-itself", FailureClass::SourceForbidden),
        ("to-user", FailureClass::SourceForbidden),
        ("secret.pdf", FailureClass::SourceForbidden),
        ("teapot.pdf", FailureClass::SourceForbidden),
        ("none.pdf", FailureClass::SourceNotFound),
        ("large.pdf", FailureClass::DocumentTooLarge),
        ("broken.pdf", FailureClass::Unknown),
    ];
    let mut ids = Vec::new();
    for (path, _) in rows {
        ids.push(bed.enqueue(convert_of(&server.url(path))).await);
    }
    for ((path, class), id) in rows.into_iter().zip(ids) {
        let ended = bed.until_ended(id).await;
        assert_eq!((ended.state, ended.failure_class), (State::Failed, Some(class)), "{path}: {:?}", ended.error);
        assert!(!ended.error.unwrap_or_default().contains("secret"), "{path}");
    }
}

#[tokio::test]
async fn redirects_lead_to_nothing_that_the_lane_does_not_name() {
    let server = Server::start().await;
    let mut bed = Bed::new().await;
    bed.sources.allowed_networks = vec!["127.0.0.0/8".parse().expect("a network")];
    bed.allow(&[&server.url("moved.pdf")]).await;
    let _worker = bed.work_with(&[("SSL_CERT_FILE", &server.certificate())]);

    for path in ["moved.pdf", "lighthouse.pdf"] {
        let ended = bed.done(convert_of(&server.url(path))).await;
        let expected = (State::Failed, Some(FailureClass::SourceForbidden));
        assert_eq!((ended.state, ended.failure_class), expected, "{path}: {:?}", ended.error);
        assert!(ended.error.is_some_and(|error| error.contains("allowedSources")), "{path}");
    }
    bed.allow(&[&server.url("")]).await;
    let read = bed.done(convert_of(&server.url("moved.pdf"))).await;
    assert_eq!(read.state, State::Completed, "{:?}", read.error);
}

#[tokio::test]
async fn places_that_only_the_worker_can_reach_are_not_read() {
    let server = Server::start().await;
    let bed = Bed::new().await;
    let _worker = bed.work_with(&[("SSL_CERT_FILE", &server.certificate())]);

    let port = server.address.port();
    let hosts = ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0"];
    let mut ids = Vec::new();
    for host in hosts {
        ids.push(bed.enqueue(convert_of(&format!("https://{host}:{port}/lighthouse.pdf"))).await);
    }
    for (host, id) in hosts.into_iter().zip(ids) {
        let ended = bed.until_ended(id).await;
        let expected = (State::Failed, Some(FailureClass::SourceForbidden));
        assert_eq!((ended.state, ended.failure_class), expected, "{host}: {:?}", ended.error);
        assert!(ended.error.is_some_and(|error| error.contains("SLUICE_ALLOWED_NETWORKS")), "{host}");
    }
}
