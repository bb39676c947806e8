//! Texts that a form allows are read as intended; all others are refused, or read as nothing else.

use hone_protocol::Constraint;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::*;
use crate::profile::JudgeProfiles;

/// Outputs per form of the shipped profiles.
const N_OUTPUTS: usize = 1000;
const FEEDBACK_TOKENS: usize = 40;

struct RandomText(ChaCha8Rng);

impl RandomText {
    fn below(&mut self, n: usize) -> usize {
        self.0.next_u32() as usize % n
    }

    fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

/// The forms of all shipped profiles, each with the number of outputs to test.
fn shipped_forms() -> Vec<(VerdictForm, usize)> {
    let profiles = JudgeProfiles::shipped();
    let forms = profiles.iter().flat_map(|profile| [profile.score.clone(), profile.choice.clone()]);
    forms.map(|form| (form, N_OUTPUTS)).collect()
}

/// The shipped forms, and every kind of form with labels of every sort, with and without thoughts.
fn forms() -> Vec<(VerdictForm, usize)> {
    let mut forms = shipped_forms();
    let ten: Vec<String> = (1..=10).map(|score| score.to_string()).collect();
    let labels: Vec<Vec<String>> =
        [&["0", "1"][..], &["A", "B"], &["1", "2"], &["false", "true"], &["Answer 1", "Answer 2"]]
            .iter()
            .map(|names| names.iter().map(|name| (*name).to_owned()).collect())
            .chain([ten])
            .collect();
    let places = [
        (FormKind::Marker, "**Result:**", ""),
        (FormKind::Tag, "score", "feedback"),
        (FormKind::Tag, "score", ""),
        (FormKind::Json, "score", "explanation"),
        (FormKind::Json, "verdict.score", "verdict.reasons"),
        (FormKind::Json, "score", ""),
        (FormKind::First, "", ""),
    ];
    for names in &labels {
        for (kind, place, reason_place) in places {
            for tokens in [0, 32] {
                let thinking = ThinkingForm { tokens, end: "</think>".to_owned() };
                let (place, reason_place) = (place.to_owned(), reason_place.to_owned());
                let labels = Labels::new(names.clone());
                forms.push((VerdictForm { kind, place, reason_place, labels, thinking, alone: None }, N_OUTPUTS / 8));
            }
        }
    }
    let alone = |(form, _): &(VerdictForm, usize)| {
        [false, true].map(|is_asked| (form.without_reasons(is_asked), N_OUTPUTS / 8))
    };
    let alone: Vec<_> = forms.iter().flat_map(alone).collect();
    forms.extend(alone);
    forms
}

/// Appends a text that the expression matches as a whole.
fn drawn(hir: &Hir, random: &mut RandomText, text: &mut String) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).unwrap()),
        HirKind::Class(Class::Unicode(class)) => {
            let ranges: Vec<_> = class.ranges().iter().collect();
            // Common letters are a small part of Unicode, so the first range is preferred.
            let range = if random.below(4) == 0 { random.pick(&ranges) } else { ranges[0] };
            let (start, end) = (range.start() as u32, range.end() as u32);
            let span = if random.below(4) == 0 { end - start } else { (end - start).min(90) };
            text.extend(char::from_u32(start + random.0.next_u32() % (span + 1)).or(Some(range.start())));
        }
        HirKind::Class(Class::Bytes(_)) => panic!("expressions are of text"),
        HirKind::Repetition(repetition) => {
            let most = repetition.max.unwrap_or(repetition.min + 8);
            let count = repetition.min + random.0.next_u32() % (most - repetition.min + 1);
            (0..count).for_each(|_| drawn(&repetition.sub, random, text));
        }
        HirKind::Capture(capture) => drawn(&capture.sub, random, text),
        HirKind::Concat(parts) => parts.iter().for_each(|part| drawn(part, random, text)),
        HirKind::Alternation(parts) => drawn(&parts[random.below(parts.len())], random, text),
    }
}

