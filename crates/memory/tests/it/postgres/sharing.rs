//! The effects of concurrent processes, roles and failures on memory in a database. A separate store behaves like
//! another process on another machine.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hone_memory::{EventFilter, Filters, MemoryError, MemoryOptions, MemoryStore, Update};
use hone_protocol::{QueryId, Rating};
use tempfile::TempDir;

use super::Home;
use super::store::{check_whole, exported_line, numbers};
use crate::support::{PATIENCE, engram, event, grade, id, number_of, vector, wait_for, wait_until};

fn as_role(home: &Home, role: &str) -> MemoryStore {
    let options = MemoryOptions { url: Some(home.server.url(role, "postgres")), ..MemoryOptions::default() };
    MemoryStore::open(home.folder.path(), options).unwrap()
}

fn add_role(home: &Home, role: &str) {
    home.server.sql(&format!("CREATE ROLE {role} LOGIN"));
}

#[test]
fn what_several_say_of_one_answer_at_once_is_all_kept() {
    let home = Home::new();
    let stores: Vec<MemoryStore> = (0..4).map(|_| home.open()).collect();
    for number in 0..20 {
        stores[0].remember(engram(2 * number), None).unwrap();
    }
    let [said_grade, rated, meant] = [1, 2, 3].map(|index| &stores[index]);
    std::thread::scope(|scope| {
        let merged = |update: Result<Update, MemoryError>| assert_eq!(update.unwrap(), Update::Merged);
        let ids = || (0..20).map(|number| id(2 * number));
        scope.spawn(move || ids().for_each(|id| merged(said_grade.update_score(id, &grade(Some(4))))));
        scope.spawn(move || ids().for_each(|id| merged(rated.annotate_feedback(id, Some(Rating::Good)))));
        let entities = || vec!["a number".to_owned()];
        scope.spawn(move || ids().for_each(|id| merged(meant.annotate_meaning(id, None, entities()))));
    });
    for engram in stores[0].list(&Filters::default(), 100).unwrap() {
        let said = (engram.score(), engram.user_feedback, engram.entities.len());
        assert_eq!(said, (Some(4), Some(Rating::Good), 1), "{}", engram.query_id);
    }
    check_whole(&stores[1], 20, 0);
}

#[test]
fn processes_count_and_compare_together() {
    let home = Home::new();
    let (one, other) = (home.open(), home.open());
    std::thread::scope(|scope| {
        for (store, first) in [(&one, 0), (&other, 100)] {
            scope.spawn(move || {
                for number in first..first + 50 {
                    store.remember(engram(number), Some(vector(number, 8))).unwrap();
                    store.append_event(&event(number)).unwrap();
                }
            });
        }
    });
    check_whole(&one, 100, 100);
    let sequences: BTreeSet<u64> =
        other.list(&Filters::default(), 200).unwrap().iter().map(|engram| engram.sequence).collect();
    assert_eq!(sequences, (1..=100).collect());
    assert_eq!(other.events(&EventFilter::default(), None).unwrap().len(), 100);
    let found = one.search(&vector(120, 8), 1, &Filters::default()).unwrap();
    assert_eq!(found.first().map(|found| found.query_id), Some(id(120)));
}

#[test]
fn events_of_another_process_are_heard_at_once() {
    let home = Home::new();
    let (one, other) = (home.open(), home.open());
    let mut follower = other.follow_events(&EventFilter::default(), None).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| {
            wait_for("the event comes", || Some(follower.next(PATIENCE).unwrap()).filter(|events| !events.is_empty()))
        });
        one.append_event(&event(7)).unwrap();
        let heard = heard.join().unwrap();
        assert_eq!(heard.iter().map(|(_, event)| number_of(event)).collect::<Vec<_>>(), [7]);
    });
    assert!(begun.elapsed() < PATIENCE / 2, "it was announced, not looked for when the time was over");
}

