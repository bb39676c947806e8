//! Finds answers that address their judge: they claim a score, imitate the judge's verdict or prompt, or tell a grader
//! what to do.
//!
//! A text is examined in several [`views`]: as a reader sees it, and also decoded, joined or reversed where it is
//! encoded, spaced out or reversed. Each view is searched sentence by sentence with the [`rules`]. Text that no rule
//! covers is not a finding: wrongly calling an answer suspicious costs trust.
//!
//! Answers may legitimately be about scores. If the question asks for one, a claimed score is not a finding; only text
//! that addresses the judge or has the form of its prompt or verdict is.

mod phrases;
mod rules;
mod views;

use std::ops::Range;

use hone_protocol::{Suspicion, SuspicionKind};

use crate::neutralize::is_invisible;
use rules::QuestionProperties;
use views::TextView;

/// Replaces a passage that is left out.
const LEFT_OUT: &str = "[a passage that speaks to the judge is left out]";
/// Maximum characters of a passage shown in a finding.
const SHOWN_CHARACTERS: usize = 120;

/// The finding that makes `answer` look as if it tried to influence its judge; `None` if there is none. Of several
/// findings, the first of the gravest kind is reported.
pub fn suspicion(query: &str, answer: &str) -> Option<Suspicion> {
    reported(answer, &findings(query, answer))
}

/// An answer that has been examined.
#[derive(Clone, Debug)]
pub struct ExaminedAnswer {
    /// The finding that makes it suspicious.
    pub(crate) suspicion: Option<Suspicion>,
    /// The part of it shown to the judge.
    pub(crate) shown: String,
}

impl ExaminedAnswer {
    /// Examines an answer, and removes passages that address the judge if requested.
    pub(crate) fn of(query: &str, answer: &str, leaves_out: bool) -> ExaminedAnswer {
        let findings = findings(query, answer);
        let shown = if leaves_out { without(answer, &findings) } else { answer.to_owned() };
        ExaminedAnswer { suspicion: reported(answer, &findings), shown }
    }
}

/// A passage that addresses the judge.
#[derive(Clone, Debug)]
struct Finding {
    kind: SuspicionKind,
    is_hidden: bool,
    /// Its byte range in the answer.
    place: Range<usize>,
    /// The passage as it reads in the view where it was found.
    text: String,
}

/// All passages that address the judge, those of the plain view first.
fn findings(query: &str, answer: &str) -> Vec<Finding> {
    let question = QuestionProperties::new(query);
    let views = views::views(answer);
    let of_view = |view: &TextView| -> Vec<Finding> {
        let found = rules::passages(view, &question);
        found.into_iter().map(|(kind, range)| finding(answer, view, kind, range)).collect()
    };
    views.iter().flat_map(of_view).chain(views::invisible_texts(answer).map(hidden_text)).collect()
}

fn finding(answer: &str, view: &TextView, kind: SuspicionKind, range: Range<usize>) -> Finding {
    let place = view.place_of(&range);
    let text = view.text()[range].to_owned();
    let is_hidden = view.is_disguise() || views::is_disguised(&answer[place.clone()]);
    Finding { kind, is_hidden, place, text }
}

fn hidden_text((place, text): (Range<usize>, String)) -> Finding {
    Finding { kind: SuspicionKind::HiddenText, is_hidden: true, place, text }
}

/// The reported finding: the first of the gravest kind.
fn reported(answer: &str, findings: &[Finding]) -> Option<Suspicion> {
    let Finding { kind, is_hidden, place, text } = findings.iter().min_by_key(|finding| finding.kind)?;
    let passage = if *is_hidden { text.as_str() } else { &answer[place.clone()] };
    Some(Suspicion { kind: *kind, is_hidden: *is_hidden, passage: readable(passage) })
}

/// A passage on one line, without invisible characters, truncated if it is long.
fn readable(passage: &str) -> String {
    let visible: String = passage
        .chars()
        .filter(|character| !is_invisible(*character))
        .map(|character| if character.is_whitespace() { ' ' } else { character })
        .collect();
    let words: Vec<&str> = visible.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The answer with a note in place of each finding.
fn without(answer: &str, findings: &[Finding]) -> String {
    let mut places: Vec<Range<usize>> = findings.iter().map(|finding| finding.place.clone()).collect();
    places.sort_by_key(|place| place.start);
    let mut shown = String::with_capacity(answer.len());
    let mut done = 0;
    let mut is_open = false;
    for place in places {
        let between = answer.get(done..place.start).unwrap_or_default();
        if !is_open || !between.trim().is_empty() {
            shown.push_str(between);
            shown.push_str(LEFT_OUT);
        }
        is_open = true;
        done = done.max(place.end);
    }
    shown.push_str(&answer[done..]);
    shown
}

#[cfg(test)]
mod tests;
