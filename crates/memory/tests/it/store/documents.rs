//! Documents stored with engrams.

use hone_memory::{MemoryError, Update};
use serde_json::{Value, json};

use super::Home;

#[test]
fn documents_are_saved_listed_renamed_and_removed() {
    let home = Home::new();
    let store = home.open();
    let (mine, of_key) = (store.documents("conversations"), store.documents("conversations/0199"));
    let content = json!({ "format": 3, "exchanges": [{ "question": "Größe \u{0} 東京?", "at": 1.5 }] });
    mine.save("tides, 100% ?", content.clone()).unwrap();
    mine.save("b", json!([])).unwrap();
    mine.save("b", json!([1])).unwrap();
    of_key.save("theirs", json!({})).unwrap();
    store.documents("conversations-of-others").save("x", json!({})).unwrap();
    drop(store);
    let store = home.open();
    let (mine, of_key) = (store.documents("conversations"), store.documents("conversations/0199"));
    let names = || mine.entries().unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(), ["b", "tides, 100% ?"]);
    assert_eq!(mine.folders().unwrap(), ["0199"]);
    assert_eq!(of_key.entries().unwrap().len(), 1);
    assert_eq!(mine.load("b").unwrap(), Some(json!([1])));
    let read = mine.load("tides, 100% ?").unwrap().unwrap();
    assert_eq!((&read["format"], &read["exchanges"][0]["at"]), (&json!(3), &json!(1.5)));
    assert!(read["exchanges"][0]["question"].as_str().unwrap().ends_with("東京?"));
    assert_eq!(mine.rename("b", "c").unwrap(), Update::Merged);
    assert_eq!((mine.rename("b", "c").unwrap(), mine.load("b").unwrap()), (Update::Missing, None));
    assert_eq!(mine.rename("c", "tides, 100% ?").unwrap(), Update::Missing, "that name is taken");
    assert_eq!(mine.remove("c").unwrap(), Update::Merged);
    assert_eq!((mine.remove("c").unwrap(), names()), (Update::Missing, vec!["tides, 100% ?".to_owned()]));
}

#[test]
fn a_document_that_several_edit_at_once_has_every_edit() {
    const EDITS: u64 = 25;
    let home = Home::new();
    let store = home.open();
    let add = |by: u64| {
        let documents = store.documents("counts");
        let added = |stored: Value| Ok::<_, MemoryError>(json!(stored.as_u64().unwrap() + by));
        for _ in 0..EDITS {
            assert_eq!(documents.edit("n", added), Ok(true));
        }
    };
    assert_eq!(store.documents("counts").edit("n", Ok::<_, MemoryError>), Ok(false), "there is no such document");
    store.documents("counts").save("n", json!(0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| add(1));
        scope.spawn(|| add(100));
    });
    assert_eq!(store.documents("counts").load("n").unwrap(), Some(json!(101 * EDITS)));
}
