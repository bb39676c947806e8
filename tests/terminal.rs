//! The chat as a person sees it: the real binary in a terminal, with the built-in model.

use crate::support::terminal::Terminal;
use crate::support::{Home, smollm2};
#[cfg(unix)]
use crate::support::{wait_for, wait_until};

fn position(lines: &[String], start: &str) -> Option<usize> {
    lines.iter().position(|line| line.starts_with(start))
}

#[test]
fn a_badge_appears_under_its_answer_and_spoils_no_line_that_is_being_typed() {
    let home = Home::graded_by_the_generator();
    let mut terminal = Terminal::chat(&home, &[]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("What is the boiling point of water at sea level?\r");
    let is_answer = |lines: &[String]| lines.iter().any(|line| !line.starts_with('>') && line.contains("100"));
    terminal.wait_for("answer", is_answer);
    terminal.type_text("In which city");
    let is_badge = |line: &String| line.starts_with('○') && line.contains("/5");
    let lines = terminal.wait_for("badge and typed line", |lines| {
        lines.iter().any(is_badge) && lines.iter().any(|line| line == "> In which city")
    });
    let badge = lines.iter().position(is_badge).unwrap();
    assert!(badge < position(&lines, "> In which city").unwrap(), "{lines:#?}");
    assert!(position(&lines, "> What is the boiling").unwrap() < badge, "{lines:#?}");
    terminal.type_text(" is the Eiffel Tower?\r");
    terminal.wait_for("second answer", |lines| lines.iter().any(|line| line.contains("Paris")));
    terminal.wait_for("second badge", |lines| lines.iter().filter(|line| is_badge(line)).count() == 2);
    terminal.type_text("/why\r");
    // The model's path may be long, and the screen breaks the line where it ends.
    terminal.wait_for("reason", |lines| lines.concat().replace(' ', "").contains("(self-graded)"));
    terminal.type_text("/good\r");
    terminal.wait_for("note", |lines| lines.iter().any(|line| line.contains("noted: a good answer")));
    terminal.end_chat();
    let engrams = home.json(&["memory", "list", "--json"]);
    let engrams = engrams.as_array().unwrap();
    assert_eq!(engrams.len(), 2, "{engrams:#?}");
    assert!(engrams.iter().all(|engram| engram["critic_score"].is_u64()), "{engrams:#?}");
    assert!(engrams.iter().any(|engram| engram["user_feedback"] == "good"), "{engrams:#?}");
    let scores: Vec<u64> = engrams.iter().filter_map(|engram| engram["critic_score"].as_u64()).collect();
    let grade = &home.json(&["conversations", "list", "--json"])[0]["grade"];
    let bounds = ["lowest", "highest"].map(|key| grade[key].as_u64());
    assert_eq!(bounds, [scores.iter().min().copied(), scores.iter().max().copied()], "{grade}");
    let mean = scores.iter().sum::<u64>() as f64 / 2.0;
    assert_eq!((&grade["graded"], grade["mean"].as_f64()), (&serde_json::json!(2), Some(mean)), "{grade}");
    let listed = home.run(&["conversations", "list"]).stdout;
    assert!(listed.lines().nth(1).unwrap().contains(&format!("  {mean:.1}  ")), "{listed}");
    #[cfg(unix)]
    for (name, expected) in [("history.txt", 0o600), ("conversations", 0o700), ("", 0o700)] {
        use std::os::unix::fs::PermissionsExt;
        let mode = home.path("data").join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, expected, "{name}");
    }
}

