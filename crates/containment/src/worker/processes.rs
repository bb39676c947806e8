//! The processes that descend from this one, as `/proc` shows them. They include orphans: this process, or the first
//! one of the namespace, adopts them.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The combined usage of the processes below this one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) processes: usize,
    pub(super) memory_bytes: u64,
    /// The part of it that is not shared.
    pub(super) own_memory_bytes: u64,
    /// Bytes written to disk, those of ended processes included.
    pub(super) written_bytes: u64,
}

struct Process {
    pid: i32,
    parent: i32,
    is_dead: bool,
    resident_pages: u64,
}

/// The kernel's names for anonymous shared memory.
const SHARED: [&str; 3] = ["/dev/zero (deleted)", "/SYSV", "/memfd:"];

/// Measures the processes below this one.
pub(super) fn usage() -> Usage {
    let page = rustix::param::page_size() as u64;
    below_this_one().iter().filter(|process| !process.is_dead).fold(Usage::default(), |sum, process| Usage {
        processes: sum.processes + 1,
        memory_bytes: sum.memory_bytes + process.resident_pages * page,
        own_memory_bytes: sum.own_memory_bytes
            + process.resident_pages.saturating_sub(shared_pages(process.pid)) * page,
        written_bytes: sum.written_bytes + written_bytes(process.pid),
    })
}

fn shared_pages(pid: i32) -> u64 {
    let figures = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    figures.split_whitespace().nth(2).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// The size of all memory that the processes below this one share, which may be held without being resident anywhere.
pub(super) fn shared_bytes() -> u64 {
    let maps = below_this_one().into_iter().filter_map(|process| fs::read(format!("/proc/{}/maps", process.pid)).ok());
    let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
    for map in maps {
        let map = String::from_utf8_lossy(&map);
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        for (inode, size) in map.lines().filter_map(shared_mapping) {
            *own.entry(inode).or_default() += size;
        }
        for (inode, size) in own {
            let largest = sizes.entry(inode).or_default();
            *largest = size.max(*largest);
        }
    }
    sizes.values().sum()
}

/// Reads a line of `/proc/PID/maps`; returns the inode and the size if it is writable shared memory.
fn shared_mapping(line: &str) -> Option<(String, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    let inode = fields.nth(2)?;
    let name = &line[line.find(inode)? + inode.len()..];
    if !(rights.starts_with("rw") && rights.ends_with('s') && SHARED.iter().any(|known| name.trim().starts_with(known)))
    {
        return None;
    }
    let (begin, end) = range.split_once('-')?;
    let size = u64::from_str_radix(end, 16).ok()?.checked_sub(u64::from_str_radix(begin, 16).ok()?)?;
    Some((inode.to_owned(), size))
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
