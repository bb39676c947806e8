//! Several processes and one store: this test program runs itself as the other processes.

use std::{
    env,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use hone_models::{Event, PullOptions, Store, StoreError};

use crate::{
    fixtures::{Home, model_bytes, options, write},
    server::{Fault, Server},
};

const FILE: &str = "o/r/resolve/main/big.gguf";
const REFERENCE: &str = "hf:o/r/big.gguf";
const LENGTH: usize = 400_000;

/// Pulls in a separate process, which exits with 0 when the model is installed.
fn pull_in_child(endpoint: &str, home: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "processes::child", "--ignored", "--quiet"])
        .env("HONE_TEST_ENDPOINT", endpoint)
        .env("HONE_TEST_HOME", home)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "is the other process of the tests beside it"]
fn child() {
    // This test may also be started without a parent, by a run of all ignored tests.
    let Ok(endpoint) = env::var("HONE_TEST_ENDPOINT") else { return };
    let home = env::var("HONE_TEST_HOME").unwrap();
    Store::open(Path::new(&home)).unwrap().pull(REFERENCE, &options(&endpoint), &mut |_| ()).unwrap();
}

/// Waits until a condition holds, for far longer than anything here takes.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < until, "within two minutes it has not come about that {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_processes_fetch_a_model_once() {
    let (server, home) = (Server::start(), Home::new());
    server.publish(FILE, &model_bytes(1, LENGTH));
    server.fail_next([Fault::Slowly(20_000)]);
    let mut children: Vec<Child> = (0..4).map(|_| pull_in_child(&server.endpoint, home.folder.path())).collect();
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    assert_eq!(home.bytes("big"), model_bytes(1, LENGTH));
    assert_eq!(server.ranges().len(), 1);
}

#[test]
fn a_killed_process_leaves_what_it_fetched_to_the_next() {
    let (server, home) = (Server::start(), Home::new());
    server.publish(FILE, &model_bytes(1, LENGTH));
    server.fail_next([Fault::Slowly(2_000)]);
    let mut child = pull_in_child(&server.endpoint, home.folder.path());
    let partial = home.path(".incoming/big/model.gguf.partial");
    wait_until("a part is there", || partial.metadata().is_ok_and(|file| file.len() > 10_000));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(home.store.list().unwrap().unfinished, ["big"]);
    home.pull(REFERENCE, &options(&server.endpoint)).0.unwrap();
    assert_eq!(home.bytes("big"), model_bytes(1, LENGTH));
    let range = server.ranges().pop().unwrap().unwrap();
    let start: usize = range.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap();
    assert!(start > 10_000, "{range}");
}

#[test]
fn who_waits_is_told_and_who_removes_is_refused() {
    let (server, home) = (Server::start(), Home::new());
    server.publish(FILE, &model_bytes(1, LENGTH));
    server.fail_next([Fault::Slowly(2_000)]);
    let (begun, wait_for_begin) = mpsc::channel();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let mut report = |event: &Event| match event {
                Event::Progress { done, .. } if *done > 0 => drop(begun.send(())),
                _ => {}
            };
            home.store.pull(REFERENCE, &options(&server.endpoint), &mut report).unwrap()
        });
        wait_for_begin.recv().unwrap();
        assert!(matches!(home.store.remove("big"), Err(StoreError::Busy(_))));
        let (second, events) = home.pull(REFERENCE, &options(&server.endpoint));
        assert!(second.unwrap().was_there);
        assert_eq!(events, [Event::Waiting]);
        assert!(!first.join().unwrap().was_there);
    });
    assert_eq!(server.ranges().len(), 1);
}

#[test]
fn the_environment_is_read() {
    let home = tempfile::TempDir::new().unwrap();
    write(&home.path().join("token"), b"from-file\n");
    let check = |variables: &[(&str, &str)], expected: &str| {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", "processes::environment_child", "--ignored", "--quiet"])
            .env_remove("HONE_OFFLINE")
            .env_remove("HF_TOKEN")
            .env_remove("HF_ENDPOINT")
            .env("HF_HOME", home.path())
            .envs(variables.iter().copied())
            .env("HONE_TEST_EXPECTED", expected)
            .output()
            .unwrap();
        assert!(output.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&output.stdout));
    };
    check(&[], "false https://huggingface.co from-file");
    check(&[("HONE_OFFLINE", "1"), ("HF_TOKEN", "mine")], "true https://huggingface.co mine");
    check(&[("HONE_OFFLINE", "0"), ("HF_ENDPOINT", "http://mirror:8080/")], "false http://mirror:8080 from-file");
    check(&[("HONE_OFFLINE", ""), ("HF_TOKEN", "")], "false https://huggingface.co from-file");
    check(&[("HONE_OFFLINE", "yes"), ("HF_HOME", "/no/such/folder")], "true https://huggingface.co ");
}

#[test]
#[ignore = "is the other process of the test above"]
fn environment_child() {
    let Ok(expected) = env::var("HONE_TEST_EXPECTED") else { return };
    let options = PullOptions::from_environment();
    let token = options.hub_token.unwrap_or_default();
    let found = format!("{} {} {token}", options.offline, options.hub_endpoint);
    assert_eq!(found, expected);
}
