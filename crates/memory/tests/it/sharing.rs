//! One memory and many processes: the first one owns it, the others are its clients, and when the owner is killed a
//! client takes its place. This test program also runs as the other processes.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use hone_memory::{EventFilter, Filters, MemoryOptions, MemoryStore, Update, Whose};
use tempfile::TempDir;

use crate::support::{
    Home, PATIENCE, engram, event, grade, id, number_done, number_of, owner_process, say_done, signal, start_child,
    vector, wait_for,
};

/// Owners to kill, one after the other.
const KILLS: usize = 12;

/// The least number of acknowledged writes between two kills.
const WRITES_BETWEEN_KILLS: usize = 30;

#[test]
fn a_client_reads_and_writes_the_same_memory() {
    let home = Home::new();
    let (owner, client) = (home.open(), home.open());
    assert_eq!(owner.remember(engram(1), Some(vector(1, 8))), Ok(1));
    assert_eq!(client.remember(engram(2), Some(vector(2, 8))), Ok(2));
    assert_eq!(client.update_score(id(1), &grade(Some(4))), Ok(Update::Merged));
    for store in [&owner, &client] {
        assert_eq!(store.get(id(1)).unwrap().unwrap().score(), Some(4));
        assert_eq!(store.list(&Filters::default(), 9).unwrap().len(), 2);
        assert_eq!(store.search(&vector(2, 8), 1, &Filters::default()).unwrap()[0].query_id, id(2));
        assert_eq!(store.statistics(Whose::Everyones).unwrap().all.engrams, 2);
        assert_eq!(store.verify().unwrap().problems, [""; 0]);
    }
    let (mut exported, mut the_same) = (Vec::new(), Vec::new());
    owner.export(&mut exported).unwrap();
    client.export(&mut the_same).unwrap();
    assert_eq!(exported, the_same);
    assert_eq!(client.import(exported.as_slice()).unwrap().already_there, 2);
    let error = client.resolve("abcdef").unwrap_err();
    assert_eq!(owner.resolve("abcdef").unwrap_err(), error, "errors come over as they are");
}

#[test]
fn a_client_becomes_the_owner() {
    let home = Home::new();
    let (owner, client, other) = (home.open(), home.open(), home.open());
    owner.remember(engram(1), Some(vector(1, 8))).unwrap();
    drop(owner);
    assert_eq!(client.remember(engram(2), None), Ok(2));
    assert_eq!(other.remember(engram(3), None), Ok(3));
    drop(client);
    assert_eq!(other.list(&Filters::default(), 9).unwrap().len(), 3);
    assert_eq!(other.verify().unwrap().problems, [""; 0]);
}

#[test]
fn a_client_follows_events_whichever_process_is_the_owner() {
    let home = Home::new();
    let (owner, client, third) = (home.open(), home.open(), home.open());
    let mut follower = client.follow_events(&EventFilter::default(), None).unwrap();
    let (seen, news) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Ok(events) = follower.next(Duration::from_secs(60)) {
                let numbers: Vec<u64> = events.iter().map(|(_, envelope)| number_of(envelope)).collect();
                numbers.iter().for_each(|number| seen.send(*number).unwrap());
                if numbers.contains(&3) {
                    return;
                }
            }
        });
        owner.append_event(&event(1)).unwrap();
        assert_eq!(news.recv().unwrap(), 1);
        drop(owner);
        third.append_event(&event(2)).unwrap();
        assert_eq!(news.recv().unwrap(), 2);
        third.append_event(&event(3)).unwrap();
        assert_eq!(news.recv().unwrap(), 3);
    });
}

#[test]
fn other_users_have_no_access() {
    let home = Home::new();
    let folder = home.folder.path().join("memory");
    let _owner = MemoryStore::open(&folder, MemoryOptions::default()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("sharing")), 0o700);
    assert_eq!(mode(&folder.join("sharing/memory.sock")), 0o600);
}

/// Every folder and file below one that other users can access.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(open_to_others(&path));
        }
        if fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o077 != 0 {
            found.push(path.display().to_string());
        }
    }
    found
}

/// sled creates files with the umask, and so did an earlier hone.
#[test]
fn whatever_the_umask_memory_is_its_owners_alone_and_a_wide_one_is_mended() {
    let home = Home::new();
    let folder = home.folder.path().join("memory");
    let script = "umask 000; exec \"$0\" --exact sharing::wide_child --ignored --quiet";
    let child = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(env::current_exe().unwrap()).env("HONE_TEST_FOLDER", &folder);
        assert!(shell.status().unwrap().success());
    };
    child();
    assert_eq!(open_to_others(home.folder.path()), [""; 0]);
    let widen = Command::new("chmod").args(["-R", "a+rwX"]).arg(&folder).status().unwrap();
    assert!(widen.success() && !open_to_others(home.folder.path()).is_empty());
    child();
    assert_eq!(open_to_others(home.folder.path()), [""; 0]);
}

