//! Documents that are edited while the database is away.

use std::path::{Path, PathBuf};

use hone_memory::{Documents, MemoryError, MemoryOptions, MemoryStore, MergeDocuments, Update};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Home;
use crate::support::{id, wait_until};

fn files_in(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Merges lists: what is in one of them is in the result.
fn union(kept: Value, stored: Value) -> Option<Value> {
    let (Value::Array(mut kept), Value::Array(stored)) = (kept, stored) else { return None };
    kept.extend(stored.into_iter().filter(|item| !kept.contains(item)).collect::<Vec<_>>());
    Some(Value::Array(kept))
}

/// Adds an item to a list.
#[track_caller]
fn add(documents: &Documents, name: &str, item: u64) {
    let longer =
        |stored: Value| Ok::<_, MemoryError>(json!([stored.as_array().unwrap().as_slice(), &[json!(item)]].concat()));
    assert_eq!(documents.edit(name, longer), Ok(true), "{name}: {item}");
}

/// The items of a list, in order.
fn items(documents: &Documents, name: &str) -> Vec<u64> {
    let mut items: Vec<u64> = serde_json::from_value(documents.load(name).unwrap().unwrap()).unwrap();
    items.sort_unstable();
    items
}

#[test]
fn what_two_machines_write_to_one_document_without_the_server_is_merged() {
    let mut home = Home::new();
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let machine = |folder: &TempDir, merge_documents: MergeDocuments| {
        let options = MemoryOptions { url: home.url(), merge_documents, ..MemoryOptions::default() };
        MemoryStore::keeping(folder.path(), options).0
    };
    let stores = [machine(&folders[0], union), machine(&folders[1], union)];
    let [one, other] = stores.each_ref().map(|store| store.documents("conversations"));
    for name in ["both", "one", "removed"] {
        one.save(name, json!([0])).unwrap();
        assert_eq!(items(&other, name), [0]);
    }
    home.server.stop();
    for item in 1..=2 {
        add(&one, "both", item);
        add(&other, "both", 10 * item);
        add(&one, "one", item);
        add(&one, "removed", item);
    }
    assert_eq!(one.save_new("new", json!([1])).unwrap(), Update::Kept);
    assert_eq!(other.save_new("new", json!([2])).unwrap(), Update::Kept);
    home.server.resume();
    wait_until("the server is back", || stores[1].get(id(2)).is_ok());
    assert_eq!(other.remove("removed").unwrap(), Update::Merged);
    wait_until("the other machine has it, too", || stores[0].get(id(2)).is_ok());
    assert_eq!(items(&other, "both"), [0, 1, 2, 10, 20]);
    assert_eq!((items(&other, "one"), items(&other, "removed")), (vec![0, 1, 2], vec![0, 1, 2]));
    assert_eq!(items(&other, "new"), [1, 2]);
    add(&one, "both", 3);
    assert_eq!(items(&other, "both"), [0, 1, 2, 3, 10, 20]);
}

#[test]
fn a_version_that_cannot_be_merged_is_set_aside() {
    let mut home = Home::new();
    let folder = TempDir::new().unwrap();
    let options = MemoryOptions { url: home.url(), ..MemoryOptions::default() };
    let (store, _) = MemoryStore::keeping(folder.path(), options);
    let (mine, theirs) = (store.documents("conversations"), home.open().documents("conversations"));
    mine.save("both", json!([0])).unwrap();
    home.server.stop();
    add(&mine, "both", 1);
    home.server.resume();
    wait_until("another process writes first", || theirs.save("both", json!([2])).is_ok());
    wait_until("the server is back", || store.get(id(2)).is_ok());
    assert_eq!(items(&theirs, "both"), [2]);
    let [database] = files_in(&folder.path().join("postgres")).try_into().unwrap();
    let [refused] = files_in(&database.join("due/refused")).try_into().unwrap();
    assert!(std::fs::read_to_string(refused).unwrap().contains("[0,1]"));
}
