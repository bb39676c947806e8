//! Tests of memory from outside: writing, reading, searching and moving, and surviving kills, damage, full disks and
//! many processes at once. This test program also runs as the other processes.

#![allow(clippy::unwrap_used)]

#[cfg(target_os = "linux")]
mod disk;
mod due;
mod kill;
mod on_disk;
mod opening;
#[cfg(unix)]
mod postgres;
mod repair;
#[cfg(unix)]
mod sharing;
mod support;
#[cfg(unix)]
mod torture;
