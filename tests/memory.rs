//! `hone memory` and `hone events` as a person runs them, on a memory that the tests write.

use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::support::{Home, embedder, smollm2};
use hone_memory::{Engram, EngramKind, MemoryOptions, MemoryStore, Vetting};
use hone_protocol::{
    ComparedAnswer, Comparison, Envelope, Feedback, Grade, GradedAnswer, Judging, JudgingMethod, Nothing, Payload,
    Preference, QueryId, Rating, RespondentId, SamplingOptions, SessionId, Timestamp,
};
use serde_json::{Value, json};

/// Ids of answers given at the same moment.
fn id(number: u64) -> QueryId {
    QueryId::from_bits((0x0199_0000_0000_7000_8000_u128 << 48) | u128::from(number))
}

fn memory(home: &Home) -> MemoryStore {
    MemoryStore::open(&home.path("data/memory"), MemoryOptions::default()).unwrap()
}

fn engram(number: u64, grade: Option<Grade>) -> Engram {
    Engram {
        query_id: id(number),
        kind: EngramKind::Episodic,
        sequence: 0,
        query: format!("What is\n{number}?"),
        answer: format!("It is {number}.\u{1b}[2J"),
        at: Timestamp(1_769_884_200_000 + 1_000 * number),
        session_id: SessionId::from_bits(7),
        owner: None,
        scope: None,
        respondent_id: RespondentId::A,
        model: "smollm2:135m".into(),
        sampling: SamplingOptions::default(),
        thinking: false,
        finish_reason: None,
        intent: None,
        entities: Vec::new(),
        grade,
        pairwise_winner: None,
        user_feedback: None,
        correlation_id: id(number),
        compared: None,
        due: None,
        source: None,
        is_update: false,
        facts_extracted: false,
        sources: Vec::new(),
        vetting: Vetting::default(),
    }
}

fn grade(score: u8, self_graded: bool) -> Grade {
    let judging = Judging { judge: "prometheus:7b".into(), self_graded, seconds: 1.5, ..Judging::default() };
    let (feedback, rubric) = ("Short and right.".into(), "helpfulness".into());
    Grade { score: Some(score), feedback, expected_score: Some(3.75), rubric, judging, ..Grade::default() }
}

/// A home in which three answers are remembered: graded, graded by its own model, ungraded.
fn home_with_memory() -> Home {
    let home = Home::new();
    let store = memory(&home);
    store.remember(engram(1, Some(grade(4, false))), Some(vec![1.0, 0.0])).unwrap();
    store.remember(engram(2, Some(grade(2, true))), None).unwrap();
    store.remember(engram(3, None), None).unwrap();
    home
}

/// Checks the output of a command.
#[track_caller]
fn check(home: &Home, arguments: &[&str], expected: &str) {
    let run = home.run(arguments);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stdout, expected, "hone {arguments:?}");
}

#[track_caller]
fn check_failure(home: &Home, arguments: &[&str], code: i32, complaint: &str) {
    let run = home.run(arguments);
    assert!(run.stderr.contains(complaint), "hone {arguments:?} said {}", run.stderr);
    assert_eq!((run.code, run.stdout.as_str()), (code, ""), "hone {arguments:?}: {}", run.stderr);
}

#[test]
fn answers_are_listed_with_their_scores() {
    let home = home_with_memory();
    let all = "       01990000-0000-7000-8000-000000000003  2026-01-31 18:30:03  A  smollm2:135m  What is 3?\n\
               ○ 2/5  01990000-0000-7000-8000-000000000002  2026-01-31 18:30:02  A  smollm2:135m  What is 2?\n\
               ● 4/5  01990000-0000-7000-8000-000000000001  2026-01-31 18:30:01  A  smollm2:135m  What is 1?\n";
    check(&home, &["memory", "list"], all);
    let lines: Vec<&str> = all.lines().collect();
    check(&home, &["memory", "list", "-n", "1"], &format!("{}\n", lines[0]));
    check(&home, &["memory", "list", "--scored", "--min-score", "3"], &format!("{}\n", lines[2]));
    check(&home, &["memory", "list", "--unscored"], &format!("{}\n", lines[0]));
    check(&home, &["memory", "list", "--text", "it is 2"], &format!("{}\n", lines[1]));
    check(&home, &["memory", "list", "--until", "2026-01-31T18:30"], "");
    check(&home, &["memory", "list", "--respondent", "B"], "");
    let listed = home.json(&["memory", "list", "--json", "--scored"]);
    let scores: Vec<&Value> = listed.as_array().unwrap().iter().map(|engram| &engram["critic_score"]).collect();
    assert_eq!(scores, [&json!(2), &json!(4)]);
}