#[test]
fn a_repeated_event_is_there_once_whoever_sends_it() {
    let home = Home::new();
    let said = event(3);
    let first = home.open().append_event(&said).unwrap();
    assert_eq!(home.open().append_event(&said).unwrap(), first);
    assert_eq!(home.open().events(&EventFilter::default(), None).unwrap().len(), 1);
}

#[test]
fn a_role_sees_nothing_of_another() {
    let home = Home::new();
    // The first process creates the tables, which it may do in this database.
    drop(home.open());
    ["alice", "bob"].into_iter().for_each(|role| add_role(&home, role));
    let (alice, bob) = (as_role(&home, "alice"), as_role(&home, "bob"));
    alice.remember(engram(2), Some(vector(2, 8))).unwrap();
    alice.append_event(&event(2)).unwrap();
    bob.remember(engram(4), Some(vector(4, 8))).unwrap();
    assert_eq!(numbers(&bob.list(&Filters::default(), 9).unwrap()), [4]);
    assert_eq!(bob.get(id(2)).unwrap(), None);
    assert_eq!(bob.search(&vector(2, 8), 9, &Filters::default()).unwrap().len(), 1);
    assert_eq!(bob.events(&EventFilter::default(), None).unwrap().len(), 0);
    assert_eq!(bob.remove(&[id(2)]).unwrap(), [Update::Missing]);
    // Nor with hand-written SQL.
    let count = home.server.psql("bob", "SELECT count(*) FROM hone.engrams");
    assert_eq!(String::from_utf8(count.stdout).unwrap().trim(), "1");
    for refused in [
        "INSERT INTO hone.engrams (tenant, id, fields) SELECT 'alice', gen_random_uuid(), fields FROM hone.engrams",
        "UPDATE hone.engrams SET tenant = 'alice'",
        "SET ROLE alice",
        "DROP TABLE hone.events",
    ] {
        assert!(!home.server.psql("bob", refused).status.success(), "{refused}");
    }
    assert_eq!(home.server.sql("SELECT count(DISTINCT tenant) FROM hone.engrams"), "2");
    check_whole(&alice, 1, 1);
}

#[test]
fn without_pgvector_every_process_has_an_index_that_follows_the_others() {
    let home = Home::new();
    add_role(&home, "alice");
    home.server.sql("GRANT CREATE ON DATABASE postgres TO alice");
    let (one, other) = (as_role(&home, "alice"), as_role(&home, "alice"));
    assert_eq!(home.server.sql("SELECT count(*) FROM pg_extension WHERE extname = 'vector'"), "0");
    let nearest = |store: &MemoryStore, number: u64| {
        let found = store.search(&vector(number, 8), 1, &Filters::default()).unwrap();
        found.first().map(|found| found.query_id)
    };
    for number in 0..10 {
        one.remember(engram(number), Some(vector(number, 8))).unwrap();
        assert_eq!(nearest(&other, number), Some(id(number)));
    }
    other.remove(&[id(3)]).unwrap();
    assert_ne!(nearest(&one, 3), Some(id(3)));
    other.set_vector(id(4), vector(40, 8)).unwrap();
    assert_eq!(nearest(&one, 40), Some(id(4)));
    // The model of that name makes different vectors from now on.
    one.set_vector(id(5), vector(5, 4)).unwrap();
    let found = other.search(&vector(5, 4), 9, &Filters::default()).unwrap();
    assert_eq!(found.iter().map(|found| found.query_id).collect::<Vec<_>>(), [id(5)]);
    check_whole(&other, 9, 1);
}

