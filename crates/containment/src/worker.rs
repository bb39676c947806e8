//! The worker: a process of this program that runs one command and ends.
//!
//! It consists of two processes. The first, the supervisor, leaves the caller's namespaces, starts the second, and
//! watches it: it reads the command's output, enforces the limits, and ends everything when a limit is reached or its
//! caller has gone. The second confines itself and starts the command; in a process namespace it is the first process,
//! and the system ends all others with it.

mod confinement;
mod inner;
mod processes;
mod supervisor;
mod survey;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::command::{ContainedCommand, Ending, Ran};

/// The placeholder for the path of the report's file.
pub(crate) const REPORT_PLACE: &str = "{report}";

/// A command for a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) command: ContainedCommand,
    /// A folder of this run.
    pub(crate) scratch: PathBuf,
    /// The folder in it that the command may use.
    pub(crate) private: PathBuf,
    pub(crate) uses_namespaces: bool,
}

/// A supervisor's reply.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The command was run.
    Ran(Ran),
    /// Namespaces are not allowed, for this reason; nothing was run.
    NoNamespaces(String),
}

/// A worker's input: the work of either process.
#[derive(Debug, Serialize, Deserialize)]
enum Work {
    Confine(inner::Inner),
    #[serde(untagged)]
    Supervise(Order),
}

/// The report of the inner process to its supervisor.
#[derive(Debug, Serialize, Deserialize)]
struct WorkerReport {
    ending: Option<Ending>,
    missing: Vec<String>,
}

/// Runs the command that stdin names, and writes the result to stdout. The process must have a single thread.
///
/// # Errors
/// When stdin has no command, or stdout cannot be written.
pub fn serve() -> io::Result<()> {
    close_inherited();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Work::Confine(inner) => inner.run(),
        Work::Supervise(order) => {
            let reply = serde_json::to_vec(&supervisor::supervise(&order)?)?;
            io::stdout().write_all(&reply)
        }
    }
}

/// Closes inherited descriptors: those of a shell lead to files that the command may not use.
fn close_inherited() {
    #[cfg(target_os = "linux")]
    {
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let open: Vec<i32> = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        for fd in open.into_iter().filter(|fd| *fd > 2) {
            // One of them belonged to the folder, which is closed already.
            let _ = nix::unistd::close(fd);
        }
    }
}
