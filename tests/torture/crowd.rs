//! Many concurrent processes on one memory, some of which are killed: every acknowledged answer is remembered exactly
//! once.

use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use crate::support::{Home, Run};
use crate::torture::ordeal::{Ordeal, run_sane};
use crate::torture::remembered::{Acknowledged, ask};

/// Concurrent processes.
const CROWD: usize = 16;

#[test]
fn a_crowd_of_which_some_are_killed_loses_nothing() {
    let mut ordeal = Ordeal::begin("crowd");
    let home = Home::new();
    let mut acknowledged = Acknowledged::default();
    while ordeal.goes_on() {
        let questions: Vec<String> = (0..CROWD).map(|_| acknowledged.fresh_question()).collect();
        let mut crowd: Vec<(String, Child)> = questions.into_iter().map(|it| (it.clone(), start(&home, &it))).collect();
        // The current owner of the memory is one of the first.
        for _ in 0..2 {
            // The moment is random on purpose.
            sleep(Duration::from_millis(ordeal.below(1_500)));
            let victim = ordeal.below(4) as usize;
            let _ = crowd[victim].1.kill();
            ordeal.count("kills");
        }
        for (question, child) in crowd {
            let output = child.wait_with_output().unwrap();
            let Some(code) = output.status.code() else { continue };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let run = Run { code, stdout: text(&output.stdout), stderr: text(&output.stderr) };
            assert!(!run.stderr.contains("panicked at"), "{}", run.stderr);
            assert!(acknowledged.note(&question, &run), "{question:?} ended with {code}: {}", run.stderr);
            ordeal.count("answers acknowledged");
        }
        run_sane(&home, &["memory", "stats"]);
        acknowledged.check(&home);
    }
}

fn start(home: &Home, question: &str) -> Child {
    let asked = ask(question);
    let arguments: Vec<&str> = asked.iter().map(String::as_str).collect();
    let mut child = home.command(Path::new(env!("CARGO_BIN_EXE_hone")), &arguments).spawn().unwrap();
    drop(child.stdin.take());
    child
}
