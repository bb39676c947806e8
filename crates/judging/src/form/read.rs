//! Reads the verdict from a judge's output.
//!
//! `[RESULT]` with the scores 1 to 5 or the letters A and B is read by [`crate::verdict`], which knows the variants
//! that judges write. Every other form is read strictly: once, in its position, with no text after it.

use std::borrow::Cow;

use hone_protocol::RespondentId;
use regex::Regex;

use super::json::{self, Layout};
use super::{FormKind, RESULT, VerdictForm, closing, opening};
use crate::verdict::{score_at_end, winner_of};

/// A verdict read from a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadVerdict<'a> {
    /// The index of its label.
    pub(crate) label: usize,
    /// The rest of the judge's output, without its thoughts.
    pub(crate) reasons: Cow<'a, str>,
}

impl VerdictForm {
    /// The verdict in a text, and the reasons for it.
    ///
    /// # Errors
    /// The expected form, where there is no verdict, or more than one.
    pub(crate) fn read<'a>(&self, text: &'a str) -> Result<ReadVerdict<'a>, String> {
        let missing = || self.expected();
        let text = self.without_thoughts(text).ok_or_else(missing)?;
        let found = match self.kind {
            _ if self.alone.is_some() => self.only_label(text),
            FormKind::Marker if self.place == RESULT => self.result(text),
            FormKind::Marker => self.after_marker(text),
            FormKind::Tag => self.tagged(text),
            FormKind::Json => self.member(text),
            FormKind::First => self.first(text),
        };
        found.map(|(label, reasons)| ReadVerdict { label, reasons }).ok_or_else(missing)
    }

    /// The text after the thoughts. Every constrained text contains their end.
    fn without_thoughts<'a>(&self, text: &'a str) -> Option<&'a str> {
        match self.thinks() {
            true => text.split_once(&self.thinking.end).map(|(_, verdict)| verdict),
            false => Some(text),
        }
    }

    /// A constrained text always has the marker once and the label after it, regardless of the text before, such as an
    /// open quotation mark. Any other text is read as unconstrained output.
    fn result<'a>(&self, text: &'a str) -> Option<(usize, Cow<'a, str>)> {
        if let Some(found) = self.after_marker(text) {
            return Some(found);
        }
        if self.labels.are(&["1", "2", "3", "4", "5"]) {
            let found = score_at_end(text)?;
            return Some((usize::from(found.verdict) - 1, text[..found.place.start].into()));
        }
        if self.labels.are(&["A", "B"]) {
            return winner(text);
        }
        None
    }

    fn only_label<'a>(&self, text: &'a str) -> Option<(usize, Cow<'a, str>)> {
        let label = text.trim().trim_matches([' ', '"']);
        Some((self.labels.index_of(label)?, "".into()))
    }

    fn after_marker<'a>(&self, text: &'a str) -> Option<(usize, Cow<'a, str>)> {
        let (reasons, label) = once(text, &self.place)?;
        Some((self.labels.index_of(label.trim())?, reasons.into()))
    }

    fn tagged<'a>(&self, text: &'a str) -> Option<(usize, Cow<'a, str>)> {
        let (reasons, rest) = once(text, &opening(&self.place))?;
        let (label, rest) = once(rest, &closing(&self.place))?;
        let label = self.labels.index_of(label.trim()).filter(|_| rest.trim().is_empty())?;
        let own = once(reasons, &opening(&self.reason_place))
            .and_then(|(_, own)| own.split_once(&closing(&self.reason_place)))
            .filter(|_| !self.reason_place.is_empty());
        Some((label, own.map_or(reasons, |(own, _)| own).into()))
    }

    fn member<'a>(&self, text: &'a str) -> Option<(usize, Cow<'a, str>)> {
        let object = json::object(&self.reason_place, &self.place, &self.labels, &Layout::Read);
        let found = Regex::new(&format!(r"^\s*{object}\s*$")).ok()?.captures(text)?;
        let label = found.name("quoted").or(found.name("bare"))?;
        let reasons = found.name("reasons").and_then(|quoted| serde_json::from_str(quoted.as_str()).ok());
        Some((self.labels.index_of(label.as_str())?, Cow::Owned(reasons.unwrap_or_default())))
    }

    fn first<'a>(&self, text: &'a str) -> Option<(usize, Cow<'a, str>)> {
        let text = text.trim_start();
        let mut labels = self.labels.names().iter().enumerate();
        let in_form = labels.find_map(|(index, label)| {
            let reason = text.strip_prefix(label.as_str())?;
            let is_one_line = !reason.trim_end().contains('\n');
            let has_form = is_one_line && (reason.starts_with(". ") || reason.starts_with(": "));
            (has_form || reason.trim().is_empty()).then_some((index, reason))
        });
        match in_form {
            Some((label, reason)) => Some((label, without_marks(reason).into())),
            None if self.labels.are(&["A", "B"]) => winner(text),
            None => None,
        }
    }
}

/// The winner in an unconstrained text.
fn winner(text: &str) -> Option<(usize, Cow<'_, str>)> {
    let text = text.trim();
    let found = winner_of(text)?;
    let label = usize::from(found.verdict != RespondentId::A);
    let (before, after) = (&text[..found.place.start], &text[found.place.end..]);
    Some((label, without_marks(if before.is_empty() { after } else { before }).into()))
}

/// A reason without the punctuation that connects it to its verdict.
fn without_marks(reason: &str) -> &str {
    reason.trim_start_matches(|mark: char| mark.is_whitespace() || "*.:,;-–—".contains(mark)).trim()
}

/// The text before and after the only occurrence of `marker`.
fn once<'a>(text: &'a str, marker: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = text.split_once(marker)?;
    (!after.contains(marker)).then_some((before, after))
}
