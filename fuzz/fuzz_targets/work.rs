//! An agent's output is read or refused; no path leads out of the workspace, and a quoted file is read back unchanged.
#![no_main]

use hone_work::{FileChange, changed_text, is_inside, parse_work, quoted_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for change in parse_work(text).unwrap_or_default() {
        assert!(is_inside(change.path()));
        let _ = changed_text(&change, None);
        let _ = changed_text(&change, Some(text));
    }
    let text = text.replace('\r', "");
    let lines: String = text.lines().map(|line| format!("{line}\n")).collect();
    let expected = vec![FileChange::Write { path: "a/b.txt".to_owned(), text: lines }];
    assert_eq!(parse_work(&quoted_file("a/b.txt", &text)), Ok(expected));
});
