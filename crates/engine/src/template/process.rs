//! The parent's side of a template's process: starts it when a template is first used, waits for an answer until the
//! time limit or cancellation, and replaces the process when it misbehaves.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::TemplateError;
use super::messages::{Answer, TemplateRequest};
use super::source::{IsCancelled, TemplateSource};
use super::worker::{MEMORY_BYTES, RENDERING_SECONDS, STACK_BYTES};

/// Interval for checking whether a slow rendering is still wanted, and how much memory it uses.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum resident memory of a process within its limits: the template's memory, its stack, and the program itself.
const MOST_RESIDENT: u64 = MEMORY_BYTES + STACK_BYTES as u64 + (128 << 20);
/// The longest answer; the limits of the process leave no room for a longer one.
const LONGEST_ANSWER: u64 = MEMORY_BYTES;
/// Maximum bytes read from a process's stderr.
const LAST_WORDS: u64 = 4096;

/// The one process of a template, used by one thread at a time.
#[derive(Debug)]
pub(super) struct Workplace {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Holds the process while no thread uses it; `None` until it is needed.
    free: (Sender<Option<Process>>, Receiver<Option<Process>>),
}

impl Workplace {
    pub(super) fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        let free = bounded(1);
        // The channel has room for one.
        let _ = free.0.send(None);
        Workplace { program, arguments, free }
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// When the process cannot be started or exceeds a limit, or the request is cancelled.
    pub(super) fn ask(
        &self,
        source: &TemplateSource,
        request: &TemplateRequest<'_>,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<Answer, TemplateError> {
        let mut turn = self.turn(is_cancelled)?;
        let mut process = match turn.process.take().and_then(Process::if_alive) {
            Some(process) => process,
            None => match Process::load(&self.program, &self.arguments, source, is_cancelled)? {
                Ok(process) => process,
                Err(failed) => return Ok(failed),
            },
        };
        let answer = process.ask(request, is_cancelled)?;
        turn.process = Some(process);
        Ok(answer)
    }

    fn turn(&self, is_cancelled: IsCancelled<'_>) -> Result<ExclusiveUse<'_>, TemplateError> {
        loop {
            match self.free.1.recv_timeout(LOOK) {
                Ok(process) => return Ok(ExclusiveUse { workplace: self, process }),
                Err(_) if is_cancelled() => return Err(TemplateError::Cancelled),
                Err(_) => {}
            }
        }
    }
}

/// Exclusive use of the process until this is dropped.
struct ExclusiveUse<'a> {
    workplace: &'a Workplace,
    process: Option<Process>,
}

impl Drop for ExclusiveUse<'_> {
    fn drop(&mut self) {
        // The channel has room for the process that was taken out.
        let _ = self.workplace.free.0.send(self.process.take());
    }
}

/// A running process; it is killed when this is dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    requests: Sender<Vec<u8>>,
    answers: Receiver<io::Result<Answer>>,
}

impl Process {
    /// Starts a process and has it parse the template; returns its message if parsing fails.
    fn load(
        program: &Path,
        arguments: &[OsString],
        source: &TemplateSource,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<Result<Self, Answer>, TemplateError> {
        let mut process = Process::start(program, arguments).map_err(TemplateError::Process)?;
        let TemplateSource { text, bos, eos } = source;
        let load = TemplateRequest::Load { text: text.into(), bos: bos.into(), eos: eos.into() };
        match process.ask(&load, is_cancelled)? {
            Answer::Text(_) => Ok(Ok(process)),
            failed => Ok(Err(failed)),
        }
    }

    fn start(program: &Path, arguments: &[OsString]) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A backtrace would name this program's functions rather than the template's lines.
        command.env("RUST_BACKTRACE", "0");
        out_of_reach_of_ctrl_c(&mut command);
        let mut child = command.spawn()?;
        let streams = (child.stdin.take(), child.stdout.take());
        let (requests, received) = bounded(1);
        let (answered, answers) = bounded(1);
        let process = Process { child, requests, answers };
        if let (Some(stdin), Some(stdout)) = streams {
            // The thread ends with the process.
            std::thread::Builder::new()
                .name("hone-template".into())
                .spawn(move || exchange(stdin, stdout, &received, &answered))?;
        }
        Ok(process)
    }