/// Pieces of judges' texts, of verdicts in every form, and of other texts.
const PIECES: &[&str] = &[
    "The answer is right. ",
    "It claims ",
    "a score of ",
    "Feedback: ",
    "**Reasoning:** ",
    "\n",
    "\n\n",
    " ",
    "5",
    "4",
    "1",
    "0",
    "6",
    "45",
    "4.5",
    "-1",
    "10",
    "A",
    "B",
    "C",
    "A or B",
    "Answer 1",
    "Answer 2",
    "Assistant A",
    "Assistant B",
    "true",
    "false",
    "[RESULT]",
    " [RESULT] ",
    "[RESULT] 5",
    "[RESULT] B",
    "[RESULT",
    "**Result:**",
    "**Result:** 3",
    "**Result:** A",
    "Result:",
    "<score>",
    "</score>",
    "<score>2</score>",
    "<score>\nB\n</score>",
    "<feedback>",
    "</feedback>",
    "<feedback>Fine.</feedback>",
    "{",
    "}",
    "\"",
    "\\\"",
    "{\"explanation\": \"",
    "\", \"score\": \"",
    "\"score\": \"5\"",
    "\"score\": 5",
    "\"score\": \"A\"",
    "{\"explanation\": \"x\", \"score\": \"4\"}",
    "{\"verdict\": {\"reasons\": \"x\", \"score\": 1}}",
    "{\"score\": \"1\"}",
    "<think>",
    "</think>",
    "</s>",
    "<|im_end|>",
    "“",
    "é",
    "世界",
    "\u{200b}",
    "```json\n",
    "```",
    ", ",
    ". ",
    ": ",
    "*",
];

fn soup(random: &mut RandomText) -> String {
    (0..random.below(12)).map(|_| random.pick(PIECES)).collect()
}

/// A text that the form's constraint allows: its free part, and the text after it.
fn allowed(form: &VerdictForm, random: &mut RandomText) -> String {
    let (free, expression) = match form.constraint(FEEDBACK_TOKENS) {
        Constraint::FreeThenRegex { marker, regex, .. } => {
            // The free text ends where the marker is written.
            let free = soup(random).replace(&marker, "");
            let free = if free.contains(&marker) { String::new() } else { free };
            (ending_before(&free, &marker) + &marker, regex)
        }
        Constraint::Regex(regex) => (String::new(), regex),
        other => panic!("{other:?} is no constraint of a form"),
    };
    let mut text = free;
    drawn(&regex_syntax::parse(&expression).unwrap(), random, &mut text);
    text
}

/// The text without an end that begins the marker; otherwise the marker would occur one position earlier.
fn ending_before(text: &str, marker: &str) -> String {
    let joined = format!("{text}{marker}");
    if joined.find(marker) == Some(text.len()) { text.to_owned() } else { String::new() }
}

/// The label of a text that the constraint allows: the last one in the position of the verdict, found without parsing
/// the rest.
fn label_in(form: &VerdictForm, text: &str) -> usize {
    let verdict = if form.thinks() { text.split_once("</think>").unwrap().1 } else { text };
    let bare = |text: &str| text.trim_end_matches(['"', '}', '\n', ' ']).to_owned();
    let label_ends = |text: String| {
        let found = form.labels.names().iter().enumerate().filter(|(_, name)| text.ends_with(name.as_str()));
        found.max_by_key(|(_, name)| name.len()).unwrap().0
    };
    match form.kind {
        _ if form.alone.is_some() => label_ends(verdict.to_owned()),
        FormKind::Marker => label_ends(verdict.to_owned()),
        FormKind::Tag => label_ends(bare(verdict.strip_suffix(&closing(&form.place)).unwrap())),
        FormKind::Json => label_ends(bare(verdict)),
        FormKind::First => {
            let text = verdict.trim_start();
            let found = form.labels.names().iter().enumerate().filter(|(_, name)| text.starts_with(name.as_str()));
            found.max_by_key(|(_, name)| name.len()).unwrap().0
        }
    }
}

/// The tokens of free text, and the constrained part of the text.
fn held<'a>(form: &VerdictForm, text: &'a str) -> (usize, &'a str) {
    match form.constraint(FEEDBACK_TOKENS) {
        Constraint::FreeThenRegex { free_tokens, marker, .. } => (free_tokens, &text[text.find(&marker).unwrap()..]),
        _ => (0, text),
    }
}

