//! One memory for several machines: homes of their own, and a PostgreSQL server between them.

use std::sync::Barrier;
use std::time::Instant;

use serde_json::{Value, json};

use crate::fleet::{MODEL, Worker, home};
use crate::support::nats::NatsServer;
use crate::support::postgres::PostgresServer;
use crate::support::served::{Served, body_of, serve_graded, status_of};
use crate::support::small_disk::SmallDisk;
use crate::support::{Home, embedder, wait_until};

/// A machine with the built-in model and the embedder.
fn machine() -> Home {
    home().variable("HONE_MEMORY_EMBEDDER", &embedder())
}

fn served(url: &str) -> Served {
    let home = machine();
    let (process, address) = serve_graded(&home, &["--store", url, "--model", MODEL, "--threads", "1"]);
    Served { process, address, home }
}

#[test]
fn a_fact_that_is_stated_on_one_machine_is_recalled_on_another() {
    let server = PostgresServer::start();
    let url = server.own_url();
    let (one, other) = (machine(), machine());
    let said = one.run(&["chat", "My cat is called Whiskers.", "--max-tokens", "8", "--store", &url]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let asked = other.json(&["chat", "What is my cat called?", "--temperature", "0", "--json", "--store", &url]);
    assert!(asked["answer"].as_str().unwrap().contains("Whiskers"), "{asked}");
    assert_eq!(one.json(&["memory", "list", "--json", "--store", &url]).as_array().unwrap().len(), 2);
    assert_eq!(other.json(&["memory", "list", "--json"]).as_array().unwrap().len(), 0, "its own memory is another one");
    let shown = one.run(&["doctor", "--store", &url]);
    assert!(shown.stdout.contains("2 answers"), "{}", shown.stdout);
}

/// Asks in a conversation, or in a new one, and returns the conversation's name.
fn ask(server: &Served, question: &str, conversation: Option<&str>) -> String {
    let body = json!({ "question": question, "conversation": conversation, "max_tokens": 6, "temperature": 0 });
    let told = server.post("/hone/v1/chat", &body);
    let events = told.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let events: Vec<Value> = events.collect();
    assert!(events.iter().any(|event| event["type"] == "answered"), "{told}");
    let name = events.iter().find_map(|event| event["conversation"].as_str());
    name.unwrap_or_else(|| panic!("{told}")).to_owned()
}

#[test]
fn fifty_clients_of_three_servers_have_whole_conversations_and_every_answer_its_grade() {
    const CLIENTS: usize = 50;
    let database = PostgresServer::start();
    let url = database.own_url();
    let servers = [served(&url), served(&url), served(&url)];
    let all_begin = Barrier::new(CLIENTS);
    let names: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (servers, all_begin) = (&servers, &all_begin);
                scope.spawn(move || {
                    all_begin.wait();
                    // Every two clients ask the same question, at the same time as others.
                    let question = format!("Is {} an even number?", number / 2);
                    let name = ask(&servers[number % 3], &question, None);
                    ask(&servers[(number + 1) % 3], &format!("And {number}, in conversation {number}?"), Some(&name));
                    name
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for (number, name) in names.iter().enumerate() {
        let questions = questions_of(&servers[(number + 2) % 3], name);
        let expected =
            [format!("Is {} an even number?", number / 2), format!("And {number}, in conversation {number}?")];
        assert_eq!(questions, expected, "{name}");
    }
    let home = &servers[0].home;
    wait_until("every answer is graded", || {
        let stats = home.json(&["memory", "stats", "--json", "--store", &url]);
        stats["all"]["engrams"] == 2 * CLIENTS && stats["grades_due"] == 0
    });
    // Whichever process graded it, each answer was graded exactly once.
    let events = home.run(&["events", "--type", "critique.result", "--json", "--store", &url]).stdout;
    let graded = events.lines().filter(|line| !line.contains("\"failure\"")).count();
    assert_eq!(graded, 2 * CLIENTS, "{events}");
    let answers = home.json(&["memory", "list", "-n", "200", "--json", "--store", &url]);
    let answers = answers.as_array().unwrap();
    assert!(answers.iter().all(|answer| answer["judging_method"] == "likelihood"), "{answers:?}");
}

#[test]
fn what_is_remembered_here_moves_into_a_database_and_back() {
    let server = PostgresServer::start();
    let url = server.own_url();
    let (one, other) = (machine(), machine());
    for question in ["Is snow white?", "Is coal white?"] {
        assert_eq!(one.run(&["chat", question, "--max-tokens", "6"]).code, 0);
    }
    one.write("data/conversations/tides.json", br#"{"format": 1, "model": "m", "system": "", "exchanges": []}"#);
    let moved = one.json(&["memory", "move", "--to", &url, "--json"]);
    assert_eq!((&moved["added"], &moved["conversations"], &moved["different"]), (&json!(2), &json!(1), &json!([])));
    assert_eq!(moved["sha256"][0], moved["sha256"][1]);
    let again = one.run(&["memory", "move", "--to", &url]);
    assert!(again.code == 0 && again.stdout.contains("both places hold the same"), "{}{}", again.stdout, again.stderr);
    let back = other.json(&["memory", "move", "--from", &url, "--to", "local", "--json"]);
    assert_eq!((&back["added"], &back["sha256"][1]), (&json!(2), &moved["sha256"][0]));
    assert!(other.path("data/conversations/tides.json").is_file());
    assert_eq!(other.json(&["memory", "list", "--json"]).as_array().unwrap().len(), 2);
    for (arguments, said) in [
        (["--to", "elsewhere"], "a place is `local`, or a database"),
        (["--to", "local"], "name the same place"),
        (["--to", "postgres://me@127.0.0.1:9/hone"], "memory in the database 127.0.0.1:9/hone"),
        (["--to", "postgres://me:secret@127.0.0.1:9/hone"], "url holds a password"),
    ] {
        let refused = one.run(&[&["memory", "move"], &arguments[..]].concat());
        assert!(refused.code != 0 && refused.stderr.contains(said), "{}", refused.stderr);
        assert!(!refused.stderr.contains("secret"), "{}", refused.stderr);
    }
}

#[test]
fn a_chat_goes_on_while_the_database_is_away_and_nothing_of_it_is_lost() {
    let mut server = PostgresServer::start();
    let url = server.own_url();
    let home = machine();
    assert_eq!(home.run(&["chat", "Is snow white?", "--max-tokens", "6", "--store", &url]).code, 0);
    server.stop();
    let said = home.run(&["chat", "Is coal black?", "--max-tokens", "6", "--store", &url]);
    assert!(said.code == 0 && said.stderr.contains("new answers are kept"), "{}", said.stderr);
    assert!(!said.stdout.trim().is_empty());
    server.resume();
    let answers = home.json(&["memory", "list", "--json", "--store", &url]);
    assert_eq!(answers.as_array().unwrap().len(), 2, "{answers}");
}

/// Waits until so many answers are remembered, and checks that a conversation is the same on another machine.
#[track_caller]
fn check_remembered(database: &PostgresServer, n_answers: usize, name: &str, questions: &[impl AsRef<str>]) {
    let other = served(&database.own_url());
    wait_until("what was kept is written", || {
        let answers = other.home.json(&["memory", "list", "--json", "--store", &database.own_url()]);
        // The conversation is written by itself.
        answers.as_array().unwrap().len() == n_answers && questions_of(&other, name).len() >= questions.len()
    });
    assert_eq!(questions_of(&other, name), questions.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
}

#[test]
fn a_full_disk_of_the_database_keeps_nobody_from_an_answer_and_loses_nothing() {
    let Some(disk) = SmallDisk::mount("96m") else { return };
    let database = PostgresServer::start_in(disk.path("postgres"));
    let server = served(&database.own_url());
    let first = ask(&server, "Is snow white?", None);
    disk.fill_up();
    let n_written = || database.sql("SELECT count(*) FROM hone.engrams").parse::<usize>().unwrap();
    let mut questions = vec!["Is snow white?".to_owned()];
    // The server has some room of its own.
    while n_written() == questions.len() {
        let numbers: String = (0..300).map(|number| format!(" {}", number * questions.len())).collect();
        questions.push(format!("Which of these is even:{numbers}?"));
        ask(&server, questions.last().unwrap(), Some(&first));
        assert!(questions.len() < 20, "the disk is not full");
    }
    ask(&server, "Is ice cold?", None);
    questions.push("And chalk?".to_owned());
    ask(&server, "And chalk?", Some(&first));
    disk.make_room();
    check_remembered(&database, questions.len() + 1, &first, &questions);
}

#[test]
fn a_database_that_hangs_keeps_nobody_from_an_answer_and_loses_nothing() {
    let database = PostgresServer::start();
    let server = served(&database.own_url());
    let first = ask(&server, "Is snow white?", None);
    let hanging = Instant::now();
    database.signal("STOP");
    ask(&server, "And coal?", Some(&first));
    ask(&server, "Is ice cold?", None);
    ask(&server, "And chalk?", Some(&first));
    println!("it hung for {} s", hanging.elapsed().as_secs());
    database.signal("CONT");
    check_remembered(&database, 4, &first, &["Is snow white?", "And coal?", "And chalk?"]);
}

/// The questions of a conversation, as a server shows it.
fn questions_of(server: &Served, name: &str) -> Vec<String> {
    let shown = server.request("GET", &format!("/hone/v1/conversations/{name}"), &json!({}));
    assert_eq!(status_of(&shown), 200, "{shown}");
    let body = body_of(&shown);
    let exchanges = body["exchanges"].as_array().unwrap().iter();
    exchanges.map(|exchange| exchange["question"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn conversations_of_a_server_go_on_while_the_database_is_away() {
    let mut database = PostgresServer::start();
    let (server, other) = (served(&database.own_url()), served(&database.own_url()));
    let first = ask(&server, "Is snow white?", None);
    assert_eq!(questions_of(&other, &first).len(), 1);
    database.stop();
    ask(&server, "And coal?", Some(&first));
    ask(&other, "And chalk?", Some(&first));
    // The server cannot tell now whether the name is taken, and it is.
    let second = ask(&server, "Is snow white?", None);
    ask(&server, "And ice?", Some(&second));
    assert_ne!(first, second);
    database.resume();
    wait_until("what was kept is written", || {
        let count = |server: &Served| server.home.json(&["memory", "list", "--json", "--store", &database.own_url()]);
        [&server, &other].map(count).iter().all(|list| list.as_array().unwrap().len() == 5)
    });
    let [first, second] = [first, second].map(|name| format!("/hone/v1/conversations/{name}"));
    for server in [&server, &other] {
        wait_until("the server has both machines' branches", || {
            let shown = body_of(&server.request("GET", &first, &json!({})));
            shown["exchanges"].as_array().is_some_and(|exchanges| exchanges.len() == 2)
                && shown["exchanges"][1]["branch"]["count"] == 2
        });
        wait_until("the server has the other conversation", || {
            let shown = body_of(&server.request("GET", &second, &json!({})));
            shown["exchanges"].as_array().is_some_and(|exchanges| exchanges.len() == 2)
        });
    }
}

/// The figures of one person of hone's own set: `hone memory eval` in a folder, and in a database with a role for the person.
#[test]
fn a_database_recalls_what_a_folder_recalls() {
    let server = PostgresServer::start();
    let home = machine();
    let set = std::fs::read_to_string(crate::support::root().join("tests/data/recall.jsonl")).unwrap();
    let lines: Vec<&str> = set.lines().filter(|line| line.contains("\"person\": \"p01\"")).collect();
    assert_eq!(lines.len(), 32);
    let set = home.write("set.jsonl", lines.join("\n").as_bytes());
    let set = set.to_str().unwrap();
    let in_folder = home.json(&["memory", "eval", set, "--json"]);
    // The first process to connect creates the tables.
    assert_eq!(home.run(&["memory", "stats", "--store", &server.own_url()]).code, 0);
    server.sql("CREATE ROLE person0 LOGIN");
    let in_database = home.json(&["memory", "eval", set, "--json", "--in", &server.url("person{}", "postgres")]);
    assert_eq!(in_database, in_folder);
    assert_eq!(server.sql("SELECT DISTINCT tenant FROM hone.engrams"), "person0");
}

/// The command of a service in `packaging/compose.yaml`, with these addresses instead of those of its network.
fn composed(service: &str, addresses: &[(&str, &str)]) -> Vec<String> {
    let file = std::fs::read_to_string(crate::support::root().join("packaging/compose.yaml")).unwrap();
    let of_service = file.split(&format!("\n  {service}:\n")).nth(1).unwrap();
    let command = of_service.lines().find_map(|line| line.trim().strip_prefix("command: ")).unwrap();
    let command: Vec<String> = serde_json::from_str(command).unwrap();
    let replaced = |word: String| match addresses.iter().find(|(known, _)| *known == word) {
        Some((_, address)) => (*address).to_owned(),
        None => word,
    };
    command.into_iter().map(replaced).collect()
}

/// Runs the services of `packaging/compose.yaml` without containers.
#[test]
fn the_services_of_the_compose_file_work_together() {
    let (nats, database) = (NatsServer::start(), PostgresServer::start());
    database.sql("CREATE ROLE hone LOGIN");
    database.sql("CREATE DATABASE hone OWNER hone");
    let url = database.url("hone", "hone");
    let addresses = [("nats://nats:4222", nats.url()), ("postgres://hone@postgres/hone", url.clone())];
    let addresses = addresses.each_ref().map(|(known, address)| (*known, address.as_str()));
    let (home, other) = (machine(), machine());
    let [serve, work] = ["hone", "worker"].map(|service| composed(service, &addresses));
    let serve: Vec<&str> = serve.iter().map(String::as_str).collect();
    assert_eq!((serve[0], serve.len(), work[0].as_str()), ("serve", 5, "worker"));
    let (process, address) = serve_graded(&home, &serve[1..]);
    let served = Served { process, address, home };
    let _worker = Worker::start_as(&other, &work.iter().map(String::as_str).collect::<Vec<_>>());
    let body = json!({ "messages": [{ "role": "user", "content": "Is snow white?" }], "max_tokens": 8 });
    assert_eq!(status_of(&served.post("/v1/chat/completions", &body)), 200);
    wait_until("the worker's grade is in the database", || {
        let remembered = other.json(&["memory", "list", "--json", "--store", &url]);
        remembered[0]["judging_method"] == "likelihood"
    });
    wait_until("the worker says that it was it", || {
        other.json(&["ps", "--all", "--json", "--bus", &nats.url()])["workers"][0]["finished"] == 1
    });
}
