//! Pulling from the hub, with every kind of network trouble.

use std::fs;

use hone_models::{Cancellation, Catalog, Event, Phase, PullError, PullOptions};

use crate::{
    fixtures::{Home, catalog_text, model_bytes, nobody, options, sha256, write},
    server::{Fault, Server},
};

const FILE: &str = "o/r/resolve/main/Tiny.Q4_0.gguf";
const REFERENCE: &str = "hf:o/r/Tiny.Q4_0.gguf";
const NAME: &str = "tiny.q4_0";
const LENGTH: usize = 1_000_000;

/// A server that publishes the file, a home, and options for the two.
fn scene() -> (Server, Home, PullOptions, Vec<u8>) {
    let server = Server::start();
    let bytes = model_bytes(1, LENGTH);
    server.publish(FILE, &bytes);
    let options = options(&server.endpoint);
    (server, Home::new(), options, bytes)
}

/// Bytes downloaded before the end stay, and the next pull resumes.
#[test]
fn a_cancelled_pull_ends_and_can_be_resumed() {
    let (server, home, options, bytes) = scene();
    server.fail_next([Fault::Slowly(2_000)]);
    let cancellation = options.cancellation.clone();
    let mut stop_in_the_middle = |event: &Event| match event {
        Event::Progress { done, .. } if *done > 10_000 => cancellation.cancel(),
        _ => {}
    };
    let cancelled = home.store.pull(REFERENCE, &options, &mut stop_in_the_middle);
    assert!(matches!(cancelled, Err(PullError::Cancelled(name)) if name == NAME));
    assert_eq!(home.store.list().unwrap().unfinished, [NAME]);
    let options = PullOptions { cancellation: Cancellation::default(), ..options };
    home.pull(REFERENCE, &options).0.unwrap();
    assert_eq!(home.bytes(NAME), bytes);
    assert!(server.ranges().pop().unwrap().is_some(), "it was resumed");
}

/// A catalog in which `tiny:1` comes from the file with that hash, and `pair:1` has two files.
fn catalog(sha: &str, files: &str) -> Catalog {
    let hub = "hub = \"o/r\", revision = \"main\"";
    let tiny = format!("size = {LENGTH}\nsha256 = \"{sha}\"\nsources = [{{ {hub}, file = \"Tiny.Q4_0.gguf\" }}]");
    let pair = format!("files = [{files}]\nsources = [{{ {hub}, folder = \"pair\" }}]");
    Catalog::parse(&catalog_text(&tiny, &tiny, &pair)).unwrap()
}

#[test]
fn a_file_arrives_checked_and_named() {
    let (server, home, options, bytes) = scene();
    let options = PullOptions { hub_token: Some("secret".to_owned()), ..options };
    let (result, events) = home.pull(REFERENCE, &options);
    let pulled = result.unwrap();
    assert_eq!((pulled.model.name.as_str(), pulled.was_there), (NAME, false));
    assert_eq!(pulled.model.source, REFERENCE);
    assert_eq!(pulled.model.files[0].sha256, Some(sha256(&bytes)));
    assert_eq!(home.bytes(NAME), bytes);
    let last = Event::Progress {
        phase: Phase::Downloading,
        file: "model.gguf".to_owned(),
        done: LENGTH as u64,
        total: Some(LENGTH as u64),
    };
    assert_eq!(events.last(), Some(&last));
    // The token is for the hub and no other host.
    let tokens: Vec<_> = server.requests().into_iter().map(|r| (r.at_network, r.authorization)).collect();
    assert_eq!(tokens, [(false, Some("Bearer secret".to_owned())), (true, None)]);
    // An installed model is not downloaded again.
    assert!(home.pull(REFERENCE, &options).0.unwrap().was_there);
    assert_eq!(server.requests().len(), 2);
    let left: Vec<_> = fs::read_dir(home.path(NAME)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the model and its manifest: {left:?}");
}

#[test]
fn a_broken_connection_is_resumed() {
    let (server, home, options, bytes) = scene();
    server.fail_next([Fault::BreakAfter(300_000), Fault::BreakAfter(0), Fault::Status(503, None)]);
    let (result, events) = home.pull(REFERENCE, &options);
    result.unwrap();
    assert_eq!(home.bytes(NAME), bytes);
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Retrying { .. })).count(), 3);
    let ranges = server.ranges();
    assert_eq!(ranges[0], None);
    assert!(ranges[1..].iter().all(|range| range.as_deref() == Some("bytes=300000-")), "{ranges:?}");
}

