//! What a worker knows of object stores: the variables that their own programs read, which a pool has from a Secret.

use std::fmt;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ObjectStore, RetryConfig};

use super::connect::Connector;
use super::failure::misconfigured;
use super::place::{Bucket, Service};
use crate::worker::NotDone;

/// `AWS_…`, `GOOGLE_…` and `AZURE_…`, by name. What is not known is nobody's error: other programs read them too.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreVariables(Vec<(String, String)>);

impl StoreVariables {
    /// Those of stores, of all that there are.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let is_of_a_store = |name: &str| Service::ALL.iter().any(|service| name.starts_with(service.prefix()));
        Self(variables.into_iter().filter(|(name, _)| is_of_a_store(name)).collect())
    }

    fn of(&self, service: Service) -> impl Iterator<Item = (&str, &str)> {
        let variables = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        variables.filter(move |(name, _)| name.starts_with(service.prefix()))
    }

    /// Its credentials are for whoever asks for one of its objects: ask only for what may be read.
    pub(super) fn open(&self, bucket: &Bucket, connector: &Connector) -> Result<Arc<dyn ObjectStore>, NotDone> {
        let opened: object_store::Result<Arc<dyn ObjectStore>> = match bucket.service {
            Service::S3 => self.open_s3(&bucket.name, connector),
            Service::Gcs => self.open_gcs(&bucket.name, connector),
            Service::Azure => self.open_azure(&bucket.name, connector),
        };
        // What it says of them could repeat them.
        opened.map_err(|_| misconfigured(self.complaint(bucket.service)))
    }

    fn complaint(&self, service: Service) -> String {
        let prefix = service.prefix();
        let names: Vec<_> = self.of(service).map(|(name, _)| name).collect();
        let has = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        format!("what the worker's environment has of the store's settings ({prefix}…) is not enough, or wrong: {has}")
    }

    fn open_s3(&self, bucket: &str, connector: &Connector) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in self.of(Service::S3) {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let builder = builder.with_bucket_name(bucket).with_retry(no_retries());
        Ok(Arc::new(builder.with_http_connector(connector.clone()).build()?))
    }

    fn open_gcs(&self, bucket: &str, connector: &Connector) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = GoogleCloudStorageBuilder::new();
        for (name, value) in self.of(Service::Gcs) {
            if let Ok(key) = name.to_ascii_lowercase().parse::<GoogleConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let builder = builder.with_bucket_name(bucket).with_retry(no_retries());
        Ok(Arc::new(builder.with_http_connector(connector.clone()).build()?))
    }

    fn open_azure(&self, container: &str, connector: &Connector) -> object_store::Result<Arc<dyn ObjectStore>> {
        let mut builder = MicrosoftAzureBuilder::new();
        for (name, value) in self.of(Service::Azure) {
            if let Ok(key) = name.to_ascii_lowercase().parse::<AzureConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        let builder = builder.with_container_name(container).with_retry(no_retries());
        Ok(Arc::new(builder.with_http_connector(connector.clone()).build()?))
    }
}

/// Names only.
impl fmt::Debug for StoreVariables {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// A cut transfer goes on by our own hand, and all else by the task's next attempt, when its time has come.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, backoff: BackoffConfig::default(), ..RetryConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::source::guard::Guard;

    fn variables(pairs: &[(&str, &str)]) -> StoreVariables {
        StoreVariables::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    fn opened(service: Service, pairs: &[(&str, &str)]) -> Result<(), String> {
        let connector = Connector::new(Guard::new(Vec::new())).unwrap();
        let bucket = Bucket { service, name: "bucket".to_owned() };
        match variables(pairs).open(&bucket, &connector) {
            Ok(_) => Ok(()),
            Err(NotDone::Failed { message, .. }) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_are_never_shown() {
        let shown = format!("{:?}", variables(&[("AWS_SECRET_ACCESS_KEY", "hunter2")]));
        assert_eq!(shown, "[\"AWS_SECRET_ACCESS_KEY\"]");
    }

    #[test]
    fn a_store_is_made_of_the_variables_that_its_own_programs_read() {
        let s3 = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_REGION", "c"), ("AWS_PAGER", "")];
        assert_eq!(opened(Service::S3, &s3), Ok(()));
        assert_eq!(
            opened(Service::Azure, &[("AZURE_STORAGE_ACCOUNT_NAME", "a"), ("AZURE_STORAGE_ACCOUNT_KEY", "aGk=")]),
            Ok(())
        );
        assert_eq!(opened(Service::Gcs, &[("GOOGLE_SKIP_SIGNATURE", "true")]), Ok(()));
    }

    #[test]
    fn settings_that_make_no_store_are_named_without_their_values() {
        let half = opened(Service::S3, &[("AWS_SECRET_ACCESS_KEY", "hunter2"), ("AZURE_X", "")]).unwrap_err();
        assert!(half.ends_with("(AWS_…) is not enough, or wrong: AWS_SECRET_ACCESS_KEY"), "{half}");
        let broken = opened(Service::Gcs, &[("GOOGLE_SERVICE_ACCOUNT_KEY", "{\"hunter2\"")]).unwrap_err();
        assert!(broken.ends_with("GOOGLE_SERVICE_ACCOUNT_KEY"), "{broken}");
        assert!(opened(Service::Azure, &[]).unwrap_err().ends_with("nothing"));
    }
}
