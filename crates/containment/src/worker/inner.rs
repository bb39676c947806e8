//! The inner process: confines itself, starts the command, and waits for it.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::{WorkerReport, confinement};
use crate::command::{ContainedCommand, Ending};

/// The work of the inner process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Inner {
    pub(super) command: ContainedCommand,
    /// The command's private folder.
    pub(super) private: PathBuf,
    /// The path of the report.
    pub(super) report: PathBuf,
    /// Whether it is in namespaces of its own.
    pub(super) is_in_namespaces: bool,
    /// Files of the workspace that the command must not change.
    pub(super) protected: Vec<PathBuf>,
}

impl Inner {
    /// Runs the command and writes down how it ended.
    ///
    /// # Errors
    /// When the report cannot be written.
    pub(super) fn run(self) -> io::Result<()> {
        confinement::end_with_parent();
        // Opened before the process loses access to it; the command does not inherit it.
        let mut file = File::create(&self.report)?;
        let missing = confinement::confine(confinement::Bounds {
            command: &self.command,
            private: &self.private,
            is_in_namespaces: self.is_in_namespaces,
            protected: &self.protected,
        });
        let mut write = |report: &WorkerReport| -> io::Result<()> {
            serde_json::to_writer(&mut file, report)?;
            file.write_all(b"\n")
        };
        // Written first, so that missing containment is known even if the command is ended from outside.
        write(&WorkerReport { ending: None, missing: missing.clone() })?;
        let ending = match self.start() {
            Ok(pid) => wait_for(pid)?,
            Err(error) => Ending::NotStarted(error.to_string()),
        };
        write(&WorkerReport { ending: Some(ending), missing })
    }

    fn start(&self) -> io::Result<Pid> {
        let ContainedCommand { argv, workspace, environment, .. } = &self.command;
        let (program, arguments) = argv.split_first().ok_or_else(|| io::Error::other("it has no program"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(workspace).stdin(Stdio::null());
        command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
        command.env("HOME", &self.private).env("TMPDIR", &self.private);
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::other("the system gave it no valid number"))
    }
}

/// Waits for the command, and for the orphans that this process inherits.
fn wait_for(command: Pid) -> io::Result<Ending> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => return Ok(ending(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Signalled(signal),
        (None, None) => Ending::NotStarted("it ended in an unknown way".to_owned()),
    }
}
