//! The form of a verdict: its position in a judge's output, and its labels.
//!
//! A form is used three times: it becomes the [`Constraint`] on the judge's output, so that every verdict parses; it
//! reads the verdict; and it names the tokens whose probabilities give the judge's confidence. An unconstrained text is
//! refused, with the expected form, unless it is unambiguous.

mod json;
mod labels;
mod read;

use hone_protocol::Constraint;
use serde::{Deserialize, Serialize};

pub(crate) use labels::Labels;

/// Maximum length in characters of reasons that are a part of a form: the context must have room for the longest ones.
const MOST_CHARACTERS: usize = 400;
/// Maximum bytes of a character, and so its maximum tokens.
const TOKENS_PER_CHARACTER: usize = 4;
/// Minimum characters per token in typical text, also for a tokenizer that poorly covers its language.
const CHARACTERS_PER_TOKEN: usize = 3;
/// Tokens around a label besides its marker, also for a tokenizer with one token per byte.
const SPARE_TOKENS: usize = 7;
/// Tokens of a label followed by one sentence of reason.
const SENTENCE_TOKENS: usize = 64;
/// One sentence of reason, behind a label.
const SENTENCE: &str = "[.:] [^\\n]{1,200}";
/// White space around the label in a tag, and between the parts of a verdict.
const SPACE: &str = "[ \\n]?";
/// The marker whose spellings [`verdict`](crate::verdict) knows.
const RESULT: &str = "[RESULT]";

/// The position of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FormKind {
    /// Reasons, a marker, the label.
    Marker,
    /// Reasons, and the label in a tag of its own.
    Tag,
    /// An object with the reasons and the label.
    Json,
    /// The label, and one sentence of reason.
    First,
}

/// The thoughts that a judge writes before its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ThinkingForm {
    /// Maximum tokens of thoughts; 0 for a judge that does not think first.
    pub(crate) tokens: usize,
    /// The text that ends them.
    pub(crate) end: String,
}

/// The position of a verdict, and its labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct VerdictForm {
    pub(crate) kind: FormKind,
    /// The marker, the name of the tag, or the path in the object; empty for a label at the start.
    pub(crate) place: String,
    /// The name of the tag or the path of the reasons; empty where they have none.
    pub(crate) reason_place: String,
    pub(crate) labels: Labels,
    pub(crate) thinking: ThinkingForm,
    /// For a verdict without thoughts and reasons: the text before the label, which is written for the judge.
    pub(crate) alone: Option<String>,
}

impl VerdictForm {
    /// Reduces the verdict to the label alone. If the prompt asks only for the label (`is_asked`), the answer begins
    /// with it; otherwise it begins with the text that precedes the label in the form.
    pub(crate) fn without_reasons(&self, is_asked: bool) -> VerdictForm {
        let before = match self.kind {
            _ if is_asked => String::new(),
            FormKind::Marker => self.place.clone(),
            FormKind::Tag => opening(&self.place),
            FormKind::Json => json::before(&self.place),
            FormKind::First => String::new(),
        };
        VerdictForm { alone: Some(before), ..self.clone() }
    }

    /// The constraint that holds a judge to the form. Reasons before a marker are free text, which costs nothing per
    /// token. After thoughts, which are free text too, reasons are a part of the form.
    pub(crate) fn constraint(&self, feedback_tokens: usize) -> Constraint {
        let free = |free_tokens, marker: &str, regex| Constraint::FreeThenRegex {
            free_tokens,
            marker: marker.to_owned(),
            regex,
        };
        let labels = self.labels.regex();
        if let Some(before) = &self.alone {
            let between = if before.is_empty() || self.kind != FormKind::Json { " ?" } else { " ?\"?" };
            return Constraint::Regex(format!("{between}{labels}"));
        }
        match self.kind {
            _ if self.thinks() => free(self.thinking.tokens, &self.thinking.end, self.after_thoughts(feedback_tokens)),
            FormKind::Marker => free(feedback_tokens, &self.place, format!(" ?{labels}")),
            FormKind::Tag => free(feedback_tokens, &opening(&self.place), self.in_tag()),
            FormKind::Json => Constraint::Regex(self.object(feedback_tokens)),
            FormKind::First => Constraint::Regex(format!(" ?{labels}{SENTENCE}")),
        }
    }

    /// The tokens that a judge needs for the longest text of the form.
    pub(crate) fn max_tokens(&self, feedback_tokens: usize) -> usize {
        let reasons = TOKENS_PER_CHARACTER * characters(feedback_tokens);
        self.free_tokens(feedback_tokens) + self.tokens_after_free_text(reasons)
    }

    /// The expected number of tokens after the free text.
    pub(crate) fn conclusion_tokens(&self, feedback_tokens: usize) -> usize {
        self.tokens_after_free_text(characters(feedback_tokens).div_ceil(CHARACTERS_PER_TOKEN))
    }

