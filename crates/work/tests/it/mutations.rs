//! Damaged output of tools, and damaged work of agents, is read or refused: never a panic, never a path outside. The
//! properties match those in `fuzz/fuzz_targets/tool_output.rs` and `work.rs`, with random damage to good samples.

use std::fs;
use std::path::Path;

use hone_work::{FileChange, OutputFormat, changed_text, is_inside, parse_work, quoted_file};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const ROUNDS: usize = 300;

/// Pieces used as damage, in addition to single bytes.
const PIECES: [&str; 14] = [
    "\n=== ",
    "=== end\n",
    "=== search\n",
    "\\",
    "../",
    "/",
    "{",
    "]",
    "\"",
    "</testcase>",
    "18446744073709551616",
    "-1",
    "ä",
    "\0",
];

fn below(random: &mut ChaCha8Rng, bound: usize) -> usize {
    random.next_u32() as usize % bound.max(1)
}

/// The text with a few random cuts, copies and insertions.
fn damaged(text: &str, random: &mut ChaCha8Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=below(random, 4) {
        let place = below(random, bytes.len() + 1);
        let end = (place + below(random, 40)).min(bytes.len());
        match random.next_u32() % 4 {
            0 => drop(bytes.drain(place..end)),
            1 => bytes.truncate(place),
            2 => {
                let copy = bytes[place..end].to_vec();
                let to = below(random, bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => {
                let piece = PIECES[below(random, PIECES.len())].bytes();
                bytes.splice(place..place, piece);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn damaged_output_of_tools_is_read_or_refused_in_every_format() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data/reading");
    let samples: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    assert!(samples.len() >= OutputFormat::ALL.len());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut n_read = 0;
    for sample in &samples {
        for _ in 0..ROUNDS {
            let text = damaged(sample, &mut random);
            for format in OutputFormat::ALL {
                for (stdout, stderr, report) in
                    [(text.as_str(), "", None), ("", text.as_str(), None), ("", "", Some(text.as_str()))]
                {
                    if let Ok(found) = format.read(stdout, stderr, report) {
                        assert_eq!(found.tests.is_some(), format.is_of_tests(), "{format:?} of {text:?}");
                        n_read += 1;
                    }
                }
            }
        }
    }
    assert!(n_read > 1_000, "{n_read} were read: the damage leaves nothing to read");
}

#[test]
fn damaged_work_stays_inside_of_the_workspace() {
    let work = "I change two files.\n=== write src/lib.rs\nfn main() {}\n\\=== quoted\n=== end\n=== edit a/b.txt\n=== search\nold\n\
                === replace\nnew\n=== search\nolder\n=== replace\n=== end\n=== delete old.txt\n";
    assert_eq!(parse_work(work).unwrap().len(), 3);
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let (mut n_read, mut n_refused) = (0, 0);
    for _ in 0..100 * ROUNDS {
        match parse_work(&damaged(work, &mut random)) {
            Ok(changes) => n_read += changes.iter().map(check_change).count(),
            Err(_) => n_refused += 1,
        }
    }
    assert!(n_read > 1_000 && n_refused > 1_000, "{n_read} changes were read, {n_refused} answers were refused");
}

fn check_change(change: &FileChange) {
    assert!(is_inside(change.path()), "{change:?}");
    let _ = changed_text(change, None);
    let _ = changed_text(change, Some("old\nolder\n"));
}

#[test]
fn a_quoted_file_is_read_as_it_was() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..10 * ROUNDS {
        let text = damaged("=== end\n\\a\n===\nordinary\n\n", &mut random).replace('\r', "");
        let lines: String = text.lines().map(|line| format!("{line}\n")).collect();
        let expected = vec![FileChange::Write { path: "a/b.txt".to_owned(), text: lines }];
        assert_eq!(parse_work(&quoted_file("a/b.txt", &text)), Ok(expected), "{text:?}");
    }
}
