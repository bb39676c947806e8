//! Small files in the data folder that hone keeps for later: readable only by their owner, complete or not there.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use anyhow::Context;
use hone_files::{create_private_folder, replace};
use serde::Serialize;

/// Writes a file of JSON in `folder` at once.
///
/// # Errors
/// When it cannot be written.
pub fn write(folder: &Path, path: &Path, content: &impl Serialize) -> anyhow::Result<()> {
    let failure = || format!("cannot write {}", path.display());
    create_private_folder(folder).with_context(failure)?;
    replace(path, "kept", |file| Ok(serde_json::to_writer(file, content)?)).with_context(failure)
}

/// The bytes in a file, or else `fresh`, which is written. If several processes write one, the first wins.
///
/// # Errors
/// When the file cannot be read or written, or has another length.
pub(crate) fn bytes<const N: usize>(folder: &Path, name: &str, fresh: &[u8; N]) -> io::Result<[u8; N]> {
    let path = folder.join(name);
    match read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        found => return found,
    }
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(fresh)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(*fresh),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => read(&path),
        Err(error) => Err(error.error),
    }
}

fn read<const N: usize>(path: &Path) -> io::Result<[u8; N]> {
    let bytes = std::fs::read(path)?;
    let wrong = |bytes: Vec<u8>| {
        let reason = format!("{} has {} bytes instead of {N}: remove it", path.display(), bytes.len());
        io::Error::new(ErrorKind::InvalidData, reason)
    };
    bytes.try_into().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "the.key";

    #[test]
    fn a_key_is_made_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        assert_eq!(bytes(&data, NAME, &[1; 32]).unwrap(), [1; 32]);
        assert_eq!(bytes(&data, NAME, &[2; 32]).unwrap(), [1; 32], "the one that is there stays");
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing is left beside it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(data.join(NAME)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn processes_that_make_a_key_at_once_get_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let keys: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let make = |byte| {
                scope.spawn({
                    let folder = folder.path();
                    move || bytes(folder, NAME, &[byte; 32]).unwrap()
                })
            };
            let threads: Vec<_> = (1..9).map(make).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    #[test]
    fn a_damaged_key_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "short").unwrap();
        let error = bytes(folder.path(), NAME, &[1; 32]).unwrap_err().to_string();
        assert!(error.ends_with("the.key has 5 bytes instead of 32: remove it"), "{error}");
    }
}
