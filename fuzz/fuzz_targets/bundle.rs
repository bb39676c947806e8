//! Reads any bytes as the end of an executable: a bundle's payload is read or refused, never a panic. In half of the
//! runs the bytes follow a program of one page, as payloads do.

#![no_main]

use std::io::Write;

use hone_models::Bundle;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    let program = if bytes.first().is_some_and(|byte| byte & 1 == 1) { vec![0; 64 * 1024] } else { Vec::new() };
    file.write_all(&program).and_then(|()| file.write_all(bytes)).expect("a disk that is not full");
    if let Ok(Some(bundle)) = Bundle::open(file.path()) {
        let length = (program.len() + bytes.len()) as u64;
        for file in bundle.models.iter().flat_map(|model| &model.files) {
            assert!(file.location.offset.checked_add(file.location.length).is_some_and(|end| end <= length));
        }
    }
});
