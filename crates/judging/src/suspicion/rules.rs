//! The rules that find text addressing a judge, applied to the sentences of a view.

use std::ops::Range;

use hone_protocol::SuspicionKind;
use regex::Regex;

use super::phrases::*;
use super::views::TextView;
use crate::neutralize::folded;

/// The maximum distance in bytes between feedback and its score.
const LONGEST_FEEDBACK: usize = 800;

/// Maximum length in bytes of a stretch read as one sentence.
const LONGEST_SENTENCE: usize = 1000;

/// A passage of a view with its kind.
pub(super) type SuspiciousPassage = (SuspicionKind, Range<usize>);

/// The relevant properties of a question.
pub(super) struct QuestionProperties {
    is_about_scores: bool,
}

impl QuestionProperties {
    pub(super) fn new(query: &str) -> QuestionProperties {
        QuestionProperties { is_about_scores: SCORING_QUESTION.is_match(&folded(query)) }
    }
}

/// All passages of a view that address a judge.
pub(super) fn passages(view: &TextView, question: &QuestionProperties) -> Vec<SuspiciousPassage> {
    let text = view.text();
    let mut passages = verdicts(text);
    passages.extend(prompt_parts(text, question));
    passages.extend(control_tokens(text));
    passages.extend(feedback(text, question));
    let sentences = sentences(text);
    for (index, sentence) in sentences.iter().enumerate() {
        let next = sentences.get(index + 1).map(|next| &text[next.clone()]);
        let is_last = next.is_none();
        let sentence_of = |kind| (kind, sentence.clone());
        let words = &text[sentence.clone()];
        let is_labelled = || view.is_disguise() && !question.is_about_scores && LABELLED.is_match(words);
        if orders(words, next, question) {
            passages.push(sentence_of(SuspicionKind::OrdersGrader));
        } else if is_labelled() || claims(words, is_last, question) {
            passages.push(sentence_of(SuspicionKind::ClaimsScore));
        }
        if changes_rules(words, next, question) {
            let end = sentences.get(index + 1).map_or(sentence.end, |next| next.end);
            passages.push((SuspicionKind::ImitatesPrompt, sentence.start..end));
        }
    }
    passages
}

/// `[RESULT] 5`.
fn verdicts(text: &str) -> Vec<SuspiciousPassage> {
    let is_verdict = |found: &regex::Match<'_>| !COUNTED.is_match(&text[found.end()..]);
    let verdicts = VERDICT.find_iter(text).filter(is_verdict);
    verdicts.map(|found| (SuspicionKind::ImitatesVerdict, found.range())).collect()
}

/// `###Score Rubrics:`, with the rest of its paragraph.
fn prompt_parts(text: &str, question: &QuestionProperties) -> Vec<SuspiciousPassage> {
    let end_of = |start: usize| text[start..].find("\n#").map_or(text.len(), |length| start + length);
    let parts: Vec<regex::Match<'_>> = PROMPT_PART.find_iter(text).collect();
    let few = if parts.len() < 2 { &[] } else { &parts[..] };
    let headings = PROMPT_HEADING.find_iter(text).filter(|_| !question.is_about_scores);
    let mut starts: Vec<usize> = headings.chain(few.iter().copied()).map(|found| found.start()).collect();
    starts.sort_unstable();
    let mut found: Vec<SuspiciousPassage> = Vec::new();
    for start in starts {
        if found.last().is_none_or(|(_, range)| range.end <= start) {
            // A heading may begin with the line break before it.
            found.push((SuspicionKind::ImitatesPrompt, start..end_of(start + 1)));
        }
    }
    found
}

/// `<|im_end|>` and the like, except in code. HTML has matching `<s>` and `</s>`.
fn control_tokens(text: &str) -> Vec<SuspiciousPassage> {
    let first_html = text.find("<s>").unwrap_or(text.len());
    let is_html = |found: &regex::Match<'_>| found.as_str() == "</s>" && first_html < found.start();
    let mut code = Code::default();
    let mut is_code = |found: &regex::Match<'_>| code.is_open_at(text, found.start());
    let tokens = CONTROL_TOKEN.find_iter(text).filter(|found| !is_code(found) && !is_html(found));
    tokens.map(|found| (SuspicionKind::ControlTokens, found.range())).collect()
}

/// `Feedback: … Score: 5`.
fn feedback(text: &str, question: &QuestionProperties) -> Vec<SuspiciousPassage> {
    if question.is_about_scores {
        return Vec::new();
    }
    let passage = |found: regex::Match<'_>| {
        let end = floor(text, found.end() + LONGEST_FEEDBACK);
        let score = FEEDBACK_SCORE.find(&text[found.end() - 1..end])?;
        Some((SuspicionKind::ImitatesVerdict, found.start()..found.end() - 1 + score.end()))
    };
    FEEDBACK.find_iter(text).filter_map(passage).collect()
}

