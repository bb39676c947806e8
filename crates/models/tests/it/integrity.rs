//! Damage: a flipped byte in an installed model or in a bundle is detected, reported, and repaired by pulling again.

use std::{fs, path::Path};

use hone_models::{Bundle, Event, Store, StoreError, write_bundle};
use hone_protocol::LocateModel;

use crate::{
    fixtures::{Home, catalog_text, model_bytes, nobody, options, sha256, write},
    server::Server,
};

const LENGTH: usize = (5 << 20) + 7;

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// A home with the model `one`, imported from a file.
fn home() -> Home {
    let home = Home::new();
    let path = home.folder.path().join("one.gguf");
    write(&path, &model_bytes(1, LENGTH));
    home.pull(path.to_str().unwrap(), &options(&nobody())).0.unwrap();
    home
}

fn is_damaged(store: &Store, name: &str, parts: &[&str]) {
    let error = store.check(name).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let file = store.locate(name).unwrap();
    assert_eq!(store.verify(&file).unwrap_err().to_string(), text);
}

#[test]
fn a_flipped_byte_in_an_installed_model_is_found_and_mended() {
    for at in [0, 4, 4 << 20, LENGTH - 1] {
        let home = home();
        home.store.check("one").unwrap();
        home.store.verify(&home.store.locate("one").unwrap()).unwrap();
        flip(&home.path("one/model.gguf"), at);
        is_damaged(&home.store, "one", &["`one` is damaged", "model.gguf", "run `hone pull one`"]);
        let (pulled, events) = home.pull("one", &options(&nobody()));
        assert!(!pulled.unwrap().was_there);
        assert!(events.iter().any(|event| matches!(event, Event::Damaged { .. })), "{events:?}");
        home.store.check("one").unwrap();
        assert_eq!(home.bytes("one"), model_bytes(1, LENGTH));
    }
}

#[test]
fn the_block_is_named() {
    let home = home();
    flip(&home.path("one/model.gguf"), (4 << 20) + 3);
    is_damaged(&home.store, "one", &["bytes 4194304 to 5242887"]);
}

#[test]
fn a_model_that_was_fetched_is_fetched_again() {
    let server = Server::start();
    let bytes = model_bytes(1, LENGTH);
    server.publish("o/r/resolve/main/tiny.gguf", &bytes);
    let model = format!(
        "size = {LENGTH}\nsha256 = \"{}\"\nsources = [{{ hub = \"o/r\", revision = \"main\", file = \"tiny.gguf\" }}]",
        sha256(&bytes)
    );
    let catalog = hone_models::Catalog::parse(&catalog_text(&model, &model, &model)).unwrap();
    for (reference, name) in [("tiny:1", "tiny:1"), ("hf:o/r/tiny.gguf", "tiny")] {
        let home = Home::new();
        let store = home.store.clone().with_catalog(catalog.clone());
        store.pull(reference, &options(&server.endpoint), &mut |_| ()).unwrap();
        let path = store.locate(name).unwrap().path;
        flip(&path, 99);
        is_damaged(&store, name, &["is damaged"]);
        store.pull(name, &options(&server.endpoint), &mut |_| ()).unwrap();
        assert!(fs::read(&path).unwrap() == bytes);
    }
}

#[test]
fn a_damaged_copy_of_a_file_that_is_gone_says_so() {
    let home = home();
    fs::remove_file(home.folder.path().join("one.gguf")).unwrap();
    assert!(home.pull("one", &options(&nobody())).0.unwrap().was_there);
    flip(&home.path("one/model.gguf"), 99);
    home.pull_fails(
        "one",
        &options(&nobody()),
        &["`one` is damaged", "one.gguf", "is missing or has changed", "hone rm one"],
    );
}

#[test]
fn a_flipped_byte_in_a_bundle_is_found() {
    let home = home();
    let (program, output) = (home.folder.path().join("program"), home.folder.path().join("bundled"));
    write(&program, &[7; 1000]);
    write_bundle(&program, &[home.store.show("one").unwrap()], &output, &mut |_| ()).unwrap();
    let open = || {
        let bundle = Bundle::open(&output).unwrap();
        Store::open(&home.folder.path().join("none")).unwrap().with_bundle(bundle)
    };
    open().check("one").unwrap();
    let file = open().locate("one").unwrap();
    flip(&output, usize::try_from(file.offset).unwrap() + LENGTH - 1);
    is_damaged(&open(), "one", &["`one` is damaged", "bundled", "hone bundle"]);
}

#[test]
fn a_model_of_an_older_hone_is_checked_by_its_hash_and_then_by_blocks() {
    let strip = |home: &Home| {
        let path = home.path("one/manifest.json");
        let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        manifest["files"][0].as_object_mut().unwrap().remove("blocks").unwrap();
        write(&path, manifest.to_string().as_bytes());
    };
    let (home, damaged) = (home(), self::home());
    let recorded = home.store.show("one").unwrap();
    strip(&home);
    assert_ne!(home.store.show("one").unwrap(), recorded);
    home.store.check("one").unwrap();
    assert_eq!(home.store.show("one").unwrap(), recorded);
    strip(&damaged);
    flip(&damaged.path("one/model.gguf"), 99);
    is_damaged(&damaged.store, "one", &["its bytes", "hone pull one"]);
}

#[test]
fn of_a_file_that_was_named_by_its_path_nothing_is_known() {
    let home = home();
    let path = home.folder.path().join("one.gguf");
    flip(&path, 99);
    home.store.verify(&home.store.locate(path.to_str().unwrap()).unwrap()).unwrap();
}
