//! Every command that writes, except the one that asks, with its postcondition.

use std::fs;

use crate::support::{Home, Run, smollm2};
use crate::torture::ordeal::run_sane;
use crate::torture::remembered::{ask, save_conversation};

/// The conversation that is resumed.
const CONVERSATION: &str = "long";

/// A command that writes, and its postcondition, which must hold even if it was killed before.
pub(crate) struct Writer {
    pub(crate) name: &'static str,
    pub(crate) arguments: fn(&Home, u64) -> Vec<String>,
    pub(crate) is_done: fn(&Home, u64, &Run),
}

impl Writer {
    /// Runs the command, whatever happened to it before, and checks its postcondition.
    pub(crate) fn carry_out(&self, home: &Home, round: u64) {
        let arguments = (self.arguments)(home, round);
        let run = run_sane(home, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let is_absent = self.name == "rm" && run.stderr.contains("no model `own:1`");
        assert!(run.code == 0 || is_absent, "{} cannot be repeated: {}", self.name, run.stderr);
        (self.is_done)(home, round, &run);
    }
}

fn writer(name: &'static str, arguments: fn(&Home, u64) -> Vec<String>, is_done: fn(&Home, u64, &Run)) -> Writer {
    Writer { name, arguments, is_done }
}

pub(crate) fn writers() -> Vec<Writer> {
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
        writer("config set", set_key, key_is_set),
        writer("synth", |home, _| synth(&path(home, "synth/new.gguf")), |home, _, _| alone(home, "synth", 1)),
    ]
}

/// A home with a small model of its own, some answers, and the inputs of the commands.
pub(crate) fn prepared() -> Home {
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

/// The conversation exists, and was continued.
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

fn set_key(_: &Home, round: u64) -> Vec<String> {
    owned(&["config", "set", "sampling.top_k", &(round + 1).to_string()])
}

fn key_is_set(home: &Home, round: u64, _: &Run) {
    let shown = run_sane(home, &["config", "grep", "sampling.top_k"]);
    assert!(shown.stdout.contains(&(round + 1).to_string()), "{}", shown.stdout);
}

/// Asserts that a folder has no leftovers.
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
