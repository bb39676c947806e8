//! The output of a linter or a test runner is read or refused, in every format and never with a panic. The first byte
//! chooses the format, the second one where stdout ends and stderr begins.
#![no_main]

use hone_work::OutputFormat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &str)| {
    let (format, split, text) = input;
    let format = OutputFormat::ALL[usize::from(format) % OutputFormat::ALL.len()];
    let middle = text.floor_char_boundary(text.len() * usize::from(split) / 255);
    let (stdout, stderr) = text.split_at(middle);
    for report in [None, Some(text)] {
        if let Ok(found) = format.read(stdout, stderr, report) {
            assert_eq!(found.tests.is_some(), format.is_of_tests());
        }
    }
});
