//! Runs untrusted commands: tests, linters and compilers over files that a model has written.
//!
//! A [`ContainedCommand`] is a list of arguments, never a shell's line. A [`Launcher`] runs it in a process of this
//! program that confines itself first ([`worker`]), and returns how it ended, with its output ([`Ran`]) and the parts
//! of the containment that this system could not provide ([`Containment`]).
//!
//! | what | limit | enforced by |
//! | --- | --- | --- |
//! | files | reads the system's programs and the paths that the command names; writes its workspace and a private folder | Landlock |
//! | modes, times, owners, attributes of files | only in its workspace and private folder | a mount namespace in which everything else is read-only; without it, seccomp refuses every change |
//! | files that tools run by themselves ([`runs_by_itself`]) | existing ones cannot be changed; new ones are set aside when the command has ended ([`Ran::set_aside`]) | read-only mounts; without them, they are not protected, and the result says so |
//! | network | none: no sockets of any kind | seccomp; also a network namespace and Landlock |
//! | processes | all of them end with the command, whatever session or parent they chose; a limited number; others are invisible | a process namespace with a `/proc` of its own; without it, adoption of orphans and no `/proc` of any process; `RLIMIT_NPROC` |
//! | time, output, memory, disk | [`Limits`] | the worker checks every 20 ms, blocks on disk less often; memory and disk that cannot be attributed to a process (`memfd_create`, `fallocate`) are refused by seccomp; `RLIMIT_FSIZE`, `RLIMIT_CPU` |
//! | privileges | none that the caller does not have, and no new ones | `no_new_privs`, a user namespace without capabilities |
//! | environment, stdin, descriptors | only the variables that the command names; nothing to read; no descriptor of the caller | |
//!
//! Files, network and processes are contained on Linux alone. On other Unix systems, a command runs within the other
//! limits, and the result says what is missing; on Windows, it is not run.

mod command;
mod launcher;
#[cfg(unix)]
mod scratch;
mod self_running;
#[cfg(unix)]
pub mod worker;

pub use command::{ContainedCommand, Containment, Ending, Limits, Ran};
pub use launcher::{Launcher, RunError};
pub use self_running::{is_version_control, runs_by_itself};
