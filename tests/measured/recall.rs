//! Recall in a chat, measured with the real embedder on the half of the set that no setting was fitted on; and
//! questions that leave no trace.

use crate::support::{Home, embedder, smollm2};
use serde_json::{Value, json};

fn home() -> Home {
    Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder())
}

/// The floors are far enough below the measured values (benches/results/recall.txt) that another processor's rounding
/// does not matter, and far enough above the recall of whole exchanges by meaning alone to show a regression to it.
#[test]
fn what_was_said_is_recalled_and_junk_is_not() {
    let report = home().json(&["memory", "eval", "--split", "held-out", "--json"]);
    let figures = &report["splits"][0];
    assert_eq!((&figures["split"], &figures["all"]["probes"]), (&json!("held-out"), &json!(100)), "{report:#}");
    let value = |figures: &Value, name: &str| figures[name]["value"].as_f64().unwrap();
    let all = &figures["all"];
    assert!(value(all, "recall_at_3") >= 0.70, "{all:#}");
    assert!(value(all, "recall_at_1") >= 0.60, "{all:#}");
    assert!(value(all, "junk") < 0.05, "{all:#}");
    assert!(value(all, "silent") >= 0.80, "{all:#}");
    assert!(value(&figures["kinds"]["paraphrase"], "recall_at_3") >= 0.75, "{figures:#}");
    // Questions of the same wording, whatever they ask for.
    assert!(value(&figures["kinds"]["same-wording"], "silent") >= 0.85, "{figures:#}");
    let extraction = &report["extraction"];
    let share = extraction["found"].as_f64().unwrap() / extraction["stated"].as_f64().unwrap();
    assert!(share >= 0.90, "{extraction:#}");
}

#[test]
fn the_example_of_the_documentation_is_recalled() {
    let home = home();
    let set = [
        json!({"person": "a", "session": 1, "turns": [
            {"user": "My dog is called Rex and my name is Anna, may he eat carrots?", "assistant": "Yes.", "outcome": "answered"},
            {"user": "What is my dog called?", "assistant": "I don't know your dog's name.", "outcome": "answered"},
            {"user": "What do dogs eat?", "assistant": "Your dog Bello eats", "outcome": "stopped"}]}),
        json!({"person": "a", "probe": "What is my dog called?", "kind": "direct", "expects": ["Rex"], "rejects": ["Bello"],
            "sources": [[1, 0]]}),
    ];
    let file = home.write("set.jsonl", set.map(|line| line.to_string()).join("\n").as_bytes());
    let report = home.json(&["memory", "eval", file.to_str().unwrap(), "--json"]);
    let all = &report["splits"][0]["all"];
    assert_eq!((&all["recalled"], &all["recall_at_1"]["value"]), (&json!(1), &json!(1.0)), "{report:#}");
    let run = home.run(&["memory", "eval", file.to_str().unwrap(), "--details"]);
    assert!(run.stdout.contains("hit") && run.stdout.contains("1 of 1 statements"), "{}", run.stdout);
    let strict = home.write("strict.jsonl", b"{\"personal_threshold\": 1}\n{\"personal_threshold\": 0}\n");
    let reports =
        home.json(&["memory", "eval", file.to_str().unwrap(), "--settings", strict.to_str().unwrap(), "--json"]);
    assert_eq!((reports.as_array().unwrap().len(), &reports[1]["splits"][0]["all"]["recalled"]), (2, &json!(1)));
    let unknown = home.write("unknown.jsonl", b"{\"treshold\": 1}");
    let run = home.run(&["memory", "eval", "--settings", unknown.to_str().unwrap()]);
    assert!(run.code == 1 && run.stderr.contains("treshold"), "{}", run.stderr);
}

#[test]
fn a_search_shows_what_was_said_with_its_scores_and_says_when_nothing_is_similar() {
    let home = home();
    ask(&home, "My cat is called Mia, is that a name?", &[]);
    let run = home.run(&["memory", "search", "What is my cat called?", "--facts"]);
    for expected in ["similarity 0.", "words 1.00", "relevance 0.", "stated: My cat is called Mia", "answered: "] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
    assert!(!run.stderr.contains("similar enough"), "{}", run.stderr);
    let run = home.run(&["memory", "search", "How do volcanoes form?"]);
    assert!(
        run.stdout.contains("asked: My cat is called Mia") && run.stderr.contains("nothing is similar enough"),
        "{}",
        run.stderr
    );
    let found = home.json(&["memory", "search", "cat", "--facts", "--json"]);
    assert_eq!((found.as_array().unwrap().len(), &found[0]["is_fact"]), (2, &json!(true)), "{found:#}");
    assert_eq!(home.json(&["memory", "stats", "--json"])["facts"], 1);
}

#[test]
fn what_is_asked_without_memory_or_incognito_leaves_nothing_behind() {
    let home = home();
    ask(&home, "Is fire hot?", &["--memory", "off"]);
    ask(&home, "Is fire cold?", &["--incognito"]);
    assert!(!home.path("data/memory").exists() && !home.path("data/conversations").exists());
    ask(&home, "Is ice cold?", &[]);
    ask(&home, "Is ice hot?", &["--memory", "off"]);
    let listed = home.json(&["memory", "list", "--json"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["query"]), (1, &json!("Is ice cold?")), "{listed:#}");
    assert!(!home.run(&["events"]).stdout.contains("hot"));
    let run = home.run(&["chat", "--incognito", "--resume"]);
    assert!(run.code == 2 && run.stderr.contains("--resume"), "{}", run.stderr);
}

#[test]
fn remembering_and_recalling_are_two_settings() {
    let home = home().variable("HONE_MEMORY_MODE", "off");
    let kinds = |home: &Home| {
        let listed = home.json(&["memory", "list", "--kind", "all", "--json"]);
        listed.as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    ask(&home, "My cat is called Miso, is that a name?", &[]);
    let asked = ask(&home, "What is my cat called?", &["--monitor"]);
    assert!(!asked.contains("memory.recalled"), "{asked}");
    let remembered = kinds(&home);
    assert_eq!((remembered.len(), remembered.iter().filter(|kind| *kind == "fact").count()), (3, 1), "{remembered:?}");
    let home = home.variable("HONE_MEMORY_MODE", "auto").variable("HONE_MEMORY_REMEMBER", "false");
    let asked = ask(&home, "What is my cat called?", &["--monitor"]);
    assert!(asked.contains("memory.recalled") && asked.contains("Miso"), "{asked}");
    assert_eq!(kinds(&home), remembered);
}

/// Asks the built-in model a question; returns stderr.
#[track_caller]
fn ask(home: &Home, question: &str, flags: &[&str]) -> String {
    let model = smollm2();
    let run = home.run(&[&["chat", question, "--model", &model, "--temperature", "0", "-N", "8"], flags].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stderr
}
