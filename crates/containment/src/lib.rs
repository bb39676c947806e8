//! Runs commands that nobody vouches for: tests, linters and compilers over files that a model has written.
//!
//! A [`ContainedCommand`] is a list of arguments, never a shell's line. A [`Launcher`] runs it in a process of this
//! program that confines itself first ([`worker`]), and returns how it ended ([`Ran`]), with what it wrote, and with
//! what of the containment this system could not provide ([`Containment`]).
//!
//! | what | limit | enforced by |
//! | --- | --- | --- |
//! | files | reads the system's programs and the paths that the command names; writes its workspace and a private folder | Landlock |
//! | network | none: no sockets of any kind | seccomp; also a network namespace and Landlock |
//! | processes | all of them end with the command, whatever session or parent they chose; a limited number | a process namespace; without it, adoption of orphans; `RLIMIT_NPROC` |
//! | time, output, memory, bytes written | [`Limits`] | the worker looks every 20 ms; `RLIMIT_FSIZE`, `RLIMIT_CPU` |
//! | privileges | none that the caller does not have, and no new ones | `no_new_privs`, a user namespace |
//! | environment, stdin | only the variables that the command names; nothing to read | |
//!
//! Files, network and processes are contained on Linux alone. On other Unix systems a command runs within the other
//! limits and says what is missing; on Windows it is not run.

mod command;
mod launcher;
#[cfg(unix)]
pub mod worker;

pub use command::{ContainedCommand, Containment, Ending, Limits, Ran};
pub use launcher::{Launcher, RunError};
