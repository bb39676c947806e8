//! A full disk: the error says so, everything acknowledged is still there, and work continues once there is room.
//! Tested with a small file system, which requires permission to mount one, and with a limit on the size of files.

#[path = "../../../../tests/support/small_disk.rs"]
mod small_disk;

use std::env;
use std::fs;
use std::path::Path;
use std::process::{self, Command};

use hone_memory::{Engram, Filters, MemoryError, MemoryOptions, MemoryStore, Update};
use small_disk::SmallDisk;
use tempfile::TempDir;

use crate::support::{engram, grade, id, vector};

/// A long engram.
fn long(number: u64) -> Engram {
    Engram { answer: format!("{number} is a number. ").repeat(500), ..engram(number) }
}

/// Remembers engrams until one fails; returns its number and the error.
fn fill(store: &MemoryStore, first: u64) -> (u64, MemoryError) {
    for number in first..100_000 {
        if let Err(error) = store.remember(long(number), Some(vector(number, 384))) {
            return (number, error);
        }
    }
    panic!("the disk is never full");
}

/// Checks that everything before `next` is there; `next` itself, which was refused, may be there.
#[track_caller]
fn check_holds(store: &MemoryStore, next: u64) {
    assert_eq!(store.verify().unwrap().problems, [""; 0]);
    let found = store.list(&Filters::default(), usize::MAX).unwrap().len() as u64;
    assert!(found == next || found == next + 1, "{found} engrams, {next} were acknowledged");
    for number in 0..next {
        assert_eq!(store.get(id(number)).unwrap().unwrap().answer, long(number).answer);
    }
}

/// Twice fills a disk, makes room and continues; finally opens memory again.
fn check_small_disk(reserved_bytes: u64) {
    let Some(disk) = SmallDisk::mount("80m") else { return };
    let ballast = disk.path("ballast");
    let options = || MemoryOptions { reserved_bytes, ..MemoryOptions::default() };
    let store = MemoryStore::open(&disk.path("memory"), options()).unwrap();
    let mut next = 0;
    for ballast_bytes in [24 << 20, 8 << 20] {
        fs::write(&ballast, vec![1; ballast_bytes]).unwrap();
        let (refused, error) = fill(&store, next);
        assert!(matches!(error, MemoryError::DiskFull { .. }), "{error}");
        assert!(refused > next, "nothing was written");
        next = refused;
        // Sled may find room in its own files for a smaller one.
        next += u64::from(store.remember(long(next), None).is_ok());
        fs::remove_file(&ballast).unwrap();
        check_holds(&store, next);
        store.remember(long(next), Some(vector(next, 384))).unwrap();
        assert_eq!(store.update_score(id(next), &grade(Some(3))), Ok(Update::Merged));
        next += 1;
    }
    drop(store);
    check_holds(&MemoryStore::open(&disk.path("memory"), options()).unwrap(), next);
}

/// Memory on a disk that allows no writes, neither in place nor next to it, can still be read.
#[test]
fn a_full_disk_and_one_that_is_read_only_can_be_read() {
    let Some(disk) = SmallDisk::mount("24m") else { return };
    let folder = disk.path("memory");
    let read = || MemoryStore::open_to_read(&folder, MemoryOptions::default()).unwrap();
    {
        let store =
            MemoryStore::open(&folder, MemoryOptions { reserved_bytes: 0, ..MemoryOptions::default() }).unwrap();
        for number in 0..50 {
            store.remember(long(number), Some(vector(number, 48))).unwrap();
        }
    }
    let (store, reason) = read();
    assert_eq!(reason, None, "less is free than is kept free, and that is no hindrance to reading");
    check_holds(&store, 50);
    drop(store);
    disk.fill_up();
    let (store, reason) = read();
    println!("on a full disk: {reason:?}");
    check_holds(&store, 50);
    drop(store);
    disk.make_room();
    disk.make_read_only();
    let (store, reason) = read();
    assert!(matches!(reason, Some(MemoryError::Storage { .. })), "{reason:?}");
    check_holds(&store, 50);
    let searched = store.search(&vector(7, 48), 1, &Filters::default()).unwrap();
    assert_eq!(searched[0].query_id, id(7));
    // A chat on it cannot keep requests either, and says so.
    let (store, error) = MemoryStore::keeping(&folder, MemoryOptions::default());
    assert!(error.is_some() && store.check_keeping().is_err());
    assert!(matches!(store.remember(engram(99), None), Err(MemoryError::NotKept { .. })));
}

#[test]
fn a_write_that_would_fill_the_disk_is_refused() {
    check_small_disk(MemoryOptions::default().reserved_bytes);
}

#[test]
fn a_disk_that_is_full_is_survived() {
    check_small_disk(0);
}

/// A process whose files cannot grow beyond 8 MiB.
#[test]
fn files_that_may_not_grow_are_survived() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        println!("left out: there is no `prlimit` to lift a limit with");
        return;
    }
    let folder = TempDir::new().unwrap();
    // A shell counts in blocks of 512 bytes, and the signal would end a process that is not told to ignore it.
    let script = "trap '' XFSZ; ulimit -S -f 16384; exec \"$0\" --exact disk::limited_child --ignored --quiet";
    let child = Command::new("sh")
        .args(["-c", script])
        .arg(env::current_exe().unwrap())
        .env("HONE_TEST_FOLDER", folder.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert!(Path::new(folder.path()).join("was_refused").exists());
}

#[test]
#[ignore = "is the process of the test above"]
fn limited_child() {
    let Ok(folder) = env::var("HONE_TEST_FOLDER") else { return };
    let folder = Path::new(&folder);
    let store = MemoryStore::open(&folder.join("memory"), MemoryOptions::default()).unwrap();
    let (next, error) = fill(&store, 0);
    assert!(matches!(error, MemoryError::DiskFull { .. }), "{error}");
    fs::write(folder.join("was_refused"), b"").unwrap();
    // Reopening sled's files after the failure may have found room for one more; acknowledged engrams must be there.
    let next = next + u64::from(store.remember(long(next), None).is_ok());
    let own = process::id().to_string();
    assert!(Command::new("prlimit").args(["--pid", &own, "--fsize=unlimited"]).status().unwrap().success());
    check_holds(&store, next);
    store.remember(long(next), Some(vector(next, 384))).unwrap();
    drop(store);
    check_holds(&MemoryStore::open(&folder.join("memory"), MemoryOptions::default()).unwrap(), next + 1);
}