#[test]
fn an_answer_is_shown_by_the_first_digits_of_its_id() {
    let home = home_with_memory();
    let run = home.run(&["memory", "show", &id(1).to_string()]);
    for expected in
        ["sequence    1", "● 4/5 (expected 3.75, by prometheus:7b for helpfulness in 1.5 s)", "Short and right."]
    {
        assert!(run.stdout.contains(expected), "{}", run.stdout);
    }
    assert!(run.stdout.ends_with("answer\nIt is 1.␛[2J\n\nfeedback\nShort and right.\n"), "{:?}", run.stdout);
    assert!(
        home.run(&["memory", "show", &id(2).to_string()])
            .stdout
            .contains("○ 2/5 (expected 3.75, by prometheus:7b (self-graded)")
    );
    assert!(home.run(&["memory", "show", &id(3).to_string()]).stdout.contains("grade       none"));
    assert_eq!(home.json(&["memory", "show", &id(1).to_string(), "--json"])["type"], "episodic");
    check_failure(&home, &["memory", "show", "019900"], 1, "several ids begin with these digits");
    check_failure(&home, &["memory", "show", "01990"], 1, "6 to 32 hexadecimal digits");
    check_failure(&home, &["memory", "show", "abcdef"], 1, "no id begins with these digits");
}

#[test]
fn a_name_of_any_length_is_shown() {
    let home = home_with_memory();
    memory(&home).remember(Engram { model: "m".repeat(100_000), ..engram(4, None) }, None).unwrap();
    for arguments in [["memory", "list"], ["memory", "stats"], ["memory", "show"]] {
        let id = id(4).to_string();
        let arguments: Vec<&str> = arguments.into_iter().chain((arguments[1] == "show").then_some(&*id)).collect();
        let run = home.run(&arguments);
        assert_eq!(run.code, 0, "hone {arguments:?}: {}", run.stderr);
        assert!(run.stdout.contains("mmm"), "hone {arguments:?}");
    }
}

#[test]
fn answers_are_forgotten() {
    let home = home_with_memory();
    let (one, two) = (id(1).to_string(), id(2).to_string());
    check_failure(&home, &["memory", "rm", &one, "abcdef"], 1, "no id begins with these digits");
    let event = event(1, 7, Payload::CritiqueResult(critique())).about(id(1), id(1), RespondentId::A);
    memory(&home).append_event(&event).unwrap();
    let run = home.run(&["memory", "rm", &one, &one]);
    assert_eq!((run.code, run.stdout.as_str()), (0, format!("{one} is forgotten\n").as_str()), "{}", run.stderr);
    assert!(run.stderr.contains("event log") && run.stderr.contains("~/data/conversations"), "{}", run.stderr);
    let events = home.run(&["events", "--json"]).stdout;
    assert!(events.contains(&one) && !events.contains("That."), "{events}");
    let removed = home.json(&["memory", "rm", &two, "--json"]);
    assert_eq!(removed, json!([{ "query_id": two, "removed": true }]));
    // The remaining answer needs no telling apart, so six digits are enough.
    check(&home, &["memory", "list"], "       019900  2026-01-31 18:30:03  A  smollm2:135m  What is 3?\n");
    check(&home, &["memory", "rm", "019900"], &format!("{} is forgotten\n", id(3)));
    check(&home, &["memory", "list"], "");
}

