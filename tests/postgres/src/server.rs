//! One PostgreSQL server: made, started, asked, restarted, crashed and stopped.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::binaries::Binaries;
use crate::error::{Doing, Error, Result};
use crate::supervisor::Supervisor;

const POSTGRES: &str = "postgres";
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Another process may take a free port before the server does.
pub(crate) const PORT_ATTEMPTS: u32 = 5;
/// What `sockaddr_un` holds on macOS, the smallest of the systems that matter.
const SOCKET_PATH_LIMIT: usize = 103;

/// What the server of a run should be like.
#[derive(Debug, Clone)]
pub struct Options {
    settings: Vec<(String, String)>,
    base: Option<PathBuf>,
}

impl Options {
    /// For tests: survives a crash of the server, but not one of the machine.
    pub fn fast() -> Self {
        Self::durable().setting("fsync", "off").setting("full_page_writes", "off")
    }

    /// For benchmarks: commits as a production server does.
    pub fn durable() -> Self {
        let settings = [
            // A stop waits for who connects meanwhile and then says nothing, whatever it is sent.
            ("authentication_timeout", "20s"),
            ("max_connections", "200"),
            ("max_locks_per_transaction", "256"),
            ("max_replication_slots", "20"),
            ("max_wal_senders", "20"),
            ("timezone", "UTC"),
            ("wal_level", "logical"),
        ];
        Self {
            settings: settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            base: None,
        }
    }

    /// Sets a parameter of the server; the last value given counts.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Puts the server's directory below `base` instead of `TMPDIR`.
    #[must_use]
    pub fn base(mut self, base: impl Into<PathBuf>) -> Self {
        self.base = Some(base.into());
        self
    }
}

/// A running server. Dropping it, or dying in any other way, stops the server and removes its directory.
pub struct Server {
    supervisor: Supervisor,
    binaries: Binaries,
    password: String,
    port: u16,
}

