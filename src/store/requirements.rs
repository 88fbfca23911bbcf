//! What the server must be able to do, and which of its settings are too small for that.

use sqlx::Row;

use super::connect::Database;
use super::error::StoreError;

/// The oldest PostgreSQL that the schema runs on.
const MINIMUM_VERSION: i32 = 15;
/// The largest batch that a function of the schema takes: it may hold one advisory lock for each item.
const LOCKS_PER_CALL: i64 = 1_000;
/// Sessions that make such a call at the same moment: two dozen workers, and some to spare.
const CALLS_AT_ONCE: i64 = 32;
/// The operator (10), two dozen workers with their claim, heartbeat and handlers, the HTTP API.
const CONNECTIONS: i64 = 80;

/// The server's settings that matter here.
#[derive(Debug, Clone)]
struct Settings {
    version: i32,
    max_connections: i64,
    max_prepared_transactions: i64,
    max_locks_per_transaction: i64,
    wal_level: String,
}

/// One setting, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Work will fail under load.
    TooSmall(String),
    /// Good to know.
    Note(String),
}

pub async fn check(database: &Database) -> Result<Vec<Finding>, StoreError> {
    let row = database
        .fetch_one(sqlx::query(
            "select current_setting('server_version_num')::int / 10000 as version,
                    current_setting('max_connections')::bigint as max_connections,
                    current_setting('max_prepared_transactions')::bigint as max_prepared_transactions,
                    current_setting('max_locks_per_transaction')::bigint as max_locks_per_transaction,
                    current_setting('wal_level') as wal_level",
        ))
        .await?;
    Ok(judge(&Settings {
        version: row.get("version"),
        max_connections: row.get("max_connections"),
        max_prepared_transactions: row.get("max_prepared_transactions"),
        max_locks_per_transaction: row.get("max_locks_per_transaction"),
        wal_level: row.get("wal_level"),
    }))
}

fn judge(settings: &Settings) -> Vec<Finding> {
    let Settings { version, max_connections, max_prepared_transactions, max_locks_per_transaction, wal_level } =
        settings;
    let mut findings = Vec::new();
    if *version < MINIMUM_VERSION {
        findings.push(Finding::TooSmall(format!(
            "the server is PostgreSQL {version}: {MINIMUM_VERSION} or newer is needed"
        )));
    }
    if *max_connections < CONNECTIONS {
        findings.push(Finding::TooSmall(format!(
            "max_connections is {max_connections}: set it to {CONNECTIONS} or more, or put a pooler in front"
        )));
    }
    let sessions = max_connections + max_prepared_transactions;
    let locks = max_locks_per_transaction * sessions;
    let needed = LOCKS_PER_CALL * CALLS_AT_ONCE.min(*max_connections);
    if locks < needed {
        findings.push(Finding::TooSmall(format!(
            "max_locks_per_transaction is {max_locks_per_transaction}, which makes {locks} locks for {sessions} sessions: \
             {needed} are needed for {LOCKS_PER_CALL}-item calls, so set it to {}",
            (needed + sessions - 1) / sessions
        )));
    }
    if wal_level != "logical" {
        findings.push(Finding::Note(format!("wal_level is {wal_level}: enough, but nothing can decode the log")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian_defaults() -> Settings {
        Settings {
            version: 15,
            max_connections: 100,
            max_prepared_transactions: 0,
            max_locks_per_transaction: 64,
            wal_level: "replica".to_owned(),
        }
    }

    #[test]
    fn default_lock_table_is_too_small_and_the_right_size_is_told() {
        let findings = judge(&debian_defaults());

        assert!(
            matches!(&findings[0], Finding::TooSmall(text) if text.contains("makes 6400 locks") && text.ends_with("set it to 320")),
            "{findings:?}"
        );
        assert!(matches!(&findings[1..], [Finding::Note(_)]), "{findings:?}");
    }

    #[test]
    fn told_size_is_enough() {
        let settings =
            Settings { max_locks_per_transaction: 320, wal_level: "logical".to_owned(), ..debian_defaults() };

        assert_eq!(judge(&settings), []);
    }

    #[test]
    fn old_server_and_few_connections_are_told() {
        let settings =
            Settings { version: 14, max_connections: 20, max_locks_per_transaction: 2_000, ..debian_defaults() };

        let too_small = judge(&settings).into_iter().filter(|finding| matches!(finding, Finding::TooSmall(_))).count();

        assert_eq!(too_small, 2);
    }
}
