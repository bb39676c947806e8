//! Parses the verdict from a judge's unconstrained text.
//!
//! A verdict comes at the end of the text, so the text is read backwards, token by token, against the forms in which
//! judges write verdicts: `[RESULT] 4`, `[Result]: 4/5`, `Score: 4 out of 5`, `**[RESULT]** 4.`, `[RESULT: B]`.
//! Anything that no form covers is not a verdict. A missed verdict costs a score; an invented one costs trust.
//!
//! Every form has a handful of tokens, and no token is examined more than a few times, so parsing is linear in the
//! length of the text.

mod letter;
mod quoted;
mod score;
mod statement;
mod tail;
mod winner;

use std::ops::Range;

use hone_protocol::RespondentId;

pub(crate) use score::score_at_end;
pub(crate) use tail::is_emphasis;
pub(crate) use winner::{winner_at_end, winner_of};

/// A verdict and its location in the text, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundVerdict<T> {
    /// The verdict.
    pub(crate) verdict: T,
    /// Its range, including the marker or label before it.
    pub(crate) place: Range<usize>,
    /// The digit or letter itself.
    pub(crate) value: Range<usize>,
    /// Whether `[RESULT]` marks it.
    pub(crate) is_marked: bool,
}

/// The score from 1 to 5 at the end of the text; `None` if the text does not end with a verdict.
pub fn parse_score(text: &str) -> Option<u8> {
    score_at_end(text).map(|found| found.verdict)
}

/// The better answer that the text names: at its end, at its start in the form `A. Because …`, or in a first or last
/// sentence such as `B is better.`; `None` if it names none, or both.
pub fn parse_winner(text: &str) -> Option<RespondentId> {
    winner_of(text).map(|found| found.verdict)
}

#[cfg(test)]
mod tests;
