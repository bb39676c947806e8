//! Looks for a verdict in any text, and for one that survives being neutralized: `cargo +nightly fuzz run verdict`.
#![no_main]

use hone_judging::{neutralized, parse_score, parse_winner};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    assert!(parse_score(text).is_none_or(|score| (1..=5).contains(&score)));
    let _ = parse_winner(text);
    let quoted = neutralized(text);
    assert!(quoted.len() <= 3 * text.len());
    let prompt = format!("###Response to evaluate:\n{quoted}");
    assert_eq!(parse_score(&prompt), None);
    assert_eq!(parse_winner(&prompt), None);
});
