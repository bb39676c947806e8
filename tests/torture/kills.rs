//! Every command that writes, killed at a random moment, and then carried out to its end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{Home, Run, smollm2};
use crate::torture::ordeal::{Ordeal, run_sane};
use crate::torture::remembered::{Acknowledged, ask, save_conversation};

/// How long a command takes that nobody kills, at first.
const FIRST_GUESS: Duration = Duration::from_millis(800);

/// The conversation that is resumed.
const CONVERSATION: &str = "long";

/// A command that writes, and what has to hold when it was killed and when it was carried out.
struct Writer {
    name: &'static str,
    arguments: fn(&Home, u64) -> Vec<String>,
    is_done: fn(&Home, u64, &Run),
    /// How long it takes.
    duration: Duration,
}

fn writer(name: &'static str, arguments: fn(&Home, u64) -> Vec<String>, is_done: fn(&Home, u64, &Run)) -> Writer {
    Writer { name, arguments, is_done, duration: FIRST_GUESS }
}

fn writers() -> Vec<Writer> {
    vec![
        writer("pull", |home, round| owned(&["pull", &tiny(home), "--name", &format!("tiny:{round}")]), pulled),
        writer("rm", |_, _| owned(&["rm", "own:1"]), |home, _, _| drop(pull_own(home))),
        writer("export", |home, _| owned(&["memory", "export", &path(home, "export/all.jsonl")]), exported),
        writer("import", |home, _| owned(&["memory", "import", &path(home, "kept.jsonl")]), |_, _, _| ()),
        writer("repair", |_, _| owned(&["memory", "repair"]), |_, _, _| ()),
        writer("resume", resume, resumed),
        writer("grade", grade, graded),
        writer(
            "bundle",
            |home, _| owned(&["bundle", "--model", "own:1", "--output", &path(home, "bundle/b")]),
            bundled,
        ),
        writer("synth", |home, _| synth(&path(home, "synth/new.gguf")), |home, _, _| alone(home, "synth", 1)),
    ]
}

#[test]
fn a_command_that_is_killed_loses_nothing_and_can_be_repeated() {
    let mut ordeal = Ordeal::begin("kills");
    let home = prepared();
    let mut acknowledged = Acknowledged::default();
    let mut writers = writers();
    let mut asking = FIRST_GUESS;
    let mut round = 0;
    while ordeal.goes_on() {
        round += 1;
        let question = acknowledged.fresh_question();
        kill_during(&mut ordeal, &home, &ask(&question), asking);
        asking = finish_asking(&mut ordeal, &home, &mut acknowledged);
        let chosen = ordeal.below(writers.len() as u64) as usize;
        let writer = &mut writers[chosen];
        let arguments = (writer.arguments)(&home, round);
        kill_during(&mut ordeal, &home, &arguments, writer.duration);
        age_leftovers(&home);
        run_sane(&home, &["list"]);
        run_sane(&home, &["memory", "stats"]);
        let begun = Instant::now();
        let run = run_sane(&home, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let is_absent = writer.name == "rm" && run.stderr.contains("no model `own:1`");
        assert!(run.code == 0 || is_absent, "{} cannot be repeated: {}", writer.name, run.stderr);
        writer.duration = begun.elapsed();
        (writer.is_done)(&home, round, &run);
        acknowledged.check(&home);
    }
    assert!(acknowledged.len() > 0);
}

/// Asks a question to the end; how long that took.
fn finish_asking(ordeal: &mut Ordeal, home: &Home, acknowledged: &mut Acknowledged) -> Duration {
    let question = acknowledged.fresh_question();
    let begun = Instant::now();
    let run = run_sane(home, &ask(&question).iter().map(String::as_str).collect::<Vec<_>>());
    assert!(acknowledged.note(&question, &run), "nothing is in the way of {question:?}: {}", run.stderr);
    ordeal.count("answers acknowledged");
    begun.elapsed()
}

/// Starts a command and kills it within the time that it takes, or a little later.
fn kill_during(ordeal: &mut Ordeal, home: &Home, arguments: &[String], duration: Duration) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command: Command = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &arguments);
    let mut child = command.spawn().unwrap();
    drop(child.stdin.take());
    // The moment is random on purpose.
    sleep(Duration::from_micros(ordeal.below((duration.as_micros() * 6 / 5) as u64)));
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked at"), "hone {arguments:?}: {stderr}");
    ordeal.count(if output.status.success() { "kills too late" } else { "kills" });
}

