//! A TCP proxy in front of a server, that delays, cuts, refuses and swallows what goes through it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const CHUNK_BYTES: usize = 16 * 1024;
/// As the driver writes it.
const COMMIT: &[u8] = b"COMMIT";

/// What becomes of the bytes of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Every chunk of either direction is late by this much.
    Delay(Duration),
    /// Connections are made and stay, and nothing comes out of them; what went in comes out when this is over.
    BlackHole,
    /// What a connection sends is held from its first COMMIT on.
    HoldCommits,
    /// New connections are closed at once; `cut` ends the old ones.
    Refuse,
}

#[derive(Clone, Copy)]
struct Orders {
    mode: Mode,
    /// Of connections that are made now.
    generation: u64,
    /// Older ones have ended.
    cut_before: u64,
    /// Older ones are silent for good.
    forgotten_before: u64,
}

/// On a thread of its own, so that a test that blocks does not stop it. Ends with this value.
pub struct Proxy {
    url: String,
    orders: Option<watch::Sender<Orders>>,
    held_commits: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// In front of a server of this machine, in TCP.
    pub fn start(url: &str) -> Self {
        let host = host_of(url).to_owned();
        let target = host.clone();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a listener for tokio");
        let port = listener.local_addr().expect("an address").port();
        let (orders, follow) =
            watch::channel(Orders { mode: Mode::Pass, generation: 0, cut_before: 0, forgotten_before: 0 });
        let held_commits = Arc::new(AtomicUsize::new(0));
        let held = Arc::clone(&held_commits);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                accept(&listener, &target, follow, held).await;
            });
        });
        let url = url.replacen(&host, &format!("127.0.0.1:{port}"), 1);
        Self { url, orders: Some(orders), held_commits, thread: Some(thread) }
    }

    /// The server's URL, through the proxy.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    pub fn set(&self, mode: Mode) {
        self.order(|orders| orders.mode = mode);
    }

    /// How many connections wait with a COMMIT, or did.
    pub fn held_commits(&self) -> usize {
        self.held_commits.load(Ordering::Relaxed)
    }

    /// Ends all connections that there are.
    pub fn cut(&self) {
        self.order(|orders| {
            orders.generation += 1;
            orders.cut_before = orders.generation;
        });
    }

    /// As a firewall that lost its memory: what is open now stays open and is silent for good, new connections work.
    pub fn forget(&self) {
        self.order(|orders| {
            orders.generation += 1;
            orders.forgotten_before = orders.generation;
        });
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        self.orders.as_ref().expect("only drop takes it").send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Without orders the loops end.
        self.orders.take();
        if let Some(thread) = self.thread.take() {
            // What it had to say, it said by panicking.
            let _ = thread.join();
        }
    }
}

/// `host:port`, as it stands in a URL with a role and a database.
fn host_of(url: &str) -> &str {
    let after_role = url.rsplit_once('@').expect("a role").1;
    after_role.split('/').next().expect("a host")
}

async fn accept(
    listener: &TcpListener,
    target: &str,
    mut orders: watch::Receiver<Orders>,
    held_commits: Arc<AtomicUsize>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(&mut orders) => return,
        };
        let Ok((client, _)) = accepted else { continue };
        let now = *orders.borrow();
        if now.mode != Mode::Refuse {
            let follow =
                Follow { generation: now.generation, orders: orders.clone(), held_commits: Arc::clone(&held_commits) };
            tokio::spawn(serve(client, target.to_owned(), follow));
        }
    }
}

/// When nobody gives orders any more.
async fn ended(orders: &mut watch::Receiver<Orders>) {
    while orders.changed().await.is_ok() {}
}

/// What one connection does as it is told.
#[derive(Clone)]
struct Follow {
    generation: u64,
    orders: watch::Receiver<Orders>,
    held_commits: Arc<AtomicUsize>,
}

impl Follow {
    /// Until a chunk may go on; an error if there are no orders any more.
    async fn passes(&mut self, chunk: &[u8]) -> Result<(), watch::error::RecvError> {
        let is_commit = chunk.windows(COMMIT.len()).any(|window| window == COMMIT);
        if is_commit && self.orders.borrow().mode == Mode::HoldCommits {
            self.held_commits.fetch_add(1, Ordering::Relaxed);
        }
        let generation = self.generation;
        let passes = |orders: &Orders| match orders.mode {
            Mode::BlackHole => false,
            Mode::HoldCommits => !is_commit,
            Mode::Pass | Mode::Delay(_) | Mode::Refuse => orders.forgotten_before <= generation,
        };
        self.orders.wait_for(passes).await.map(drop)
    }
}

async fn serve(client: TcpStream, target: String, follow: Follow) {
    // Nothing comes to the server of what begins in a black hole.
    let mut until_heard = follow.orders.clone();
    if until_heard.wait_for(|orders| orders.mode != Mode::BlackHole).await.is_err() {
        return;
    }
    // A server that is down: the client sees its connection end.
    let Ok(server) = TcpStream::connect(target).await else { return };
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut until_cut = follow.orders.clone();
    tokio::select! {
        () = pump(from_client, to_server, follow.clone()) => {}
        () = pump(from_server, to_client, follow.clone()) => {}
        _ = until_cut.wait_for(|orders| orders.cut_before > follow.generation) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut follow: Follow) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let bytes = match from.read(&mut chunk).await {
            Ok(0) | Err(_) => 0,
            Ok(bytes) => bytes,
        };
        // An end is swallowed and delayed as well.
        let now = follow.orders.borrow().mode;
        if let Mode::Delay(by) = now {
            tokio::time::sleep(by).await;
        }
        if follow.passes(&chunk[..bytes]).await.is_err() || bytes == 0 {
            return;
        }
        if to.write_all(&chunk[..bytes]).await.is_err() {
            return;
        }
    }
}