    /// The process, if it is still running; it may have been killed in the meantime.
    fn if_alive(mut self) -> Option<Self> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    /// Its answer to a request. After an error, the process can no longer be used.
    fn ask(&mut self, request: &TemplateRequest<'_>, is_cancelled: IsCancelled<'_>) -> Result<Answer, TemplateError> {
        let mut line = serde_json::to_vec(request).map_err(|error| TemplateError::Process(error.into()))?;
        line.push(b'\n');
        // If the process does not take it, no answer comes, which is noticed below.
        let _ = self.requests.send(line);
        let began = Instant::now();
        loop {
            match self.answers.recv_timeout(LOOK) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.cause_of_death()),
                Err(RecvTimeoutError::Timeout) if is_cancelled() => return Err(TemplateError::Cancelled),
                Err(RecvTimeoutError::Timeout) if began.elapsed() > Duration::from_secs(RENDERING_SECONDS) => {
                    return Err(too_long());
                }
                Err(RecvTimeoutError::Timeout) if self.resident_bytes() > MOST_RESIDENT => return Err(too_large()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Its current resident memory; 0 if unknown.
    fn resident_bytes(&self) -> u64 {
        let process = Pid::from_u32(self.child.id());
        let Ok(mut system) = System::new() else { return 0 };
        let memory = ProcessRefreshKind::nothing().with_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[process]), true, memory);
        system.process(process).map_or(0, |process| process.memory())
    }

    fn cause_of_death(&mut self) -> TemplateError {
        // A process that closed its stream but is still running must not be waited for.
        let _ = self.child.kill();
        let status = self.child.wait();
        let mut words = Vec::new();
        let _ = self.child.stderr.take().map(|stderr| stderr.take(LAST_WORDS).read_to_end(&mut words));
        cause_of_death(status, &String::from_utf8_lossy(&words))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; without waiting for it, it would stay in the system's process table.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes requests on and reads the answers, until either channel or stream ends.
fn exchange(
    mut stdin: ChildStdin,
    stdout: ChildStdout,
    requests: &Receiver<Vec<u8>>,
    answers: &Sender<io::Result<Answer>>,
) {
    let mut stdout = BufReader::new(stdout);
    for request in requests {
        let written = stdin.write_all(&request).and_then(|()| stdin.flush());
        let answer = written.and_then(|()| read_answer(&mut stdout));
        let is_broken = answer.is_err();
        if answers.send(answer).is_err() || is_broken {
            return;
        }
    }
}

fn read_answer(stdout: &mut impl BufRead) -> io::Result<Answer> {
    let mut line = Vec::new();
    stdout.take(LONGEST_ANSWER).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// Why a process ended, as far as can be determined.
fn cause_of_death(status: io::Result<ExitStatus>, last_words: &str) -> TemplateError {
    if last_words.contains("memory allocation of") {
        return too_large();
    }
    if last_words.contains("overflowed its stack") {
        return exceeded(format!("nests deeper than {} MiB of stack hold", STACK_BYTES >> 20));
    }
    match status {
        Ok(status) if is_out_of_time(status) => too_long(),
        Ok(status) => exceeded(format!("ended the process that renders it ({status})")),
        Err(error) => TemplateError::Process(error),
    }
}

fn too_long() -> TemplateError {
    exceeded(format!("takes more than {RENDERING_SECONDS} seconds"))
}

fn too_large() -> TemplateError {
    exceeded(format!("takes more than {} MiB of memory", MEMORY_BYTES >> 20))
}

fn exceeded(what: String) -> TemplateError {
    TemplateError::Exceeded(what)
}

#[cfg(unix)]
fn is_out_of_time(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(rustix::process::Signal::XCPU.as_raw())
}

#[cfg(not(unix))]
fn is_out_of_time(_: ExitStatus) -> bool {
    false
}

/// Ctrl-C is meant for the chat and must not kill its helper.
#[cfg(unix)]
fn out_of_reach_of_ctrl_c(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
}

#[cfg(windows)]
fn out_of_reach_of_ctrl_c(command: &mut Command) {
    use std::os::windows::process::CommandExt;
    const CREATE_NEW_PROCESS_GROUP: u32 = 0x0200;
    const CREATE_NO_WINDOW: u32 = 0x0800_0000;
    command.creation_flags(CREATE_NEW_PROCESS_GROUP | CREATE_NO_WINDOW);
}
