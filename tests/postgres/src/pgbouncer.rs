//! A pgbouncer in transaction mode in front of a private server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::error::{Error, Result};
use crate::server::{PORT_ATTEMPTS, free_port};
use crate::supervisor::Supervisor;

const PGBOUNCER: &str = "pgbouncer";
const START_LIMIT: Duration = Duration::from_secs(20);

/// Sizes of the pooler; the rest is as hard as a user may have it.
#[derive(Debug, Clone)]
pub struct PgBouncerOptions {
    /// Server connections per database and role.
    pub pool_size: u32,
    /// Client connections in all; more are refused.
    pub max_clients: u32,
}

impl Default for PgBouncerOptions {
    fn default() -> Self {
        Self { pool_size: 30, max_clients: 1_000 }
    }
}

/// A running pooler, gone when dropped.
pub struct PgBouncer {
    // Held for its drop.
    _supervisor: Supervisor,
    port: u16,
    superuser: Upstream,
}

/// A server and a superuser of it, taken from a URL.
#[derive(Clone)]
struct Upstream {
    role: String,
    password: String,
    host: String,
    port: u16,
}

impl PgBouncer {
    /// In front of the server of a superuser's URL. `None` if pgbouncer is not installed (`apt-get install pgbouncer`):
    /// skip the test by name then.
    pub fn start(superuser_url: &str, options: &PgBouncerOptions) -> Result<Option<Self>> {
        let superuser = upstream(superuser_url).ok_or(Error::WrongUrl)?;
        let Some(program) = find() else { return Ok(None) };
        for attempt in 1.. {
            // Nothing is lost with a pooler, and what its other signals mean changed between versions.
            let mut supervisor = Supervisor::new(None, Signal::SIGKILL)?;
            let port = free_port()?;
            // The role that looks up all others must be known beforehand.
            let users = format!("\"{}\" \"{}\"\n", superuser.role, superuser.password);
            let users = supervisor.write("users.txt", &users)?;
            let configuration = configuration(&superuser, options, port, &users);
            let configuration = supervisor.write("pgbouncer.ini", &configuration)?;
            supervisor.start(PGBOUNCER, &program, &[&configuration.to_string_lossy()])?;
            let up = || supervisor.log_tail(PGBOUNCER).contains("process up");
            match supervisor.wait_until(PGBOUNCER, START_LIMIT, up) {
                Err(Error::Ended { ref log, .. })
                    if attempt < PORT_ATTEMPTS && log.contains("Address already in use") => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    return Ok(Some(Self { _supervisor: supervisor, port, superuser }));
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The superuser's URL of a database, through the pooler.
    pub fn url(&self, database: &str) -> String {
        self.url_as(&self.superuser.role, &self.superuser.password, database)
    }

    /// Any role's URL of a database, through the pooler.
    pub fn url_as(&self, role: &str, password: &str, database: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Round robin, so that no two transactions of a client meet the same session by luck, and no
/// `ignore_startup_parameters`: what a plain installation refuses is refused here.
fn configuration(superuser: &Upstream, options: &PgBouncerOptions, port: u16, users: &Path) -> String {
    format!(
        "[databases]\n\
         * = host={host} port={server_port} auth_user={role}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = scram-sha-256\n\
         auth_file = {users}\n\
         auth_query = SELECT rolname, rolpassword FROM pg_catalog.pg_authid WHERE rolname = $1\n\
         pool_mode = transaction\n\
         server_round_robin = 1\n\
         default_pool_size = {pool_size}\n\
         max_client_conn = {max_clients}\n",
        users = users.display(),
        host = superuser.host,
        server_port = superuser.port,
        role = superuser.role,
        pool_size = options.pool_size,
        max_clients = options.max_clients,
    )
}

/// `postgres://role:password@host:port/…`, without escapes.
fn upstream(url: &str) -> Option<Upstream> {
    let (_, rest) = url.split_once("://")?;
    let (credentials, rest) = rest.rsplit_once('@')?;
    let (role, password) = credentials.split_once(':')?;
    let (host, port) = rest.split(['/', '?']).next()?.split_once(':').unwrap_or((rest.split('/').next()?, "5432"));
    Some(Upstream {
        role: role.to_owned(),
        password: password.to_owned(),
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

/// Debian keeps it in /usr/sbin, which is not in everybody's PATH.
fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"].map(PathBuf::from))
        .map(|directory| directory.join(PGBOUNCER))
        .find(|program| program.is_file())
}
