//! One flipped bit in a file of the data folder: hone reports the damage or continues, and `hone memory repair`
//! restores every acknowledged answer.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Home, Run};
use crate::torture::ordeal::{Ordeal, run_sane};
use crate::torture::remembered::{Acknowledged, ask, save_conversation};

/// Commands that read the damaged files.
const READERS: [&[&str]; 6] =
    [&["list"], &["memory", "list"], &["memory", "stats", "--check"], &["events"], &["ps"], &["doctor"]];

#[test]
fn a_flipped_bit_is_survived_and_repaired() {
    let mut ordeal = Ordeal::begin("bit flips");
    let original = Home::new();
    let mut acknowledged = Acknowledged::default();
    for _ in 0..5 {
        let question = acknowledged.fresh_question();
        let run = run_words(&original, &ask(&question));
        assert!(acknowledged.note(&question, &run), "{}", run.stderr);
    }
    save_conversation(&original, "long");
    original.write("config/chat.toml", b"save = true\ngrade = false\n");
    while ordeal.goes_on() {
        let home = Home::new();
        for folder in ["data", "config"] {
            copy(&original.path(folder), &home.path(folder));
        }
        let damaged = flip(&mut ordeal, &home);
        for reader in READERS {
            run_sane(&home, reader);
        }
        run_sane(&home, &["config"]);
        let question = acknowledged.fresh_question();
        let mut words = ask(&question);
        words.push("--resume=long".to_owned());
        let run = run_words(&home, &words);
        if damaged.starts_with(home.path("config")) {
            // A damaged configuration blocks hone until a person corrects it.
            ordeal.count("bits of the configuration");
            continue;
        }
        if run_sane(&home, &["memory", "stats", "--check"]).code != 0 {
            ordeal.count("memories that needed a repair");
        }
        let repaired = run_sane(&home, &["memory", "repair"]);
        assert_eq!(repaired.code, 0, "{}: {}", damaged.display(), repaired.stderr);
        acknowledged.check(&home);
        assert!(run.code <= 1, "{}: {}", damaged.display(), run.stderr);
    }
}

/// Flips one bit of one file, chosen among all.
fn flip(ordeal: &mut Ordeal, home: &Home) -> PathBuf {
    let files = [files(&home.path("data")), files(&home.path("config"))].concat();
    let path = ordeal.one_of(&files).clone();
    let mut bytes = fs::read(&path).unwrap();
    if !bytes.is_empty() {
        let (at, bit) = (ordeal.below(bytes.len() as u64), ordeal.below(8));
        bytes[at as usize] ^= 1 << bit;
        fs::write(&path, bytes).unwrap();
        ordeal.count("bits");
    }
    path
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|it| it.is_file())
        .collect();
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else if path.is_file() {
            fs::copy(&path, &target).unwrap();
        }
    }
}

fn run_words(home: &Home, words: &[String]) -> Run {
    run_sane(home, &words.iter().map(String::as_str).collect::<Vec<_>>())
}