#[test]
fn every_role_can_search_wherever_pgvector_is_installed() {
    let home = Home::new();
    add_role(&home, "alice");
    home.server.sql("CREATE ROLE hone SUPERUSER LOGIN");
    // A new extension is put into the schema of the role's name, if there is one.
    drop(as_role(&home, "hone"));
    assert_eq!(home.server.sql("SELECT count(*) FROM pg_extension WHERE extname = 'vector'"), "1");
    let check_search = |number: u64| {
        let store = as_role(&home, "alice");
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
        let found = store.search(&vector(number, 8), 1, &Filters::default()).unwrap();
        assert_eq!(found.first().map(|found| found.query_id), Some(id(number)));
    };
    check_search(2);
    home.server.sql("CREATE SCHEMA closed; ALTER EXTENSION vector SET SCHEMA closed");
    check_search(4);
}

/// The results of twenty questions.
fn found_by(store: &MemoryStore) -> Vec<QueryId> {
    let questions = (0..20).map(|number| vector(10_000 + number, 8));
    let found = questions.map(|question| store.search(&question, 10, &Filters::default()).unwrap());
    found.flatten().map(|found| found.query_id).collect()
}

#[test]
fn many_vectors_are_indexed_and_found_as_without_an_index() {
    let home = Home::new();
    // An administrator has installed the extension, in a schema that is not searched for names.
    home.server.sql("CREATE SCHEMA \"of admins\"; GRANT USAGE ON SCHEMA \"of admins\" TO PUBLIC");
    home.server.sql("CREATE EXTENSION vector SCHEMA \"of admins\"");
    add_role(&home, "alice");
    home.server.sql("GRANT CREATE ON DATABASE postgres TO alice");
    let store = as_role(&home, "alice");
    let lines: Vec<String> = (0..5_200).map(|number| exported_line(number, &vector(number, 8))).collect();
    store.import(lines.join("\n").as_bytes()).unwrap();
    let exact = found_by(&store);
    let indexes = "SELECT count(*) FROM pg_index JOIN pg_class ON oid = indexrelid \
                   WHERE relname LIKE 'vectors_of_%' AND indisvalid";
    wait_until("the vectors are indexed", || home.server.sql(indexes) == "1");
    // The server does this by itself after a while: its planner relies on statistics about the table.
    home.server.sql("ANALYZE hone.vectors");
    let store = as_role(&home, "alice");
    let scans = "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'vectors_of_%'";
    let found = found_by(&store);
    let n_same = exact.iter().zip(&found).filter(|(exact, found)| exact == found).count();
    assert!(n_same >= 190, "{n_same} of 200 are the same");
    wait_until("it was found by the index", || {
        home.server.sql(scans).parse::<u64>().is_ok_and(|n_scans| n_scans >= 20)
    });
}

#[test]
fn a_restarted_server_is_used_again() {
    let mut home = Home::new();
    let store = home.open();
    store.remember(engram(2), Some(vector(2, 8))).unwrap();
    home.server.stop();
    home.server.resume();
    assert_eq!(store.get(id(2)).unwrap().map(|engram| engram.at), Some(engram(2).at));
    store.remember(engram(4), None).unwrap();
    check_whole(&store, 2, 1);
}

#[test]
fn connections_that_are_cut_in_the_middle_of_writes_lose_and_double_nothing() {
    let home = Home::new();
    let stores: Vec<MemoryStore> = (0..3).map(|_| home.open()).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = stores
            .iter()
            .zip(0..)
            .map(|(store, first)| {
                scope.spawn(move || {
                    for number in (first * 100..).take(60) {
                        // A refused request is repeated.
                        wait_until("it is remembered", || store.remember(engram(number), None).is_ok());
                        let event = event(number);
                        wait_until("it is recorded", || store.append_event(&event).is_ok());
                    }
                })
            })
            .collect();
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                   AND application_name = 'hone'";
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                home.server.sql(cut);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Release);
    });
    let store = home.open();
    check_whole(&store, 180, 0);
    let events = store.events(&EventFilter::default(), None).unwrap();
    assert_eq!((events.len(), events.iter().map(|(_, event)| event.id).collect::<BTreeSet<_>>().len()), (180, 180));
}

