//! A clock that jumps by years between questions, in both directions.

use std::path::Path;

use crate::support::Home;
use crate::torture::ordeal::{Ordeal, assert_sane};
use crate::torture::remembered::{Acknowledged, ask};

/// Days by which the clock is wrong.
const STEPS: [i64; 6] = [0, -4_000, 4_000, -1, 1, 20_000];

#[test]
fn a_clock_that_jumps_loses_and_doubles_nothing() {
    let mut ordeal = Ordeal::begin("clock steps");
    assert!(Path::new("/usr/bin/faketime").exists(), "clock steps need faketime (Debian's package of that name)");
    let home = Home::new();
    let mut acknowledged = Acknowledged::default();
    while ordeal.goes_on() {
        let question = acknowledged.fresh_question();
        let shift = format!("{:+}d", ordeal.one_of(&STEPS));
        let asked = ask(&question);
        let mut arguments = vec!["-f", &shift, env!("CARGO_BIN_EXE_hone")];
        arguments.extend(asked.iter().map(String::as_str));
        let run = home.run_program(Path::new("/usr/bin/faketime"), &arguments, b"");
        assert_sane(&run, &format!("{shift}: {question:?}"));
        assert!(acknowledged.note(&question, &run), "{shift}: {}", run.stderr);
        ordeal.count("answers acknowledged");
    }
    acknowledged.check(&home);
}
