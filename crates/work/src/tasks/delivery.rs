//! Writes the files of a task. No part of a path may be a link, and every file is replaced atomically.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::evaluating::DirectoryFiles;
use crate::{WorkspaceFiles, is_inside};

/// A file that would be lost by writing these files, because it was changed since the work began; `None` if there is
/// none.
pub(super) fn conflict(
    workspace: &Path,
    before: &DirectoryFiles,
    files: &BTreeMap<String, Option<String>>,
) -> Option<String> {
    let now = DirectoryFiles::new(workspace);
    let is_in_conflict = |(path, text): &(&String, &Option<String>)| {
        let current = now.text(path);
        // The path exists, but is not readable text.
        let is_hidden = current.is_none() && workspace.join(path).symlink_metadata().is_ok();
        is_hidden || (current != before.text(path) && current != **text)
    };
    files.iter().find(is_in_conflict).map(|(path, _)| path.clone())
}

/// Writes the files to the workspace. After an interruption, it can be repeated.
///
/// # Errors
/// When one cannot be written; the others may have been.
pub(super) fn deliver(workspace: &Path, files: &BTreeMap<String, Option<String>>) -> io::Result<()> {
    for (path, text) in files {
        match text {
            Some(text) => write(workspace, path, text.as_bytes(), workspace)?,
            None => remove(workspace, path)?,
        }
    }
    Ok(())
}

/// Replaces a file, with the permissions of the file at this path in `like`, if it exists.
pub(super) fn write(root: &Path, path: &str, bytes: &[u8], like: &Path) -> io::Result<()> {
    let place = place(root, path, true)?;
    let (Some(folder), Some(name)) = (place.parent(), place.file_name()) else {
        return Err(io::Error::other(format!("{path} is no file")));
    };
    let staged = folder.join(format!(".{}.hone", name.to_string_lossy()));
    // A killed process may have left the file.
    let _ = fs::remove_file(&staged);
    let mut file = fs::File::options().write(true).create_new(true).open(&staged)?;
    file.write_all(bytes)?;
    if let Ok(metadata) = like.join(path).symlink_metadata()
        && metadata.is_file()
    {
        file.set_permissions(metadata.permissions())?;
    }
    file.sync_all()?;
    fs::rename(&staged, &place)
}

/// Removes a file if it exists.
pub(super) fn remove(root: &Path, path: &str) -> io::Result<()> {
    match place(root, path, false) {
        Ok(place) if place.symlink_metadata().is_ok() => fs::remove_file(place),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The location of a file, whose parent folders must not be links; creates them if `creates`.
fn place(root: &Path, path: &str, creates: bool) -> io::Result<PathBuf> {
    if !is_inside(path) {
        return Err(io::Error::other(format!("{path} is not inside of the workspace")));
    }
    let mut place = root.to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let (name, folders) = parts.split_last().ok_or_else(|| io::Error::other("a path is empty"))?;
    for part in folders {
        place.push(part);
        match place.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(io::Error::other(format!("{part} in {path} is no folder"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && creates => fs::create_dir(&place)?,
            Err(error) => return Err(error),
        }
    }
    Ok(place.join(name))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn files(entries: &[(&str, Option<&str>)]) -> BTreeMap<String, Option<String>> {
        entries.iter().map(|(path, text)| ((*path).to_owned(), text.map(str::to_owned))).collect()
    }

    #[test]
    fn files_are_replaced_and_removed_and_links_are_not_followed() {
        let (workspace, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(workspace.path().join("old"), "old").unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join("way")).unwrap();
        let changed = files(&[("src/new/a.py", Some("a")), ("old", None), ("absent", None)]);
        for _ in 0..2 {
            deliver(workspace.path(), &changed).unwrap();
        }
        assert_eq!(fs::read_to_string(workspace.path().join("src/new/a.py")).unwrap(), "a");
        assert!(!workspace.path().join("old").exists());
        assert!(deliver(workspace.path(), &files(&[("way/x", Some("x"))])).is_err());
        assert!(deliver(workspace.path(), &files(&[("../x", Some("x"))])).is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_was_changed_meanwhile_is_in_conflict() {
        let (workspace, base) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [&workspace, &base] {
            fs::write(folder.path().join("a"), "before").unwrap();
        }
        let changed = files(&[("a", Some("after")), ("b", Some("new"))]);
        let before = DirectoryFiles::new(base.path());
        let check = |expected: Option<&str>| {
            assert_eq!(conflict(workspace.path(), &before, &changed).as_deref(), expected);
        };
        check(None);
        fs::write(workspace.path().join("a"), "after").unwrap();
        check(None);
        fs::write(workspace.path().join("a"), "by somebody else").unwrap();
        check(Some("a"));
        fs::write(workspace.path().join("a"), "before").unwrap();
        fs::write(workspace.path().join("b"), "somebody's").unwrap();
        check(Some("b"));
    }
}
