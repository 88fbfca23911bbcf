//! Sources in object stores: read by a real worker from a real server, with credentials of the worker's environment, and only
//! where the lane says so.

use std::fs::{self, File};
use std::process::Stdio;

use serde_json::json;
use sluice::domain::failure::FailureClass;
use sluice::domain::task::{State, TaskType};
use sluice::ingest::StoreVariables;
use sluice::store::control::{Request, Scope, cancel};
use sluice::store::enqueue::NewTask;

use crate::bed::{Bed, TENANT, task};
use crate::common::pdf::pdf;
use crate::folder::Folder;
use crate::object_server::{KEY_ID, Mood, ObjectServer, SECRET};
use crate::scan::{counts, scan, until_idle};

const PAGE: &str = "The lighthouse of Genoa is lit.";

fn of_s3(server: &ObjectServer) -> Vec<(String, String)> {
    let endpoint = server.url();
    let pairs = [
        ("AWS_ACCESS_KEY_ID", KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_REGION", "eu-south-1"),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Its workers may reach the server, and its lane names the bucket.
async fn bed_of(variables: Vec<(String, String)>, allowed: &[&str]) -> Bed {
    let mut bed = Bed::new().await;
    bed.sources.allowed_networks = vec!["127.0.0.0/8".parse().expect("a network")];
    bed.sources.stores = StoreVariables::new(variables);
    bed.allow(allowed).await;
    bed
}

fn convert_of(url: &str) -> NewTask {
    NewTask { max_attempts: Some(1), ..task(TaskType::PdfProcessing, TENANT, json!({ "url": url })) }
}

#[tokio::test]
async fn objects_are_read_with_the_workers_credentials_through_cuts_and_changes() {
    let server = ObjectServer::start().await;
    server.put("bucket/a b/lighthouse.pdf", pdf(&[PAGE]), "\"1\"");
    server.put_in(Mood::Cut, "bucket/cut.pdf", pdf(&[PAGE]), "\"2\"");
    // It has no way to know whether it goes on with the same one.
    server.put_in(Mood::CutAndChange(pdf(&[PAGE])), "bucket/changed.pdf", pdf(&["It is dark."]), "\"3\"");
    let bed = bed_of(of_s3(&server), &["s3://bucket/"]).await;
    let worker = bed.work();

    let keys = ["a%20b/lighthouse.pdf", "cut.pdf", "changed.pdf"];
    let mut ids = Vec::new();
    for key in keys {
        ids.push(bed.enqueue(convert_of(&format!("s3://bucket/{key}"))).await);
    }
    for (key, id) in keys.into_iter().zip(ids) {
        let converted = bed.until_ended(id).await;
        assert_eq!(converted.state, State::Completed, "{key}: {:?}", converted.error);
        let inserted = bed.follow_on(converted.track_id).await;
        assert_eq!(inserted.state, State::Completed, "{key}: {:?}", inserted.error);
    }
    assert_eq!(bed.number("select count(*) from ingest.chunks where content like '%lighthouse of Genoa%'").await, 3);
    let titles = bed.texts("select title from ingest.document_versions").await;
    assert_eq!(titles.into_iter().collect::<Vec<_>>(), ["changed", "cut", "lighthouse"]);
    for asked in server.asked() {
        let signed = asked.headers.get("authorization").expect("it is signed");
        assert!(signed.starts_with(&format!("AWS4-HMAC-SHA256 Credential={KEY_ID}/")), "{signed}");
        assert!(!signed.contains(SECRET), "{signed}");
    }
    let resumed = server
        .asked()
        .into_iter()
        .find(|asked| asked.target.ends_with("/cut.pdf") && asked.headers.contains_key("range"));
    let resumed = resumed.expect("it went on where it was cut").headers;
    assert_eq!((resumed["range"].as_str(), resumed["if-match"].as_str()), ("bytes=300-", "\"2\""));
    worker.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_fails_with_its_class_and_no_secret_is_seen() {
    let server = ObjectServer::start().await;
    let refused = [
        ("denied.pdf", "403 Forbidden", "AccessDenied", FailureClass::SourceForbidden),
        ("stranger.pdf", "403 Forbidden", "InvalidAccessKeyId", FailureClass::ProviderMisconfigured),
        ("forged.pdf", "403 Forbidden", "SignatureDoesNotMatch", FailureClass::ProviderMisconfigured),
        ("elsewhere.pdf", "301 Moved Permanently", "PermanentRedirect", FailureClass::ProviderMisconfigured),
        ("away.pdf", "503 Service Unavailable", "ServiceUnavailable", FailureClass::Unknown),
    ];
    for (key, status, code, _) in refused {
        server.put_in(Mood::Refuse(status, code), &format!("bucket/{key}"), "", "\"1\"");
    }
    server.put_in(Mood::Huge, "bucket/huge.pdf", "", "\"1\"");
    let bed = bed_of(of_s3(&server), &["s3://bucket/", "s3://none/"]).await;
    let folder = Folder::new();
    let log = File::create(folder.path("log")).expect("a file");
    let variables = of_s3(&server);
    let mut environment: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    environment.push(("SLUICE_LOG", "trace"));
    let mut worker = bed.work_saying(&environment, Stdio::from(log));

    let mut rows: Vec<_> = refused.iter().map(|(key, _, _, class)| (format!("s3://bucket/{key}"), *class)).collect();
    rows.extend([
        ("s3://bucket/none.pdf".to_owned(), FailureClass::SourceNotFound),
        ("s3://none/a.pdf".to_owned(), FailureClass::SourceNotFound),
        ("s3://bucket/huge.pdf".to_owned(), FailureClass::DocumentTooLarge),
        ("s3://bucket/a.pdf?versionId=1".to_owned(), FailureClass::InvalidDocument),
        (format!("s3://{KEY_ID}:{SECRET}@bucket/a.pdf"), FailureClass::SourceForbidden),
        (format!("s3://bucket/a.pdf?X-Amz-Signature={SECRET}"), FailureClass::SourceForbidden),
    ]);
    let mut ids = Vec::new();
    for (url, _) in &rows {
        ids.push(bed.enqueue(convert_of(url)).await);
    }
    let mut errors = String::new();
    for ((url, class), id) in rows.iter().zip(ids) {
        let ended = bed.until_ended(id).await;
        assert_eq!((ended.state, ended.failure_class), (State::Failed, Some(*class)), "{url}: {:?}", ended.error);
        errors += &ended.error.unwrap_or_default();
    }
    worker.kill();
    let events = bed.texts("select e::text from sluice.task_events e").await;
    let said = fs::read_to_string(folder.path("log")).expect("the log");
    assert!(said.len() > 1_000, "it logs");
    for (place, text) in [("errors", errors), ("events", events.into_iter().collect()), ("log", said)] {
        for secret in [KEY_ID, SECRET] {
            assert!(!text.contains(secret), "{secret} is in the {place}:\n{text}");
        }
    }
}

#[tokio::test]
async fn credentials_are_used_only_where_the_lane_names_the_place() {
    let server = ObjectServer::start().await;
    server.put("bucket/team/a.pdf", pdf(&[PAGE]), "\"1\"");
    let bed = bed_of(of_s3(&server), &["s3://bucket/team/", "https://docs.example/"]).await;
    let worker = bed.work();

    let rows = [
        "s3://bucket/team-b/a.pdf",
        "s3://bucket/a.pdf",
        "s3://bucket2/team/a.pdf",
        "s3://bucket/team/%2e%2e/a.pdf",
        "s3://bucket/team/..%2fa.pdf",
        "gs://bucket/team/a.pdf",
    ];
    for url in rows {
        let ended = bed.done(convert_of(url)).await;
        let expected = (State::Failed, Some(FailureClass::SourceForbidden));
        assert_eq!((ended.state, ended.failure_class), expected, "{url}: {:?}", ended.error);
    }
    let scanned = scan(&bed, "s3://bucket/").await;
    assert_eq!(scanned.failure_class, Some(FailureClass::SourceForbidden));

    // Without any word of the platform, no bucket is read.
    bed.allow(&[]).await;
    let ended = bed.done(convert_of("s3://bucket/team/a.pdf")).await;
    assert_eq!(ended.failure_class, Some(FailureClass::SourceForbidden));
    assert!(ended.error.is_some_and(|error| error.contains("allowedSources")));
    assert_eq!(server.asked().len(), 0, "no request was made");

    bed.allow(&["s3://bucket/team/"]).await;
    let read = bed.done(convert_of("s3://bucket/team/a.pdf")).await;
    assert_eq!(read.state, State::Completed, "{:?}", read.error);
    worker.stop().await;
}

#[tokio::test]
async fn addresses_that_are_not_public_are_asked_for_neither_objects_nor_credentials() {
    let server = ObjectServer::start().await;
    let mut bed = bed_of(of_s3(&server), &["s3://bucket/"]).await;
    bed.sources.allowed_networks = Vec::new();
    let worker = bed.work();
    let ended = bed.done(convert_of("s3://bucket/a.pdf")).await;
    assert_eq!(ended.failure_class, Some(FailureClass::ProviderMisconfigured), "{:?}", ended.error);
    assert!(ended.error.is_some_and(|error| error.contains("SLUICE_ALLOWED_NETWORKS")));
    worker.stop().await;
    assert_eq!(server.asked().len(), 0);

    // The machine's own credentials are behind a link-local address.
    bed.sources.stores = StoreVariables::default();
    let worker = bed.work();
    let ended = bed.done(convert_of("s3://bucket/a.pdf")).await;
    assert_eq!(ended.failure_class, Some(FailureClass::ProviderMisconfigured), "{:?}", ended.error);
    let error = ended.error.unwrap_or_default();
    assert!(error.contains("no credentials") && error.contains("169.254.169.254"), "{error}");
    worker.stop().await;
}

#[tokio::test]
async fn credentials_of_the_machine_are_used_where_the_operator_allows_its_address() {
    let server = ObjectServer::start().await;
    let given = json!({
        "AccessKeyId": KEY_ID, "SecretAccessKey": SECRET, "Token": "for-a-while", "Code": "Success", "Type": "AWS-HMAC",
        "LastUpdated": "2026-12-01T00:00:00Z", "Expiration": "2100-01-01T00:00:00Z",
    });
    let roles = "latest/meta-data/iam/security-credentials/";
    server.put("latest/api/token", "asked properly", "\"1\"");
    server.put(roles, "reader", "\"1\"");
    server.put(&format!("{roles}reader"), given.to_string(), "\"1\"");
    server.put("bucket/a.pdf", pdf(&[PAGE]), "\"1\"");
    let mut variables = of_s3(&server);
    variables.retain(|(name, _)| !name.contains("KEY"));
    variables.push(("AWS_METADATA_ENDPOINT".to_owned(), server.url()));
    let bed = bed_of(variables, &["s3://bucket/"]).await;
    let worker = bed.work();

    let read = bed.done(convert_of("s3://bucket/a.pdf")).await;
    assert_eq!(read.state, State::Completed, "{:?}", read.error);
    let asked = server.asked().pop().expect("a request");
    assert_eq!(asked.headers["x-amz-security-token"], "for-a-while");
    worker.stop().await;
}

#[tokio::test]
async fn plain_http_is_for_endpoints_that_the_operator_allows() {
    let server = ObjectServer::start().await;
    let mut variables = of_s3(&server);
    variables.retain(|(name, _)| name != "AWS_ALLOW_HTTP");
    let bed = bed_of(variables, &["s3://bucket/"]).await;
    let worker = bed.work();
    let ended = bed.done(convert_of("s3://bucket/a.pdf")).await;
    assert_eq!(ended.failure_class, Some(FailureClass::ProviderMisconfigured), "{:?}", ended.error);
    assert!(ended.error.is_some_and(|error| error.contains("AWS_ALLOW_HTTP")));
    assert_eq!(server.asked().len(), 0);
    worker.stop().await;
}

#[tokio::test]
async fn bucket_is_taken_in_once_and_what_changes_once_more() {
    let server = ObjectServer::start().await;
    server.put("bucket/team/wish.md", "# A wish\n\nWe like Lisbon.", "\"1\"");
    server.put("bucket/team/inner/a & b.pdf", pdf(&[PAGE]), "\"1\"");
    server.put("bucket/team/map.png", "a map", "\"1\"");
    server.put("bucket/team/note.txt", "We like Porto.", "\"1\"");
    server.put("bucket/team/plan.md", "# A plan\n\nWe go to Faro.", "\"1\"");
    server.put("bucket/team-b/other.md", "Not ours.", "\"1\"");
    let bed = bed_of(of_s3(&server), &["s3://bucket/team/"]).await;
    let worker = bed.work();
    let url = "s3://bucket/team/";

    assert_eq!(counts(&scan(&bed, url).await), [5, 4, 0, 1]);
    until_idle(&bed).await;
    let titles = "select coalesce(title, 'none') from ingest.document_versions";
    assert_eq!(bed.texts(titles).await.into_iter().collect::<Vec<_>>(), ["A plan", "A wish", "a & b", "none"]);

    let before = server.asked().len();
    assert_eq!(counts(&scan(&bed, url).await), [5, 0, 4, 1]);
    let again: Vec<_> = server.asked().split_off(before).into_iter().map(|asked| asked.target).collect();
    assert_eq!(again.len(), 3, "three pages, and no object is read again: {again:?}");

    server.put("bucket/team/wish.md", "# Another wish\n\nWe like Madrid.", "\"2\"");
    assert_eq!(counts(&scan(&bed, url).await), [5, 1, 3, 1]);
    until_idle(&bed).await;
    assert_eq!(bed.texts(titles).await.into_iter().collect::<Vec<_>>(), ["A plan", "Another wish", "a & b", "none"]);
    assert_eq!(counts(&scan(&bed, "s3://bucket/team/inner/").await), [1, 0, 1, 0]);
    worker.stop().await;
}

#[tokio::test]
async fn slow_transfer_ends_with_its_cancel() {
    let server = ObjectServer::start().await;
    server.put_in(Mood::Slow, "bucket/slow.pdf", "", "\"1\"");
    let bed = bed_of(of_s3(&server), &["s3://bucket/"]).await;
    let worker = bed.work();
    let id = bed.enqueue(convert_of("s3://bucket/slow.pdf")).await;
    bed.until("it is asked for", async || !server.asked().is_empty()).await;

    cancel(&bed.operator, id, Request::default(), Scope::default()).await.expect("an answer");
    assert_eq!(bed.until_ended(id).await.state, State::Cancelled);
    worker.stop().await;
}

#[tokio::test]
async fn google_and_azure_are_read_and_listed_too() {
    let server = ObjectServer::start().await;
    for bucket in ["shelf", "container"] {
        for name in ["a.pdf", "inner/b.pdf", "inner/c.pdf"] {
            server.put(&format!("{bucket}/docs/{name}"), pdf(&[PAGE]), "\"1\"");
        }
    }
    let endpoint = server.url();
    let variables = [
        ("GOOGLE_BEARER_TOKEN", SECRET.to_owned()),
        ("GOOGLE_BASE_URL", endpoint.clone()),
        ("AZURE_STORAGE_ACCOUNT_NAME", "lighthouse".to_owned()),
        ("AZURE_STORAGE_ACCOUNT_KEY", SECRET.to_owned()),
        ("AZURE_STORAGE_ENDPOINT", endpoint),
        ("AZURE_ALLOW_HTTP", "true".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let bed = bed_of(variables.into(), &["gs://shelf/docs/", "az://container/docs/"]).await;
    let worker = bed.work();

    for url in ["gs://shelf/docs/", "az://container/docs/"] {
        assert_eq!(counts(&scan(&bed, url).await), [3, 3, 0, 0], "{url}");
        until_idle(&bed).await;
        assert_eq!(counts(&scan(&bed, url).await), [3, 0, 3, 0], "{url}");
    }
    assert_eq!(bed.number("select count(*) from ingest.document_versions where title in ('a', 'b', 'c')").await, 6);
    for asked in server.asked() {
        let signed = asked.headers.get("authorization").expect("it is signed");
        let is_google = asked.target.starts_with("/shelf");
        let by = if is_google { format!("Bearer {SECRET}") } else { "SharedKey lighthouse:".to_owned() };
        assert!(signed.starts_with(&by) && signed.contains(SECRET) == is_google, "{}: {signed}", asked.target);
    }
    worker.stop().await;
}
