//! Power loss at any moment: the system calls by which hone writes its memory are recorded, and replayed up to a random
//! one onto a disk that keeps the synced data and a random part of the rest.

mod disk;
mod trace;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Home, Run};
use crate::torture::ordeal::{Ordeal, run_sane};
use crate::torture::remembered::{Acknowledged, ask};
use disk::{Disk, Survival};
use trace::{CALLS, Step};

/// Questions asked during the recording.
const QUESTIONS: usize = 4;

/// A question, and the step of the record at which its answer had been acknowledged.
struct Recorded {
    question: String,
    acknowledged_at: usize,
}

#[test]
fn what_was_acknowledged_survives_the_loss_of_power() {
    let mut ordeal = Ordeal::begin("power loss");
    assert!(
        Command::new("strace").arg("-V").output().is_ok(),
        "power loss needs strace (Debian's package of that name)"
    );
    let home = Home::new();
    let (questions, steps) = record(&home);
    while ordeal.goes_on() {
        let moment = ordeal.below(steps.len() as u64 + 1) as usize;
        let survival = *ordeal.one_of(&[Survival::Synced, Survival::Some, Survival::All]);
        let after = Home::new();
        let mut disk = Disk::default();
        steps[..moment].iter().for_each(|step| disk.take(step));
        disk.lose_power(survival, &mut |bound| ordeal.below(bound), &after.path("data"));
        let mut acknowledged = Acknowledged::default();
        for recorded in questions.iter().filter(|recorded| recorded.acknowledged_at <= moment) {
            acknowledged.note(&recorded.question, &Run { code: 0, stdout: String::new(), stderr: String::new() });
        }
        if acknowledged.len() > 0 && run_sane(&after, &["memory", "stats", "--check"]).code != 0 {
            ordeal.count("memories that needed a repair");
            assert_eq!(run_sane(&after, &["memory", "repair"]).code, 0);
        }
        if acknowledged.len() > 0 {
            acknowledged.check(&after);
        }
        ordeal.count(match survival {
            Survival::Synced => "losses of all that was not synced",
            Survival::Some => "losses of some that was not synced",
            Survival::All => "losses of nothing",
        });
    }
}

/// Asks questions, and records the writes to the data folder.
fn record(home: &Home) -> (Vec<Recorded>, Vec<Step>) {
    let (mut asked, mut steps, mut names) = (Vec::new(), Vec::new(), Acknowledged::default());
    for _ in 0..QUESTIONS {
        let question = names.fresh_question();
        let record = home.path("record.txt");
        let words = ask(&question);
        let traced = ["-f", "-y", "-xx", "-s", "100000000", "-e", CALLS, "-o", record.to_str().unwrap()];
        let mut arguments = traced.to_vec();
        arguments.push(env!("CARGO_BIN_EXE_hone"));
        arguments.extend(words.iter().map(String::as_str));
        let run = home.run_program(Path::new("strace"), &arguments, b"");
        assert_eq!(run.code, 0, "{}", run.stderr);
        steps.extend(trace::steps(&fs::read_to_string(record).unwrap(), &home.path("data")));
        asked.push(Recorded { question, acknowledged_at: steps.len() });
    }
    (asked, steps)
}
