//! Finished responses, kept for clients that refer to them: one file each, in a folder that only its owner can read.
//!
//! Each file has the whole conversation before its response, so that it does not depend on others. The oldest files
//! make room for new ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hone_files::{create_private_folder, replace};
use hone_protocol::{OwnerId, QueryId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of kept responses.
const MOST_RESPONSES: usize = 1000;
/// Maximum size of all kept responses together, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// A kept response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The response as clients see it.
    pub(super) response: Value,
    /// The items that it answers, including those of earlier responses.
    pub(super) input: Vec<Value>,
}

impl Kept {
    /// The items that another request continues.
    pub(super) fn conversation(self) -> Vec<Value> {
        let Kept { mut response, mut input } = self;
        if let Value::Array(output) = response["output"].take() {
            input.extend(output);
        }
        input
    }
}

/// The folder of the responses.
pub(crate) struct KeptResponses {
    folder: PathBuf,
}

impl KeptResponses {
    /// The responses in `folder`, which is created when it is needed.
    pub(crate) fn new(folder: PathBuf) -> KeptResponses {
        KeptResponses { folder }
    }

    /// The responses of an owner; those of a key are in a separate folder.
    pub(crate) fn of(&self, owner: Option<OwnerId>) -> KeptResponses {
        let folder = match owner {
            Some(owner) => self.folder.join(owner.to_string()),
            None => self.folder.clone(),
        };
        KeptResponses { folder }
    }

    /// A kept response; `None` if it is unknown or damaged.
    pub(super) fn load(&self, id: QueryId) -> Option<Kept> {
        let bytes = fs::read(self.path(id)).ok()?;
        serde_json::from_slice(&bytes)
            .inspect_err(|error| tracing::warn!(%id, "a kept response is damaged: {error}"))
            .ok()
    }

    /// Keeps a response, and drops the oldest ones until it fits.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn keep(&self, id: QueryId, kept: &Kept) -> io::Result<()> {
        create_private_folder(&self.folder)?;
        replace(&self.path(id), "response", |file| Ok(serde_json::to_writer(file, kept)?))?;
        self.make_room(MOST_RESPONSES, MOST_BYTES)
    }

    /// Removes a response; returns whether there was one.
    pub(super) fn delete(&self, id: QueryId) -> bool {
        fs::remove_file(self.path(id)).is_ok()
    }

    fn make_room(&self, most_responses: usize, most_bytes: u64) -> io::Result<()> {
        let mut responses: Vec<(QueryId, u64)> = fs::read_dir(&self.folder)?
            .flatten()
            .filter_map(|entry| Some((id_of(&entry.path())?, entry.metadata().ok()?.len())))
            .collect();
        // Ids of later responses are greater.
        responses.sort_by(|(a, _), (b, _)| b.cmp(a));
        let mut bytes = 0;
        for (number, (id, length)) in responses.into_iter().enumerate() {
            bytes += length;
            if number >= most_responses || bytes > most_bytes {
                self.delete(id);
            }
        }
        Ok(())
    }

    fn path(&self, id: QueryId) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }
}

/// The id of the response in a file.
fn id_of(path: &Path) -> Option<QueryId> {
    (path.extension()? == "json").then(|| path.file_stem()?.to_str()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(number: usize) -> Kept {
        let output = json!([{"id": number, "type": "message"}]);
        Kept { response: json!({"output": output}), input: vec![json!({"type": "message"})] }
    }

    #[test]
    fn the_oldest_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let responses = KeptResponses::new(folder.path().join("responses"));
        let ids: Vec<QueryId> = (1..=5).map(QueryId::from_bits).collect();
        for (number, id) in ids.iter().enumerate() {
            responses.keep(*id, &kept(number)).unwrap();
        }
        let left = || ids.iter().map(|id| responses.load(*id).is_some()).collect::<Vec<_>>();
        assert_eq!(left(), [true; 5]);
        let reopened = KeptResponses::new(folder.path().join("responses"));
        assert_eq!(reopened.load(ids[4]), Some(kept(4)), "they outlive the server");
        responses.make_room(3, u64::MAX).unwrap();
        assert_eq!(left(), [false, false, true, true, true]);
        let length = fs::metadata(responses.path(ids[4])).unwrap().len();
        responses.make_room(3, 2 * length).unwrap();
        assert_eq!(left(), [false, false, false, true, true]);
        assert!(responses.delete(ids[4]) && !responses.delete(ids[4]));
        fs::write(responses.path(ids[3]), "{").unwrap();
        assert_eq!(responses.load(ids[3]), None);
    }

    #[test]
    fn a_response_is_continued_after_its_output() {
        assert_eq!(kept(7).conversation(), [json!({"type": "message"}), json!({"id": 7, "type": "message"})]);
    }
}
