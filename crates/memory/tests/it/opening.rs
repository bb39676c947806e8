//! Opening a memory after a crash, with damaged files, or with an index that is out of date.

use std::fs;

use hone_memory::{Filters, MemoryError, MemoryOptions, MemoryStore};

use crate::on_disk::check_whole;
use crate::support::{Home, engram, id, vector};

#[test]
fn what_a_process_left_unfinished_is_no_hindrance() {
    let home = Home::new();
    let path = |name: &str| home.folder.path().join(name);
    // One process ended while it created memory, another while it opened it, a third while it saved the index.
    fs::create_dir_all(path("store.unfinished")).unwrap();
    fs::write(path("store.unfinished/conf"), b"segm").unwrap();
    let store = home.open();
    store.remember(engram(1), Some(vector(1, 8))).unwrap();
    drop(store);
    fs::write(path("store/snap.FFFFFFFFFFFFFFFF.generating"), b"").unwrap();
    fs::write(path(".unfinished-index-1"), b"half of it").unwrap();
    let store = home.open();
    check_whole(&store, 1, 1);
    assert!(!path("store.unfinished").exists() && !path(".unfinished-index-1").exists());
}

/// Damages a file of storage, and checks that memory either opens or says what to do.
#[track_caller]
fn check_damage(name: &str, spoil: impl Fn(&mut Vec<u8>)) -> bool {
    let home = Home::new();
    let store = home.open();
    for number in 1..=50 {
        store.remember(engram(number), Some(vector(number, 384))).unwrap();
    }
    drop(store);
    for entry in fs::read_dir(home.folder.path().join("store")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with(name) {
            let mut bytes = fs::read(&path).unwrap();
            spoil(&mut bytes);
            fs::write(&path, bytes).unwrap();
        }
    }
    let opened = MemoryStore::open(home.folder.path(), MemoryOptions::default());
    let error = match opened.and_then(|store| store.list(&Filters::default(), 99)) {
        Ok(found) => return found.len() == 50,
        Err(error) => error,
    };
    assert!(matches!(error, MemoryError::Corrupted { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("hone memory repair"), "{error}");
    assert!(error.contains(&format!("in {} are", home.folder.path().display())), "{error}");
    false
}

#[test]
fn damaged_files_are_said_to_be_so_with_what_to_do() {
    assert!(check_damage("nothing", |_| {}));
    let flip = |bytes: &mut Vec<u8>, place: usize, n: usize| {
        bytes.iter_mut().skip(place).take(n).for_each(|byte| *byte ^= 0x55);
    };
    // The log holds the contents of these files, so they are rewritten.
    assert!(check_damage("conf", |bytes| flip(bytes, 0, 99)));
    assert!(check_damage("snap", |bytes| flip(bytes, 0, 999)));
    assert!(check_damage("snap", |bytes| bytes.truncate(bytes.len() / 2)));
    assert!(!check_damage("db", |bytes| flip(bytes, 0, 200)));
    assert!(!check_damage("db", |bytes| flip(bytes, 30, 200)));
    // sled does without these.
    check_damage("conf", |bytes| bytes.truncate(4));
    check_damage("db", |bytes| flip(bytes, 60_000, 200));
}

/// Changes the index's file while memory is closed, and checks that all vectors are there afterwards.
#[track_caller]
fn check_index_file(spoil: impl Fn(&Home)) {
    let home = Home::new();
    let store = home.open();
    for number in 1..=5 {
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
    }
    drop(store);
    spoil(&home);
    check_whole(&home.open(), 5, 5);
}

#[test]
fn an_index_that_does_not_fit_is_built_anew() {
    let file = |home: &Home| home.folder.path().join("vectors.index");
    check_index_file(|_| {});
    check_index_file(|home| fs::remove_file(file(home)).unwrap());
    check_index_file(|home| fs::write(file(home), b"").unwrap());
    check_index_file(|home| fs::write(file(home), b"nonsense that is longer than a checksum would be").unwrap());
    for position in [0, 40, 200, 1_000] {
        check_index_file(|home| {
            let mut bytes = fs::read(file(home)).unwrap();
            bytes[position] ^= 1;
            fs::write(file(home), bytes).unwrap();
        });
    }
    check_index_file(|home| {
        let bytes = fs::read(file(home)).unwrap();
        fs::write(file(home), &bytes[..bytes.len() / 2]).unwrap();
    });
    // The index of another memory, with more and with fewer changes.
    for n_changes in [2, 9] {
        check_index_file(|home| {
            let other = Home::new();
            let store = other.open();
            for number in 1..=n_changes {
                store.remember(engram(number + 100), Some(vector(number + 100, 8))).unwrap();
            }
            drop(store);
            fs::copy(file(&other), file(home)).unwrap();
        });
    }
}

#[test]
fn an_index_is_saved_now_and_then_and_caught_up() {
    let home = Home::new();
    let options = || MemoryOptions { changes_until_save: 4, ..MemoryOptions::default() };
    let file = home.folder.path().join("vectors.index");
    let store = home.open_with(options());
    for number in 1..=4 {
        assert!(!file.exists());
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
    }
    let saved = fs::read(&file).unwrap();
    store.remove(&[id(1)]).unwrap();
    store.remember(engram(5), Some(vector(5, 8))).unwrap();
    assert_eq!(fs::read(&file).unwrap(), saved);
    drop(store);
    // As after a crash: the index lacks the last changes.
    fs::write(&file, saved).unwrap();
    let store = home.open_with(options());
    check_whole(&store, 4, 4);
}

#[test]
fn a_memory_that_is_closed_can_be_opened_at_once() {
    let home = Home::new();
    for number in 1..=20 {
        assert_eq!(home.open().remember(engram(number), None), Ok(number));
    }
}