    /// Maximum tokens of free text before the form.
    fn free_tokens(&self, feedback_tokens: usize) -> usize {
        match self.kind {
            _ if self.alone.is_some() => 0,
            _ if self.thinks() => self.thinking.tokens,
            FormKind::Marker | FormKind::Tag => feedback_tokens,
            FormKind::Json | FormKind::First => 0,
        }
    }

    /// The tokens after the free text, if reasons that are a part of the form take `reasons` tokens.
    fn tokens_after_free_text(&self, reasons: usize) -> usize {
        if self.alone.is_some() {
            return self.labels.longest() + SPARE_TOKENS;
        }
        let tail = self.place.len() + self.labels.longest() + SPARE_TOKENS;
        let tags = 2 * (self.place.len() + self.reason_place.len()) + 3 * SPARE_TOKENS;
        match self.kind {
            FormKind::First if self.thinks() => self.thinking.end.len() + SENTENCE_TOKENS,
            _ if self.thinks() => self.thinking.end.len() + reasons + tail + tags,
            FormKind::Marker => tail,
            FormKind::Tag => tail + tags,
            FormKind::Json => reasons + tail + tags,
            FormKind::First => SENTENCE_TOKENS,
        }
    }

    /// The tokens that can be the label, or the distinguishing part of it.
    pub(crate) fn named(&self) -> Vec<String> {
        self.labels.spellings(self.around()).map(|(text, _)| text).collect()
    }

    /// The index of the label that a token spells.
    pub(crate) fn label_of(&self, token: &str) -> Option<usize> {
        self.labels.spellings(self.around()).find(|(text, _)| text == token).map(|(_, label)| label)
    }

    /// Markers with which a text could imitate a verdict.
    pub(crate) fn markers(&self) -> Vec<String> {
        let mut markers = match self.kind {
            FormKind::Marker => vec![self.place.clone()],
            FormKind::Tag => vec![opening(&self.place), closing(&self.place)],
            FormKind::Json => vec![format!("\"{}\":", json::key(&self.place))],
            FormKind::First => Vec::new(),
        };
        if self.thinks() {
            markers.push(self.thinking.end.clone());
        }
        markers
    }

    /// Whether thoughts precede the verdict.
    pub(crate) fn thinks(&self) -> bool {
        self.thinking.tokens > 0 && self.alone.is_none()
    }

    /// A description of the expected verdict, for a person.
    pub(crate) fn expected(&self) -> String {
        let label = format!("one of {}", self.labels.names().join(", "));
        let verdict = match self.kind {
            _ if self.alone.is_some() => format!("{label} alone"),
            FormKind::Marker => format!("{} and {label} at its end", self.place),
            FormKind::Tag => format!("{} with {label} at its end", opening(&self.place)),
            FormKind::Json => format!("a JSON object with {label} as {}", self.place),
            FormKind::First => format!("{label} at its start"),
        };
        if self.thinks() { format!("{} and then {verdict}", self.thinking.end) } else { verdict }
    }

    /// The form of everything after the thoughts.
    fn after_thoughts(&self, feedback_tokens: usize) -> String {
        let labels = self.labels.regex();
        let n = characters(feedback_tokens);
        let form = match self.kind {
            FormKind::Marker => {
                format!("{}{{0,{n}}}{} ?{labels}", not_first_of(&self.place), regex::escape(&self.place))
            }
            FormKind::Tag if self.reason_place.is_empty() => opening(&self.place) + &self.in_tag(),
            FormKind::Tag => {
                let reasons = format!("{}[^<]{{1,{n}}}{}", opening(&self.reason_place), closing(&self.reason_place));
                format!("{reasons}{SPACE}{}{}", opening(&self.place), self.in_tag())
            }
            FormKind::Json => self.object(feedback_tokens),
            FormKind::First => format!("{labels}{SENTENCE}"),
        };
        format!("[ \\n]{{0,2}}{form}")
    }

    /// The label in its open tag, and the closing tag.
    fn in_tag(&self) -> String {
        format!("{SPACE}{}{SPACE}{}", self.labels.regex(), closing(&self.place))
    }

    fn object(&self, feedback_tokens: usize) -> String {
        let layout = json::Layout::Written(characters(feedback_tokens));
        json::object(&self.reason_place, &self.place, &self.labels, &layout)
    }

    /// The characters directly before and after a label that could share a token with it.
    fn around(&self) -> Option<(char, char)> {
        match self.kind {
            FormKind::Json => Some(('"', '"')),
            FormKind::Tag => Some(('>', '<')),
            FormKind::Marker | FormKind::First => None,
        }
    }
}

fn characters(feedback_tokens: usize) -> usize {
    feedback_tokens.clamp(1, MOST_CHARACTERS)
}

fn opening(tag: &str) -> String {
    format!("<{tag}>")
}

fn closing(tag: &str) -> String {
    format!("</{tag}>")
}

/// Matches every character except the first one of the marker.
fn not_first_of(marker: &str) -> String {
    let first: String = marker.chars().take(1).collect();
    format!("[^{}]", regex::escape(&first))
}

#[cfg(test)]
mod tests;