#[test]
fn a_memory_is_moved_with_its_vectors() {
    let (home, other) = (home_with_memory(), Home::new());
    let exported = home.run(&["memory", "export"]);
    assert_eq!((exported.code, exported.stdout.lines().count()), (0, 3));
    let file = other.path("memory.jsonl");
    let file = file.to_str().unwrap();
    assert_eq!(home.json(&["memory", "export", file, "--json"]), json!({ "exported": 3 }));
    assert_eq!(std::fs::read_to_string(file).unwrap(), exported.stdout);
    check(&home, &["memory", "export", "-"], &exported.stdout);
    check(&other, &["memory", "import", file], "imported 3 answers; 0 were already there\n");
    let again = other.run_with_stdin(&["memory", "import", "-", "--json"], exported.stdout.as_bytes());
    assert_eq!(again.stdout, "{\"imported\":0,\"already_there\":3}\n");
    assert_eq!(other.run(&["memory", "export"]).stdout, exported.stdout);
    assert_eq!(other.json(&["memory", "stats", "--json"])["indexed_vectors"], 1);
}

#[test]
fn an_import_says_which_lines_are_wrong_and_writes_none() {
    let (home, other) = (home_with_memory(), Home::new());
    let exported = home.run(&["memory", "export"]).stdout.replace("It is 2.", "It is two.");
    let broken = other.write("broken.jsonl", format!("{exported}nonsense\n").as_bytes());
    check_failure(&other, &["memory", "import", broken.to_str().unwrap()], 1, "line 4: ");
    check(&other, &["memory", "list"], "");
    let differing = other.write("differing.jsonl", exported.as_bytes());
    check_failure(&home, &["memory", "import", differing.to_str().unwrap()], 1, "line 2: another engram has its id");
    check_failure(&home, &["memory", "import", "/no/such/file"], 1, "/no/such/file");
    check_failure(&home, &["memory", "export", "/no/such/folder/file"], 1, "/no/such/folder/file");
}

/// A grade from log-probabilities, a grade of the model's own answer, and a comparison of its own answer.
#[test]
fn grades_and_comparisons_are_marked_wherever_they_are_shown() {
    let home = home_with_memory();
    let likelihood = Judging { method: JudgingMethod::Likelihood, self_graded: true, ..grade(5, true).judging };
    let store = memory(&home);
    store.remember(engram(4, Some(Grade { judging: likelihood, ..grade(5, true) })), None).unwrap();
    store.remember(Engram { respondent_id: RespondentId::B, correlation_id: id(2), ..engram(5, None) }, None).unwrap();
    let compared = |number| ComparedAnswer { query_id: id(number), model: "smollm2:135m", grade: None };
    let judging = Judging { judge: "smollm2:135m".into(), ..Judging::default() };
    let preference = Preference { winner: Some(RespondentId::A), consistent: true, judging, ..Preference::default() };
    store.annotate_pairwise(&Comparison::new(compared(2), compared(5), preference)).unwrap();
    drop(store);
    let listed = home.run(&["memory", "list"]).stdout;
    assert!(["◇ 5/5", "○ 2/5", "● 4/5"].iter().all(|mark| listed.contains(mark)), "{listed}");
    let shown = home.run(&["memory", "show", &id(2).to_string()]).stdout;
    assert!(shown.contains("○ the better of two (50 % for A, both orders agree, by smollm2:135m (self-graded))"));
    let exported: Vec<Value> =
        home.run(&["memory", "export"]).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |number: u64| exported.iter().find(|it| it.to_string().contains(&id(number).to_string())).unwrap();
    let holds = |number, text: &str| assert!(of(number).to_string().contains(text), "{}", of(number));
    holds(1, "\"self_graded\":false");
    holds(4, "\"judging_method\":\"likelihood\"");
    holds(4, "\"self_graded\":true");
    assert!(exported.iter().filter(|it| it.to_string().contains("\"compared\":{")).count() == 2, "{exported:?}");
    let statistics = home.run(&["memory", "stats"]).stdout;
    let lines: Vec<String> =
        statistics.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "◇ likelihood with prometheus:7b (self-graded) for helpfulness 1 5.00 0 0 0 0 1",
        "○ prometheus:7b (self-graded) for helpfulness 1 2.00 0 1 0 0 0",
        "○ smollm2:135m (self-graded) 1 1 1 0 0",
    ] {
        assert!(lines.contains(&line.to_string()), "{lines:#?}");
    }
}

