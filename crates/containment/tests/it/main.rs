//! The effects of hostile commands: each is ended within a second of its limit, with nothing left running, and nothing
//! read or written outside.
//!
//! This program is three things: the tests, the worker that confines commands, and some of the commands. A worker must
//! have a single thread, so there is no harness.

#![allow(clippy::unwrap_used)]

#[cfg(unix)]
mod hostile;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    hostile::main()
}

#[cfg(not(unix))]
fn main() {
    println!("commands are not run on this system: nothing to test");
}
