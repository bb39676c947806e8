//! The processes that descend from this one, as `/proc` shows them. Orphans belong to them: this process, or the first
//! one of the namespace, adopts them.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// What the processes below this one use together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) processes: usize,
    pub(super) memory_bytes: u64,
    /// Bytes written to disk, those of ended processes included.
    pub(super) written_bytes: u64,
}

struct Process {
    pid: i32,
    parent: i32,
    is_dead: bool,
    resident_pages: u64,
}

/// Measures the processes below this one.
pub(super) fn usage() -> Usage {
    let page = rustix::param::page_size() as u64;
    below_this_one().iter().filter(|process| !process.is_dead).fold(Usage::default(), |sum, process| Usage {
        processes: sum.processes + 1,
        memory_bytes: sum.memory_bytes + process.resident_pages * page,
        written_bytes: sum.written_bytes + written_bytes(process.pid),
    })
}

/// Ends the processes below this one; returns how many were still running.
pub(super) fn end_all() -> usize {
    let running: Vec<Process> = below_this_one().into_iter().filter(|process| !process.is_dead).collect();
    for pid in running.iter().filter_map(|process| Pid::from_raw(process.pid)) {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
    running.len()
}

fn below_this_one() -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all() {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut parents = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        let of_parent = children.remove(&parent).unwrap_or_default();
        parents.extend(of_parent.iter().map(|process| process.pid));
        found.extend(of_parent);
    }
    found
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Reads a line of `/proc/PID/stat`: a process's name, in parentheses, may hold anything.
fn read(pid: i32) -> Option<Process> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        is_dead: matches!(*fields.first()?, "Z" | "X"),
        resident_pages: fields.get(21)?.parse().ok()?,
    })
}

fn written_bytes(pid: i32) -> u64 {
    let figures = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = figures.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
