//! The supervisor: leaves the caller's namespaces, starts the inner process, and ends it with all of its descendants.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::inner::Inner;
use super::survey::{Survey, bytes_on_disk};
use super::{Order, Reply, Work, WorkerReport, processes};
use crate::command::{Containment, Ending, Limits, Ran};

/// Interval for checking the limits.
const LOOK: Duration = Duration::from_millis(20);
/// Interval for measurements that take longer.
const LONG_LOOK: Duration = Duration::from_millis(100);
/// Measuring may take at most one part in this many of the time.
const SHARE_OF_TIME: u32 = 20;
/// How long killed processes may take to end.
const SWEEP: Duration = Duration::from_secs(2);

/// Runs the command of an order until it ends or reaches a limit, or stdin closes.
///
/// # Errors
/// When the inner process cannot be started.
pub(super) fn supervise(order: &Order) -> io::Result<Reply> {
    adopt_orphans();
    if order.uses_namespaces
        && let Err(reason) = namespaces::leave()
    {
        return Ok(Reply::NoNamespaces(reason));
    }
    let report = order.scratch.join("ended");
    let workspace = &order.command.workspace;
    let before = Survey::of(workspace);
    let began = Instant::now();
    let mut watched = Watched::start(order, &report, &before)?;
    let mut cut = watched.watch(order, &before, began);
    watched.end(order.command.limits.output_bytes);
    let report = last_report(&report);
    let WorkerReport { ending, mut missing } =
        report.unwrap_or(WorkerReport { ending: None, missing: vec!["everything".into()] });
    let (after, set_aside) = Survey::set_aside_new(workspace, &before);
    if !(before.is_complete && after.is_complete) {
        missing.push("files that tools run by themselves (a part of the workspace cannot be searched)".to_owned());
    }
    if cut.is_none() && after.bytes.saturating_sub(before.bytes) > order.command.limits.disk_bytes {
        cut = Some(Ending::TooMuchWritten);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Reply::Ran(Ran {
        ending: cut.or(ending).unwrap_or_else(|| Ending::NotStarted("its own process ended early".to_owned())),
        stdout: text(&watched.stdout.read),
        stderr: text(&watched.stderr.read),
        report: None,
        seconds: began.elapsed().as_secs_f64(),
        containment: Containment { missing },
        set_aside,
    }))
}

fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // Without it, a process namespace still ends them all.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// The latest report of the inner process.
fn last_report(path: &Path) -> Option<WorkerReport> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().rev().find_map(|line| serde_json::from_str(line).ok())
}

/// The inner process with its streams.
struct Watched {
    child: Child,
    stdout: Stream<std::process::ChildStdout>,
    stderr: Stream<std::process::ChildStderr>,
}