#[test]
fn a_pull_that_failed_is_resumed_by_the_next() {
    let (server, home, options, bytes) = scene();
    server.fail_next([Fault::BreakAfter(400_000), Fault::BreakAfter(0), Fault::BreakAfter(0), Fault::BreakAfter(0)]);
    home.pull_fails(REFERENCE, &options, &["could not pull `tiny.q4_0`", "the connection", "broke"]);
    assert_eq!(home.store.list().unwrap().unfinished, [NAME]);
    let (result, events) = home.pull(REFERENCE, &options);
    result.unwrap();
    assert_eq!(home.bytes(NAME), bytes);
    assert_eq!(server.ranges().last().unwrap().as_deref(), Some("bytes=400000-"));
    assert!(events.iter().any(|event| matches!(event, Event::Progress { phase: Phase::Verifying, .. })));
    assert!(home.store.list().unwrap().unfinished.is_empty());
}

/// Leaves 400 000 bytes of the file behind, then calls `change` before the next pull.
fn resumed_after(change: impl FnOnce(&Server, &Home)) -> (Server, Home) {
    let (server, home, options, _) = scene();
    let once = PullOptions { retry: hone_models::RetryPolicy { attempts: 0, ..options.retry }, ..options.clone() };
    server.fail_next([Fault::BreakAfter(400_000)]);
    home.pull_fails(REFERENCE, &once, &["broke"]);
    change(&server, &home);
    home.pull(REFERENCE, &options).0.unwrap();
    (server, home)
}

#[test]
fn a_file_that_changed_meanwhile_is_fetched_anew() {
    let (_, home) = resumed_after(|server, _| server.publish(FILE, &model_bytes(2, LENGTH)));
    assert_eq!(home.bytes(NAME), model_bytes(2, LENGTH));
    let (_, home) = resumed_after(|server, _| server.publish(FILE, &model_bytes(2, 1000)));
    assert_eq!(home.bytes(NAME), model_bytes(2, 1000), "the new file is shorter than what is here");
}

#[test]
fn a_changed_file_without_a_published_hash_is_fetched_anew() {
    let (server, home, options, bytes) = scene();
    let never = PullOptions { retry: hone_models::RetryPolicy { attempts: 0, ..options.retry }, ..options.clone() };
    let interrupted = |content: &[u8]| {
        server.publish_small(FILE, content);
        server.fail_next([Fault::BreakAfter(400_000)]);
        home.pull_fails(REFERENCE, &never, &["broke"]);
    };
    interrupted(&bytes);
    home.pull(REFERENCE, &options).0.unwrap();
    assert_eq!(home.bytes(NAME), bytes);
    assert_eq!(server.requests().pop().unwrap().range.as_deref(), Some("bytes=400000-"));
    home.store.remove(NAME).unwrap();
    interrupted(&bytes);
    server.publish_small(FILE, &model_bytes(2, LENGTH));
    home.pull(REFERENCE, &options).0.unwrap();
    assert_eq!(home.bytes(NAME), model_bytes(2, LENGTH), "not the head of one and the tail of the other");
}

#[test]
fn a_file_without_any_hash_is_reported_and_marked() {
    let (server, home, options, bytes) = scene();
    let unchecked = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Unchecked { .. })).count();
    let (result, events) = home.pull(REFERENCE, &options);
    assert_eq!((unchecked(&events), result.unwrap().model.files[0].unchecked), (0, false));
    home.store.remove(NAME).unwrap();
    server.publish_small(FILE, &bytes);
    let (result, events) = home.pull(REFERENCE, &options);
    assert_eq!((unchecked(&events), result.unwrap().model.files[0].unchecked), (1, true));
    let model = home.store.show(NAME).unwrap();
    let output = home.folder.path().join("bundled");
    hone_models::write_bundle(&program_in(&home), &[model], &output, &mut |_| ()).unwrap();
    let bundle = hone_models::Bundle::open(&output).unwrap().unwrap();
    assert!(bundle.models[0].files[0].unchecked, "a bundle keeps the mark");
}

fn program_in(home: &Home) -> std::path::PathBuf {
    let program = home.folder.path().join("program");
    write(&program, b"a program");
    program
}

#[test]
fn what_lies_here_damaged_is_fetched_anew() {
    let partial = format!(".incoming/{NAME}/model.gguf.partial");
    let (server, home) = resumed_after(|_, home| {
        let mut bytes = fs::read(home.path(&partial)).unwrap();
        bytes[1000] ^= 1;
        write(&home.path(&partial), &bytes);
    });
    assert_eq!(home.bytes(NAME), model_bytes(1, LENGTH));
    assert_eq!(server.ranges().last().unwrap(), &None, "the last request was for the whole file");
    let (_, home) = resumed_after(|_, home| write(&home.path(&format!("{partial}.json")), b"nonsense"));
    assert_eq!(home.bytes(NAME), model_bytes(1, LENGTH));
    let (_, home) = resumed_after(|_, home| {
        let mut bytes = fs::read(home.path(&partial)).unwrap();
        bytes.extend(vec![0; 2 * LENGTH]);
        write(&home.path(&partial), &bytes);
    });
    assert_eq!(home.bytes(NAME), model_bytes(1, LENGTH), "more is here than there is");
}

