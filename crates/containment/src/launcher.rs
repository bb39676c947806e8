//! The caller's side: starts a worker, hands it the command, and waits for the result.

use std::path::PathBuf;

use thiserror::Error;

#[cfg(unix)]
use crate::command::{ContainedCommand, Ran};

/// Starts workers: processes that confine themselves and then run a command.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program that calls [`worker::serve`](crate::worker::serve) when it gets these arguments.
    pub program: PathBuf,
    /// The arguments that tell it to.
    pub arguments: Vec<String>,
    /// Whether namespaces are used where the system has them; tests turn this off to check the rest of the containment.
    pub uses_namespaces: bool,
}

/// A command that could not be run at all.
#[derive(Debug, Error)]
pub enum RunError {
    /// The system does not allow a worker to run.
    #[error("the command's own process cannot be started")]
    Worker(#[from] std::io::Error),
    /// The worker ended without a result.
    #[error("the command's own process ended without a result: {0}")]
    NoResult(String),
    /// This system cannot contain commands.
    #[error("commands are not run on this system, which offers nothing to contain them")]
    Unsupported,
}

#[cfg(not(unix))]
impl Launcher {
    /// Runs nothing.
    ///
    /// # Errors
    /// Always.
    pub fn run(&self, _: &crate::ContainedCommand, _: &dyn Fn() -> bool) -> Result<crate::Ran, RunError> {
        Err(RunError::Unsupported)
    }

    /// Nothing is contained.
    ///
    /// # Errors
    /// Always.
    pub fn containment(&self) -> Result<crate::Containment, RunError> {
        Err(RunError::Unsupported)
    }
}

#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::time::{Duration, Instant};

    use super::{ContainedCommand, Launcher, Ran, RunError};
    use crate::command::{Containment, Limits};
    use crate::scratch::Scratch;
    use crate::worker::{Order, REPORT_PLACE, Reply};

    /// Interval for checking whether the command is still wanted.
    const LOOK: Duration = Duration::from_millis(20);
    /// How long a worker may take to end after its command's limit.
    const GRACE: Duration = Duration::from_secs(5);

    impl Launcher {
        /// Runs a command until it ends, reaches a limit, or `is_cancelled`. None of its processes remains then.
        ///
        /// # Errors
        /// When no worker can be started, or the worker fails; a command that fails is a result.
        pub fn run(&self, command: &ContainedCommand, is_cancelled: &dyn Fn() -> bool) -> Result<Ran, RunError> {
            match self.run_with(command, self.uses_namespaces, is_cancelled)? {
                Reply::Ran(ran) => Ok(with_report_from(ran)),
                // A process that has partly left its user namespace is unusable, so another one runs without
                // namespaces.
                Reply::NoNamespaces(_) => match self.run_with(command, false, is_cancelled)? {
                    Reply::Ran(ran) => Ok(with_report_from(ran)),
                    Reply::NoNamespaces(reason) => Err(RunError::NoResult(reason)),
                },
            }
        }

        /// How a command would be contained here.
        ///
        /// # Errors
        /// When no worker can be started.
        pub fn containment(&self) -> Result<Containment, RunError> {
            let workspace = Scratch::new()?;
            let command = ContainedCommand {
                argv: vec!["/bin/true".to_owned()],
                workspace: workspace.path().to_owned(),
                environment: Vec::new(),
                readable: Vec::new(),
                limits: Limits { seconds: 10.0, ..Limits::default() },
            };
            Ok(self.run(&command, &|| false)?.containment)
        }

        fn run_with(
            &self,
            command: &ContainedCommand,
            uses_namespaces: bool,
            is_cancelled: &dyn Fn() -> bool,
        ) -> Result<Reply, RunError> {
            let scratch = Scratch::new()?;
            let private = scratch.path().join("private");
            std::fs::create_dir(&private)?;
            let mut command = command.clone();
            let report = private.join("report");
            for argument in &mut command.argv {
                *argument = argument.replace(REPORT_PLACE, &report.to_string_lossy());
            }
            let limit = Duration::try_from_secs_f64(command.limits.seconds).unwrap_or(Duration::MAX / 4);
            let most_report = command.limits.output_bytes;
            let order = Order { command, scratch: scratch.path().to_owned(), private, uses_namespaces };
            let mut worker = Worker::start(self, &order)?;
            let reply = worker.reply(limit.saturating_add(GRACE), is_cancelled)?;
            Ok(match reply {
                Reply::Ran(ran) => Reply::Ran(Ran { report: read_at_most(&report, most_report), ..ran }),
                other => other,
            })
        }
    }

    /// Replaces an empty report by `None`.
    fn with_report_from(ran: Ran) -> Ran {
        Ran { report: ran.report.filter(|report| !report.is_empty()), ..ran }
    }

    fn read_at_most(path: &Path, n_bytes: usize) -> Option<String> {
        // A link could lead the caller, who is not confined, elsewhere.
        let metadata = path.symlink_metadata().ok()?;
        if !metadata.is_file() || metadata.len() > n_bytes as u64 {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(path).ok()?.take(n_bytes as u64).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A running worker. It ends the command when its stdin closes, which happens however this process ends.
    struct Worker {
        child: Child,
        output: Receiver<(Vec<u8>, String)>,
    }

    impl Worker {
        fn start(launcher: &Launcher, order: &Order) -> Result<Self, RunError> {
            use std::os::unix::process::CommandExt;
            let mut command = Command::new(&launcher.program);
            command.args(&launcher.arguments).process_group(0);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn()?;
            let mut line = serde_json::to_vec(order).map_err(std::io::Error::other)?;
            line.push(b'\n');
            if let Some(stdin) = &mut child.stdin {
                stdin.write_all(&line)?;
                stdin.flush()?;
            }
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            let (sender, output) = channel();
            std::thread::Builder::new().name("hone-command".into()).spawn(move || {
                let mut reply = Vec::new();
                let _ = stdout.map(|mut stdout| stdout.read_to_end(&mut reply));
                let mut words = String::new();
                let _ = stderr.map(|stderr| stderr.take(4096).read_to_string(&mut words));
                let _ = sender.send((reply, words));
            })?;
            Ok(Worker { child, output })
        }

        fn reply(&mut self, limit: Duration, is_cancelled: &dyn Fn() -> bool) -> Result<Reply, RunError> {
            let mut deadline = Instant::now().checked_add(limit);
            loop {
                match self.output.recv_timeout(LOOK) {
                    Ok((reply, words)) => {
                        return serde_json::from_slice(&reply).map_err(|_| RunError::NoResult(words.trim().to_owned()));
                    }
                    Err(RecvTimeoutError::Disconnected) => return Err(RunError::NoResult(String::new())),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                if self.child.stdin.is_some() && is_cancelled() {
                    self.child.stdin = None;
                    deadline = Some(Instant::now() + GRACE);
                }
                if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                    return Err(RunError::NoResult("it did not end after its limit".to_owned()));
                }
            }
        }
    }

    impl Drop for Worker {
        fn drop(&mut self) {
            self.child.stdin = None;
            if !matches!(self.child.try_wait(), Ok(Some(_))) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}
