//! The key of the fences around judged texts: made once, and kept in the data folder, readable only by its owner.
//!
//! As long as it is kept, the same answer gets the same grade. If it cannot be kept, this process uses its own key.

use std::path::Path;

use hone_judging::FenceKey;

use crate::kept;

/// Its file in the data folder.
const NAME: &str = "judge.key";

/// The key of this installation.
///
/// # Errors
/// When the system cannot provide randomness.
pub fn fence_key(data_folder: &Path) -> anyhow::Result<FenceKey> {
    let mut fresh = [0; FenceKey::LENGTH];
    getrandom::fill(&mut fresh).map_err(|error| anyhow::anyhow!("the system provides no random numbers: {error}"))?;
    let key = kept::bytes(data_folder, NAME, &fresh).unwrap_or_else(|error| {
        tracing::warn!(
            "the key {NAME} cannot be kept in {}: {error}; grades may differ a little",
            data_folder.display()
        );
        fresh
    });
    Ok(FenceKey::from_bytes(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_key_a_grade_is_given_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "short").unwrap();
        assert!(fence_key(folder.path()).is_ok());
    }
}
