//! Locations of tools' programs, and the files that they need to read.

use std::path::{Path, PathBuf};

/// Folders of a workspace that hold programs, in search order.
const OF_WORKSPACE: [&str; 2] = [".venv/bin", "node_modules/.bin"];
/// Parts of an installation: `bin` and the entries next to it.
const OF_INSTALLATION: [&str; 6] = ["bin", "lib", "lib64", "libexec", "include", "pyvenv.cfg"];
/// Maximum number of links from a program's name to the program itself.
const MOST_LINKS: usize = 16;

/// The folders to search for programs: those of the workspace, then those of `path`.
pub(super) fn search_path(workspace: &Path, path: &str) -> Vec<PathBuf> {
    let own = OF_WORKSPACE.iter().map(|folder| workspace.join(folder));
    // Relative entries depend on where hone was started.
    own.chain(std::env::split_paths(path).filter(|folder| folder.is_absolute())).collect()
}

/// The first program with this name. An absolute path is used as is.
pub(super) fn find(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let given = Path::new(program);
    if given.is_absolute() {
        return given.is_file().then(|| given.to_owned());
    }
    folders.iter().map(|folder| folder.join(program)).find(|place| place.is_file())
}

/// The paths that a program reads: its own installation, and those on the search path, whose programs it may start.
pub(super) fn readable(program: &Path, folders: &[PathBuf], home: Option<&Path>) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = folders.iter().flat_map(|folder| installation(folder, home)).collect();
    let mut place = program.to_owned();
    for _ in 0..MOST_LINKS {
        found.push(place.clone());
        found.extend(place.parent().into_iter().flat_map(|folder| installation(folder, home)));
        let Ok(target) = place.read_link() else { break };
        place = match place.parent() {
            Some(folder) => folder.join(target),
            None => target,
        };
    }
    if let Ok(real) = program.canonicalize() {
        found.extend(real.parent().into_iter().flat_map(|folder| installation(folder, home)));
    }
    found.sort();
    found.dedup();
    found
}

/// The parts of the installation whose programs are in this folder, without folders that contain the user's home.
fn installation(folder: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let holds_home = |path: &Path| path.parent().is_none() || home.is_some_and(|home| home.starts_with(path));
    let of_installation: Vec<PathBuf> = match folder.parent() {
        Some(prefix) if folder.ends_with("bin") => OF_INSTALLATION.iter().map(|part| prefix.join(part)).collect(),
        _ => vec![folder.to_owned()],
    };
    of_installation.into_iter().filter(|path| !holds_home(path) && path.exists()).collect()
}

/// Expands `~/` to the user's home.
pub(super) fn with_home(path: &str, home: Option<&Path>) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        Some(rest) => home.map(|home| home.join(rest)),
        None => Some(PathBuf::from(path)),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_of_the_workspace_comes_first_and_brings_its_installation() {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, prefix) = (folder.path().join("workspace"), folder.path().join("python"));
        for path in [workspace.join(".venv/bin"), prefix.join("bin"), prefix.join("lib")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(prefix.join("bin/python3"), "").unwrap();
        std::os::unix::fs::symlink(prefix.join("bin/python3"), workspace.join(".venv/bin/python")).unwrap();
        let folders = search_path(&workspace, "/usr/bin:relative:");
        let program = find("python", &folders).unwrap();
        assert_eq!(program, workspace.join(".venv/bin/python"));
        let readable = readable(&program, &folders, None);
        assert!(readable.contains(&prefix.join("lib")), "{readable:?}");
        assert!(!readable.contains(&prefix), "{readable:?}");
        assert_eq!(find("no-such-program", &folders), None);
    }

    #[test]
    fn a_home_is_never_readable() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("bin")).unwrap();
        fs::write(home.join("tool"), "").unwrap();
        let found = readable(&home.join("tool"), &[home.clone(), home.join("bin")], Some(&home));
        assert_eq!(found, [home.join("bin"), home.join("tool")]);
    }
}