#[test]
fn all_bytes_here_but_not_yet_named_need_no_request_for_content() {
    let partial = format!(".incoming/{NAME}/model.gguf.partial");
    let (server, home) = resumed_after(|_, home| write(&home.path(&partial), &model_bytes(1, LENGTH)));
    assert_eq!(home.bytes(NAME), model_bytes(1, LENGTH));
    assert_eq!(server.ranges().len(), 1, "only the one that broke");
}

#[test]
fn a_server_without_ranges_is_coped_with() {
    let (server, _) = resumed_after(|server, _| server.fail_next([Fault::IgnoreRange]));
    assert_eq!(server.ranges().len(), 2, "its whole answer is used");
    let (server, home) = resumed_after(|server, _| server.fail_next([Fault::Short(100_000), Fault::Short(100_000)]));
    assert_eq!(server.ranges().last().unwrap().as_deref(), Some("bytes=600000-"), "it gives a piece at a time");
    assert_eq!(home.bytes(NAME), model_bytes(1, LENGTH));
    let (server, home) = resumed_after(|server, _| server.fail_next([Fault::RefuseRange]));
    assert_eq!(server.ranges().last().unwrap(), &None);
    assert_eq!(home.bytes(NAME), model_bytes(1, LENGTH));
}

#[test]
fn wrong_bytes_are_not_installed() {
    let (server, home, options, _) = scene();
    server.publish_as(FILE, &model_bytes(5, LENGTH), Some(sha256(b"something else")));
    home.pull_fails(REFERENCE, &options, &["SHA-256", &sha256(b"something else"), "was not installed"]);
    assert!(home.store.show(NAME).is_err());
    let listing = home.store.list().unwrap();
    assert!(listing.unfinished.is_empty() && listing.broken.is_empty(), "nothing of it is kept");
}

#[test]
fn the_catalogs_hash_counts() {
    let (server, home, options, bytes) = scene();
    let store = home.store.clone().with_catalog(catalog(&sha256(&bytes), "{ name = \"a\", size = 1 }"));
    let pulled = store.pull("tiny:1", &options, &mut |_| ()).unwrap();
    assert_eq!(pulled.model.files[0].sha256, Some(sha256(&bytes)));
    // A file that the hub itself publishes under another hash is refused before any of it is downloaded.
    let other = Home::new();
    let store = other.store.clone().with_catalog(catalog(&sha256(b"x"), "{ name = \"a\", size = 1 }"));
    let before = server.ranges().len();
    let error = store.pull("tiny:1", &options, &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains(&sha256(&bytes)) && error.contains("was not installed"), "{error}");
    assert_eq!(server.ranges().len(), before);
}

#[test]
fn a_model_of_several_files_appears_at_once() {
    let server = Server::start();
    let (weights, config) = (model_bytes(3, 50_000), b"{\"hidden_size\": 384}".to_vec());
    server.publish("o/r/resolve/main/pair/model.safetensors", &weights);
    server.publish_small("o/r/resolve/main/pair/1_Pooling/config.json", &config);
    let files = |config_sha: &str| {
        format!(
            "{{ name = \"model.safetensors\", size = 50000, sha256 = \"{}\" }}, {{ name = \"1_Pooling/config.json\", size = 20, sha256 = \"{config_sha}\" }}",
            sha256(&weights)
        )
    };
    let home = Home::new();
    let (zero, options) = ("0".repeat(64), options(&server.endpoint));
    let wrong = home.store.clone().with_catalog(catalog(&zero, &files(&zero)));
    assert!(wrong.pull("pair:1", &options, &mut |_| ()).is_err());
    assert!(wrong.show("pair:1").is_err(), "one of two files is no model");
    let store = home.store.clone().with_catalog(catalog(&zero, &files(&sha256(&config))));
    store.pull("pair:1", &options, &mut |_| ()).unwrap();
    assert_eq!(server.ranges().len(), 1, "the file that had arrived is not fetched again");
    let found = store.show("pair:1").unwrap().files;
    assert_eq!(found.len(), 2);
    assert_eq!(fs::read(&found[1].location.path).unwrap(), config);
}