#[test]
#[ignore = "is the process of the test above"]
fn wide_child() {
    let Ok(folder) = env::var("HONE_TEST_FOLDER") else { return };
    let store = MemoryStore::open(Path::new(&folder), MemoryOptions::default()).unwrap();
    // A long engram, which storage puts into a separate file.
    let long = hone_memory::Engram { answer: "It depends. ".repeat(70_000), ..engram(1) };
    store.remember(long, Some(vector(1, 8))).unwrap();
    store.append_event(&event(1)).unwrap();
    store.back_up_if_due(hone_protocol::Timestamp::now());
}

#[test]
fn an_owner_whose_folder_is_removed_ends_all_the_same() {
    let home = Home::new();
    let (owner, client) = (home.open(), home.open());
    owner.remember(engram(1), None).unwrap();
    fs::remove_dir_all(home.folder.path()).unwrap();
    assert_eq!(client.get(id(1)).unwrap().unwrap().at, engram(1).at);
    assert!(client.remember(engram(2), None).is_err(), "it is not durable");
    drop(owner);
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_no_hindrance() {
    let home = Home::new();
    let folder = home.folder.path().join("x".repeat(120));
    let owner = MemoryStore::open(&folder, MemoryOptions::default()).unwrap();
    let client = MemoryStore::open(&folder, MemoryOptions::default()).unwrap();
    client.remember(engram(1), None).unwrap();
    assert_eq!(owner.list(&Filters::default(), 9).unwrap().len(), 1);
}

#[test]
fn an_answer_may_take_longer_than_an_owner_may_be_silent() {
    let home = Home::new();
    let (_owner, client) = (home.open(), home.open());
    let mut follower = client.follow_events(&EventFilter::default(), None).unwrap();
    assert_eq!(follower.next(Duration::from_secs(7)), Ok(Vec::new()));
}

#[test]
fn a_stopped_owner_blocks_no_client_and_nothing_is_duplicated_when_it_resumes() {
    let folder = TempDir::new().unwrap();
    let open = || MemoryStore::open(folder.path(), MemoryOptions::default());
    let (sender, lines) = channel();
    let owner = Other::start(folder.path(), "owner", 0, &sender);
    lines.recv_timeout(PATIENCE).expect("the owner does not begin");
    let (client, said) = (open().unwrap(), event(1));
    client.remember(engram(1), None).unwrap();
    signal(owner.process.id(), "-STOP");
    let (done, answers) = channel();
    let asking = (client.clone(), said.clone(), folder.path().to_owned());
    thread::spawn(move || {
        let (client, said, folder) = asking;
        let opened = MemoryStore::open(&folder, MemoryOptions::default()).map(drop);
        done.send([client.append_event(&said).map(drop), client.get(id(1)).map(drop), opened]).unwrap();
    });
    let answers = answers.recv_timeout(PATIENCE);
    signal(owner.process.id(), "-CONT");
    for answer in answers.expect("a stopped owner holds everybody up") {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains(&format!("in use by process {}", owner.process.id())), "{error}");
    }
    // The request has reached the owner, and is applied when it resumes.
    let events = || client.events(&EventFilter::default(), None);
    let resumed = Instant::now();
    let found = wait_for("the owner is heard again", || events().ok());
    assert!(resumed.elapsed() < Duration::from_secs(15), "it is heard only when the outage ends");
    assert_eq!(found.len(), 1);
    assert_eq!(client.append_event(&said), Ok(1), "it is there already");
    assert_eq!(events().unwrap().len(), 1);
    owner.kill();
    assert_eq!(client.remember(engram(2), None), Ok(2));
}

/// Another process of one of these tests.
struct Other {
    role: String,
    process: Child,
    reader: thread::JoinHandle<()>,
}

impl Other {
    /// Starts a process in a role, on numbers from `first` on; forwards the numbers that it prints.
    fn start(folder: &Path, role: &str, first: u64, lines: &Sender<(String, u64)>) -> Other {
        let variables = [("HONE_TEST_ROLE", role.to_owned()), ("HONE_TEST_FIRST", first.to_string())];
        let mut process = start_child(folder, "sharing::child", &variables);
        let output = BufReader::new(process.stdout.take().unwrap());
        let (lines, role) = (lines.clone(), role.to_owned());
        let sent_as = role.clone();
        let reader = thread::spawn(move || {
            let numbers = output.lines().map_while(Result::ok).filter_map(|line| number_done(&line));
            numbers.for_each(|number| lines.send((sent_as.clone(), number)).unwrap());
        });
        Other { role, process, reader }
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.reader.join().unwrap();
    }
}

