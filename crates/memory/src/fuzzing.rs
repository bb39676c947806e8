//! The readers of bytes that come from elsewhere, for `fuzz/`: whatever they are given, they say yes or no.

use std::io::Read;

use crate::sharing::read_request;
use crate::{backup, due};

/// Reads what guests send, until something is wrong with it.
pub fn read_frames(mut bytes: &[u8]) {
    while read_request(bytes.by_ref()) {}
}

/// Reads a request that is due; a checksum that fits is put before it too, so that what follows is reached.
pub fn read_due(bytes: &[u8]) {
    let _ = due::from_bytes(bytes);
    let _ = due::from_bytes(&due::with_sum(bytes));
}

/// Reads the lines of a backup.
pub fn read_backup(bytes: &[u8]) {
    let _ = backup::read_lines(bytes);
}
