//! A disk that is full at every step: no file may grow beyond a bound, which looks like a full disk to a program that
//! writes. The bound ranges from nothing to more than enough.

use std::path::Path;

use crate::support::{Home, Run};
use crate::torture::ordeal::{Ordeal, assert_sane, run_sane};
use crate::torture::remembered::{Acknowledged, ask};
use crate::torture::writers::{prepared, writers};

/// The largest bound, in blocks of 512 bytes: more than the size of any file that a question touches.
const LARGEST_BOUND: u64 = 12_000;

#[test]
fn on_a_full_disk_nothing_acknowledged_is_lost() {
    let mut ordeal = Ordeal::begin("full disk");
    let home = prepared();
    let writers = writers();
    let mut round = 0;
    let mut acknowledged = Acknowledged::default();
    while ordeal.goes_on() {
        let question = acknowledged.fresh_question();
        // Most files are small, so small bounds are more frequent.
        let largest = *ordeal.one_of(&[4, 16, 64, 512, LARGEST_BOUND]);
        let bound = ordeal.below(largest);
        let run = run_bounded(&home, &ask(&question), bound);
        assert_sane(&run, &format!("with files of at most {bound} blocks, {question:?}"));
        let kept = acknowledged.note(&question, &run);
        ordeal.count(if kept { "answers acknowledged" } else { "answers refused or kept for later" });
        acknowledged.check(&home);
        let question = acknowledged.fresh_question();
        let run = run_sane(&home, &ask(&question).iter().map(String::as_str).collect::<Vec<_>>());
        assert!(acknowledged.note(&question, &run), "with room again nothing is in the way: {}", run.stderr);
        round += 1;
        let writer = ordeal.one_of(&writers);
        let arguments = (writer.arguments)(&home, round);
        let run = run_bounded(&home, &arguments, bound);
        assert_sane(&run, &format!("with files of at most {bound} blocks, hone {arguments:?}"));
        ordeal.count(if run.code == 0 { "other commands carried out" } else { "other commands refused" });
        writer.carry_out(&home, round);
        acknowledged.check(&home);
    }
    acknowledged.check(&home);
}

/// Runs a command in an environment where no file may have more than this many blocks.
fn run_bounded(home: &Home, command: &[String], blocks: u64) -> Run {
    // A write beyond the bound fails in a program that ignores the signal.
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut arguments = vec!["-c", &script, env!("CARGO_BIN_EXE_hone")];
    arguments.extend(command.iter().map(String::as_str));
    home.run_program(Path::new("/bin/sh"), &arguments, b"")
}
