//! Files and folders that tools run, or take commands from, without being asked to run anything: a version control's
//! folder with its hooks and its configuration, an editor's tasks, a shell's settings for a folder.

use std::ffi::OsStr;
use std::path::{Component, Path};

/// The folders of version control, whose configuration names programs. No task requires changing them.
const VERSION_CONTROL: &[&str] = &[".git", ".hg", ".svn", ".jj", ".bzr", "_darcs", ".sl", ".fslckout"];

/// Other names that count wherever they are found.
const NAMES: &[&str] = &[
    // Hooks of version control.
    ".gitmodules",
    ".githooks",
    ".husky",
    ".lefthook",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    "lefthook.yml",
    "lefthook.yaml",
    "lefthook.toml",
    ".lefthook.yml",
    ".hgrc",
    ".gitconfig",
    // Shells, and the files that they source on entering a folder.
    ".envrc",
    ".direnv",
    ".autoenv",
    ".autoenv.zsh",
    ".mise.toml",
    "mise.toml",
    ".mise",
    ".rtx.toml",
    ".tool-versions",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".kshrc",
    ".inputrc",
    // Editors.
    ".vscode",
    ".idea",
    ".fleet",
    ".zed",
    ".vs",
    ".nova",
    ".devcontainer",
    ".devcontainer.json",
    ".exrc",
    ".vimrc",
    ".gvimrc",
    ".nvimrc",
    ".nvim.lua",
    ".lvimrc",
    ".local.vimrc",
    ".dir-locals.el",
    ".dir-locals-2.el",
    ".helix",
    ".kateproject",
    // Debuggers, package managers, build tools.
    ".gdbinit",
    ".lldbinit",
    ".cargo",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".yarn",
    ".pnpmfile.cjs",
    ".bazelrc",
    ".mvn",
    ".bundle",
    ".pypirc",
    ".ssh",
    // Agents that read their hooks and servers from a folder.
    ".claude",
    ".mcp.json",
    ".cursor",
    ".codex",
    ".gemini",
    ".continue",
    ".windsurf",
    ".aider.conf.yml",
    // Services that run pushed code.
    ".github",
    ".gitlab-ci.yml",
    ".circleci",
    ".travis.yml",
];

/// Whether a name belongs to version control. A file system may ignore case.
fn is_version_control_name(name: &OsStr) -> bool {
    VERSION_CONTROL.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Whether tools act by themselves on a file or folder of this name.
pub(crate) fn is_self_running_name(name: &OsStr) -> bool {
    is_version_control_name(name) || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

/// Whether a path is, or lies in, something that tools run by themselves.
pub fn runs_by_itself(path: &Path) -> bool {
    names(path).any(is_self_running_name)
}

/// Whether a path is, or lies in, the folder of a version control.
pub fn is_version_control(path: &Path) -> bool {
    names(path).any(is_version_control_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_wherever_they_stand() {
        for path in [".git/config", "sub/.GIT/hooks/pre-commit", ".envrc", "a/.vscode/tasks.json", ".git"] {
            assert!(runs_by_itself(Path::new(path)), "{path}");
        }
        for path in ["src/git/main.rs", ".gitignore", "envrc", "a/.gitkeep"] {
            assert!(!runs_by_itself(Path::new(path)), "{path}");
        }
        assert!(is_version_control(Path::new("sub/.git/config")));
        assert!(!is_version_control(Path::new(".vscode/tasks.json")));
    }
}
