//! The contents of a workspace before and after a command: the files that tools run by themselves, and the space that
//! everything takes. Nothing else runs while a survey acts on its findings.

use std::collections::BTreeSet;
use std::fs::{self, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::self_running::is_self_running_name;

/// The maximum number of files to look at.
const MOST_ENTRIES: usize = 2_000_000;
/// The largest configuration of a repository that is read for the files that it names.
const LARGEST_CONFIGURATION: u64 = 1 << 20;
/// The ending that is added to the name of a file that was set aside.
const ASIDE: &str = "set-aside";

/// The device and inode of a file, which do not change with its name.
type Identity = (u64, u64);

/// The findings.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The files and folders that tools run by themselves.
    pub(super) self_running: Vec<PathBuf>,
    /// Whether the whole workspace could be surveyed.
    pub(super) is_complete: bool,
    /// The space that is taken on disk, in bytes.
    pub(super) bytes: u64,
    known: BTreeSet<Identity>,
    /// Folders that git takes for repositories, although they are not called `.git`.
    bare: Vec<(PathBuf, Identity)>,
}

impl Survey {
    /// Surveys a workspace.
    pub(super) fn of(workspace: &Path) -> Self {
        // The paths that a configuration names are compared with it.
        let workspace = &workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let mut survey = Survey { is_complete: true, ..Survey::default() };
        survey.walk(workspace);
        let configured: Vec<PathBuf> =
            survey.self_running.iter().flat_map(|path| named_by_configuration(path, workspace)).collect();
        for path in configured {
            if let Ok(metadata) = path.symlink_metadata() {
                survey.note(path, &metadata);
            }
        }
        survey
    }

    /// Renames files that tools would run by themselves and that did not exist `before`; returns the new survey and a
    /// description of each action.
    pub(super) fn set_aside_new(workspace: &Path, before: &Survey) -> (Survey, Vec<String>) {
        let after = Survey::of(workspace);
        let workspace = &workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let is_new = |identity: &Identity| !before.known.contains(identity);
        let new = after.self_running.iter().filter(|path| identity(path).as_ref().is_some_and(is_new)).cloned();
        let known_repositories: BTreeSet<Identity> = before.bare.iter().map(|(_, identity)| *identity).collect();
        let repositories = after.bare.iter().filter(|(_, identity)| !known_repositories.contains(identity));
        // Without this file, it is not a repository.
        let heads = repositories.map(|(path, _)| path.join("HEAD"));
        let done = new.chain(heads).map(|path| set_aside(&path, workspace)).collect();
        (after, done)
    }

    fn note(&mut self, path: PathBuf, metadata: &Metadata) {
        if self.known.insert(identity_of(metadata)) {
            self.self_running.push(path);
        }
    }

    fn walk(&mut self, workspace: &Path) {
        let mut folders = vec![workspace.to_owned()];
        let mut linked = BTreeSet::new();
        let mut left = MOST_ENTRIES;
        while let Some(folder) = folders.pop() {
            let Some(entries) = entries(&folder) else {
                self.is_complete = false;
                continue;
            };
            self.look_for_repository(&folder);
            for entry in entries {
                if left == 0 {
                    self.is_complete = false;
                    return;
                }
                left -= 1;
                let Ok(metadata) = entry.symlink_metadata() else { continue };
                if metadata.nlink() == 1 || metadata.is_dir() || linked.insert(identity_of(&metadata)) {
                    self.bytes += metadata.blocks() * 512;
                }
                if entry.file_name().is_some_and(is_self_running_name) {
                    self.note(entry, &metadata);
                } else if metadata.is_dir() {
                    folders.push(entry);
                }
            }
        }
    }

    /// Git takes a folder with these entries for a repository, and obeys its configuration.
    fn look_for_repository(&mut self, folder: &Path) {
        if !(folder.join("HEAD").symlink_metadata().is_ok()
            && folder.join("objects").is_dir()
            && folder.join("refs").is_dir())
        {
            return;
        }
        if let Some(identity) = identity(folder) {
            self.bare.push((folder.to_owned(), identity));
        }
        for name in ["config", "config.worktree", "hooks"] {
            let path = folder.join(name);
            if let Ok(metadata) = path.symlink_metadata() {
                self.note(path, &metadata);
            }
        }
    }
}

/// The space that a folder takes on disk, in bytes.
pub(super) fn bytes_on_disk(folder: &Path) -> u64 {
    let mut survey = Survey::default();
    survey.walk(folder);
    survey.bytes
}

fn identity(path: &Path) -> Option<Identity> {
    path.symlink_metadata().ok().as_ref().map(identity_of)
}

fn identity_of(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The entries of a folder; `None` if it cannot be listed even after its owner was given access to it.
fn entries(folder: &Path) -> Option<Vec<PathBuf>> {
    let list = || -> std::io::Result<Vec<PathBuf>> { fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect() };
    list().or_else(|_| give_access(folder).and_then(|()| list())).ok()
}

fn give_access(folder: &Path) -> std::io::Result<()> {
    let mode = folder.symlink_metadata()?.permissions().mode();
    fs::set_permissions(folder, Permissions::from_mode(mode | 0o700))
}

/// Renames a file or folder; returns a description of the action.
fn set_aside(path: &Path, workspace: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let shown = path.strip_prefix(workspace).unwrap_or(path).display().to_string();
    let free = (0..1000).map(|number| match number {
        0 => path.with_file_name(format!("{name}.{ASIDE}")),
        _ => path.with_file_name(format!("{name}.{ASIDE}.{number}")),
    });
    let Some(place) = free.into_iter().find(|place| place.symlink_metadata().is_err()) else {
        return format!("{shown} could not be set aside: too many others were");
    };
    let rename = || fs::rename(path, &place);
    let done = rename().or_else(|_| give_access(path.parent().unwrap_or(workspace)).and_then(|()| rename()));
    match done {
        Ok(()) => format!("{shown} is now {}", place.file_name().unwrap_or_default().to_string_lossy()),
        Err(error) => format!("{shown} could not be set aside: {error}"),
    }
}

/// The files of a workspace that the configuration of a repository names: hooks, filters, included configurations.
fn named_by_configuration(repository: &Path, workspace: &Path) -> Vec<PathBuf> {
    let configuration = repository.join("config");
    let is_small = configuration.metadata().is_ok_and(|found| found.is_file() && found.len() <= LARGEST_CONFIGURATION);
    let (true, Some(folder)) = (is_small, repository.parent()) else { return Vec::new() };
    let text = fs::read(&configuration).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let values = text.lines().filter_map(|line| line.split_once('='));
    let named = values.flat_map(|(key, value)| {
        let takes_path = matches!(key.trim().to_lowercase().as_str(), "hookspath" | "path" | "fsmonitor");
        let words = value.split_whitespace().map(|word| word.trim_matches(['"', '\'', '!', ';']));
        words.filter(|word| takes_path || word.contains('/')).map(str::to_owned).collect::<Vec<_>>()
    });
    let resolved = named.flat_map(|name| [folder.join(&name), repository.join(&name)]).filter_map(|path| {
        let path = path.canonicalize().ok()?;
        let is_own = path.starts_with(workspace) && path != workspace && path != folder && !folder.starts_with(&path);
        is_own.then_some(path)
    });
    resolved.collect()
}
