//! Folders and files that only their owner can read: 0700 and 0600 from the start, whatever the umask is.
//!
//! hone's data shows what its user asks and which models they use, so everything in the data folder is created through
//! this module. The permissions are part of the call that creates a file, so no other user can ever open it. If it
//! already exists with wider permissions, they are narrowed before anything is written. On systems without such modes
//! (Windows), files inherit the access list of the user's profile, which other users cannot read either.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    path::Path,
};

use crate::sync_folder;

/// The permissions of a folder.
#[cfg(unix)]
const FOLDER: u32 = 0o700;
/// The permissions of a file.
#[cfg(unix)]
const FILE: u32 = 0o600;

/// Creates a folder and its missing parents for their owner alone, and makes their names durable. An existing folder is
/// left as it is; see [`make_private`].
///
/// # Errors
/// When the folder cannot be created, or a file of another kind has its name.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    above.map_or(Ok(()), create_private_folder)?;
    #[cfg_attr(not(unix), allow(unused_mut, reason = "rights are set on Unix alone"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER);
    match builder.create(path) {
        // Another process has just created it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
        // If another user's folder cannot be opened, the name is as durable as the system makes it.
        Ok(()) => sync_folder(above.unwrap_or(Path::new("."))).or(Ok(())),
    }
}

/// Opens an empty file for writing that only its owner can read; earlier contents are discarded.
///
/// # Errors
/// When the file cannot be created or its permissions cannot be narrowed.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    let file = open_private(path, OpenOptions::new().write(true).create(true))?;
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file with `options`. A new file is for its owner alone; an existing one with wider permissions is narrowed
/// first.
///
/// # Errors
/// When the file cannot be opened or its permissions cannot be narrowed. To truncate, use [`create_private_file`],
/// which narrows the permissions first.
pub fn open_private(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, FILE);
    let file = options.open(path)?;
    #[cfg(unix)]
    narrow(&file)?;
    Ok(file)
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// As [`create_private_file`], and when the bytes cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create_private_file(path)?.write_all(bytes)
}

/// Whether other users may read, write or enter `path`; always false on systems without such modes. A symbolic link is
/// not followed, and never counts as wide.
///
/// # Errors
/// When it does not exist or cannot be examined.
fn is_wide(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Ok(!metadata.is_symlink() && metadata.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        Ok(false)
    }
}

/// Removes all permissions of other users from `path`; returns whether there were any. Links are not followed.
///
/// # Errors
/// When it cannot be examined or belongs to another user.
pub fn make_private(path: &Path) -> io::Result<bool> {
    let wide = is_wide(path)?;
    #[cfg(unix)]
    if wide {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::symlink_metadata(path)?.permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7700))?;
    }
    Ok(wide)
}

/// Like [`make_private`], for a folder and everything in it. The folder comes first: once other users cannot enter it,
/// its contents are out of reach. Returns the number of files and folders that had wider permissions.
///
/// # Errors
/// When a file cannot be examined or belongs to another user.
pub fn make_tree_private(path: &Path) -> io::Result<u64> {
    let narrowed = match make_private(path) {
        // Files may appear and disappear while other processes work in the folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        narrowed => u64::from(narrowed?),
    };
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return Ok(narrowed);
    }
    let inside = fs::read_dir(path)?.map(|entry| make_tree_private(&entry?.path()));
    inside.sum::<io::Result<u64>>().map(|inside| narrowed + inside)
}

/// Removes other users' permissions from an open file. Anything but a regular file (a terminal, a pipe) is left as it
/// is.
#[cfg(unix)]
fn narrow(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode();
    if metadata.is_file() && mode & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(mode & 0o7700))?;
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    fn widen(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn folders_and_files_are_made_for_their_owner_alone() {
        let home = TempDir::new().unwrap();
        let (middle, inner) = (home.path().join("a"), home.path().join("a/b"));
        create_private_folder(&inner).unwrap();
        create_private_folder(&inner).unwrap();
        assert_eq!((mode(&middle), mode(&inner)), (0o700, 0o700));
        let (new, added) = (inner.join("new"), inner.join("added"));
        write_private(&new, b"x").unwrap();
        open_private(&added, OpenOptions::new().append(true).create(true)).unwrap();
        assert_eq!((mode(&new), mode(&added)), (0o600, 0o600));
        assert_eq!(fs::read(&new).unwrap(), b"x");
    }

    #[test]
    fn a_file_that_was_wide_is_narrowed_before_it_is_written() {
        let home = TempDir::new().unwrap();
        let path = home.path().join("old");
        fs::write(&path, "something longer").unwrap();
        widen(&path, 0o666);
        write_private(&path, b"x").unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, b"x".to_vec()));
        widen(&path, 0o644);
        open_private(&path, OpenOptions::new().append(true)).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn what_is_wide_is_found_and_narrowed() {
        let home = TempDir::new().unwrap();
        let (folder, file, link) = (home.path().join("f"), home.path().join("f/x"), home.path().join("link"));
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        widen(&folder, 0o755);
        widen(&file, 0o744);
        assert!(!make_private(&link).unwrap() && is_wide(&file).unwrap());
        assert!(make_private(&folder).unwrap() && make_private(&file).unwrap());
        assert!(!is_wide(&folder).unwrap() && !make_private(&file).unwrap());
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o700));
        assert!(make_private(&home.path().join("gone")).is_err());
        widen(&folder, 0o755);
        widen(&file, 0o644);
        assert_eq!((make_tree_private(&folder).unwrap(), make_tree_private(&folder).unwrap()), (2, 0));
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    }
}