impl Server {
    pub fn start(options: Options) -> Result<Self> {
        let binaries = Binaries::find()?;
        let supervisor = Supervisor::new(options.base.as_deref(), Signal::SIGQUIT)?;
        let mut server = Self { supervisor, binaries, password: random_password()?, port: 0 };
        if server.directory().join(".s.PGSQL.65535").as_os_str().len() > SOCKET_PATH_LIMIT {
            return Err(Error::PathTooLong { directory: server.directory().to_owned() });
        }
        server.initialise()?;
        let generated = fs::read_to_string(server.configuration()).doing("read the server's configuration")?;
        for attempt in 1..=PORT_ATTEMPTS {
            server.port = free_port()?;
            server.configure(&generated, &options.settings)?;
            match server.start_again() {
                Err(Error::Ended { ref log, .. })
                    if attempt < PORT_ATTEMPTS && log.contains("Address already in use") => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        Ok(server)
    }

    /// The superuser's URL of a database, over TCP.
    pub fn url(&self, database: &str) -> String {
        self.url_as("postgres", &self.password, database)
    }

    /// Any role's URL of a database, over TCP.
    pub fn url_as(&self, role: &str, password: &str, database: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// The superuser's URL of a database, over the unix socket, which asks for no password.
    pub fn socket_url(&self, database: &str) -> String {
        let host = self.directory().to_string_lossy().replace('/', "%2F");
        format!("postgres://postgres@{host}:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the unix socket, the log and the data are.
    pub fn directory(&self) -> &Path {
        self.supervisor.directory()
    }

    pub fn data_directory(&self) -> PathBuf {
        self.directory().join("data")
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The postmaster's process id, while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.supervisor.pid(POSTGRES)
    }

    pub fn log_tail(&self) -> String {
        self.supervisor.log_tail(POSTGRES)
    }

    pub fn create_database(&self, name: &str) -> Result<()> {
        self.psql("postgres", &format!("CREATE DATABASE {}", identifier(name))).map(drop)
    }

    /// A copy of a database that nobody is connected to.
    pub fn copy_database(&self, name: &str, template: &str) -> Result<()> {
        let statement = format!("CREATE DATABASE {} TEMPLATE {}", identifier(name), identifier(template));
        self.psql("postgres", &statement).map(drop)
    }

    /// Runs SQL as the superuser and gives back its unadorned output.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let output = Command::new(self.binaries.path("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .arg(self.socket_url(database))
            .output()
            .doing("run psql")?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(Error::Psql { message: String::from_utf8_lossy(&output.stderr).trim_end().to_owned() })
        }
    }

    /// Stops the server in good order, sessions included; its data stays for `start_again`.
    pub fn stop(&mut self) -> Result<()> {
        self.supervisor.signal(POSTGRES, Signal::SIGINT)?;
        // A decoding session that nobody reads holds up a stop in good order for ever.
        if !self.supervisor.wait_for_end(POSTGRES, STOP_LIMIT) {
            self.kill()?;
        }
        Ok(())
    }

    /// Ends the server as a crash would: nothing is flushed, and the next start recovers from the log.
    pub fn kill(&mut self) -> Result<()> {
        self.supervisor.signal(POSTGRES, Signal::SIGQUIT)?;
        if self.supervisor.wait_for_end(POSTGRES, STOP_LIMIT) {
            return Ok(());
        }
        Err(Error::TimedOut { program: POSTGRES.to_owned(), seconds: STOP_LIMIT.as_secs(), log: self.log_tail() })
    }

    /// Starts a stopped or killed server on its old port and data.
    pub fn start_again(&mut self) -> Result<()> {
        let data = self.data_directory();
        let program = self.binaries.path("postgres");
        self.supervisor.start(POSTGRES, &program, &["-D", &data.to_string_lossy()])?;
        let postmaster_file = data.join("postmaster.pid");
        self.supervisor.wait_until(POSTGRES, START_LIMIT, || {
            // Of this start, not of one that crashed: the first line is the pid.
            let Some(pid) = self.pid() else { return false };
            let content = fs::read_to_string(&postmaster_file).unwrap_or_default();
            let mut lines = content.lines();
            lines.next() == Some(pid.to_string().as_str())
                && lines.nth(6).is_some_and(|status| status.trim_end() == "ready")
        })
    }

    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    fn initialise(&mut self) -> Result<()> {
        let password_file = self.supervisor.write("password", &self.password)?;
        let locale = match (self.binaries.version(), cfg!(target_os = "linux")) {
            (17.., _) => vec!["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"],
            (_, true) => vec!["--locale=C.UTF-8"],
            (_, false) => vec!["--locale=C"],
        };
        let data = self.data_directory();
        let data = data.to_string_lossy();
        let password_file = password_file.to_string_lossy();
        let mut arguments = vec!["-D", &*data, "--pwfile", &*password_file];
        arguments.extend(["--username=postgres", "--encoding=UTF8", "--no-sync", "--no-instructions"]);
        // Nobody else can enter the directory that the socket is in.
        arguments.extend(["--auth-local=trust", "--auth-host=scram-sha-256"]);
        arguments.extend(locale);
        let program = self.binaries.path("initdb");
        self.supervisor.start("initdb", &program, &arguments)?;
        self.supervisor.wait_until("initdb", START_LIMIT, || self.supervisor.exit_code("initdb") == Some(0))
    }

    /// In the file and not on the command line, so that a test can override it with `ALTER SYSTEM`.
    fn configure(&self, generated: &str, settings: &[(String, String)]) -> Result<()> {
        let mut content = generated.to_owned();
        let directory = self.directory().to_string_lossy().into_owned();
        let own = [("listen_addresses", "127.0.0.1"), ("unix_socket_directories", &directory)];
        content.push_str(&format!("\nport = {}\n", self.port));
        let given = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.into_iter().chain(given) {
            content.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        fs::write(self.configuration(), content).doing("write the server's configuration")
    }

    fn configuration(&self) -> PathBuf {
        self.data_directory().join("postgresql.conf")
    }
}

pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).doing("find a free port")?;
    Ok(listener.local_addr().doing("find a free port")?.port())
}

fn random_password() -> Result<String> {
    let mut bytes = [0_u8; 16];
    fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).doing("make a password")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
