//! `hone verdict`: extracts the verdict from the text on stdin, for scripts with a judge of their own.

use std::io::Read;

use anyhow::Context;
use hone_judging::{parse_score, parse_winner};
use hone_protocol::RespondentId;
use serde::Serialize;

use crate::arguments::{VerdictArguments, VerdictMode};
use crate::failure::Outcome;
use crate::terminal::Output;

#[derive(Serialize)]
struct JsonScore {
    score: Option<u8>,
}

#[derive(Serialize)]
struct JsonWinner {
    winner: Option<RespondentId>,
}

/// Prints the verdict as JSON. If there is none, prints null, says why on stderr, and fails.
///
/// # Errors
/// When stdin cannot be read.
pub(crate) fn run(arguments: &VerdictArguments, output: Output) -> anyhow::Result<Outcome> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).context("cannot read stdin")?;
    // If the judge was cut off in the middle of a character, the text before it still counts.
    let text = String::from_utf8_lossy(&bytes);
    match arguments.mode {
        VerdictMode::Absolute => {
            let score = parse_score(&text);
            output.print_json(&JsonScore { score })?;
            Ok(outcome(output, score.is_some(), "a score from 1 to 5 at its end, such as \"[RESULT] 4\""))
        }
        VerdictMode::Pairwise => {
            let winner = parse_winner(&text);
            output.print_json(&JsonWinner { winner })?;
            Ok(outcome(output, winner.is_some(), "one winner, such as \"[RESULT] A\" or \"A. It is right.\""))
        }
    }
}

fn outcome(output: Output, is_found: bool, expected: &str) -> Outcome {
    if is_found {
        return Outcome::Done;
    }
    output.error(&format!("there is no verdict in the text on stdin: expected {expected}"));
    Outcome::Failed
}
