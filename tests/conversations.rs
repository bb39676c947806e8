//! A terminal that people keep open: saved conversations, rendered answers, presets, vectors, and the first start.

use std::fs::File;
use std::time::{Duration, SystemTime};

use crate::support::terminal::Terminal;
use crate::support::{Home, Run, smollm2};
use hone_memory::{Engram, EngramKind, Fact, MemoryOptions, MemoryStore};
use hone_protocol::{QueryId, Response, SessionId};
use serde_json::json;

/// A home with these conversations of one exchange, which are in no memory.
fn home_with(conversations: &[(&str, &str, &str)]) -> Home {
    let home = Home::new();
    for (number, (name, question, answer)) in conversations.iter().enumerate() {
        let conversation = json!({
            "format": 1,
            "model": smollm2(),
            "system": "",
            "exchanges": [{
                "question": question,
                "answer": answer,
                "model": "tiny",
                "finish_reason": "stop",
                "timings": hone_protocol::Timings::default(),
            }],
        });
        let path = home.write(&format!("data/conversations/{name}.json"), conversation.to_string().as_bytes());
        // The last one is the latest.
        let at = SystemTime::now() - Duration::from_secs((conversations.len() - number) as u64);
        File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    }
    home
}

const SKY: (&str, &str, &str) = ("2026-03-07-why-is-the-sky-blue", "Why is the sky blue?", "It **scatters** light.");
const SEA: (&str, &str, &str) = ("tides", "What moves the sea?", "The moon does, and the sun a little.");

#[track_caller]
fn check(run: &Run, code: i32, parts: &[&str]) {
    let all = format!("{}{}", run.stdout, run.stderr);
    assert_eq!(run.code, code, "{all}");
    assert!(parts.iter().all(|part| all.contains(part)), "{parts:?} in {all}");
}

#[test]
fn conversations_are_listed_searched_and_shown() {
    let home = home_with(&[SKY, SEA]);
    let listed = home.json(&["conversations", "list", "--json"]);
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tides", SKY.0], "the latest first");
    assert_eq!((&listed[1]["title"], &listed[1]["exchanges"]), (&json!("Why is the sky blue?"), &json!(1)));
    check(&home.run(&["conversations", "list", "-n", "1"]), 0, &["tides", "ANSWERS"]);
    let found = home.json(&["conversations", "search", "THE MOON", "--json"]);
    assert_eq!((found.as_array().unwrap().len(), &found[0]["excerpt"]), (1, &json!(SEA.2)));
    check(&home.run(&["conversations", "search", "Mars"]), 0, &["no conversation contains \"Mars\""]);
    check(&home.run(&["conversations", "show", "sky"]), 0, &["[1] > Why is the sky blue?", SKY.2]);
    check(&home.run(&["conversations", "show", "mars"]), 1, &["no conversation \"mars\" is saved"]);
    check(&home.run(&["conversations", "show", "e"]), 1, &["2 conversations are called \"e\": tides, 2026"]);
    check(&Home::new().run(&["conversations", "list"]), 0, &["no conversation is saved"]);
}

#[test]
fn conversations_are_renamed_exported_and_deleted() {
    let home = home_with(&[SKY, SEA]);
    check(&home.run(&["conversations", "rename", "tides", SKY.0]), 1, &["is saved already"]);
    check(&home.run(&["conversations", "rename", "tides", "../x"]), 1, &["not a valid name"]);
    check(&home.run(&["conversations", "rename", "tides", "sea"]), 0, &["tides is now called sea"]);
    let file = home.path("sea.md");
    let file = file.to_str().unwrap();
    check(&home.run(&["conversations", "export", "sea", file]), 0, &["written to"]);
    let markdown = home.run(&["conversations", "export", "sea"]).stdout;
    assert_eq!(markdown, format!("# sea\n\n## You\n\n{}\n\n## tiny\n\n{}\n", SEA.1, SEA.2));
    assert_eq!(std::fs::read_to_string(file).unwrap(), markdown);
    check(&home.run(&["conversations", "export", "sea", file]), 1, &["exists already"]);
    assert_eq!(home.json(&["conversations", "export", "sea", "--json"])["exchanges"][0]["answer"], SEA.2);
    check(&home.run(&["conversations", "delete", "sea", "mars"]), 1, &["no conversation \"mars\" is saved"]);
    check(&home.run(&["conversations", "delete", "sea"]), 0, &["sea is deleted"]);
    assert_eq!(home.json(&["conversations", "list", "--json"]).as_array().unwrap().len(), 1);
}