#[test]
fn what_is_remembered_is_counted() {
    let home = home_with_memory();
    let run = home.run(&["memory", "stats"]);
    let lines: Vec<String> =
        run.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines[1], "all 3 2 1 1 - 0 0 0 0 0 0", "what a model says of itself is on another scale");
    assert!(lines.contains(&"● prometheus:7b for helpfulness 1 4.00 0 0 0 1 0".to_string()), "{lines:?}");
    assert!(lines.contains(&"○ prometheus:7b (self-graded) for helpfulness 1 2.00 0 1 0 0 0".to_string()), "{lines:?}");
    let statistics = home.json(&["memory", "stats", "--json", "--check"]);
    let all = &statistics["all"];
    assert_eq!([&all["unscored"], &all["self_graded"], &all["mean_score"]], [&json!(1), &json!(1), &Value::Null]);
    let by = statistics["judges"].as_array().unwrap().iter().map(|by| (&by["self_graded"], &by["mean_score"]));
    assert_eq!(by.collect::<Vec<_>>(), [(&json!(true), &json!(2.0)), (&json!(false), &json!(4.0))]);
    assert_eq!(statistics["check"]["problems"], json!([]));
    assert_eq!(Home::new().json(&["memory", "stats", "--json"])["all"]["mean_score"], Value::Null);
}

fn critique() -> GradedAnswer {
    GradedAnswer { query: "What?".into(), answer: "That.".into(), grade: grade(4, false) }
}

fn event(number: u64, session: u128, payload: Payload) -> Envelope {
    let at = Timestamp(1_769_884_200_000 + 1_000 * number);
    Envelope { at, ..Envelope::new("test", SessionId::from_bits(session), payload) }
}

#[test]
fn events_are_shown_by_conversation() {
    let home = Home::new();
    let store = memory(&home);
    let about = event(1, 1, Payload::CritiqueResult(critique())).about(id(1), id(1), RespondentId::B);
    store.append_event(&about).unwrap();
    store.append_event(&event(2, 1, Payload::UserFeedback(Feedback { rating: Some(Rating::Good) }))).unwrap();
    store.append_event(&event(3, 2, Payload::SessionClosed(Nothing {}))).unwrap();
    drop(store);
    let session = |number: u128| SessionId::from_bits(number).to_string();
    let (first, second) = (session(1), session(2));
    let lines = [
        format!("session {first}\n"),
        "     1  2026-01-31 18:30:01  critique.result     B  ● 4/5 Short and right.\n".to_string(),
        "     2  2026-01-31 18:30:02  user.feedback          good\n".to_string(),
        format!("session {second}\n"),
        "     3  2026-01-31 18:30:03  session.closed\n".to_string(),
    ];
    check(&home, &["events"], &lines.concat());
    check(&home, &["events", "-n", "1"], &lines[3..].concat());
    check(&home, &["events", "-n", "0"], "");
    check(&home, &["events", "--session", &second], &lines[3..].concat());
    check(&home, &["events", "--type", "critique.result"], &lines[..2].concat());
    let run = home.run(&["events", "--json", "--type", "user.feedback"]);
    let event: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&event["sequence"], &event["payload"]["rating"]), (&json!(2), &json!("good")));
    check_failure(&home, &["events", "--type", "critique"], 2, "critique.result");
}

/// Other read-only commands worked on a copy; this one required write access.
#[test]
fn events_are_read_where_nothing_can_be_written() {
    let home = Home::new();
    let store = memory(&home);
    store.append_event(&event(1, 1, Payload::SessionClosed(Nothing {}))).unwrap();
    drop(store);
    let lock = home.path("data/memory/owner.lock");
    std::fs::remove_file(&lock).unwrap();
    // A folder cannot be written to like a file, not even by root.
    std::fs::create_dir(&lock).unwrap();
    let run = home.run(&["events"]);
    assert!(run.stdout.contains("session.closed"), "{}", run.stderr);
    assert!(run.stderr.contains("a copy of memory is read"), "{}", run.stderr);
    check_failure(&home, &["events", "--follow"], 1, "cannot be used");
}

