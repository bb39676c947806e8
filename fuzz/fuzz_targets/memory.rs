//! Looks for bytes that make a reader of memory panic: socket frames, due work, and backups:
//! `cargo +nightly fuzz run memory`.
#![no_main]

use hone_memory::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fuzzing::read_frames(bytes);
    fuzzing::read_due(bytes);
    fuzzing::read_backup(bytes);
});