#[test]
fn what_an_absent_server_cannot_take_is_kept_and_applied_once() {
    let mut home = Home::new();
    let options = MemoryOptions { url: home.url(), ..MemoryOptions::default() };
    let (store, error) = MemoryStore::keeping(home.folder.path(), options.clone());
    assert_eq!(error, None);
    store.remember(engram(2), None).unwrap();
    home.server.stop();
    assert_eq!(store.remember(engram(4), None).unwrap(), 0, "it is kept");
    assert_eq!(store.update_score(id(2), &grade(Some(3))).unwrap(), Update::Kept);
    // Another process starts meanwhile.
    let (late, error) = MemoryStore::keeping(home.folder.path(), options);
    assert!(matches!(error, Some(MemoryError::Database { .. })), "{error:?}");
    assert_eq!(late.annotate_feedback(id(2), Some(Rating::Bad)).unwrap(), Update::Kept);
    home.server.resume();
    wait_until("both can use it again", || late.get(id(2)).is_ok() && store.get(id(2)).is_ok());
    let first = store.get(id(2)).unwrap().unwrap();
    assert_eq!((first.score(), first.user_feedback), (Some(3), Some(Rating::Bad)));
    check_whole(&late, 2, 0);
}

#[test]
fn a_server_that_hangs_holds_nobody_up_for_long() {
    let home = Home::new();
    let options = MemoryOptions { url: home.url(), ..MemoryOptions::default() };
    let (store, _) = MemoryStore::keeping(home.folder.path(), options);
    store.remember(engram(2), None).unwrap();
    home.server.signal("STOP");
    let begun = Instant::now();
    assert_eq!(store.remember(engram(4), None).unwrap(), 0, "it is kept");
    let first = begun.elapsed();
    assert!(first < Duration::from_secs(25), "{first:?}");
    let others = Instant::now();
    assert_eq!(store.annotate_feedback(id(2), Some(Rating::Good)).unwrap(), Update::Kept);
    assert!(matches!(store.get(id(2)), Err(MemoryError::Database { .. })));
    assert!(others.elapsed() < Duration::from_secs(2), "it is not asked again at once");
    home.server.signal("CONT");
    wait_until("it is used again", || store.get(id(4)).is_ok_and(|engram| engram.is_some()));
    check_whole(&store, 2, 0);
}

#[test]
fn the_first_processes_create_the_tables_together() {
    const PROCESSES: u64 = 4;
    let (home, folders) = (Home::new(), [(); PROCESSES as usize].map(|()| TempDir::new().unwrap()));
    let all_begin = Barrier::new(PROCESSES as usize);
    std::thread::scope(|scope| {
        for (number, folder) in (0..).zip(&folders) {
            let (url, all_begin) = (home.url(), &all_begin);
            scope.spawn(move || {
                all_begin.wait();
                let options = MemoryOptions { url, ..MemoryOptions::default() };
                MemoryStore::open(folder.path(), options).unwrap().remember(engram(number), None).unwrap();
            });
        }
    });
    check_whole(&home.open(), PROCESSES, 0);
}

#[test]
fn tables_of_a_later_version_are_left_alone() {
    let home = Home::new();
    drop(home.open());
    home.server.sql(
        "INSERT INTO hone.migrations (version, description, success, checksum, execution_time) \
         VALUES (99, 'later', true, '', 0)",
    );
    let options = MemoryOptions { url: home.url(), ..MemoryOptions::default() };
    let error = MemoryStore::open(home.folder.path(), options).err().unwrap().to_string();
    assert!(error.contains("a later hone has changed its tables"), "{error}");
}

#[test]
fn an_unknown_server_is_named_without_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let url = Some("postgres://me:secret@127.0.0.1:9/hone".to_owned());
    let error = MemoryStore::open(folder.path(), MemoryOptions { url, ..MemoryOptions::default() });
    let error = error.err().unwrap().to_string();
    assert!(error.contains("127.0.0.1:9/hone") && !error.contains("secret"), "{error}");
}
