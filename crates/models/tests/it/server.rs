//! A local server that speaks the hub's protocol, and can be told to misbehave.
//!
//! Large files are answered as the hub answers them: a redirect that carries `X-Linked-Etag` (the SHA-256) and
//! `X-Linked-Size`, to a content network, which here is a second port with other headers.

use std::{
    collections::{HashMap, VecDeque},
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};

/// The hub and its content network.
pub(crate) struct Server {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
}

/// A request that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Whether it arrived at the content network.
    pub(crate) at_network: bool,
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) authorization: Option<String>,
}

/// The fault in the next answer to a request for content.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The connection is closed after this many bytes of the body.
    BreakAfter(usize),
    /// Another status, with this `Retry-After`.
    Status(u16, Option<&'static str>),
    /// The whole file with status 200, whatever range was requested.
    IgnoreRange,
    /// The range does not exist.
    RefuseRange,
    /// A complete answer that contains at most this many of the requested bytes.
    Short(usize),
    /// A `Content-Length` of this many bytes.
    ClaimLength(u64),
    /// The body arrives slowly: pieces of this many bytes, ten milliseconds apart.
    Slowly(usize),
}

#[derive(Clone)]
struct Served {
    content: Vec<u8>,
    /// The hash of the content published by the hub; `None` for a small file, which has only a git hash.
    linked_etag: Option<String>,
    media_type: &'static str,
}

#[derive(Default)]
struct State {
    files: HashMap<String, Served>,
    faults: VecDeque<Fault>,
    requests: Vec<Request>,
    n_broken_off: usize,
    network: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let hub = listen(Arc::clone(&state), false);
        let network = listen(Arc::clone(&state), true);
        state.lock().unwrap().network = network;
        Self { endpoint: hub, state }
    }

    /// Publishes a large file under `OWNER/REPO/resolve/REVISION/FILE`, or another version of it.
    pub(crate) fn publish(&self, path: &str, content: &[u8]) {
        self.publish_as(path, content, Some(sha256(content)));
    }

    /// Publishes a small file, for which the hub has no SHA-256.
    pub(crate) fn publish_small(&self, path: &str, content: &[u8]) {
        self.publish_as(path, content, None);
    }

    /// Publishes a large file under a hash that may not be its own.
    pub(crate) fn publish_as(&self, path: &str, content: &[u8], linked_etag: Option<String>) {
        let served = Served { content: content.to_vec(), linked_etag, media_type: "application/octet-stream" };
        self.state.lock().unwrap().files.insert(format!("/{path}"), served);
    }

    /// Publishes a page of a package index.
    pub(crate) fn publish_page(&self, path: &str, media_type: &'static str, text: &str) {
        let served = Served { content: text.as_bytes().to_vec(), linked_etag: None, media_type };
        self.state.lock().unwrap().files.insert(format!("/{path}"), served);
    }

    /// Makes the next requests for content fail, with one fault each.
    pub(crate) fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().unwrap().faults.extend(faults);
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    /// The number of answers that clients did not read to the end.
    #[allow(dead_code, reason = "the tests of the program ask")]
    pub(crate) fn n_broken_off(&self) -> usize {
        self.state.lock().unwrap().n_broken_off
    }

    /// The ranges of the requests for content so far.
    pub(crate) fn ranges(&self) -> Vec<Option<String>> {
        self.requests().into_iter().filter(|request| request.at_network).map(|request| request.range).collect()
    }
}

fn listen(state: Arc<Mutex<State>>, at_network: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let state = Arc::clone(&state);
            // Some tests disconnect on purpose, so an error of the connection is only counted.
            thread::spawn(move || {
                if answer(stream.unwrap(), &state, at_network).is_err() {
                    state.lock().unwrap().n_broken_off += 1;
                }
            });
        }
    });
    address
}

