//! The parsers of untrusted bytes, for `fuzz/`: each returns whether its input is valid, and must not panic.

use std::io::Read;

use crate::sharing::read_request;
use crate::{backup, due};

/// Parses messages of clients until one is invalid.
pub fn read_frames(mut bytes: &[u8]) {
    while read_request(bytes.by_ref()) {}
}

/// Parses an entry of the due list, as it is and with a valid checksum in front, so that the code behind the check is
/// reached.
pub fn read_due(bytes: &[u8]) {
    let _ = due::from_bytes(bytes);
    let _ = due::from_bytes(&due::with_sum(bytes));
}

/// Parses the lines of a backup.
pub fn read_backup(bytes: &[u8]) {
    let _ = backup::read_lines(bytes);
}