/// The answer, a fact of its question and a note made of the answer; another conversation's answer stays.
#[test]
fn what_came_of_a_deleted_conversation_is_forgotten_if_that_is_wanted() {
    let home = Home::new();
    let store = MemoryStore::open(&home.path("data/memory"), MemoryOptions::default()).unwrap();
    let remember = |engram: Engram| {
        store.remember(engram.clone(), None).unwrap();
        engram.query_id
    };
    let response = |question: &str| Response::new(question, "Yes.", "tiny");
    let answer = |question: &str| Engram::new(QueryId::fresh(), SessionId::fresh(), &response(question));
    let ids = ["My boat is red, is that well?", "Does the moon move the sea?"].map(answer).map(remember);
    let facts = vec![Fact { text: "My boat is red.".to_owned(), is_update: false, vector: None }];
    store.add_facts(ids[0], facts).unwrap();
    remember(Engram::note(EngramKind::Research, SessionId::fresh(), &response("What boats are there?"), vec![ids[0]]));
    drop(store);
    for (name, id) in [("boat", ids[0]), ("sea", ids[1])] {
        let exchange = json!({"question": "?", "answer": "Yes.", "model": "tiny", "finish_reason": "stop",
            "timings": hone_protocol::Timings::default(), "query_id": id});
        let conversation = json!({"format": 1, "model": smollm2(), "system": "", "exchanges": [exchange]});
        home.write(&format!("data/conversations/{name}.json"), conversation.to_string().as_bytes());
    }
    let n_remembered = || home.json(&["memory", "list", "--kind", "all", "--json"]).as_array().unwrap().len();
    assert_eq!(n_remembered(), 4);
    let notes = home.json(&["memory", "list", "--kind", "research", "--json"]);
    assert_eq!((notes.as_array().unwrap().len(), &notes[0]["query"]), (1, &json!("What boats are there?")));
    check(&home.run(&["memory", "list", "--kind", "dream"]), 2, &["there are episodic, fact, intention, research"]);
    check(&home.run(&["conversations", "delete", "sea"]), 0, &["sea is deleted", "1 memory from it kept"]);
    check(&home.run(&["conversations", "delete", "boat", "--forget"]), 0, &["boat is deleted", "3 memories forgotten"]);
    assert_eq!(n_remembered(), 1);
}

#[test]
fn one_chooses_which_conversation_is_continued_and_sees_its_end() {
    let home = home_with(&[SKY, SEA]);
    let mut terminal = Terminal::chat_with(&home, &["--resume", "--no-grade"]);
    terminal.wait_for("list", |lines| {
        let place = |text: &str| lines.iter().position(|line| line.contains(text));
        matches!((place("What moves"), place("Why is the sky")), (Some(sea), Some(sky)) if sea < sky)
    });
    terminal.type_text("sky");
    terminal.wait_for("the one entry", |lines| !lines.iter().any(|line| line.contains("tides")));
    terminal.type_text("\r");
    let lines = terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    assert!(lines.iter().any(|line| line.starts_with("resuming 2026-03-07-why")), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "> Why is the sky blue?"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("scatters")), "{lines:#?}");
    terminal.end_chat();
    let mut terminal = Terminal::chat_with(&home, &["--resume", "moves the", "--no-grade"]);
    terminal.wait_for("end of the named one", |lines| lines.iter().any(|line| line.starts_with("The moon does")));
    terminal.end_chat();
}

#[test]
fn a_choice_that_is_left_continues_nothing() {
    let home = home_with(&[SKY, SEA]);
    let mut terminal = Terminal::chat_with(&home, &["--resume"]);
    terminal.wait_for("list", |lines| lines.iter().any(|line| line.contains("Why is the sky")));
    terminal.type_text("\u{1b}");
    terminal.wait_for("error", |lines| lines.iter().any(|line| line.contains("no conversation was chosen")));
    assert_eq!(terminal.exit_status().exit_code(), 1);
}

/// An answer with most of the Markdown that models write.
const MARKDOWN: &str = "## Result\n\nThe **quick** brown fox jumps over the lazy dog and then it `runs` away.\n\n\
    1. one\n2. two\n   - nested\n\n| name | size |\n|---|--:|\n| a | 10 |\n| bcd | 2 |\n\n```rust\nlet x = 1;\n```";

