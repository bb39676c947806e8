//! A running `hone serve`, and its clients' requests.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;

use serde_json::Value;

use crate::support::{Home, PATIENCE, smollm2, wait_until};

/// A running server.
pub(crate) struct Served {
    pub(crate) process: Child,
    pub(crate) address: String,
    pub(crate) home: Home,
}

impl Served {
    pub(crate) fn start(arguments: &[&str]) -> Served {
        Served::start_in(Home::new(), arguments)
    }

    pub(crate) fn start_in(home: Home, arguments: &[&str]) -> Served {
        let (process, address) = serve(&home, arguments);
        Served { process, address, home }
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> String {
        self.request("POST", path, body)
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &Value) -> String {
        let mut answer = String::new();
        self.connect(method, path, body).read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn connect(&self, method: &str, path: &str, body: &Value) -> TcpStream {
        connect(&self.address, method, path, body).unwrap()
    }
}

/// Starts a server that does not grade, and waits for its address.
pub(crate) fn serve(home: &Home, arguments: &[&str]) -> (Child, String) {
    serve_graded(home, &[&["--no-grade", "--model", &smollm2()], arguments].concat())
}

/// Starts a server, and waits for its address.
pub(crate) fn serve_graded(home: &Home, arguments: &[&str]) -> (Child, String) {
    let arguments = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
    let mut process = home.command(env!("CARGO_BIN_EXE_hone").as_ref(), &arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("hone serves on http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (process, address)
}

/// Sends a request to a server.
pub(crate) fn connect(host: &str, method: &str, path: &str, body: &Value) -> io::Result<TcpStream> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    let kind = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{kind}{body}").as_bytes())?;
    Ok(stream)
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The JSON of a response.
#[track_caller]
pub(crate) fn body_of(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|_| panic!("{answer}"))
}

/// The status of a response.
#[track_caller]
pub(crate) fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

/// Waits until the server works on `n` requests.
#[track_caller]
pub(crate) fn wait_for_requests(home: &Home, n: u64) {
    wait_until(&format!("the server works on {n} requests"), || {
        let running = home.json(&["ps", "--json"]);
        // The server's process is the only one with an engine.
        assert_eq!(running.as_array().unwrap().len(), 1, "{running}");
        let models = running[0]["models"].as_array().unwrap();
        models.iter().map(|model| model["requests"].as_u64().unwrap()).sum::<u64>() == n
    });
}