#[test]
fn events_are_followed_and_memory_is_read_while_somebody_else_has_it_open() {
    let home = Home::new();
    let store = memory(&home);
    let said = |number| event(number, 1, Payload::UserFeedback(Feedback { rating: Some(Rating::Good) }));
    store.append_event(&said(1)).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_hone"));
    let mut child = home.command(program, &["events", "--follow", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        event["sequence"].as_u64().unwrap()
    };
    assert_eq!(next(), 1, "what has passed comes first");
    store.append_event(&said(2)).unwrap();
    assert_eq!(next(), 2);
    store.remember(engram(1, None), None).unwrap();
    assert_eq!(home.json(&["memory", "list", "--json"])[0]["query_id"], id(1).to_string());
    // The follower continues when the owner leaves, and serves the next process.
    drop(store);
    let store = memory(&home);
    store.append_event(&said(3)).unwrap();
    assert_eq!(next(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    store.append_event(&said(4)).unwrap();
}

#[test]
fn a_search_needs_the_embedding_model() {
    check_failure(&home_with_memory(), &["memory", "search", "What is 1?"], 1, "hone pull all-minilm:l6-v2");
}

#[test]
fn doctor_counts_what_is_remembered_and_says_what_is_wrong_with_it() {
    let home = home_with_memory().variable("HONE_OFFLINE", "0");
    let report = home.json(&["doctor", "--json"]);
    assert_eq!((&report["remembered"]["answers"], &report["remembered"]["without_vector"]), (&json!(3), &json!(2)));
    assert!(home.run(&["doctor"]).stdout.contains("3 answers, 2 of them without a vector"));
    damage(&home);
    let run = home.run(&["doctor"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stdout.contains("problem: the files of memory in ~/data/memory are damaged"), "{}", run.stdout);
    check_failure(&home, &["memory", "list"], 1, "run `hone memory repair`");
}

/// Flips a bit wherever the log of storage contains the second question.
fn damage(home: &Home) {
    let log = home.path("data/memory/store/db");
    let mut bytes = std::fs::read(&log).unwrap();
    let question = br"What is\n2?";
    let places: Vec<usize> =
        bytes.windows(question.len()).enumerate().filter_map(|(at, text)| (text == question).then_some(at)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(log, bytes).unwrap();
}

#[test]
fn a_damaged_memory_is_repaired_and_says_what_is_lost() {
    let home = home_with_memory();
    let was_whole = home.json(&["memory", "repair", "--json"]);
    assert_eq!((&was_whole["was_whole"], &was_whole["answers"]), (&json!(true), &json!(3)), "{was_whole:#}");
    damage(&home);
    let run = home.run(&["memory", "repair"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    // sled writes the changes of a batch in any order: the third answer may be stored only next to the second.
    let n_left = home.json(&["memory", "list", "--json"]).as_array().unwrap().len();
    assert!((1..=2).contains(&n_left), "{}", run.stdout);
    let expected = [
        format!("{n_left} answers are remembered:\n  {n_left} from the store itself\n"),
        format!("{} answers could not be saved:\n  {}\n", 3 - n_left, id(2)),
        "the old store is kept in ~/data/memory/damaged-2".to_owned(),
    ];
    assert!(expected.iter().all(|part| run.stdout.contains(part)), "{}", run.stdout);
    check(&home, &["memory", "repair"], &format!("nothing is damaged: memory holds {n_left} answers and 0 events\n"));
}

#[test]
fn what_the_store_has_lost_is_taken_from_saved_conversations() {
    let home = home_with_memory();
    damage(&home);
    // The third answer may be stored only next to the second.
    let exchanges = [2, 3].map(|number| {
        json!({
            "question": format!("What is\n{number}?"), "answer": format!("It is {number}."), "model": "smollm2:135m",
            "finish_reason": null, "timings": hone_protocol::Timings::default(), "query_id": id(number),
        })
    });
    let conversation = json!({ "format": 1, "model": "smollm2:135m", "system": "", "exchanges": exchanges });
    home.write("data/conversations/numbers.json", conversation.to_string().as_bytes());
    let run = home.run(&["memory", "repair"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains(" from saved conversations\n"), "{}", run.stdout);
    assert_eq!(home.json(&["memory", "show", &id(2).to_string(), "--json"])["answer"], "It is 2.");
}

/// Asks the built-in model a question.
fn ask(home: &Home) -> crate::support::Run {
    home.run(&["chat", "Is fire hot?", "--model", &smollm2(), "--temperature", "0", "-N", "4"])
}

#[test]
fn an_answer_that_a_damaged_memory_cannot_take_is_remembered_after_the_repair() {
    let home = home_with_memory();
    damage(&home);
    let run = ask(&home);
    assert!(run.code == 0 && !run.stdout.is_empty(), "{}", run.stderr);
    assert!(run.stderr.contains("new answers are kept, and remembered as soon as"), "{}", run.stderr);
    let repaired = home.json_with_code(&["memory", "repair", "--json"], 1);
    assert!(repaired["due"].as_u64().unwrap() >= 3, "{repaired:#}");
    let listed = home.json(&["memory", "list", "--json"]);
    assert_eq!(listed[0]["query"], "Is fire hot?", "{listed:#}");
    assert_eq!(home.json(&["memory", "stats", "--json"])["due"], 0);
}

#[test]
fn an_answer_that_can_neither_be_remembered_nor_kept_is_given_and_fails() {
    let home = Home::new();
    home.write("data/memory", b"a file where a folder should be");
    let run = ask(&home);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(!run.stdout.trim().is_empty() && run.stderr.contains("not everything is remembered"), "{}", run.stderr);
    assert!(run.stderr.contains("nor can it be kept for later"), "{}", run.stderr);
}

#[test]
fn a_search_makes_the_vectors_that_are_lacking() {
    let home = home_with_memory().variable("HONE_MEMORY_EMBEDDER", &embedder());
    let other = Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder());
    let line = json!({ "engram": engram(4, None), "vector": { "model": embedder(), "values": [1, 2, 3, 4, 5] } });
    let file = home.write("five.jsonl", line.to_string().as_bytes());
    for (home, n_there) in [(&home, 4), (&other, 1)] {
        check(home, &["memory", "import", file.to_str().unwrap()], "imported 1 answers; 0 were already there\n");
        let run = home.run(&["memory", "search", "What is 2?", "--json"]);
        assert!(run.stderr.contains(&format!("vectors for {n_there} answers that lack them")), "{}", run.stderr);
        let found: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(found.as_array().unwrap().len(), n_there, "{found:#}");
        let again = home.run(&["memory", "search", "What is 2?", "--json"]);
        assert_eq!(again.stdout, run.stdout);
        assert!(!again.stderr.contains("computing"), "{}", again.stderr);
        assert_eq!(home.json(&["memory", "stats", "--check", "--json"])["indexed_vectors"], n_there);
    }
}

#[test]
fn what_was_answered_is_found_by_its_meaning() {
    let home = Home::new().variable("HONE_MEMORY_EMBEDDER", &embedder());
    for question in ["What is the capital of Japan?", "How do plants make sugar?"] {
        let run = home.run(&["chat", question, "--model", &smollm2(), "--temperature", "0", "-N", "16"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let found = home.json(&["memory", "search", "photosynthesis", "--json"]);
    assert_eq!(found[0]["query"], "How do plants make sugar?", "{found:#}");
    let events = home.run(&["events", "--json", "--type", "memory.stored"]);
    assert_eq!(events.stdout.lines().count(), 2, "{}", events.stdout);
}

#[test]
fn one_question_waits_for_the_second_respondent_and_the_comparison() {
    let home = Home::new();
    let question =
        ["chat", "Is the sky blue?", "--model", &smollm2(), "--temperature", "0", "-N", "12", "--respondent-b"];
    let answered = home.json(&[&question[..], &["--grade", "--json"]].concat());
    assert!(!answered["answer_b"].as_str().unwrap().is_empty(), "{answered:#}");
    assert!(answered["comparison"]["log_odds"].is_number(), "{answered:#}");
    let engrams = home.json(&["memory", "list", "--json"]);
    assert_eq!(engrams.as_array().unwrap().len(), 2);
    for engram in engrams.as_array().unwrap() {
        let is_winner = engram["respondent_id"] == answered["comparison"]["winner"];
        let expected = answered["comparison"]["winner"].is_string().then_some(is_winner);
        assert_eq!(engram["pairwise_winner"].as_bool(), expected, "{engram:#}");
    }
    let ungraded = home.run(&question);
    assert_eq!(ungraded.code, 0, "{}", ungraded.stderr);
    assert!(ungraded.stderr.contains("respondent B: "), "{}", ungraded.stderr);
}