#[test]
fn any_answer_is_explained_also_in_a_later_session_and_if_it_was_graded_in_between() {
    let home = Home::graded_by_the_generator().variable("HONE_JUDGE_GRADE_TIMEOUT", "3600");
    let mut terminal = Terminal::tall_chat(&home, &["--max-tokens", "16", "--respondent-b"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    let is_explained = |lines: &[String], number: &str, parts: &[&str]| {
        let all = lines.concat().replace(' ', "");
        let explanation = all.rsplit("answer[").next().unwrap_or_default();
        explanation.starts_with(number) && parts.iter().all(|part| explanation.contains(part))
    };
    terminal.type_text("Is fire hot?\r");
    terminal.wait_for("badge", |lines| lines.iter().any(|line| line.starts_with('○') && line.contains("/5")));
    terminal.type_text("/why 1\r");
    terminal.wait_for("explanation", |lines| is_explained(lines, "1]Isfirehot?", &["grade○", "respondentB"]));
    terminal.type_text("/why 2\r");
    terminal.wait_for("error", |lines| lines.concat().contains("there is no answer 2: there are 1"));
    terminal.end_chat();
    let model = smollm2();
    let asked =
        home.run(&["chat", "--resume=", "Is ice cold?", "--model", &model, "--temperature", "0", "--max-tokens", "8"]);
    assert_eq!(asked.code, 0, "{}", asked.stderr);
    let graded = home.run(&["grade", "--due", "--model", &model]);
    assert_eq!(graded.code, 0, "{}", graded.stderr);
    let mut terminal = Terminal::tall_chat(&home, &["--resume"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("/why\r");
    terminal.wait_for("grade since", |lines| is_explained(lines, "2]Isicecold?", &["grade○", "(self-graded)"]));
    terminal.type_text("/why 1\r");
    let of_both = ["grade○", "respondentB○", "comparedbetter", "%forA", "orders"];
    let of_both_worse = ["grade○", "respondentB○", "comparedworse", "%forA", "orders"];
    let of_both_even = ["grade○", "respondentB○", "comparedasgood", "%forA", "orders"];
    terminal.wait_for("comparison", |lines| {
        [of_both, of_both_worse, of_both_even].iter().any(|parts| is_explained(lines, "1]Isfirehot?", parts))
    });
    terminal.end_chat();
}

#[test]
fn an_incognito_chat_leaves_no_trace() {
    let home = Home::new();
    home.write("data/history.txt", b"typed before\n");
    let mut terminal = Terminal::chat(&home, &["--incognito", "--no-grade", "--max-tokens", "8"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("Say yes.\r");
    let has_room_for_more =
        |lines: &[String]| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|l| l == ">");
    terminal.wait_for("prompt after the answer", |lines| {
        lines.iter().any(|line| line == "> Say yes.") && has_room_for_more(lines)
    });
    terminal.end_chat();
    assert_eq!(std::fs::read_to_string(home.path("data/history.txt")).unwrap(), "typed before\n");
    for name in ["memory", "conversations", "kv"] {
        assert!(!home.path("data").join(name).exists(), "{name}");
    }
}

#[test]
fn a_long_text_that_is_pasted_is_asked_at_once() {
    let home = Home::new();
    let mut terminal = Terminal::chat(&home, &["--no-grade", "--max-tokens", "8"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    let pasted = "Say yes and nothing more. ".repeat(60);
    terminal.type_text(&format!("{pasted}\r"));
    let has_room_for_more =
        |lines: &[String]| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|l| l == ">");
    terminal.wait_for("prompt after the answer", has_room_for_more);
    terminal.end_chat();
    let engrams = home.json(&["memory", "list", "--json"]);
    assert_eq!(engrams[0]["query"], pasted.trim());
}

#[test]
fn what_is_typed_during_an_answer_is_asked_next_and_stands_in_no_answer() {
    let home = Home::new();
    let mut terminal = Terminal::chat(&home, &["--no-grade", "--max-tokens", "200"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("Tell me a long story about a mill.\r");
    terminal.wait_for("answer", |lines| lines.iter().any(|line| line.contains("mill") && !line.starts_with('>')));
    terminal.type_text("Say yes.\rSay no.\rAnd then");
    let lines = terminal.wait_for("unfinished line", |lines| lines.iter().any(|line| line == "> And then"));
    let asked: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.starts_with("> ")).collect();
    assert_eq!(asked, ["> Tell me a long story about a mill.", "> Say yes.", "> Say no.", "> And then"], "{lines:#?}");
    assert!(!lines.iter().any(|line| !line.starts_with('>') && line.contains("Say yes.Say")), "{lines:#?}");
    terminal.type_text("\u{15}");
    terminal.end_chat();
    assert_eq!(home.json(&["memory", "list", "--json"]).as_array().unwrap().len(), 3);
}

#[test]
fn ctrl_c_takes_back_what_was_typed_ahead() {
    let home = Home::new();
    let mut terminal = Terminal::chat(&home, &["--no-grade", "--max-tokens", "600"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    let is_told = |lines: &[String], word: &str| lines.iter().any(|line| !line.starts_with('>') && line.contains(word));
    terminal.type_text("Tell me a long story about a mill.\r");
    terminal.wait_for("answer", |lines| is_told(lines, "mill"));
    terminal.type_text("Tell me a long story about a frog.\rSay no.\r");
    terminal.wait_for("second answer", |lines| is_told(lines, "frog"));
    terminal.type_text("\u{3}");
    terminal.wait_for("stop", |lines| lines.iter().any(|line| line == "stopped"));
    // The line is not sent, and waits for the person to send or delete it.
    let last = |lines: &[String]| lines.iter().rev().find(|line| !line.is_empty()).cloned().unwrap_or_default();
    terminal.wait_for("line that was typed ahead", |lines| last(lines) == "> Say no.");
    terminal.type_text("\u{3}");
    terminal.wait_for("note", |lines| lines.iter().any(|line| line.contains("press Up")));
    terminal.type_text("\u{1b}[A");
    terminal.wait_for("line from the history", |lines| last(lines) == "> Say no.");
    terminal.type_text("\u{15}Tell me a long story about a crab.\r");
    terminal.wait_for("third answer", |lines| is_told(lines, "crab"));
    terminal.type_text("An unsent line\u{3}");
    terminal.wait_for("line that was typed before the stop", |lines| last(lines) == "> An unsent line");
    terminal.type_text("\u{15}");
    terminal.end_chat();
}

#[test]
fn an_event_that_is_monitored_cannot_drive_the_terminal() {
    let home = Home::new();
    let mut terminal = Terminal::chat(&home, &["--no-grade", "--monitor", "--max-tokens", "4"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("Say yes.\u{202e}\r");
    let is_event = |line: &String| line.contains("query.received") && line.contains("Say yes.<U+202E>");
    terminal.wait_for("event", |lines| lines.iter().any(is_event));
    terminal.end_chat();
}

/// A question on the command line is monitored, too, and its monitor lines follow the answer.
#[test]
fn one_question_is_monitored_behind_its_answer() {
    let home = Home::new();
    let terminal = Terminal::chat(&home, &["Is fire hot?", "--monitor", "--max-tokens", "4"]);
    // The answer may be stored before the conversation is closed, or after.
    let subjects = ["query.received", "response.generation", "memory.stored", "session.closed"];
    let place = |lines: &[String], subject: &str| lines.iter().position(|line| line.contains(subject));
    let lines = terminal.wait_for("all events", |lines| subjects.iter().all(|subject| place(lines, subject).is_some()));
    let answer = lines.iter().position(|line| !line.is_empty()).unwrap();
    assert!(Some(answer) < place(&lines, "query.received"), "{lines:#?}");
}

#[cfg(unix)]
#[test]
fn a_chat_that_is_terminated_gives_the_terminal_back() {
    let home = Home::new().variable("HONE_MEMORY_MODE", "off");
    for signal in ["-TERM", "-INT", "-HUP"] {
        let mut terminal = Terminal::chat(&home, &["--no-grade"]);
        terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
        assert!(!terminal.is_set("ICANON") && !terminal.is_set("ECHO"), "the line editor reads single keys");
        let id = terminal.child.process_id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
        assert!(!terminal.exit_status().success(), "{signal}");
        assert!(terminal.is_set("ICANON") && terminal.is_set("ECHO"), "{signal}");
    }
}

/// Text as sent by a terminal that marks pasted text.
fn pasted(text: &str) -> String {
    format!("\u{1b}[200~{}\u{1b}[201~", text.replace('\n', "\r"))
}

#[test]
fn pasted_lines_are_one_input_that_is_folded_when_it_is_long() {
    let home = Home::new();
    let mut terminal = Terminal::chat(&home, &["--max-tokens", "4", "--no-grade"]);
    let n_answers = || home.json(&["memory", "list", "--json"]).as_array().unwrap().len();
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text(&pasted("Is fire hot?\nIs ice cold?"));
    terminal.wait_for("both lines", |lines| lines.iter().any(|line| line.ends_with("… Is ice cold?")));
    terminal.type_text("\r");
    terminal.wait_for("note", |lines| lines.iter().any(|line| line.contains("the answer was cut")));
    // Text typed before a paste is folded together with it.
    terminal.wait_for("prompt", |lines| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|l| l == ">"));
    let long = "All work and no play makes Jack a dull boy.\n".repeat(60);
    terminal.type_text("Who is dull? ");
    terminal.type_text(&pasted(&long));
    terminal
        .wait_for("folded text", |lines| lines.iter().any(|line| line == "> Who is dull? [pasted 2.64 kB, 60 lines]"));
    terminal.type_text("\r");
    let is_note = |line: &&String| line.contains("the answer was cut");
    terminal.wait_for("second note", |lines| lines.iter().filter(is_note).count() == 2);
    terminal.end_chat();
    assert_eq!(n_answers(), 2);
    let questions = home.json(&["memory", "list", "--json"]);
    let questions: Vec<&str> = questions.as_array().unwrap().iter().map(|it| it["query"].as_str().unwrap()).collect();
    assert!(questions.contains(&"Is fire hot?\nIs ice cold?"), "{questions:?}");
    assert!(questions.contains(&format!("Who is dull? {}", long.trim_end()).as_str()), "{questions:?}");
}

#[cfg(unix)]
#[test]
fn ctrl_z_suspends_the_chat_and_the_typed_line_is_still_there() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

    let home = Home::new();
    let mut terminal = Terminal::chat(&home, &["--no-grade"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("Is fi");
    terminal.wait_for("typed text", |lines| lines.iter().any(|line| line == "> Is fi"));
    let process = Pid::from_raw(terminal.child.process_id().unwrap() as i32).unwrap();
    terminal.type_text("\u{1a}");
    let stopped = || waitpid(Some(process), WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap();
    let (_, status) = wait_for("Ctrl-Z stops the chat", stopped);
    assert!(status.stopped(), "{status:?}");
    kill_process(process, Signal::CONT).unwrap();
    // Until then the terminal would edit the line itself, and withhold the following keys from the chat.
    wait_until("the chat goes on", || !terminal.is_set("ICANON"));
    terminal.type_text("re hot?");
    terminal.wait_for("the whole line", |lines| lines.iter().any(|line| line == "> Is fire hot?"));
    terminal.type_text("\u{15}");
    terminal.end_chat();
}

/// Asks a question and pastes a text in a terminal of this many columns. Returns the last screen.
fn lines_of_a_chat(home: &Home, columns: u16) -> Vec<String> {
    let arguments = ["--model", &smollm2(), "--temperature", "0", "--max-tokens", "40", "--no-grade"];
    let mut terminal = Terminal::chat_in(home, &arguments, columns);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("Tell me a story.\r");
    let is_cut = |lines: &[String]| lines.concat().contains("the answer was cut");
    terminal.wait_for("answer", is_cut);
    terminal.wait_for("prompt", |lines| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|l| l == ">"));
    terminal.type_text(&pasted(&"It is a long way to Tipperary. ".repeat(160)));
    let lines = terminal.wait_for("folded text", |lines| lines.iter().any(|line| line == "> [pasted 4.96 kB, 1 line]"));
    // Pasted text costs kilobytes at most.
    assert!(terminal.written().len() < 20_000, "{}", terminal.written().len());
    terminal.check_colours();
    terminal.type_text("\u{15}");
    terminal.end_chat();
    lines
}

#[test]
fn a_chat_is_the_same_at_every_width() {
    let home = Home::new().variable("HONE_MEMORY_MODE", "off");
    let answer = |lines: &[String]| {
        let (from, to) = (position(lines, "> Tell").unwrap() + 1, position(lines, "the answer was cut").unwrap());
        lines[from..to].to_vec()
    };
    let narrow = answer(&lines_of_a_chat(&home, 40));
    let plain = Home::new().variable("HONE_MEMORY_MODE", "off").variable("NO_COLOR", "1");
    for wide in [answer(&lines_of_a_chat(&home, 200)), answer(&lines_of_a_chat(&plain, 80))] {
        assert_eq!(narrow.join(" "), wide.join(" "), "no word is broken");
    }
    assert!(narrow.len() > 2 && narrow.iter().all(|line| line.len() < 40), "{narrow:#?}");
}

#[test]
fn a_terminal_that_moves_no_cursor_is_written_to_line_by_line() {
    let home = Home::new().variable("TERM", "dumb").variable("HONE_MEMORY_MODE", "off");
    let mut terminal = Terminal::chat(&home, &["--max-tokens", "8"]);
    terminal.wait_for("prompt", |lines| lines.iter().any(|line| line == ">"));
    terminal.type_text("Is fire \\\r");
    terminal.wait_for("mark of the next line", |lines| lines.iter().any(|line| line == "…"));
    terminal.type_text("hot?\r");
    terminal.wait_for("continued line", |lines| lines.iter().any(|line| line == "… hot?"));
    let is_last =
        |lines: &[String], last: &str| lines.iter().rev().find(|line| !line.is_empty()).is_some_and(|l| l == last);
    terminal.wait_for("prompt after the answer", |lines| {
        lines.concat().contains("the answer was cut") && is_last(lines, ">")
    });
    terminal.type_text("/stats\r");
    terminal.wait_for("statistics", |lines| lines.iter().any(|line| line.starts_with("all answers")));
    terminal.end_chat_of_lines();
    assert!(!terminal.written().contains('\u{1b}'), "{:?}", terminal.written());
}
