//! Export, import, and fields that a later version wrote.

use hone_memory::Imported;
use serde_json::Value;

use super::{Home, check_whole, exported_line};
use crate::support::{engram, grade, id, vector};

#[test]
fn fields_of_a_later_version_survive_updates_and_moves() {
    let (home, other) = (Home::new(), Home::new());
    let store = home.open();
    let mut fields = serde_json::to_value(engram(1)).unwrap();
    fields["mood"] = "curious".into();
    let line = serde_json::json!({ "engram": fields }).to_string();
    store.import(line.as_bytes()).unwrap();
    store.update_score(id(1), &grade(Some(2))).unwrap();
    let mut exported = Vec::new();
    store.export(&mut exported).unwrap();
    let moved = other.open();
    moved.import(exported.as_slice()).unwrap();
    for store in [store, moved] {
        let fields = store.fields(id(1)).unwrap().unwrap();
        assert_eq!((&fields["mood"], &fields["critic_score"]), (&Value::from("curious"), &Value::from(2)));
    }
}

#[test]
fn an_export_restores_a_memory_whole() {
    let (home, other) = (Home::new(), Home::new());
    let store = home.open();
    for number in 1..=300 {
        let vector = (number % 3 > 0).then(|| vector(number, 384));
        store.remember(engram(number), vector).unwrap();
        if number % 5 == 0 {
            store.update_score(id(number), &grade(Some(3))).unwrap();
        }
    }
    store.remove(&[id(7)]).unwrap();
    let mut exported = Vec::new();
    assert_eq!(store.export(&mut exported).unwrap(), 299);
    let restored = other.open();
    assert_eq!(restored.import(exported.as_slice()).unwrap(), Imported { added: 299, already_there: 0 });
    assert_eq!(restored.import(exported.as_slice()).unwrap(), Imported { added: 0, already_there: 299 });
    let mut again = Vec::new();
    restored.export(&mut again).unwrap();
    let without_sequence = |bytes: &[u8]| -> Vec<Value> {
        let lines = std::str::from_utf8(bytes).unwrap().lines();
        lines
            .map(|line| {
                let mut line: Value = serde_json::from_str(line).unwrap();
                line["engram"]["sequence"].take();
                line
            })
            .collect()
    };
    assert_eq!(without_sequence(&again), without_sequence(&exported));
    check_whole(&restored, 299, 200 - 1);
    // Annotations made since the export stay, and do not prevent the restore.
    restored.annotate_meaning(id(1), Some("to learn".into()), Vec::new()).unwrap();
    restored.remove(&[id(2)]).unwrap();
    assert_eq!(restored.import(exported.as_slice()).unwrap(), Imported { added: 1, already_there: 298 });
    assert_eq!(restored.get(id(1)).unwrap().unwrap().intent.as_deref(), Some("to learn"));
}

#[test]
fn an_import_with_a_broken_line_writes_nothing() {
    let home = Home::new();
    let store = home.open();
    store.remember(engram(1), None).unwrap();
    let good = exported_line(2, &vector(2, 8));
    let check = |line: &str, complaint: &str| {
        let text = format!("{good}\n\n{line}\n");
        let error = store.import(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("line 3: ") && error.contains(complaint), "{error}");
        check_whole(&store, 1, 0);
    };
    check("{", "EOF");
    check("{}", "engram");
    check("{\"engram\": {}}", "query_id");
    check(&good, "line 1 is engram");
    check(&exported_line(3, &[0.0]), "no direction");
    check(&exported_line(3, &vector(3, 7)), "has 7 dimensions, others have 8");
    let mut other: Value = serde_json::from_str(&exported_line(1, &vector(1, 8))).unwrap();
    other["engram"]["answer"] = "Another one.".into();
    check(&other.to_string(), "another engram has its id");
    let mut wrong: Value = serde_json::from_str(&exported_line(3, &vector(3, 8))).unwrap();
    wrong["engram"]["judge"] = "j".into();
    wrong["engram"]["critic_score"] = 6.into();
    check(&wrong.to_string(), "critic_score");
    assert_eq!(store.import(good.as_bytes()).unwrap(), Imported { added: 1, already_there: 0 });
    let error = store.import(exported_line(4, &vector(4, 7)).as_bytes()).unwrap_err().to_string();
    assert!(error.contains("line 1: ") && error.contains("has 7 dimensions, but the stored ones have 8"), "{error}");
}