#[test]
fn refusals_say_what_to_do() {
    let (server, home, options, bytes) = scene();
    server.publish("gated/r/resolve/main/x.gguf", &bytes);
    let check = |reference: &str, parts: &[&str]| home.pull_fails(reference, &options, parts);
    check("hf:o/r/missing.gguf", &["404", "no such repository, revision or file", "/o/r/resolve/main/missing.gguf"]);
    check("hf:o/r@v2/Tiny.Q4_0.gguf", &["404", "/o/r/resolve/v2/"]);
    check("hf:gated/r/x.gguf", &["403", "licence", "HF_TOKEN"]);
    check("hf:private/r/x.gguf", &["401", "HF_TOKEN"]);
    check("hf:o", &["hf:OWNER/REPO/FILE"]);
    check("hf:o/r/readme.md", &["hf:OWNER/REPO/FILE"]);
    check("smollm2:135k", &["did you mean `smollm2:135m`?"]);
    check("no/such/file.gguf", &["there is no file"]);
    assert!(home.store.list().unwrap().unfinished.is_empty());
    assert_eq!(server.requests().len(), 4, "a refusal is not asked for twice");
}

#[test]
fn redirects_are_followed_but_not_for_ever() {
    let (server, home, options, bytes) = scene();
    home.pull_fails("hf:loop/r/x.gguf", &options, &["redirects too often"]);
    home.pull_fails("hf:lost/r/x.gguf", &options, &["redirects without a valid address"]);
    assert!(server.requests().len() < 15);
    home.pull("hf:moved/r/Tiny.Q4_0.gguf", &options).0.unwrap();
    assert_eq!(home.bytes(NAME), bytes, "a repository that was renamed is found");
}

#[test]
fn a_busy_server_is_waited_for_but_not_for_ever() {
    let (server, home, options, bytes) = scene();
    server.fail_next([Fault::Status(429, Some("1")), Fault::Status(500, None)]);
    let (result, events) = home.pull(REFERENCE, &options);
    result.unwrap();
    assert_eq!(home.bytes(NAME), bytes);
    let waits = events.iter().filter_map(|event| match event {
        Event::Retrying { after, .. } => Some(after.as_secs()),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [1, 0]);
    home.store.remove(NAME).unwrap();
    server.fail_next([Fault::Status(429, Some("3600"))]);
    home.pull_fails(REFERENCE, &options, &["429", "3600 seconds"]);
    server.fail_next((0..3).map(|_| Fault::Status(502, None)));
    home.pull_fails(REFERENCE, &options, &["502", "try again later"]);
}

#[test]
fn a_file_larger_than_the_disk_is_refused_at_once() {
    let (server, home, options, _) = scene();
    server.fail_next([Fault::ClaimLength(1 << 60)]);
    home.pull_fails(REFERENCE, &options, &["bytes free", "1152921504606846976 more are needed", "HONE_HOME"]);
    assert!(home.store.list().unwrap().unfinished.is_empty());
}

#[test]
fn offline_nothing_is_asked() {
    let (server, home, options, _) = scene();
    let offline = PullOptions { offline: true, ..options.clone() };
    home.pull_fails(REFERENCE, &offline, &["tiny.q4_0", "HONE_OFFLINE"]);
    home.pull_fails("smollm2:135m", &offline, &["smollm2:135m", "HONE_OFFLINE"]);
    assert_eq!(server.requests(), []);
    assert!(!home.store.folder().exists());
    home.pull(REFERENCE, &options).0.unwrap();
    assert!(home.pull(REFERENCE, &offline).0.unwrap().was_there, "what is here needs no network");
}

#[test]
fn a_hub_that_is_not_there_is_not_waited_for() {
    // The name is reserved for hosts that do not exist (RFC 6761).
    for endpoint in [nobody(), "http://hub.invalid".to_owned()] {
        let home = Home::new();
        let (result, events) = home.pull(REFERENCE, &options(&endpoint));
        let Err(PullError::SourcesFailed { failures, .. }) = result else { panic!("{result:?}") };
        assert!(failures.len() == 1 && failures[0].reason.contains("cannot be reached"), "{failures:?}");
        assert!(events.iter().all(|event| !matches!(event, Event::Retrying { .. })), "{events:?}");
        assert!(home.store.list().unwrap().unfinished.is_empty());
    }
}

#[test]
fn another_file_of_the_same_name_is_not_taken_for_it() {
    let (server, home, options, _) = scene();
    server.publish("other/r/resolve/main/Tiny.Q4_0.gguf", &model_bytes(7, 1000));
    home.pull(REFERENCE, &options).0.unwrap();
    home.pull_fails("hf:other/r/Tiny.Q4_0.gguf", &options, &["installed already", "hf:o/r", "hone rm tiny.q4_0"]);
    let named = PullOptions { name: Some("other".to_owned()), ..options };
    home.pull("hf:other/r/Tiny.Q4_0.gguf", &named).0.unwrap();
    assert_eq!(home.bytes("other"), model_bytes(7, 1000));
}
