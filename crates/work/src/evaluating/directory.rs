//! The files of a workspace in a folder.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use crate::{WorkspaceFiles, is_inside};

/// Folders of tools, version control and hone, whose files are not part of the work.
const NOT_WORK: [&str; 11] = [
    ".git",
    ".hg",
    ".hone",
    ".venv",
    "venv",
    "node_modules",
    "target",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
];
/// Maximum number of listed files.
const MOST_FILES: usize = 20_000;
/// The largest file that is read as a text.
const LARGEST_TEXT: u64 = 4 << 20;

/// Whether a path may be part of the work: none of its folders belongs to tools or version control.
pub(crate) fn is_work(path: &str) -> bool {
    // Some file systems are case-insensitive.
    path.split('/').all(|part| !NOT_WORK.contains(&part.to_ascii_lowercase().as_str()))
}

/// A folder as a workspace. It follows no symbolic links, since a link made by the work could lead anywhere.
#[derive(Clone, Debug)]
pub struct DirectoryFiles {
    root: PathBuf,
}

impl DirectoryFiles {
    /// The files in this folder.
    pub fn new(root: impl Into<PathBuf>) -> DirectoryFiles {
        DirectoryFiles { root: root.into() }
    }

    /// The location of a path, all of whose parts exist and are not links; `None` if it leads out of the workspace.
    fn place(&self, path: &str) -> Option<PathBuf> {
        if !is_inside(path) {
            return None;
        }
        let mut place = self.root.clone();
        for part in path.trim_end_matches('/').split('/').filter(|part| *part != ".") {
            place.push(part);
            if place.symlink_metadata().ok()?.is_symlink() {
                return None;
            }
        }
        Some(place)
    }

    fn list(&self, folder: &Path, prefix: &str, paths: &mut Vec<String>) {
        let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else { continue };
            if paths.len() >= MOST_FILES {
                return;
            }
            if kind.is_dir() && is_work(&name) {
                self.list(&entry.path(), &format!("{prefix}{name}/"), paths);
            } else if kind.is_file() && is_work(&name) {
                paths.push(format!("{prefix}{name}"));
            }
        }
    }
}

/// A file that a model is told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedFile {
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

impl DirectoryFiles {
    /// The files that `.gitignore` does not exclude, in alphabetical order.
    pub(crate) fn listed(&self) -> Vec<ListedFile> {
        let file_of = |entry: ignore::DirEntry| {
            let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            let parts = entry.path().strip_prefix(&self.root).ok()?.iter();
            let parts: Vec<&str> = parts.map(|part| part.to_str()).collect::<Option<_>>()?;
            Some(ListedFile { path: parts.join("/"), bytes: metadata.len() })
        };
        let mut listed: Vec<ListedFile> = self.walk(|_| true).filter_map(file_of).take(MOST_FILES).collect();
        listed.sort_by(|one, other| one.path.cmp(&other.path));
        listed
    }

    /// Whether the path is a file that `.gitignore` does not exclude. Reads only the folders that it lies in.
    pub(crate) fn is_listed(&self, path: &str) -> bool {
        let Some(place) = self.place(path) else { return false };
        let above = place.clone();
        let is_file = |entry: &ignore::DirEntry| entry.path() == place && place.is_file();
        self.walk(move |entry| above.starts_with(entry.path())).any(|entry| is_file(&entry))
    }

    /// The entries of the work that `.gitignore` does not exclude, below those that are wanted.
    fn walk(
        &self,
        is_wanted: impl Fn(&ignore::DirEntry) -> bool + Send + Sync + 'static,
    ) -> impl Iterator<Item = ignore::DirEntry> {
        let mut walk = WalkBuilder::new(&self.root);
        walk.hidden(false).parents(false).git_global(false).git_exclude(false).require_git(false).follow_links(false);
        let is_part = |entry: &ignore::DirEntry| entry.depth() == 0 || entry.file_name().to_str().is_some_and(is_work);
        walk.filter_entry(move |entry| is_part(entry) && is_wanted(entry));
        walk.build().flatten()
    }
}

impl WorkspaceFiles for DirectoryFiles {
    fn text(&self, path: &str) -> Option<String> {
        let place = self.place(path)?;
        let metadata = place.symlink_metadata().ok()?;
        if !metadata.is_file() || metadata.len() > LARGEST_TEXT {
            return None;
        }
        let mut text = String::new();
        hone_files::open_regular(&place).ok()?.take(LARGEST_TEXT).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn exists(&self, path: &str) -> bool {
        self.place(path).is_some()
    }

    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.list(&self.root, "", &mut paths);
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_tools_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["src/a.py", "node_modules/x/index.js", ".git/config", "b.txt", ".github/ci.yml"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        let files = DirectoryFiles::new(folder.path());
        assert_eq!(files.paths(), [".github/ci.yml", "b.txt", "src/a.py"]);
        assert_eq!(files.text("src/a.py").as_deref(), Some("text"));
        assert!(files.exists("src") && files.exists("src/") && !files.exists("src/b.py"));
        fs::write(folder.path().join(".gitignore"), "b.*\n").unwrap();
        let listed: Vec<String> = files.listed().into_iter().map(|file| file.path).collect();
        assert_eq!(listed, [".github/ci.yml", ".gitignore", "src/a.py"]);
        assert!(files.is_listed("src/a.py"));
        for path in ["b.txt", "src", ".git/config", "../a.py", "/etc/passwd", "src/gone.py", ""] {
            assert!(!files.is_listed(path), "{path:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("way")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("file")).unwrap();
        let files = DirectoryFiles::new(folder.path());
        for path in ["way/secret", "file", "../secret", "way"] {
            assert_eq!(files.text(path), None, "{path}");
            assert!(!files.exists(path), "{path}");
        }
        assert!(files.paths().is_empty());
    }
}
