//! Files in memory's folder: written whole or not at all, and readable by nobody else.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

/// What the name of a file begins with while it is being written.
const UNFINISHED: &str = ".unfinished-";

/// What a file is for. Files of different purposes have different names while they are being written, so that nobody
/// cleans up what somebody else is about to finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Who owns the folder.
    Owner,
    /// The index of vectors.
    Index,
    /// A request that is to be answered later.
    Due,
    /// A copy of what is remembered.
    Backup,
}

impl Purpose {
    /// What the name of such a file begins with while it is being written.
    fn prefix(self) -> String {
        let name = match self {
            Purpose::Owner => "owner",
            Purpose::Index => "index",
            Purpose::Due => "due",
            Purpose::Backup => "backup",
        };
        format!("{UNFINISHED}{name}-")
    }
}

/// Writes a file, durably, in place of what is there.
///
/// # Errors
/// When there is no room, or the file cannot be written; then the old one stays.
pub(crate) fn write_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<()> {
    begin_file(file, purpose, bytes)?.persist(file)?;
    sync_folder(file.parent().unwrap_or(file))
}

/// Writes a file, durably, where there is no file of that name.
///
/// # Errors
/// When there is no room, the file cannot be written, or its name is taken.
pub(crate) fn write_new_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<()> {
    begin_file(file, purpose, bytes)?.persist_noclobber(file)?;
    sync_folder(file.parent().unwrap_or(file))
}

/// A file that is about to be called `file`, with its bytes on disk. It is removed where it is dropped before.
fn begin_file(file: &Path, purpose: Purpose, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut fresh = unfinished_file(file, purpose)?;
    fresh.write_all(bytes)?;
    fresh.as_file().sync_all()?;
    Ok(fresh)
}

/// An empty file that is about to be called `file`. It is removed where it is dropped before.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn unfinished_file(file: &Path, purpose: Purpose) -> io::Result<NamedTempFile> {
    NamedTempFile::with_prefix_in(purpose.prefix(), file.parent().unwrap_or(file))
}

/// Removes files of that purpose which were being written when their process was killed. Nobody may be writing one.
pub(crate) fn remove_unfinished(folder: &Path, purpose: Purpose) {
    let prefix = purpose.prefix();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // It takes room and does no other harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Creates a folder, where it is missing, that only its owner can look into.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Opens a file to be written, and creates it where it is missing, so that only its owner can read it.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn open_private_file(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

/// Takes everybody else's rights to a folder and all that is in it. Where that is impossible, a warning says so: a folder
/// of somebody else's can be read all the same. Elsewhere than on Unix folders inherit the rights of the user's own.
pub(crate) fn make_private(folder: &Path) {
    #[cfg(unix)]
    if let Err(error) = narrow(folder) {
        tracing::warn!(folder = %folder.display(), %error, "others may be able to read what is remembered");
    }
    #[cfg(not(unix))]
    let _ = folder;
}

/// The folder comes first: once nobody else can enter it, what is in it is out of reach too.
#[cfg(unix)]
fn narrow(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let found = match fs::symlink_metadata(path) {
        // Files come and go while others work in the folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.is_symlink() {
        return Ok(());
    }
    let mode = found.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700))?;
    }
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            narrow(&entry?.path())?;
        }
    }
    Ok(())
}

/// Makes the names in a folder durable.
///
/// # Errors
/// When the folder cannot be opened.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened as a file, and needs no sync.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Memory that was opened beside an owner which was about to announce itself once removed the announcement.
    #[test]
    fn a_file_is_cleaned_up_for_its_own_purpose_only() {
        let folder = tempfile::tempdir().unwrap();
        let announcement = begin_file(&folder.path().join("owner.json"), Purpose::Owner, b"{}").unwrap();
        let _index = begin_file(&folder.path().join("vectors.index"), Purpose::Index, b"").unwrap();
        remove_unfinished(folder.path(), Purpose::Index);
        assert_eq!(names(folder.path()).len(), 1);
        announcement.persist(folder.path().join("owner.json")).unwrap();
        assert_eq!(names(folder.path()), ["owner.json"]);
    }

    #[test]
    fn a_file_that_exists_is_not_replaced_by_a_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        write_new_file(&file, Purpose::Due, b"first").unwrap();
        let error = write_new_file(&file, Purpose::Due, b"second").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        write_file(&file, Purpose::Due, b"third").unwrap();
        assert_eq!((fs::read(&file).unwrap(), names(folder.path())), (b"third".to_vec(), vec!["a".to_owned()]));
    }

    #[cfg(unix)]
    #[test]
    fn wide_modes_are_narrowed_in_depth() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("store/blobs");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("1"), b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for (path, wide) in [(folder.path(), 0o755), (&inner, 0o777), (&inner.join("1"), 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(wide)).unwrap();
        }
        make_private(folder.path());
        assert_eq!([mode(folder.path()), mode(&inner), mode(&inner.join("1"))], [0o700, 0o700, 0o600]);
    }
}
