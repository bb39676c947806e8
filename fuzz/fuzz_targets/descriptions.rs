//! Descriptions of models from outside: a catalog, the manifest of an installed model, the pages of a package index.
//! The first byte chooses the kind; each is read or refused.

#![no_main]

use std::fs;

use hone_models::{Catalog, Store, index_links};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => drop(Catalog::parse(&String::from_utf8_lossy(bytes))),
        1 => drop(index_links("application/vnd.pypi.simple.v1+json", bytes, &|_| true)),
        2 => drop(index_links("text/html", bytes, &|_| true)),
        _ => read_manifest(bytes),
    }
});

/// Lists a store that holds one model with that manifest, whose files must stay in its folder.
fn read_manifest(bytes: &[u8]) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let folder = home.path().join("models").join("a@1");
    fs::create_dir_all(&folder).expect("a temporary folder");
    fs::write(folder.join("manifest.json"), bytes).expect("a disk that is not full");
    let listing = Store::open(home.path()).and_then(|store| store.list()).expect("a store");
    for file in listing.models.iter().flat_map(|model| &model.files) {
        assert!(file.location.path.starts_with(&folder));
    }
}
