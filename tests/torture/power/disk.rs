//! A disk that loses unsynced data.
//!
//! A file's content is durable once the file was synced, and a name once its folder was: POSIX promises no more.
//! Pending changes may survive a power loss: each write independently, in whatever order the disk took them; the names
//! of one folder as a prefix of their changes, as every journal keeps them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::trace::Step;

/// The part of the unsynced changes that survives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Survival {
    /// Nothing.
    Synced,
    /// A random part.
    Some,
    /// Everything.
    All,
}

/// Files, numbered in the order of their creation.
type FileId = usize;

#[derive(Default)]
pub(crate) struct Disk {
    files: Vec<Content>,
    /// All names, including pending changes.
    names: Names,
    /// Changes of names, in order.
    changes: Vec<Change>,
}

/// The entry under each path: a file, or a folder.
type Names = BTreeMap<PathBuf, Option<FileId>>;

#[derive(Default)]
struct Content {
    durable: Vec<u8>,
    pending: Vec<Pending>,
    /// Including pending changes.
    length: u64,
}

enum Pending {
    Write(u64, Vec<u8>),
    Resize(u64),
}

struct Change {
    folder: PathBuf,
    what: What,
    is_durable: bool,
}

enum What {
    Appears(PathBuf, Option<FileId>),
    Moves(PathBuf, PathBuf),
    Vanishes(PathBuf),
}

impl Disk {
    /// Applies a step.
    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            // The folder itself exists once hone is installed.
            Step::Folder(path) if path.as_os_str().is_empty() => {}
            Step::Folder(path) => self.change(path, What::Appears(path.clone(), None)),
            Step::File { path, truncates } => {
                let known = self.names.get(path).copied().flatten();
                if known.is_none() {
                    self.files.push(Content::default());
                    self.change(path, What::Appears(path.clone(), Some(self.files.len() - 1)));
                }
                if let (Some(file), true) = (known, *truncates) {
                    self.files[file].resize(0);
                }
            }
            Step::Write { path, offset, bytes } => {
                if let Some(file) = self.file(path) {
                    file.write(offset.unwrap_or(file.length), bytes);
                }
            }
            Step::Resize { path, length } => {
                if let Some(file) = self.file(path) {
                    file.resize(*length);
                }
            }
            Step::Sync(path) => self.sync(path),
            Step::Rename { from, to } => self.change(to, What::Moves(from.clone(), to.clone())),
            Step::Remove(path) => self.change(path, What::Vanishes(path.clone())),
        }
    }

    fn file(&mut self, path: &Path) -> Option<&mut Content> {
        let file = self.names.get(path).copied().flatten()?;
        self.files.get_mut(file)
    }

    fn change(&mut self, path: &Path, what: What) {
        apply(&mut self.names, &what);
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        // The folder above everything existed before, and was durable.
        self.changes.push(Change { folder, what, is_durable: false });
    }

    fn sync(&mut self, path: &Path) {
        match self.names.get(path) {
            Some(Some(file)) => self.files[*file].sync(),
            _ => self.changes.iter_mut().filter(|change| change.folder == path).for_each(|it| it.is_durable = true),
        }
    }

    /// Writes the surviving files into `folder`. `below` draws numbers.
    pub(crate) fn lose_power(self, survival: Survival, below: &mut dyn FnMut(u64) -> u64, folder: &Path) {
        let names = self.names_left(survival, below);
        fs::create_dir_all(folder).unwrap();
        for (path, file) in &names {
            let target = folder.join(path);
            // A name in a lost folder is lost, too.
            if !target.parent().is_some_and(Path::is_dir) {
                continue;
            }
            match file {
                None => fs::create_dir_all(target).unwrap(),
                Some(file) => fs::write(target, self.files[*file].left(survival, below)).unwrap(),
            }
        }
    }

    fn names_left(&self, survival: Survival, below: &mut dyn FnMut(u64) -> u64) -> Names {
        let mut has_ended: BTreeMap<&Path, bool> = BTreeMap::new();
        let mut names = Names::new();
        for change in &self.changes {
            let ended = has_ended.entry(&change.folder).or_default();
            let survives = change.is_durable
                || match survival {
                    Survival::Synced => false,
                    Survival::All => true,
                    Survival::Some => !*ended && below(3) > 0,
                };
            *ended |= !survives;
            if survives {
                apply(&mut names, &change.what);
            }
        }
        names
    }
}

impl Content {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.length = self.length.max(offset + bytes.len() as u64);
        self.pending.push(Pending::Write(offset, bytes.to_vec()));
    }

    fn resize(&mut self, length: u64) {
        self.length = length;
        self.pending.push(Pending::Resize(length));
    }

    fn sync(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            pending.apply(&mut self.durable);
        }
    }

    /// The content that survives.
    fn left(&self, survival: Survival, below: &mut dyn FnMut(u64) -> u64) -> Vec<u8> {
        let mut content = self.durable.clone();
        for pending in &self.pending {
            let survives = match survival {
                Survival::Synced => false,
                Survival::All => true,
                Survival::Some => below(2) == 0,
            };
            if survives {
                pending.apply(&mut content);
            }
        }
        content
    }
}

impl Pending {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Pending::Resize(length) => content.resize(*length as usize, 0),
            Pending::Write(offset, bytes) => {
                let (start, end) = (*offset as usize, *offset as usize + bytes.len());
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(bytes);
            }
        }
    }
}

fn apply(names: &mut Names, what: &What) {
    match what {
        What::Appears(path, file) => drop(names.insert(path.clone(), *file)),
        What::Vanishes(path) => drop(names.remove(path)),
        What::Moves(from, to) => {
            let moved: Vec<(PathBuf, Option<FileId>)> = names
                .iter()
                .filter(|(path, _)| path.starts_with(from))
                .map(|(path, file)| (path.clone(), *file))
                .collect();
            for (path, file) in moved {
                names.remove(&path);
                let rest = path.strip_prefix(from).unwrap_or(Path::new(""));
                // Joining an empty path would end in a slash.
                let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                names.insert(target, file);
            }
        }
    }
}