/// A home with a small model of its own, some answers, and what the commands read.
fn prepared() -> Home {
    let home = Home::new();
    for folder in ["export", "bundle", "synth"] {
        fs::create_dir_all(home.path(folder)).unwrap();
    }
    let tiny = synth(&path(&home, "tiny.gguf"));
    assert_eq!(run_sane(&home, &tiny.iter().map(String::as_str).collect::<Vec<_>>()).code, 0);
    pull_own(&home);
    save_conversation(&home, CONVERSATION);
    let ask = ask("Say yes.");
    assert_eq!(run_sane(&home, &ask.iter().map(String::as_str).collect::<Vec<_>>()).code, 0);
    assert_eq!(run_sane(&home, &["memory", "export", &path(&home, "kept.jsonl")]).code, 0);
    let lines: Vec<String> = (0..4).map(|n| format!("{{\"query\":\"q{n}\",\"answer\":\"a{n}\"}}\n")).collect();
    home.write("answers.jsonl", lines.concat().as_bytes());
    home
}

fn pull_own(home: &Home) -> Run {
    let run = run_sane(home, &["pull", &tiny(home), "--name", "own:1"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run
}

fn grade(home: &Home, round: u64) -> Vec<String> {
    let (input, output, model) = (path(home, "answers.jsonl"), path(home, &format!("grades-{round}.jsonl")), smollm2());
    owned(&["grade", "--input", &input, "--output", &output, "--judge", &model])
}

fn resume(_: &Home, round: u64) -> Vec<String> {
    let mut words = ask(&format!("Say the letter {round}."));
    words.push(format!("--resume={CONVERSATION}"));
    words
}

/// The conversation is there, and goes on.
fn resumed(home: &Home, round: u64, _: &Run) {
    let text = fs::read_to_string(home.path(&format!("data/conversations/{CONVERSATION}.json"))).unwrap();
    assert!(text.contains(&format!("Say the letter {round}.")), "{text}");
}

fn pulled(home: &Home, round: u64, _: &Run) {
    let name = format!("tiny:{round}");
    assert_eq!(run_sane(home, &["show", &name]).code, 0);
    assert_eq!(run_sane(home, &["rm", &name]).code, 0);
}

fn exported(home: &Home, _: u64, _: &Run) {
    let text = fs::read_to_string(home.path("export/all.jsonl")).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    alone(home, "export", 1);
}

fn graded(home: &Home, round: u64, _: &Run) {
    let text = fs::read_to_string(home.path(&format!("grades-{round}.jsonl"))).unwrap();
    assert_eq!(text.lines().count(), 4, "{text}");
}

fn bundled(home: &Home, _: u64, _: &Run) {
    let run = home.run_program(&home.path("bundle/b"), &["list"], b"");
    assert!(run.code == 0 && run.stdout.contains("own:1"), "{}\n{}", run.stdout, run.stderr);
    alone(home, "bundle", 1);
}

/// Makes what a killed command left a minute old: what is younger may be another process's.
fn age_leftovers(home: &Home) {
    for folder in ["export", "bundle", "synth"] {
        for entry in fs::read_dir(home.path(folder)).unwrap() {
            let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        }
    }
}

/// Demands that no leftovers stand in a folder.
#[track_caller]
fn alone(home: &Home, folder: &str, n_files: usize) {
    let names: Vec<_> = fs::read_dir(home.path(folder)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), n_files, "{names:?}");
}

fn synth(output: &str) -> Vec<String> {
    owned(&["synth", "--shape", "tiny-llama3", "--output", output, "--tokenizer", &smollm2()])
}

fn tiny(home: &Home) -> String {
    path(home, "tiny.gguf")
}

fn path(home: &Home, name: &str) -> String {
    home.path(name).to_str().unwrap().to_owned()
}

fn owned(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}