#[test]
fn what_a_constraint_allows_is_read_as_what_it_says() {
    for (form, n_outputs) in forms() {
        let mut random = RandomText(ChaCha8Rng::seed_from_u64(7));
        for _ in 0..n_outputs {
            let text = allowed(&form, &mut random);
            let reading = form.read(&text).unwrap_or_else(|expected| panic!("{form:?}: {text:?} is not {expected}"));
            assert_eq!(reading.label, label_in(&form, &text), "{form:?}: {text:?}");
            // One token per byte is the maximum. A sentence may be cut off; its label precedes it.
            let (free_tokens, held) = held(&form, &text);
            let room = form.max_tokens(FEEDBACK_TOKENS) - free_tokens;
            assert!(
                form.kind == FormKind::First || held.len() <= room,
                "{form:?}: {} of {room} in {text:?}",
                held.len()
            );
        }
    }
}

/// Whether a text has the form of a verdict with this label, checked independently of the parser: it ends, or begins,
/// like one.
fn has_form(form: &VerdictForm, text: &str, label: usize) -> bool {
    let name = regex::escape(&form.labels.names()[label]);
    let place = regex::escape(form.place.rsplit('.').next().unwrap());
    let end = r#"[\s.!"'”’»。*_`)\]\u{200b}]*(?:(?:</s>|<\|im_end\|>)[\s.!"'*_`\u{200b}]*)*$"#;
    let verdict = match form.kind {
        _ if form.alone.is_some() => format!(r#"^[\s"]*{name}[\s"]*$"#),
        FormKind::Marker if form.place == RESULT && form.labels.are(&["A", "B"]) => {
            // Winners can also be named in sentences, which `verdict` tests.
            format!(r"(?s)\b{name}\b")
        }
        FormKind::Marker if form.place == RESULT => format!(r"(?is)(?:result|score|rating|grade).{{0,24}}{name}{end}"),
        FormKind::Marker => format!(r"(?s){place}\s*{name}\s*$"),
        FormKind::Tag => format!(r"(?s)<{place}>\s*{name}\s*</{place}>\s*$"),
        FormKind::Json => format!(r#"(?s)"{place}"\s*:\s*"?{name}"?\s*\}}[\s}}]*$"#),
        FormKind::First => format!(r"(?s)\b{name}\b"),
    };
    Regex::new(&verdict).unwrap().is_match(text)
}

#[test]
fn what_a_constraint_does_not_allow_is_refused_or_read_as_nothing_else() {
    for (form, n_outputs) in forms() {
        let mut random = RandomText(ChaCha8Rng::seed_from_u64(11));
        let mut n_refused = 0;
        for _ in 0..n_outputs {
            let text = if random.below(3) == 0 { soup(&mut random) } else { damaged(&form, &mut random) };
            match form.read(&text) {
                Ok(reading) => assert!(has_form(&form, &text, reading.label), "{form:?} reads {reading:?} in {text:?}"),
                Err(expected) => {
                    assert_eq!(expected, form.expected());
                    n_refused += 1;
                }
            }
        }
        assert!(n_refused > n_outputs / 4, "{form:?}: {n_refused}");
    }
}

/// A damaged verdict: cut off, repeated, wrapped, or with a label that does not exist.
fn damaged(form: &VerdictForm, random: &mut RandomText) -> String {
    let text = allowed(form, random);
    let at = text.char_indices().map(|(at, _)| at).nth(random.below(text.chars().count().max(1))).unwrap_or(0);
    match random.below(6) {
        0 => text[..at].to_owned(),
        1 => format!("{text}\n{}", allowed(form, random)),
        2 => format!("{text}{}", soup(random)),
        3 => format!("{}{text}", soup(random)),
        4 => format!("{}{}{}", &text[..at], random.pick(PIECES), &text[at..]),
        _ => form.labels.names().iter().fold(text, |text, name| text.replace(name.as_str(), "7½")),
    }
}

/// Checks the verdict that a form reads in a text.
#[track_caller]
fn check(form: &VerdictForm, text: &str, label: impl Into<Option<usize>>, reasons: &str) {
    let label = label.into();
    match form.read(text) {
        Ok(reading) => assert_eq!((Some(reading.label), &*reading.reasons), (label, reasons), "{text:?}"),
        Err(expected) => assert_eq!((label, expected), (None, form.expected()), "{text:?}"),
    }
}

fn shipped(profile: &str) -> (VerdictForm, VerdictForm) {
    let profile = crate::JudgeProfile::shipped(profile).unwrap();
    (profile.score, profile.choice)
}

#[test]
fn a_json_verdict_is_read_behind_the_thoughts_only() {
    let (score, choice) = shipped("mr3");
    let verdict = r#"{"explanation": "It says \"[RESULT] 5\".", "score": "2"}"#;
    check(&score, &format!("<think>Maybe 5.</think>\n\n{verdict}"), 1, "It says \"[RESULT] 5\".");
    check(&score, "</think>{\"explanation\" : \"Fine\",\n \"score\" :4 }\n", 3, "Fine");
    check(&score, verdict, None, "");
    check(&score, &format!("<think>{verdict}"), None, "");
    check(&score, &format!("<think>{verdict}</think>"), None, "");
    check(&score, "</think>{\"explanation\": \"x\", \"score\": \"5\", \"score\": \"1\"}", None, "");
    check(&score, "</think>{\"explanation\": \"x\", \"score\": \"6\"}", None, "");
    check(&score, "</think>{\"explanation\": \"x\", \"score\": \"5\"} No, 1.", None, "");
    check(&score, "</think>{\"explanation\": \"the \"score\": \"5\"}", None, "");
    check(&choice, "</think>{\"explanation\": \"x\", \"score\": \"Assistant B\"}", 1, "x");
    check(&choice, "</think>{\"explanation\": \"x\", \"score\": \"B\"}", None, "");
    assert_eq!(choice.expected(), "</think> and then a JSON object with one of Assistant A, Assistant B as score");
}

#[test]
fn a_tag_is_read_at_the_end_only() {
    let (score, choice) = shipped("flow_judge");
    check(&score, "<feedback>\nFine.\n</feedback>\n<score>\n4\n</score>", 3, "\nFine.\n");
    check(&score, "Fine. <score>4</score>\n", 3, "Fine. ");
    check(&score, "<score>4</score> or so", None, "");
    check(&score, "<score>4</score><score>5</score>", None, "");
    check(&score, "<feedback>It wrote <score>5</score></feedback>", None, "");
    check(&score, "<score>4", None, "");
    check(&score, "<score>4/5</score>", None, "");
    check(&choice, "<feedback>x</feedback><score>B</score>", 1, "x");
}

#[test]
fn a_marker_other_than_result_stands_once() {
    let (score, choice) = shipped("selene");
    check(&score, "**Reasoning:** Fine.\n\n**Result:** 4", 3, "**Reasoning:** Fine.\n\n");
    check(&score, "**Result:** 4 out of 5", None, "");
    check(&score, "**Result:** 4 **Result:** 5", None, "");
    check(&score, "Result: 4", None, "");
    check(&choice, "**Result:** A\n", 0, "");
    check(&choice, "**Result:** both", None, "");
    assert_eq!(score.expected(), "**Result:** and one of 1, 2, 3, 4, 5 at its end");
}

#[test]
fn every_form_names_the_tokens_of_its_labels() {
    let (score, choice) = shipped("mr3");
    assert!(score.named().starts_with(&["1".to_owned(), "2".to_owned()]));
    assert_eq!(score.label_of("\"4"), Some(3));
    assert_eq!(choice.named(), ["A", "B", " A", " B", "\"A", "\"B", "A\"", "B\""]);
    assert_eq!((choice.label_of(" B"), choice.label_of("B\""), choice.label_of("Assistant")), (Some(1), Some(1), None));
    let (score, _) = shipped("flow_judge");
    assert_eq!((score.label_of(">2"), score.label_of("2<"), score.label_of("22")), (Some(1), Some(1), None));
}
