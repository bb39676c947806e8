//! The key of the fences around judged texts: made once, and kept in the data folder, readable only by its owner.
//!
//! As long as it is kept, the same answer gets the same grade. If it cannot be kept, this process uses its own key.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use hone_judging::FenceKey;

/// Its file in the data folder.
const NAME: &str = "judge.key";

/// The key of this installation.
///
/// # Errors
/// When the system cannot provide randomness.
pub fn fence_key(data_folder: &Path) -> anyhow::Result<FenceKey> {
    let mut fresh = [0; FenceKey::LENGTH];
    getrandom::fill(&mut fresh).map_err(|error| anyhow::anyhow!("the system provides no random numbers: {error}"))?;
    let key = kept(data_folder, &fresh).unwrap_or_else(|error| {
        tracing::warn!(
            "the key {NAME} cannot be kept in {}: {error}; grades may differ a little",
            data_folder.display()
        );
        fresh
    });
    Ok(FenceKey::from_bytes(key))
}

/// The existing key, or else `fresh`, which is stored. If several processes create one, the first wins.
fn kept(folder: &Path, fresh: &[u8; FenceKey::LENGTH]) -> io::Result<[u8; FenceKey::LENGTH]> {
    let path = folder.join(NAME);
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

fn read(path: &Path) -> io::Result<[u8; FenceKey::LENGTH]> {
    let bytes = std::fs::read(path)?;
    let wrong = |bytes: Vec<u8>| {
        let what = format!("it has {} bytes instead of {}: remove it", bytes.len(), FenceKey::LENGTH);
        io::Error::new(ErrorKind::InvalidData, what)
    };
    bytes.try_into().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        assert_eq!(kept(&data, &[1; 32]).unwrap(), [1; 32]);
        assert_eq!(kept(&data, &[2; 32]).unwrap(), [1; 32], "the one that is there stays");
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
                    move || kept(folder, &[byte; 32]).unwrap()
                })
            };
            let threads: Vec<_> = (1..9).map(make).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }

    #[test]
    fn a_damaged_key_is_told_and_a_grade_is_given_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "short").unwrap();
        let error = kept(folder.path(), &[1; 32]).unwrap_err().to_string();
        assert_eq!(error, "it has 5 bytes instead of 32: remove it");
        assert!(fence_key(folder.path()).is_ok());
    }
}