/// The lines of the screen of a chat that resumes a conversation with that answer, up to the prompt.
fn lines_of_markdown(variables: &[(&'static str, &str)], arguments: &[&str], columns: u16) -> (Vec<String>, String) {
    let home = variables
        .iter()
        .fold(home_with(&[("fox", "How?", MARKDOWN)]), |home, (name, value)| home.variable(name, value));
    let arguments = [&["--resume", "--no-grade"], arguments].concat();
    let mut terminal = Terminal::chat_in(&home, &arguments, columns);
    let lines = terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    match variables.contains(&("TERM", "dumb")) {
        true => terminal.end_chat_of_lines(),
        false => terminal.end_chat(),
    }
    let start = lines.iter().position(|line| line == "> How?").unwrap() + 1;
    let end = lines.iter().position(|line| line == ">").unwrap();
    terminal.check_colours();
    let mut shown = lines[start..end].to_vec();
    while shown.pop_if(|line| line.is_empty()).is_some() {}
    (shown, terminal.written())
}

#[test]
fn markdown_is_rendered_at_every_width() {
    let end = [
        "",
        "1. one",
        "2. two",
        "   • nested",
        "",
        "name  size",
        "────  ────",
        "a       10",
        "bcd      2",
        "",
        "  let x = 1;",
    ];
    let at_40 = ["Result", "", "The quick brown fox jumps over the lazy", "dog and then it runs away."];
    let wide = ["Result", "", "The quick brown fox jumps over the lazy dog and then it runs away."];
    for (columns, beginning) in [(40, &at_40[..]), (80, &wide[..]), (200, &wide[..])] {
        let (lines, written) = lines_of_markdown(&[], &[], columns);
        assert_eq!(lines, [beginning, &end].concat(), "{columns} columns");
        assert!(written.contains("\u{1b}[1mquick\u{1b}[0m"), "{written:?}");
    }
}

#[test]
fn markdown_stays_as_it_is_where_it_cannot_or_should_not_be_rendered() {
    let (lines, written) = lines_of_markdown(&[("NO_COLOR", "1")], &[], 80);
    assert_eq!(
        lines[..3],
        ["## Result", "", "The **quick** brown fox jumps over the lazy dog and then it `runs` away."]
    );
    assert!(lines.contains(&"   • nested".to_owned()), "{lines:#?}");
    assert!(!written.contains("\u{1b}[1m"), "{written:?}");
    for (variables, arguments) in [(&[][..], &["--plain"][..]), (&[("TERM", "dumb")][..], &[][..])] {
        let (lines, _) = lines_of_markdown(variables, arguments, 80);
        assert_eq!(lines, MARKDOWN.lines().collect::<Vec<_>>(), "{variables:?} {arguments:?}");
    }
}

#[test]
fn an_answer_is_copied_and_a_question_is_written_in_an_editor() {
    let home = home_with(&[SKY]).variable("EDITOR", "sed -i s/cold/hot/");
    let mut terminal =
        Terminal::chat_with(&home, &["--resume", "--no-grade", "--max-tokens", "4", "--temperature", "0"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("/copy\r");
    terminal.wait_for("note", |lines| lines.iter().any(|line| line.starts_with("22 B copied")));
    // "It **scatters** light." in the terminal's own encoding.
    assert!(terminal.written().contains("\u{1b}]52;c;SXQgKipzY2F0dGVycyoqIGxpZ2h0Lg=="), "{:?}", terminal.written());
    terminal.type_text("/edit Is fire cold?\r");
    terminal.wait_for("question", |lines| lines.iter().any(|line| line == "> Is fire hot?"));
    terminal
        .wait_for("prompt", |lines| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|line| line == ">"));
    terminal.end_chat();
    let kept = home.json(&["conversations", "show", "sky", "--json"]);
    assert_eq!(kept["exchanges"][1]["question"], "Is fire hot?");
}

#[test]
fn a_preset_brings_its_model_and_settings_to_a_chat() {
    let home = Home::new();
    let modelfile =
        format!("FROM {}\nPARAMETER temperature 0\nSYSTEM Answer with one word.\nPARAMETER num_predict 3\n", smollm2());
    let path = home.write("Modelfile", modelfile.as_bytes());
    let created = home.run(&["preset", "create", "curt", "-f", path.to_str().unwrap(), "--top-k", "5"]);
    check(&created, 0, &["hone chat -p curt"]);
    check(&home.run(&["preset", "create", "curt", "--top-k", "5"]), 1, &["--force"]);
    check(&home.run(&["preset", "create", "bad", "--top-p", "7"]), 2, &["sampling.top_p (preset bad)"]);
    let settings = &home.json(&["preset", "show", "curt", "--json"])["settings"];
    assert_eq!((&settings["sampling.top_k"], &settings["sampling.max_tokens"]), (&json!(5), &json!(3)));
    check(&home.run(&["preset", "list"]), 0, &["curt", "Answer with one word."]);
    let answered = home.json(&["chat", "-p", "curt", "Is fire hot?", "--no-grade", "--json"]);
    assert_eq!(answered["timings"]["generation_tokens"], 3, "{answered}");
    check(&home.run(&["chat", "-p", "mild", "Is fire hot?"]), 2, &["no preset \"mild\" exists: known are curt"]);
    let adapter = home.write("Adapted", b"FROM a\nADAPTER lora.gguf\n");
    let refused = home.run(&["preset", "create", "x", "-f", adapter.to_str().unwrap()]);
    check(&refused, 2, &["line 2: hone runs no adapters, and lora.gguf is one"]);
    check(&home.run(&["preset", "delete", "curt"]), 0, &["curt is deleted"]);
    assert_eq!(home.json(&["preset", "list", "--json"]), json!([]));
}

#[test]
fn running_processes_are_watched_as_lines_of_json() {
    use std::io::{BufRead, BufReader};

    let home = Home::new();
    let mut watch = home.command(env!("CARGO_BIN_EXE_hone").as_ref(), &["ps", "--watch", "--json"]).spawn().unwrap();
    let lines: Vec<String> = BufReader::new(watch.stdout.take().unwrap()).lines().take(2).map(Result::unwrap).collect();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert_eq!(lines, ["[]", "[]"]);
    check(&home.run(&["ps", "--watch"]), 2, &["--watch needs a terminal, or --json"]);
}

#[test]
fn texts_become_vectors_in_their_order() {
    let home = Home::new().variable("HONE_MEMORY_EMBEDDER", &crate::support::embedder());
    let input = b"A cat sits.\nA kitten is sitting.\nStocks fell.\n";
    let run = home.run_with_stdin(&["embed"], input);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let numbers = |line: &str| line.split(' ').map(|number| number.parse::<f32>().unwrap()).collect::<Vec<_>>();
    let vectors: Vec<Vec<f32>> = run.stdout.lines().map(numbers).collect();
    let cosine = |a: usize, b: usize| vectors[a].iter().zip(&vectors[b]).map(|(a, b)| a * b).sum::<f32>();
    assert!(vectors.len() == 3 && cosine(0, 1) > 0.6 && cosine(0, 2) < 0.3, "{} {}", cosine(0, 1), cosine(0, 2));
    let lines = b"\"A cat sits.\"\n{\"text\": \"Stocks fell.\", \"id\": 7}\n";
    let run = home.run_with_stdin(&["embed", "--json-lines", "--json"], lines);
    let objects: Vec<serde_json::Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((objects.len(), &objects[1]["id"], &objects[1]["is_cut"]), (2, &json!(7), &json!(false)));
    let first = objects[0]["embedding"][0].as_f64().unwrap() as f32;
    assert!((first - vectors[0][0]).abs() < 1e-5, "{first} {}", vectors[0][0]);
    let wrong = home.run_with_stdin(&["embed", "--json-lines"], b"{\"txt\": 1}\n");
    check(&wrong, 2, &["line 1 of stdin is neither a JSON string nor an object"]);
}

#[test]
fn hone_alone_guides_a_first_start_and_then_chats() {
    let home = Home::new()
        .variable("HONE_ENGINE_MODEL", &smollm2())
        .variable("HONE_CHAT_GRADE", "false")
        .variable("HONE_OFFLINE", "0");
    let mut terminal = Terminal::hone_in(&home, &[], 100);
    let lines = terminal.wait_for("question", |lines| lines.concat().contains("Download it now"));
    assert!(lines.iter().any(|line| line.starts_with("hone runs on this machine")), "{lines:#?}");
    assert!(lines.concat().contains("tokens/s"), "{lines:#?}");
    terminal.type_text("n");
    let lines = terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    assert!(lines.concat().contains("hone pull"), "{lines:#?}");
    terminal.end_chat();
    let mut terminal = Terminal::hone_in(&home, &[], 100);
    let lines = terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    assert!(!lines.concat().contains("Download it now"), "{lines:#?}");
    terminal.end_chat();
    check(&home.run(&[]), 2, &["Usage: hone"]);
}

#[test]
fn a_first_start_offers_a_judge_that_fits() {
    let home = Home::new().variable("HONE_ENGINE_MODEL", &smollm2()).variable("HONE_OFFLINE", "0");
    let mut terminal = Terminal::hone_in(&home, &[], 100);
    terminal.wait_for("question", |lines| lines.concat().contains("Download it now"));
    terminal.type_text("n");
    let lines = terminal.wait_for("second question", |lines| lines.concat().contains("Download the judge now?"));
    assert!(lines.concat().contains("A judge grades every answer from 1 to 5"), "{lines:#?}");
    terminal.type_text("n");
    let lines = terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    assert!(lines.concat().contains("it grades once it has passed its examination"), "{lines:#?}");
    terminal.end_chat();
}

/// The address of a hub that sends the first part of every file and then stalls.
fn stalling_hub(n_bytes: usize, n_sent: usize) -> String {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut connections = Vec::new();
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
            let _ = stream.read(&mut request);
            let head = format!("HTTP/1.1 200 OK\r\nETag: \"one\"\r\nContent-Length: {n_bytes}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![7; n_sent]));
            connections.push(stream);
        }
    });
    address
}

#[test]
fn a_better_model_is_downloaded_while_the_small_one_answers() {
    let home = Home::new()
        .variable("HONE_ENGINE_MODEL", &smollm2())
        .variable("HONE_CHAT_GRADE", "false")
        .variable("HONE_MEMORY_MODE", "off")
        .variable("HONE_SAMPLING_MAX_TOKENS", "4")
        .variable("HONE_OFFLINE", "0")
        .variable("HF_ENDPOINT", &stalling_hub(4_000_000, 2_600_000));
    let mut terminal = Terminal::hone_in(&home, &[], 80);
    terminal.wait_for("question", |lines| lines.concat().contains("Download it now"));
    terminal.type_text("y");
    terminal.wait_for("progress", |lines| lines.concat().contains(": 50 % of 4.00 MB are downloaded"));
    terminal.type_text("Is fire hot?\r");
    terminal.wait_for("answer", |lines| lines.iter().any(|line| line.contains("the answer was cut")));
    terminal
        .wait_for("prompt", |lines| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|line| line == ">"));
    terminal.type_text("\u{4}");
    terminal.wait_for("the way to go on", |lines| {
        let all = lines.concat();
        all.contains("65 % of ") && all.contains("are downloaded: `hone pull")
    });
    assert!(terminal.exit_status().success());
    let partial = home.path("data/models/.incoming/*/*.partial");
    let partial = glob::glob(partial.to_str().unwrap()).unwrap().next().unwrap().unwrap();
    assert_eq!(partial.metadata().unwrap().len(), 2_600_000, "what has arrived is kept");
}

