//! A small OpenAI-compatible server that misbehaves on demand: a test says what it answers to each call.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Of the vectors that it makes.
pub const DIMENSIONS: u32 = 4;
pub const KEY: &str = "sk-very-secret";

/// One request, as it came.
#[derive(Debug, Clone)]
pub struct Call {
    pub path: String,
    pub authorization: Option<String>,
    pub body: Value,
    /// How many calls of this path there were before.
    pub number: usize,
}

impl Call {
    pub fn is_chat(&self) -> bool {
        self.path.ends_with("/chat/completions")
    }

    /// What is asked about: the text of a chat, or each text for a vector.
    pub fn texts(&self) -> Vec<&str> {
        let texts = if self.is_chat() {
            vec![&self.body["messages"][1]["content"]]
        } else {
            self.body["input"].as_array().expect("texts").iter().collect()
        };
        texts.into_iter().map(|text| text.as_str().expect("a text")).collect()
    }

    pub fn text(&self) -> String {
        self.texts().join("\n")
    }
}

pub enum Reply {
    /// A text in events, as it should be.
    Says(Vec<u8>),
    /// One piece of JSON.
    Json(String),
    /// With lines of headers, each with its end.
    Status(u16, String, String),
    /// An event, and then the connection is gone.
    Cut,
    /// Events without an end, as fast as they are read.
    Endless,
    /// It hears the call and says nothing, until the other side is gone.
    Silent,
}

pub struct Endpoint {
    address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
    /// When the other side of a silent call was gone.
    left: Arc<Mutex<Vec<Instant>>>,
}

impl Endpoint {
    pub async fn start(answer: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (calls, left) = (Arc::<Mutex<Vec<Call>>>::default(), Arc::<Mutex<Vec<Instant>>>::default());
        let (all_calls, all_left, answer) = (Arc::clone(&calls), Arc::clone(&left), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (calls, left, answer) = (Arc::clone(&all_calls), Arc::clone(&all_left), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let Some(mut call) = read(&mut stream).await else { return };
                    {
                        let mut calls = calls.lock().expect("nobody panicked with it");
                        call.number = calls.iter().filter(|before| before.path == call.path).count();
                        calls.push(call.clone());
                    }
                    let reply = answer(&call);
                    let is_silent = matches!(reply, Reply::Silent);
                    write(&mut stream, reply).await;
                    if is_silent {
                        left.lock().expect("nobody panicked with it").push(Instant::now());
                    }
                });
            }
        });
        Self { address, calls, left }
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("nobody panicked with it").clone()
    }

    pub fn chats(&self) -> usize {
        self.calls().iter().filter(|call| call.is_chat()).count()
    }

    pub fn left(&self) -> Vec<Instant> {
        self.left.lock().expect("nobody panicked with it").clone()
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Call> {
    let (mut path, mut authorization, mut length) = (String::new(), None, 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("POST ") {
            path = rest.split(' ').next()?.to_owned();
        }
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok()?,
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                authorization = Some(value.trim().to_owned());
            }
            Some(_) => {}
            None if line.is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Call { path, authorization, body: serde_json::from_slice(&body).ok()?, number: 0 })
}

/// A client that is gone is its own affair.
async fn write(stream: &mut BufReader<TcpStream>, reply: Reply) {
    let events = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n";
    let whole = |status: u16, headers: &str, kind: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status} It\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        )
    };
    match reply {
        Reply::Says(text) => {
            let _ = stream.write_all(format!("{events}\r\n").as_bytes()).await;
            let _ = stream.write_all(&text).await;
        }
        Reply::Json(body) => {
            let _ = stream.write_all(whole(200, "", "application/json", &body).as_bytes()).await;
        }
        Reply::Status(status, headers, body) => {
            let _ = stream.write_all(whole(status, &headers, "text/plain", &body).as_bytes()).await;
        }
        Reply::Cut => {
            let part = format!("{events}Content-Length: 100000\r\n\r\ndata: {}\n\n", piece("{\"entities\": [", None));
            let _ = stream.write_all(part.as_bytes()).await;
        }
        Reply::Endless => {
            let _ = stream.write_all(format!("{events}\r\n").as_bytes()).await;
            let event = format!("data: {}\n\n", piece(&"and more ".repeat(1_000), None));
            while stream.write_all(event.as_bytes()).await.is_ok() {}
        }
        Reply::Silent => {
            // Some events, so that the answer is under way.
            let _ = stream.write_all(format!("{events}\r\ndata: {}\n\n", piece("{", None)).as_bytes()).await;
            let _ = stream.flush().await;
            let _ = stream.read_u8().await;
        }
    }
    let _ = stream.flush().await;
    let _ = stream.shutdown().await;
}

/// One event's data.
fn piece(text: &str, finish: Option<&str>) -> Value {
    json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": finish }] })
}

/// A text in three events, a count, and the end.
pub fn says(text: &str) -> Reply {
    let characters: Vec<char> = text.chars().collect();
    let third = characters.len().div_ceil(3).max(1);
    let pieces = characters.chunks(third).map(|part| piece(&part.iter().collect::<String>(), None));
    let last = piece("", Some("stop"));
    let counted = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 10 } });
    let events: Vec<_> = pieces.chain([last, counted]).map(|event| format!("data: {event}\n\n")).collect();
    Reply::Says(format!("{}data: [DONE]\n\n", events.concat()).into_bytes())
}

/// People that a chapter of `bed::book` names, and that they met.
pub fn people_of(text: &str) -> Value {
    let words: Vec<_> = text.split_whitespace().collect();
    let of = |start: &str| words.iter().find(|word| word.starts_with(start)).map_or("Nobody", |word| *word);
    let (ada, grace) = (of("Ada"), of("Grace"));
    json!({
        "entities": [
            { "name": ada, "kind": "person", "description": "met somebody in Bern" },
            { "name": grace, "kind": "person", "description": "was met" },
        ],
        "relations": [{ "source": ada, "target": grace, "kind": "met", "description": "in Bern" }],
    })
}

/// As many vectors as there are texts.
pub fn vectors_for(call: &Call) -> Reply {
    vectors(call.texts().len(), &json!([1, 2, 2, 4]).to_string())
}

pub fn vectors(count: usize, vector: &str) -> Reply {
    let items: Vec<_> = (0..count).map(|index| format!(r#"{{"index":{index},"embedding":{vector}}}"#)).collect();
    Reply::Json(format!(r#"{{"data":[{}],"usage":{{"prompt_tokens":{}}}}}"#, items.join(","), count * 50))
}

/// As it should be.
pub fn good(call: &Call) -> Reply {
    if call.is_chat() { says(&people_of(&call.text()).to_string()) } else { vectors_for(call) }
}

/// A port that nobody listens on.
pub fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}/v1", listener.local_addr().expect("an address"))
}

/// The shortest time that a client took to leave after it was told to.
pub fn shortest(told: &[Instant], left: &[Instant]) -> Duration {
    told.iter().zip(left).map(|(told, left)| left.saturating_duration_since(*told)).min().expect("one")
}
