//! Every command that writes, killed at a random moment, and then run to its end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use crate::support::Home;
use crate::torture::ordeal::{Ordeal, run_sane};
use crate::torture::remembered::{Acknowledged, ask};
use crate::torture::writers::{prepared, writers};

/// The initial estimate of how long a command takes that is not killed.
const FIRST_GUESS: Duration = Duration::from_millis(800);

#[test]
fn a_command_that_is_killed_loses_nothing_and_can_be_repeated() {
    let mut ordeal = Ordeal::begin("kills");
    let home = prepared();
    let mut acknowledged = Acknowledged::default();
    let writers = writers();
    let mut durations = vec![FIRST_GUESS; writers.len()];
    let mut asking = FIRST_GUESS;
    let mut round = 0;
    while ordeal.goes_on() {
        round += 1;
        let question = acknowledged.fresh_question();
        kill_during(&mut ordeal, &home, &ask(&question), asking);
        asking = finish_asking(&mut ordeal, &home, &mut acknowledged);
        let chosen = ordeal.below(writers.len() as u64) as usize;
        let writer = &writers[chosen];
        let arguments = (writer.arguments)(&home, round);
        kill_during(&mut ordeal, &home, &arguments, durations[chosen]);
        age_leftovers(&home);
        run_sane(&home, &["list"]);
        run_sane(&home, &["memory", "stats"]);
        let begun = Instant::now();
        writer.carry_out(&home, round);
        durations[chosen] = begun.elapsed();
        acknowledged.check(&home);
    }
    assert!(acknowledged.len() > 0);
}

/// Asks a question to the end, and returns the time that it took.
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

/// Ages the leftovers of a killed command by a minute: younger files may belong to another process.
fn age_leftovers(home: &Home) {
    for folder in ["export", "bundle", "synth"] {
        for entry in fs::read_dir(home.path(folder)).unwrap() {
            let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        }
    }
}
