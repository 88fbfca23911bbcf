//! Which tenants a namespace may name: its own, and those that the platform wrote on it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::api::TENANTS_ANNOTATION;

/// How long a grant is believed: a new one holds after this time at the latest, and one that was taken back ends.
const BELIEVED: Duration = Duration::from_secs(10);
/// Entries of one annotation; more are a mistake, and would be read at each look.
const TENANTS_MAX: usize = 10_000;

/// What the annotation `sluice.dev/tenants` of a namespace grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    Tenants(BTreeSet<String>),
    /// `["*"]`.
    Any,
    /// It is there, but is not what it should be: it grants nothing.
    Unreadable(String),
}

impl Grant {
    /// `None` is a namespace without the annotation.
    pub fn parse(annotation: Option<&str>) -> Self {
        let Some(text) = annotation else { return Grant::Tenants(BTreeSet::new()) };
        match serde_json::from_str::<Vec<String>>(text) {
            Ok(tenants) if tenants.len() > TENANTS_MAX => {
                Grant::Unreadable(format!("it has {} entries, at most {TENANTS_MAX} are read", tenants.len()))
            }
            Ok(tenants) if tenants.iter().any(|tenant| tenant == "*") => Grant::Any,
            Ok(tenants) => Grant::Tenants(tenants.into_iter().collect()),
            Err(_) => Grant::Unreadable("it is not a JSON array of strings".to_owned()),
        }
    }

    /// A tenant's own namespace always may; why not, in words for a condition.
    pub fn check(&self, namespace: &str, tenant: &str) -> Result<(), String> {
        if tenant == namespace {
            return Ok(());
        }
        let problem = match self {
            Grant::Any => return Ok(()),
            Grant::Tenants(tenants) if tenants.contains(tenant) => return Ok(()),
            Grant::Tenants(_) => "which does not name it".to_owned(),
            Grant::Unreadable(problem) => format!("which grants nothing: {problem}"),
        };
        Err(format!(
            "namespace {namespace} may name the tenant {namespace} and those in its annotation sluice.dev/tenants, {problem}; \
             the platform adds a tenant with an annotation such as '[\"a\",\"b\"]'"
        ))
    }
}

/// Grants as they were last read. Only a namespace that names a tenant not its own is ever read, with `get` alone, so that an
/// operator of a few namespaces needs no more than that.
#[derive(Default)]
pub struct Grants {
    read: Mutex<HashMap<String, (Instant, Arc<Grant>)>>,
}

impl Grants {
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the namespace may name the tenant, and why not. An error says nothing about it; what was read before
    /// then holds on.
    pub async fn check(
        &self,
        client: &Client,
        namespace: &str,
        tenant: &str,
    ) -> Result<Result<(), String>, kube::Error> {
        if tenant == namespace {
            return Ok(Ok(()));
        }
        Ok(self.of(client, namespace).await?.check(namespace, tenant))
    }

    async fn of(&self, client: &Client, namespace: &str) -> Result<Arc<Grant>, kube::Error> {
        let known = self.lock().get(namespace).cloned();
        if let Some((read_at, grant)) = &known
            && read_at.elapsed() < BELIEVED
        {
            return Ok(grant.clone());
        }
        let namespaces: Api<Namespace> = Api::all(client.clone());
        match namespaces.get_metadata_opt(namespace).await {
            Ok(found) => {
                let annotations = found.and_then(|found| found.metadata.annotations).unwrap_or_default();
                let grant = Arc::new(Grant::parse(annotations.get(TENANTS_ANNOTATION).map(String::as_str)));
                let mut read = self.lock();
                read.retain(|_, (read_at, _)| read_at.elapsed() < BELIEVED * 10);
                read.insert(namespace.to_owned(), (Instant::now(), grant.clone()));
                Ok(grant)
            }
            Err(error) => known.map(|(_, grant)| grant).ok_or(error),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Arc<Grant>)>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_names_its_own_tenant_and_those_that_it_was_given() {
        let rows = [
            (None, "team", true),
            (None, "other", false),
            (Some(r#"["a","b"]"#), "a", true),
            (Some(r#"["a","b"]"#), "team", true),
            (Some(r#"["a","b"]"#), "c", false),
            (Some(r#"["*"]"#), "anything at all", true),
            (Some("[]"), "a", false),
            (Some("[]"), "team", true),
            // What cannot be read grants nothing, and takes nothing away.
            (Some("a,b"), "a", false),
            (Some("a,b"), "team", true),
            (Some(r#"["*", 1]"#), "a", false),
            (Some(r#"{"*": true}"#), "*", false),
            // Only a whole entry is a wildcard.
            (Some(r#"["a*"]"#), "ab", false),
            (Some(r#"["A"]"#), "a", false),
        ];
        for (annotation, tenant, allowed) in rows {
            let answer = Grant::parse(annotation).check("team", tenant);
            assert_eq!(answer.is_ok(), allowed, "{annotation:?} {tenant}: {answer:?}");
        }
    }

    #[test]
    fn refusal_says_what_to_do() {
        let refused = Grant::parse(Some("a,b")).check("team", "a").unwrap_err();
        assert!(refused.contains("not a JSON array of strings") && refused.contains("sluice.dev/tenants"), "{refused}");
    }
}