impl Watched {
    fn start(order: &Order, report: &Path, before: &Survey) -> io::Result<Self> {
        let mut command = Command::new(this_program()?);
        // The command can read the arguments and environment of its first process, so they hold none of the caller's
        // secrets.
        command.args(std::env::args_os().skip(1)).env_clear().process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let inner = Inner {
            command: order.command.clone(),
            private: order.private.clone(),
            report: report.to_owned(),
            is_in_namespaces: order.uses_namespaces,
            protected: before.self_running.iter().filter(|path| path.to_str().is_some()).cloned().collect(),
        };
        let mut line = serde_json::to_vec(&Work::Confine(inner))?;
        line.push(b'\n');
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&line)?;
        }
        let (stdout, stderr) = (Stream::new(child.stdout.take()), Stream::new(child.stderr.take()));
        Ok(Watched { child, stdout, stderr })
    }

    /// Waits; returns which limit was reached, or `None` if the inner process has ended by itself.
    fn watch(&mut self, order: &Order, before: &Survey, began: Instant) -> Option<Ending> {
        let limits: &Limits = &order.command.limits;
        let mut disk = Seldom::new(|| bytes_on_disk(&order.command.workspace) + bytes_on_disk(&order.private));
        let mut shared = Seldom::new(processes::shared_bytes);
        loop {
            let caller_has_gone = self.read(limits.output_bytes, LOOK);
            if self.stdout.read.len() + self.stderr.read.len() >= limits.output_bytes {
                return Some(Ending::TooMuchOutput);
            }
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return None;
            }
            if caller_has_gone {
                return Some(Ending::Cancelled);
            }
            if began.elapsed().as_secs_f64() > limits.seconds {
                return Some(Ending::TooLong);
            }
            let usage = processes::usage();
            // The inner process does not count.
            if usage.processes > limits.processes.saturating_add(1) {
                return Some(Ending::TooManyProcesses);
            }
            if usage.memory_bytes.max(usage.own_memory_bytes + shared.measured()) > limits.memory_bytes {
                return Some(Ending::TooMuchMemory);
            }
            let grown = disk.measured().saturating_sub(before.bytes);
            if usage.written_bytes.max(grown) > limits.disk_bytes {
                return Some(Ending::TooMuchWritten);
            }
        }
    }

    /// Ends every process, and reads the rest of the streams.
    fn end(&mut self, most_output: usize) {
        let deadline = Instant::now() + SWEEP;
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // Without `/proc`, only this group of the processes is known.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        while processes::end_all() > 0 && Instant::now() < deadline {
            while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
            std::thread::sleep(Duration::from_millis(1));
        }
        // The pipes hold at most their capacity.
        for _ in 0..64 {
            self.read(most_output, Duration::ZERO);
        }
    }

    /// Waits for input, and keeps at most `most` bytes of both streams; returns whether the caller has gone.
    fn read(&mut self, most: usize, wait: Duration) -> bool {
        let stdin = io::stdin();
        let (stdin_fd, out, err) = (stdin.as_fd(), self.stdout.fd(), self.stderr.fd());
        let mut fds = vec![PollFd::from_borrowed_fd(stdin_fd, PollFlags::IN)];
        fds.extend(out.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(err.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let has_out = out.is_some();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        if poll(&mut fds, Some(&timeout)).is_err() {
            return false;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (out_ready, err_ready) = match has_out {
            true => (ready.get(1) == Some(&true), ready.get(2) == Some(&true)),
            false => (false, ready.get(1) == Some(&true)),
        };
        if out_ready {
            self.stdout.read_some(most.saturating_sub(self.stderr.read.len()));
        }
        if err_ready {
            self.stderr.read_some(most.saturating_sub(self.stdout.read.len()));
        }
        // Nothing follows the order, so stdin is ready only when it has closed.
        ready[0]
    }
}

/// A figure that takes long to measure, and is therefore measured less often.
struct Seldom<F> {
    measure: F,
    last: u64,
    next: Instant,
}

impl<F: FnMut() -> u64> Seldom<F> {
    fn new(measure: F) -> Self {
        Seldom { measure, last: 0, next: Instant::now() + LONG_LOOK }
    }

    /// The figure as it was last measured.
    fn measured(&mut self) -> u64 {
        let now = Instant::now();
        if now >= self.next {
            self.last = (self.measure)();
            self.next = Instant::now() + LONG_LOOK.max(now.elapsed() * SHARE_OF_TIME);
        }
        self.last
    }
}

/// A stream of the command, until it ends.
struct Stream<T> {
    source: Option<T>,
    read: Vec<u8>,
}

impl<T: Read + AsFd> Stream<T> {
    fn new(source: Option<T>) -> Self {
        Stream { source, read: Vec::new() }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    fn read_some(&mut self, most: usize) {
        let mut buffer = [0; 1 << 16];
        let Some(source) = &mut self.source else { return };
        match source.read(&mut buffer) {
            Ok(0) | Err(_) => self.source = None,
            Ok(n) => self.read.extend_from_slice(&buffer[..n.min(most.saturating_sub(self.read.len()))]),
        }
    }
}

/// This program, even after another version has taken its place.
fn this_program() -> io::Result<std::path::PathBuf> {
    let on_linux = Path::new("/proc/self/exe");
    if on_linux.exists() { Ok(on_linux.to_owned()) } else { std::env::current_exe() }
}

#[cfg(target_os = "linux")]
mod namespaces {
    use std::fs;

    use nix::sched::{CloneFlags, unshare};

    /// Leaves the caller's user, network and IPC namespaces; processes started from now on are in a new process
    /// namespace. The user stays the same.
    pub(super) fn leave() -> Result<(), String> {
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let flags =
            CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC;
        unshare(flags).map_err(|error| error.desc().to_owned())?;
        let write = |name: &str, text: String| {
            fs::write(format!("/proc/self/{name}"), text).map_err(|error| format!("{name}: {error}"))
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{user} {user} 1"))?;
        write("gid_map", format!("{group} {group} 1"))?;
        // If this is not allowed, the inner process says so.
        let _ = super::super::confinement::view::keep_for_child();
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
mod namespaces {
    pub(super) fn leave() -> Result<(), String> {
        Err("this system is not Linux".to_owned())
    }
}
