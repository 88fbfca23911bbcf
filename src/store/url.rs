//! Where the database is: parsed once, printed without its password.

use std::fmt;
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

/// A parameter of ours in the URL, known from other clients: a pooler in transaction mode is in the way.
const POOLER_PARAMETER: &str = "pgbouncer";

#[derive(Debug, thiserror::Error)]
#[error("the database URL must look like postgres://user:password@host:5432/database: {problem}")]
pub struct BadUrl {
    problem: String,
}

/// A database's URL. With `?pgbouncer=true`, nothing is sent that a pooler in transaction mode cannot pass on.
#[derive(Clone)]
pub struct DatabaseUrl {
    options: PgConnectOptions,
    pooler: bool,
}

impl DatabaseUrl {
    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    pub(super) fn is_pooler(&self) -> bool {
        self.pooler
    }

    /// Host and port, or the socket's directory.
    pub fn server(&self) -> String {
        match self.options.get_socket() {
            Some(socket) => format!("{}, port {}", socket.display(), self.options.get_port()),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        }
    }

    pub fn role(&self) -> &str {
        self.options.get_username()
    }

    /// As the server does, the role's name where none is given.
    pub fn database(&self) -> &str {
        self.options.get_database().unwrap_or_else(|| self.role())
    }
}

impl FromStr for DatabaseUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(BadUrl { problem: "it has another scheme".to_owned() });
        }
        let (location, query) = text.split_once('?').unwrap_or((text, ""));
        let mut pooler = false;
        let mut rest = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some((POOLER_PARAMETER, "true")) => pooler = true,
                Some((POOLER_PARAMETER, "false")) => pooler = false,
                Some((POOLER_PARAMETER, _)) => {
                    return Err(BadUrl { problem: format!("{POOLER_PARAMETER} is true or false") });
                }
                Some(_) | None => rest.push(parameter),
            }
        }
        // The driver's message names the part that is wrong and quotes nothing of the URL.
        let options = PgConnectOptions::from_str(&format!("{location}?{}", rest.join("&")))
            .map_err(|error| BadUrl { problem: error.to_string() })?;
        Ok(Self { options, pooler })
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "database {} on {} as {}", self.database(), self.server(), self.role())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self}, pooler: {})", self.pooler)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> DatabaseUrl {
        text.parse().expect("a URL")
    }

    #[test]
    fn password_is_neither_displayed_nor_debugged() {
        let url = parsed("postgres://app:hunter2@db.example:6432/sluice?pgbouncer=true&sslmode=disable");

        assert_eq!(url.to_string(), "database sluice on db.example:6432 as app");
        assert!(!format!("{url:?}").contains("hunter2"));
        assert!(url.is_pooler());
    }

    #[test]
    fn pooler_is_only_where_the_url_says_so() {
        assert!(!parsed("postgres://app@db/sluice").is_pooler());
        assert!(!parsed("postgres://app@db/sluice?pgbouncer=false").is_pooler());
    }

    #[test]
    fn wrong_url_is_told_without_its_password() {
        for text in
            ["mysql://app:hunter2@db/x", "postgres://app:hunter2@db:port/x", "postgres://a:hunter2@db/x?pgbouncer=1"]
        {
            let error = text.parse::<DatabaseUrl>().expect_err(text).to_string();

            assert!(error.starts_with("the database URL must look like"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
