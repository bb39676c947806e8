//! Commands and their results: plain data that the caller and the worker exchange.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A command with everything that it may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainedCommand {
    /// The program, as a path, and its arguments. `{report}` in an argument becomes the path of a file for its report.
    pub argv: Vec<String>,
    /// The current folder of the command, which it may change.
    pub workspace: PathBuf,
    /// All of its environment, except `HOME` and `TMPDIR`, which are a private folder.
    pub environment: Vec<(String, String)>,
    /// Files and folders that it may read, in addition to the system's programs and its workspace.
    pub readable: Vec<PathBuf>,
    /// The limits that end it.
    pub limits: Limits,
}

/// The limits of a command; exceeding one ends it and all of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds until it is ended.
    pub seconds: f64,
    /// Bytes that it may write to stdout and stderr together, and to its report.
    pub output_bytes: usize,
    /// Bytes of memory that its processes may have resident together, memory that they share included.
    pub memory_bytes: u64,
    /// Bytes of the largest file that it may write.
    pub file_bytes: u64,
    /// Bytes that its processes may write to disk together, and by which its files may grow.
    pub disk_bytes: u64,
    /// Processes that it may have at a time.
    pub processes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            seconds: 120.0,
            output_bytes: 8 << 20,
            memory_bytes: 4 << 30,
            file_bytes: 1 << 30,
            disk_bytes: 4 << 30,
            processes: 512,
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal, sent by itself or by the system.
    Signalled(i32),
    /// It took too long.
    TooLong,
    /// It wrote too much to stdout and stderr.
    TooMuchOutput,
    /// Its processes took too much memory.
    TooMuchMemory,
    /// Its processes wrote too much to disk.
    TooMuchWritten,
    /// It started too many processes.
    TooManyProcesses,
    /// It was no longer wanted.
    Cancelled,
    /// It could not be started, for this reason.
    NotStarted(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exited(code) => write!(f, "it exited with code {code}"),
            Ending::Signalled(signal) => write!(f, "signal {signal} ended it"),
            Ending::TooLong => f.write_str("it took too long and was ended"),
            Ending::TooMuchOutput => f.write_str("it wrote too much output and was ended"),
            Ending::TooMuchMemory => f.write_str("it took too much memory and was ended"),
            Ending::TooMuchWritten => f.write_str("it wrote too much to disk and was ended"),
            Ending::TooManyProcesses => f.write_str("it started too many processes and was ended"),
            Ending::Cancelled => f.write_str("it was cancelled"),
            Ending::NotStarted(reason) => write!(f, "it could not be started: {reason}"),
        }
    }
}

/// A command that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// How it ended.
    pub ending: Ending,
    /// Its output to stdout, up to the limit.
    pub stdout: String,
    /// Its output to stderr, up to the limit.
    pub stderr: String,
    /// The contents of `{report}`; `None` if the file does not exist, or is larger than the limit of the output.
    pub report: Option<String>,
    /// How long it ran.
    pub seconds: f64,
    /// How it was contained.
    pub containment: Containment,
    /// New files that tools run by themselves; each was renamed when the command had ended.
    pub set_aside: Vec<String>,
}

/// How a command was contained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Containment {
    /// The aspects that this system does not contain, each with the reason.
    pub missing: Vec<String>,
}

impl Containment {
    /// Whether files, network and processes were all contained.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_complete() {
            true => f.write_str("contained"),
            false => write!(f, "not contained: {}", self.missing.join("; ")),
        }
    }
}