#[test]
#[ignore = "is the other process of the test below"]
fn child() {
    // This test may also be started without a parent, by a run of all ignored tests.
    let Ok(folder) = env::var("HONE_TEST_FOLDER") else { return };
    let first: u64 = env::var("HONE_TEST_FIRST").unwrap().parse().unwrap();
    let store = MemoryStore::open(Path::new(&folder), MemoryOptions::default()).unwrap();
    let role = env::var("HONE_TEST_ROLE").unwrap();
    if role == "owner" {
        say_done(first);
        loop {
            thread::park();
        }
    }
    if role == "reader" {
        let mut follower = store.follow_events(&EventFilter::default(), Some(first)).unwrap();
        loop {
            for (number, envelope) in follower.next(Duration::from_secs(60)).unwrap() {
                assert!(store.get(id(number_of(&envelope))).unwrap().is_some(), "its engram was there before it");
                say_done(number);
            }
        }
    }
    for number in first.. {
        store.remember(engram(number), Some(vector(number, 8))).unwrap();
        store.update_score(id(number), &grade(Some(4))).unwrap();
        store.append_event(&event(number)).unwrap();
        say_done(number);
    }
}

/// Waits until the writers have printed this many lines; collects the numbers of each role.
fn collect(lines: &Receiver<(String, u64)>, done: &mut BTreeMap<String, Vec<u64>>, n_from_writers: usize) {
    let mut n_seen = 0;
    while n_seen < n_from_writers {
        let (role, number) = lines.recv_timeout(PATIENCE).expect("the processes do nothing any more");
        n_seen += usize::from(role != "reader");
        done.entry(role).or_default().push(number);
    }
}

#[test]
fn nothing_is_lost_or_duplicated_when_owners_are_killed() {
    let folder = TempDir::new().unwrap();
    let (sender, lines) = channel();
    let mut done: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let start = |role: &str, done: &BTreeMap<String, Vec<u64>>| {
        let last = done.get(role).and_then(|numbers| numbers.last()).copied();
        // The number after the last acknowledged one may be there already; a writer continues after it.
        let first = match role {
            "writer 1" => last.map_or(1_000_000, |last| last + 2),
            "writer 2" => last.map_or(2_000_000, |last| last + 2),
            _ => last.unwrap_or(0),
        };
        Other::start(folder.path(), role, first, &sender)
    };
    let mut others: Vec<Other> = ["writer 1", "writer 2", "reader"].map(|role| start(role, &done)).into();
    for _ in 0..KILLS {
        collect(&lines, &mut done, WRITES_BETWEEN_KILLS);
        let owner = owner_process(folder.path());
        let place = others.iter().position(|other| Some(other.process.id()) == owner).unwrap();
        let killed = others.remove(place);
        let role = killed.role.clone();
        killed.kill();
        // Numbers printed before the kill count.
        lines.try_iter().for_each(|(role, number)| done.entry(role).or_default().push(number));
        others.push(start(&role, &done));
    }
    collect(&lines, &mut done, WRITES_BETWEEN_KILLS);
    others.into_iter().for_each(Other::kill);
    lines.try_iter().for_each(|(role, number)| done.entry(role).or_default().push(number));
    check_all(&MemoryStore::open(folder.path(), MemoryOptions::default()).unwrap(), &done);
}

fn check_all(store: &MemoryStore, done: &BTreeMap<String, Vec<u64>>) {
    assert_eq!(store.verify().unwrap().problems, [""; 0]);
    let events = store.events(&EventFilter::default(), None).unwrap();
    let mut about: Vec<u64> = events.iter().map(|(_, envelope)| number_of(envelope)).collect();
    about.sort_unstable();
    assert!(about.windows(2).all(|pair| pair[0] != pair[1]), "an event was appended twice");
    for (role, numbers) in done.iter().filter(|(role, _)| *role != "reader") {
        for number in numbers {
            let engram = store.get(id(*number)).unwrap().unwrap_or_else(|| panic!("{role}: {number} is lost"));
            assert_eq!(engram.score(), Some(4));
            assert!(about.binary_search(number).is_ok(), "{role}: the event about {number} is lost");
        }
    }
    let read = &done["reader"];
    assert!(read.len() > WRITES_BETWEEN_KILLS, "the reader saw next to nothing");
    assert!(read.windows(2).all(|pair| pair[0] + 1 == pair[1]), "the reader missed an event, or saw one twice");
}