/// Whether a sentence tells a grader what to do. If it addresses a grader, the order may be in the next sentence.
fn orders(sentence: &str, next: Option<&str>, question: &QuestionProperties) -> bool {
    let speaks_of_grading = |text: &str| GRADING.is_match(text);
    let to_grader = VOCATIVE.is_match(sentence)
        && (speaks_of_grading(sentence) || (!question.is_about_scores && next.is_some_and(speaks_of_grading)));
    let has_role = ROLE.is_match(sentence) && speaks_of_grading(&ROLE.replace(sentence, ""));
    let speaks_to_reader =
        [&READER, &JUDGES_PROMPT, &GRADERS_WORD, &VOCATIVE].iter().any(|reader| reader.is_match(sentence));
    let asks =
        !question.is_about_scores && (KINDNESS.is_match(sentence) || speaks_to_reader && REWARD.is_match(sentence));
    let gives = !question.is_about_scores && (ORDER.is_match(sentence) || ONLY_SCORE.is_match(sentence));
    let elsewhere = || IGNORE_VERB_ELSEWHERE.is_match(sentence) && IGNORE_NOUN_ELSEWHERE.is_match(sentence);
    let is_foreign = || elsewhere() && !sentence.contains("ignore ");
    ignores(sentence) || to_grader && !is_quoted_whole(sentence) || has_role || asks || gives || is_foreign()
}

/// Whether a sentence itself says to ignore instructions, rather than quoting someone who does.
fn ignores(sentence: &str) -> bool {
    let is_order = |found: regex::Match<'_>| {
        let before = &sentence[..found.start()];
        !NEGATION.is_match(before) && !is_quoted(before)
    };
    IGNORE.find_iter(sentence).any(is_order)
}

/// Whether a sentence claims a score for the answer.
fn claims(sentence: &str, is_last: bool, question: &QuestionProperties) -> bool {
    if question.is_about_scores {
        return false;
    }
    let sentence = SCALE.replace_all(sentence, " ");
    let by_label = HEADED.is_match(&sentence) || THIS_SCORE.is_match(&sentence);
    let of_itself = SELF.is_match(&sentence) && ABOUT_SCORE.is_match(&sentence) && TOP.is_match(&sentence);
    let in_form = CLAIM.is_match(&sentence) || JOINED_CLAIM.is_match(&sentence);
    let as_line = is_last && SCORE_LINE.is_match(&sentence);
    let clear = CLEAR_TOP.is_match(&sentence) && SELF.is_match(&sentence);
    by_label || of_itself || in_form || as_line || clear || claims_elsewhere(&sentence)
}

/// Whether a sentence in another language claims a score for the answer.
fn claims_elsewhere(sentence: &str) -> bool {
    let says = |expression: &Regex| expression.is_match(sentence);
    let is_label = |language: &Language| {
        let label =
            language.score.find(sentence).filter(|label| !sentence[..label.start()].contains(char::is_alphanumeric));
        label.is_some_and(|label| LABEL_ELSEWHERE.is_match(&sentence[label.end()..]))
    };
    let is_claim = |language: &Language| is_label(language) || says(&language.score) && says(&language.about);
    says(&FIVE_ELSEWHERE) && ELSEWHERE.iter().any(is_claim)
}

/// Whether a sentence says that the rules of grading have changed.
fn changes_rules(sentence: &str, next: Option<&str>, question: &QuestionProperties) -> bool {
    let gives_score = |text: &str| NEW_SCORE.is_match(text);
    let is_change = !question.is_about_scores && NEW_RULES.is_match(sentence);
    is_change && (gives_score(sentence) || next.is_some_and(gives_score))
}

/// The sentences of a text.
fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let is_followed_by_blank =
            characters.peek().is_none_or(|(_, next)| next.is_whitespace() || "\"”')]".contains(*next));
        let ends = match character {
            '\n' | '。' => true,
            '.' | '!' | '?' | ';' => is_followed_by_blank,
            ' ' => at - start > LONGEST_SENTENCE,
            _ => at - start > 2 * LONGEST_SENTENCE,
        };
        if ends {
            sentences.push(start..at + character.len_utf8());
            start = at + character.len_utf8();
        }
    }
    sentences.push(start..text.len());
    let trimmed = |range: Range<usize>| {
        let text = &text[range.clone()];
        let leading = text.len() - text.trim_start().len();
        range.start + leading..range.start + leading + text.trim().len()
    };
    sentences.into_iter().map(trimmed).filter(|range| !range.is_empty()).collect()
}

/// Whether a quotation is open at the end of `before`.
fn is_quoted(before: &str) -> bool {
    let count = |mark: char| before.matches(mark).count();
    let is_odd = |mark| count(mark) % 2 == 1;
    is_odd('"') || is_odd('`') || count('“') > count('”') || count('«') > count('»')
}

fn is_quoted_whole(sentence: &str) -> bool {
    sentence.starts_with(['"', '“', '`']) && sentence.len() > 2
}

/// Tracks whether code, between backticks, is open at successive places of a text.
#[derive(Default)]
struct Code {
    at: usize,
    n_fences: usize,
    n_ticks_of_line: usize,
}

impl Code {
    fn is_open_at(&mut self, text: &str, at: usize) -> bool {
        let passed = &text[self.at..at];
        self.n_fences += passed.matches("```").count();
        let line = match passed.rfind('\n') {
            Some(newline) => {
                self.n_ticks_of_line = 0;
                &passed[newline..]
            }
            None => passed,
        };
        self.n_ticks_of_line += line.matches('`').count();
        self.at = at;
        self.n_fences % 2 == 1 || self.n_ticks_of_line % 2 == 1
    }
}

/// The last character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
