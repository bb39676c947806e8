//! Downloads that clients ask for.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::stage::{Stage, echo, settings, wait_until};
use crate::staged::{ENDLESS, QUICK};

#[test]
fn a_download_is_told_line_by_line() {
    let stage = Stage::start(settings(), echo);
    let (status, body) = stage.send(&stage.post_text("/api/pull", &json!({"model": QUICK})));
    assert_eq!((status, body.lines().last()), (200, Some("{\"status\":\"success\"}")), "{body}");
    let whole = stage.post("/api/pull", &json!({"name": QUICK, "stream": false}));
    assert_eq!(whole, (200, json!({"status": "success"})));
    for reference in ["/etc/passwd", "http://evil.example/x.gguf", "file:///x.gguf", "x.gguf"] {
        assert_eq!(stage.post("/api/pull", &json!({"model": reference})).0, 400, "{reference}");
    }
    assert_eq!(stage.models.begun.load(Ordering::Relaxed), 2);
}

/// Two clients share one download, which continues for the second when the first leaves, and ends with the second.
#[test]
fn a_download_ends_with_its_last_client() {
    let stage = Stage::start(settings(), echo);
    let first = follow(&stage);
    let mut second = follow(&stage);
    assert_eq!(stage.models.begun.load(Ordering::Relaxed), 1);
    drop(first);
    for _ in 0..20 {
        assert!(second.read_line(&mut String::new()).unwrap() > 0, "it goes on");
    }
    assert_eq!(stage.models.cancelled.load(Ordering::Relaxed), 0);
    drop(second);
    wait_for_cancelled(&stage, 1);
    // A client that comes later restarts it.
    drop(follow(&stage));
    wait_for_cancelled(&stage, 2);
    assert_eq!(stage.models.begun.load(Ordering::Relaxed), 2);
}

/// A client that has seen bytes arrive.
fn follow(stage: &Stage) -> BufReader<TcpStream> {
    let stream = stage.connect(&stage.post_text("/api/pull", &json!({"model": ENDLESS})));
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("completed") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the download begins");
    }
    let step: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&step["status"], &step["total"]), (&json!("pulling abababababab"), &json!(1_u64 << 40)));
    assert_eq!(step["digest"], format!("sha256:{}", "ab".repeat(32)));
    lines
}

#[track_caller]
fn wait_for_cancelled(stage: &Stage, n: usize) {
    wait_until(&format!("{n} downloads are cancelled"), || stage.models.cancelled.load(Ordering::Relaxed) == n);
}
