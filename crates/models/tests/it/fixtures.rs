//! Shared fixtures: bytes that pass for a model, a store in a temporary folder, options with short waits.

use std::{path::Path, time::Duration};

use hone_models::{Cancellation, Event, IndexOptions, PullError, PullOptions, Pulled, RetryPolicy, Store};
use tempfile::TempDir;

pub(crate) use crate::server::sha256;

/// A store in a folder of its own.
pub(crate) struct Home {
    pub(crate) folder: TempDir,
    pub(crate) store: Store,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = Store::open(folder.path()).unwrap();
        Self { folder, store }
    }

    /// Pulls, and returns the events that were reported.
    pub(crate) fn pull(&self, reference: &str, options: &PullOptions) -> (Result<Pulled, PullError>, Vec<Event>) {
        let mut events = Vec::new();
        let result = self.store.pull(reference, options, &mut |event: &Event| events.push(event.clone()));
        (result, events)
    }

    /// Pulls and expects an error that contains all of `parts`.
    pub(crate) fn pull_fails(&self, reference: &str, options: &PullOptions, parts: &[&str]) {
        let error = self.pull(reference, options).0.expect_err(reference).to_string();
        for part in parts {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }

    /// The bytes of an installed model's only file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let model = self.store.show(name).unwrap();
        assert_eq!(model.files.len(), 1);
        std::fs::read(&model.files[0].location.path).unwrap()
    }

    /// The path of a file in the store's folder.
    pub(crate) fn path(&self, below: &str) -> std::path::PathBuf {
        self.store.folder().join(below)
    }
}

/// Bytes that begin like a GGUF file and do not repeat.
pub(crate) fn model_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = b"GGUF".to_vec();
    while bytes.len() < length {
        // xorshift64, Marsaglia 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Options for a hub at `endpoint` that give up quickly.
pub(crate) fn options(endpoint: &str) -> PullOptions {
    PullOptions {
        offline: false,
        hub_endpoint: endpoint.to_owned(),
        hub_token: None,
        name: None,
        room: None,
        index: IndexOptions { urls: vec![nobody()], certificate: None, forbidden: false },
        retry: RetryPolicy { attempts: 3, first_wait: Duration::from_millis(1), longest_wait: Duration::from_secs(2) },
        cancellation: Cancellation::default(),
    }
}

/// The address of a server that does not exist: a port that was just free may already belong to another test.
pub(crate) fn nobody() -> String {
    "http://127.0.0.1:1".to_owned()
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// A catalog with the generator `tiny:1`, the judge `judge:1` and the embedder `pair:1`, given their sizes and sources.
pub(crate) fn catalog_text(generator: &str, judge: &str, embedder: &str) -> String {
    "[defaults]\ngenerator = \"tiny:1\"\njudge = \"judge:1\"\nembedder = \"pair:1\"\n".to_owned()
        + &catalog_entry("tiny:1", "generator", generator)
        + &catalog_entry("judge:1", "judge", judge)
        + &catalog_entry("pair:1", "embedder", embedder)
}

/// An entry of a catalog; `rest` holds its size or files, and its sources.
pub(crate) fn catalog_entry(name: &str, role: &str, rest: &str) -> String {
    let facts = "family = \"F\"\nparameters = \"1\"\nquantization = \"F32\"\ncontext = 1\nlicence = \"MIT\"";
    format!("[[model]]\nname = \"{name}\"\nrole = \"{role}\"\n{facts}\n{rest}\n")
}
