//! The access that the inner process gives up before it starts the command.

use std::path::{Path, PathBuf};

use crate::command::ContainedCommand;

#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod system_calls;
#[cfg(target_os = "linux")]
pub(super) mod view;

/// The bounds of a process.
#[derive(Clone, Copy)]
pub(super) struct Bounds<'a> {
    pub(super) command: &'a ContainedCommand,
    /// The command's private folder.
    pub(super) private: &'a Path,
    /// Whether it is in namespaces of its own.
    pub(super) is_in_namespaces: bool,
    /// Files of the workspace that the command must not change.
    pub(super) protected: &'a [PathBuf],
}

/// Ends this process when its parent ends.
pub(super) fn end_with_parent() {
    #[cfg(target_os = "linux")]
    // The parent also sees to it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
}

/// Confines this process and all that it starts; returns the aspects that could not be contained, each with the reason.
pub(super) fn confine(bounds: Bounds<'_>) -> Vec<String> {
    limit(bounds.command, bounds.is_in_namespaces);
    give_up(bounds)
}

#[cfg(target_os = "linux")]
fn give_up(bounds: Bounds<'_>) -> Vec<String> {
    let Bounds { command, private, is_in_namespaces, protected } = bounds;
    let mut missing = Vec::new();
    let view = match is_in_namespaces {
        true => view::narrow(command, private, protected),
        false => Err("without namespaces".to_owned()),
    };
    if let Err(reason) = &view {
        missing.push(format!("changes of files that tools run by themselves ({reason})"));
    }
    if is_in_namespaces && let Err(error) = view::give_up_capabilities() {
        missing.push(format!("privileges ({error})"));
    }
    let sees_own_processes_only = view.as_ref().is_ok_and(|view| view.has_own_processes);
    if let Err(reason) = files::confine(command, private, sees_own_processes_only) {
        missing.push(format!("files ({reason})"));
    }
    if let Err(reason) = system_calls::give_up(view.is_ok()) {
        // A namespace without an interface has no network either, but still other sockets.
        missing.push(format!("network ({reason})"));
    }
    if !is_in_namespaces && !files::keeps_signals_in() {
        missing.push("processes (without namespaces, it can send signals to others)".to_owned());
    }
    missing
}

#[cfg(not(target_os = "linux"))]
fn give_up(bounds: Bounds<'_>) -> Vec<String> {
    let Bounds { private: _private, protected: _protected, .. } = bounds;
    ["files", "network", "processes"].map(|what| format!("{what} (this system is not Linux)")).into()
}

fn limit(command: &ContainedCommand, is_in_namespaces: bool) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limits = &command.limits;
    let set = |resource, most: u64| {
        // An extra line of defence: the supervisor enforces the same limits.
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    };
    set(Resource::Core, 0);
    set(Resource::Fsize, limits.file_bytes);
    set(Resource::Nofile, 4096);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    set(Resource::Cpu, (limits.seconds.ceil() as u64).saturating_add(1).saturating_mul(cores));
    if is_in_namespaces {
        // Without namespaces, the user's unrelated processes count as well.
        set(Resource::Nproc, limits.processes as u64);
    }
}