fn answer(mut stream: TcpStream, state: &Mutex<State>, at_network: bool) -> std::io::Result<()> {
    let request = read_request(&stream, at_network)?;
    let (served, fault, network) = {
        let mut state = state.lock().unwrap();
        state.requests.push(request.clone());
        let served = state.files.get(&request.path).cloned();
        let is_content = at_network || served.as_ref().is_some_and(|file| file.linked_etag.is_none());
        let fault = if is_content { state.faults.pop_front() } else { None };
        (served, fault, state.network.clone())
    };
    match (served, request.path.as_str()) {
        (_, path) if path.starts_with("/gated/") => status(&mut stream, "403 Forbidden", ""),
        (_, path) if path.starts_with("/private/") => status(&mut stream, "401 Unauthorized", ""),
        (_, path) if path.starts_with("/loop/") => {
            status(&mut stream, "307 Temporary Redirect", &format!("Location: {path}\r\n"))
        }
        (_, path) if path.starts_with("/moved/") => {
            let target = path.replacen("/moved/", "/o/", 1);
            status(&mut stream, "307 Temporary Redirect", &format!("Location: {target}\r\n"))
        }
        (_, path) if path.starts_with("/lost/") => status(&mut stream, "302 Found", ""),
        (None, _) => status(&mut stream, "404 Not Found", ""),
        (Some(Served { content, linked_etag: Some(etag), .. }), path) if !at_network => {
            let size = content.len();
            let headers = format!(
                "Location: {network}{path}\r\nX-Linked-Etag: \"{etag}\"\r\nX-Linked-Size: {size}\r\nX-Repo-Commit: 1f2e\r\n"
            );
            status(&mut stream, "302 Found", &headers)
        }
        (Some(file), _) => content(&mut stream, &request, &file, fault),
    }
}

fn read_request(stream: &TcpStream, at_network: bool) -> std::io::Result<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut request = Request { at_network, path, range: None, authorization: None };
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "range" => request.range = Some(value.to_owned()),
            "authorization" => request.authorization = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok(request)
}

fn content(stream: &mut TcpStream, request: &Request, file: &Served, fault: Option<Fault>) -> std::io::Result<()> {
    let whole = &file.content;
    let asked = request.range.as_ref().and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let mut start: usize = asked.unwrap_or(0);
    match &fault {
        Some(Fault::Status(code, retry_after)) => {
            let headers = retry_after.map(|value| format!("Retry-After: {value}\r\n")).unwrap_or_default();
            return status(stream, &format!("{code} Fault"), &headers);
        }
        Some(Fault::IgnoreRange) => start = 0,
        Some(Fault::RefuseRange) => start = usize::MAX,
        _ => {}
    }
    if start > whole.len() {
        return status(stream, "416 Range Not Satisfiable", &format!("Content-Range: bytes */{}\r\n", whole.len()));
    }
    let end = if let Some(Fault::Short(count)) = fault { whole.len().min(start + count) } else { whole.len() };
    let body = &whole[start..end];
    let length = if let Some(Fault::ClaimLength(length)) = fault { length } else { body.len() as u64 };
    let partial = asked.is_some() && !matches!(fault, Some(Fault::IgnoreRange));
    let code = if partial { "206 Partial Content" } else { "200 OK" };
    // The content network's validator differs from the hub's, as in reality.
    let mut head = format!("HTTP/1.1 {code}\r\nConnection: close\r\nETag: \"git-{}\"\r\n", &sha256(whole)[..8]);
    head += &format!("Content-Length: {length}\r\nContent-Type: {}; charset=utf-8\r\n", file.media_type);
    if partial {
        head += &format!("Content-Range: bytes {start}-{}/{}\r\n", end - 1, whole.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    match fault {
        Some(Fault::BreakAfter(count)) => stream.write_all(&body[..count.min(body.len())]),
        Some(Fault::Slowly(piece)) => body.chunks(piece).try_for_each(|piece| {
            // The tests request this rate.
            thread::sleep(Duration::from_millis(10));
            stream.write_all(piece)
        }),
        _ => stream.write_all(body),
    }
}

fn status(stream: &mut TcpStream, status: &str, headers: &str) -> std::io::Result<()> {
    stream.write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: 0\r\n\r\n").as_bytes())
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