#[test]
fn the_smallest_model_says_once_which_better_one_suits() {
    let home = Home::new().variable("HONE_MEMORY_MODE", "off").variable("HONE_CHAT_GRADE", "false");
    check(&home.run(&["pull", &smollm2(), "--name", "smollm2:135m"]), 0, &["is installed"]);
    let is_hint = |lines: &[String]| lines.concat().contains("answers better, and suits this machine");
    for (arguments, expected) in [(&["--incognito"][..], false), (&[], true), (&[], false)] {
        let mut terminal = Terminal::chat_with(&home, arguments);
        let lines = terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
        assert_eq!(is_hint(&lines), expected, "{arguments:?} {lines:#?}");
        terminal.end_chat();
    }
}

#[test]
fn a_pipe_is_given_the_markdown_of_the_model() {
    let home = Home::new().variable("HONE_MEMORY_MODE", "off");
    let question = ["chat", "Write a Python function that adds two numbers.", "--model", &smollm2()];
    let ask = |more: &[&str]| {
        let run =
            home.run(&[&question[..], &["--temperature", "0", "--max-tokens", "24", "--no-grade"], more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout
    };
    let answer: serde_json::Value = serde_json::from_str(&ask(&["--json"])).unwrap();
    let printed = ask(&[]);
    assert!(printed.contains("```python\n"), "{printed}");
    assert_eq!(printed.trim_end(), answer["answer"].as_str().unwrap().trim_end());
}
