//! The folder in which a task's work is evaluated: a copy of the workspace with the agents' changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use similar::TextDiff;

use super::delivery::{remove, write};
use super::record::{DIFF, TaskError, file_error};
use crate::WorkspaceFiles;
use crate::evaluating::DirectoryFiles;

/// Installed packages of a workspace; tools use them in place rather than in the copy.
const INSTALLED: [&str; 3] = [".venv", "venv", "node_modules"];
/// Maximum bytes of a workspace to copy.
const MOST_BYTES: u64 = 1 << 30;

/// A copy of the original workspace, and one to work in.
pub(super) struct Staging {
    folder: PathBuf,
}

impl Staging {
    /// Opens the copies in a task's folder, or makes them if they are incomplete.
    ///
    /// # Errors
    /// When the workspace is too large, or cannot be copied.
    pub(super) fn open(folder: PathBuf, workspace: &Path) -> Result<Self, TaskError> {
        let staging = Staging { folder };
        if !staging.base().exists() {
            let unfinished = staging.folder.join("base.unfinished");
            let copy = || -> io::Result<()> {
                if unfinished.exists() {
                    fs::remove_dir_all(&unfinished)?;
                }
                fs::create_dir(&unfinished)?;
                copy_files(workspace, &unfinished)?;
                fs::rename(&unfinished, staging.base())
            };
            copy().map_err(|error| TaskError::Workspace(error.to_string()))?;
        }
        fs::create_dir_all(staging.work()).map_err(file_error(&staging.work()))?;
        staging.link_installed(workspace);
        Ok(staging)
    }

    /// The original workspace.
    pub(super) fn base(&self) -> PathBuf {
        self.folder.join("base")
    }

    /// The folder that tools run in.
    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// The original files.
    pub(super) fn before(&self) -> DirectoryFiles {
        DirectoryFiles::new(self.base())
    }

    /// Resets the working copy to the base with these changed files, discarding files that tools have left in it, and
    /// stores the diff.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn apply(&self, files: &BTreeMap<String, Option<String>>) -> Result<(), TaskError> {
        let work = self.work();
        let (base, now) = (self.before(), DirectoryFiles::new(&work));
        let expected: BTreeSet<String> = base
            .paths()
            .into_iter()
            .filter(|path| !files.contains_key(path))
            .chain(files.iter().filter(|(_, text)| text.is_some()).map(|(path, _)| path.clone()))
            .collect();
        let apply = || -> io::Result<()> {
            for path in now.paths().iter().filter(|path| !expected.contains(*path)) {
                remove(&work, path)?;
            }
            for path in &expected {
                let bytes = match files.get(path) {
                    Some(text) => text.clone().unwrap_or_default().into_bytes(),
                    None => hone_files::read_regular(&self.base().join(path), u64::MAX)?,
                };
                if hone_files::read_regular(&work.join(path), u64::MAX).ok().as_ref() != Some(&bytes) {
                    write(&work, path, &bytes, &self.base())?;
                }
            }
            fs::write(self.folder.join(DIFF), self.diff(files))
        };
        apply().map_err(file_error(&work))
    }

    fn diff(&self, files: &BTreeMap<String, Option<String>>) -> String {
        let base = self.before();
        let one = |(path, text): (&String, &Option<String>)| {
            let (before, after) = (base.text(path).unwrap_or_default(), text.clone().unwrap_or_default());
            let (from, to) = (format!("a/{path}"), format!("b/{path}"));
            TextDiff::from_lines(&before, &after).unified_diff().header(&from, &to).to_string()
        };
        files.iter().map(one).collect()
    }

    fn link_installed(&self, workspace: &Path) {
        for name in INSTALLED {
            let (original, link) = (workspace.join(name), self.work().join(name));
            if original.is_dir() && link.symlink_metadata().is_err() {
                #[cfg(unix)]
                // Without the link, tools report the missing packages.
                let _ = std::os::unix::fs::symlink(original, link);
            }
        }
    }
}

fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    let mut n_bytes = 0;
    for path in DirectoryFiles::new(from).paths() {
        let (source, target) = (from.join(&path), to.join(&path));
        n_bytes += source.symlink_metadata()?.len();
        if n_bytes > MOST_BYTES {
            return Err(io::Error::other("it has more than 1 GiB: name a smaller folder"));
        }
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(source, target)?;
    }
    Ok(())
}
