//! The longest waits of a thousand clients, alone and alongside clients that read slowly or go away. This is a
//! measurement: `scripts/bench.sh server --crowd` runs it and shows its results.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, sleep};
use std::time::{Duration, Instant};

use hone_app::config::ServerSettings;
use hone_protocol::GenerateRequest;
use hone_protocol::scripted::Script;
use serde_json::json;

use crate::stage::{Stage, ask, echo, question_of, settings};

const LIVE: usize = 1000;
const SLOW: usize = 100;
const VANISHING: usize = 200;
const ROUNDS: usize = 7;
/// The bytes that a slow reader reads at once, and the pause after them.
const SIP: (usize, Duration) = (1024, Duration::from_millis(50));
/// How long slow readers listen before the live clients come: until their answers are complete and wait for them.
/// Before that, they would share the model with the others, like any client.
const HEAD_START: Duration = Duration::from_secs(5);
/// The number and the size of the pieces for a slow reader: fewer pieces than a client may leave waiting, and together
/// more than it reads.
const PIECES: usize = 500;
const PIECE: usize = 2400;
/// Clients only send and receive.
const STACK: usize = 128 << 10;

#[test]
#[ignore = "it measures: scripts/bench.sh server --crowd"]
fn live_clients_beside_slow_and_vanishing_ones() {
    let most = 4 * LIVE;
    // No client is refused.
    let limits = ServerSettings { most_questions: most, patience: Some(Duration::from_secs(60)), ..settings() };
    let settings = ServerSettings { most_connections: most, most_streams: most, ..limits };
    let stage = Stage::start(settings, much_or_echo);
    p99(&stage);
    let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [p99(&stage), p99_in_trouble(&stage)]).collect();
    let [alone, beside] = [0, 1].map(|kind| rounds.iter().map(|round| round[kind]).collect::<Vec<_>>());
    println!("{}", json!({"alone_ms": alone, "beside_ms": beside}));
}

fn much_or_echo(request: &GenerateRequest) -> Script {
    match question_of(request).as_str() {
        "flood" => Script::saying(&vec!["much ".repeat(PIECE / 5).as_str(); PIECES]),
        _ => echo(request),
    }
}

/// The 99th percentile of the waits of clients that all ask at once, in milliseconds.
fn p99(stage: &Stage) -> f64 {
    let mut waits: Vec<f64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..LIVE).map(|number| spawn(scope, move || wait(stage, number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    waits.sort_by(f64::total_cmp);
    waits[LIVE * 99 / 100]
}

fn wait(stage: &Stage, number: usize) -> f64 {
    let question = format!("client {number} asks");
    let begin = Instant::now();
    let (status, answer) = stage.post("/v1/chat/completions", &ask(&question));
    let waited = begin.elapsed().as_secs_f64() * 1e3;
    assert_eq!((status, &answer["choices"][0]["message"]["content"]), (200, &json!(question)), "{answer}");
    waited
}

/// Like `p99`, while some clients read slowly, and others go away as soon as they have asked.
fn p99_in_trouble(stage: &Stage) -> f64 {
    let mut flood = ask("flood");
    flood["stream"] = json!(true);
    let flood = &stage.post_text("/v1/chat/completions", &flood);
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..SLOW).map(|_| spawn(scope, move || sip(stage.connect(flood), is_over))).collect();
        sleep(HEAD_START);
        spawn(scope, move || (0..VANISHING).for_each(|_| drop(stage.connect(flood))));
        let p99 = p99(stage);
        is_over.store(true, Ordering::Relaxed);
        assert!(slow.into_iter().all(|reader| reader.join().unwrap()), "they read all the while");
        p99
    })
}

/// Reads a little now and then. Returns whether there was data to read until the end.
fn sip(mut stream: TcpStream, is_over: &AtomicBool) -> bool {
    let (bytes, pause) = SIP;
    let mut sip = vec![0; bytes];
    while !is_over.load(Ordering::Relaxed) && stream.read(&mut sip).is_ok_and(|n_read| n_read > 0) {
        sleep(pause);
    }
    is_over.load(Ordering::Relaxed)
}

fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> std::thread::ScopedJoinHandle<'scope, T> {
    Builder::new().stack_size(STACK).spawn_scoped(scope, run).unwrap()
}
