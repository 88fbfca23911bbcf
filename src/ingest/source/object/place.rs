//! Where a URL of an object store leads, and back.

use object_store::path::Path;
use url::Url;

use crate::domain::failure::FailureClass;
use crate::worker::NotDone;

/// Longer than any store's names, so that they bound what is kept of them.
const BUCKET_MAX_CHARS: usize = 222;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    S3,
    Gcs,
    Azure,
}

impl Service {
    pub const ALL: [Self; 3] = [Self::S3, Self::Gcs, Self::Azure];

    pub fn of(url: &Url) -> Option<Self> {
        match url.scheme() {
            "s3" => Some(Self::S3),
            "gs" => Some(Self::Gcs),
            "az" => Some(Self::Azure),
            _ => None,
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }

    /// What the names of its settings begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::S3 => "AWS_",
            Self::Gcs => "GOOGLE_",
            Self::Azure => "AZURE_",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bucket {
    pub service: Service,
    pub name: String,
}

/// An object, or all that begins with it and a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub bucket: Bucket,
    pub key: Path,
}

impl Place {
    /// `None`: it is no object store's URL.
    pub fn of(url: &Url) -> Result<Option<Self>, NotDone> {
        let Some(service) = Service::of(url) else { return Ok(None) };
        // It becomes a part of the path that is asked for.
        let name = url.host_str().unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || [b'.', b'-', b'_'].contains(&byte);
        if !name.bytes().all(is_plain) || name.trim_matches('.').is_empty() || name.len() > BUCKET_MAX_CHARS {
            return Err(invalid("url names no bucket: write it as s3://bucket/key"));
        }
        if url.port().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("url is more than a bucket and a key: of a key, write ? as %3F and # as %23"));
        }
        let key = Path::from_url_path(url.path()).map_err(|_| {
            invalid("url has a key that cannot be read: with an empty part, `.` or `..` as a part, or no UTF-8")
        })?;
        Ok(Some(Self { bucket: Bucket { service, name: name.to_owned() }, key }))
    }
}

impl Bucket {
    /// Of one of its objects, as a person would write it.
    pub fn url_of(&self, key: &Path) -> Option<String> {
        let mut url = Url::parse(&format!("{}://{}/", self.service.scheme(), self.name)).ok()?;
        url.path_segments_mut().ok()?.pop_if_empty().extend(key.as_ref().split('/'));
        Some(url.into())
    }
}

fn invalid(message: &str) -> NotDone {
    NotDone::failed(FailureClass::InvalidDocument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Option<Place> {
        Place::of(&Url::parse(url).unwrap()).unwrap()
    }

    fn is_invalid(url: &str) -> bool {
        matches!(
            Place::of(&Url::parse(url).unwrap()),
            Err(NotDone::Failed { class: FailureClass::InvalidDocument, .. })
        )
    }

    #[test]
    fn a_url_names_a_bucket_and_a_key() {
        let rows = [
            ("s3://bucket/a.pdf", Service::S3, "bucket", "a.pdf"),
            ("S3://Bucket.1/a/b%20c.pdf", Service::S3, "Bucket.1", "a/b c.pdf"),
            ("gs://my_bucket/%C3%BC%3F%23.md", Service::Gcs, "my_bucket", "ü?#.md"),
            ("az://container/folder/", Service::Azure, "container", "folder"),
            ("s3://bucket", Service::S3, "bucket", ""),
        ];
        for (url, service, name, key) in rows {
            let bucket = Bucket { service, name: name.to_owned() };
            assert_eq!(place(url), Some(Place { bucket, key: Path::parse(key).unwrap() }), "{url}");
        }
        assert_eq!(place("https://bucket/a.pdf"), None);
        assert_eq!(place("file:///a.pdf"), None);
    }

    #[test]
    fn what_is_more_or_less_than_that_is_refused() {
        for url in [
            "s3:///a.pdf",
            "s3://../a.pdf",
            "s3://bu%2Fcket/a.pdf",
            "s3://bucket:9000/a.pdf",
            "s3://bucket/a.pdf?versionId=1",
            "s3://bucket/a.pdf#1",
            "s3://bucket/a//b.pdf",
            "s3://bucket/a%2F..%2Fb.pdf",
            "s3://bucket/%FF.pdf",
        ] {
            assert!(is_invalid(url), "{url}");
        }
    }

    #[test]
    fn urls_of_keys_lead_back_to_them() {
        let bucket = Bucket { service: Service::S3, name: "bucket".to_owned() };
        for key in ["a.pdf", "a b/c?d#e%20f.md", "ü/[x] (1).txt", "a+b&c=d;e.pdf"] {
            let key = Path::parse(key).unwrap();
            let url = bucket.url_of(&key).unwrap();
            assert_eq!(place(&url), Some(Place { bucket: bucket.clone(), key }), "{url}");
        }
        assert_eq!(bucket.url_of(&Path::parse("a b/c.pdf").unwrap()).as_deref(), Some("s3://bucket/a%20b/c.pdf"));
    }
}
