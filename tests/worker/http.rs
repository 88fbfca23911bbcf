//! The least of an HTTP client that probes and metrics need.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A kubelet waits a second by default; this leaves room for a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The status and the body, or why there was no answer.
pub async fn get(port: u16, path: &str) -> std::io::Result<(u16, String)> {
    tokio::time::timeout(LIMIT, ask(port, path)).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

async fn ask(port: u16, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}
