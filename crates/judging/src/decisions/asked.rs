//! Prompts for questions, as a model sees them.

use std::fmt::Write as _;
use std::sync::Arc;

use hone_protocol::{DecisionForm, DecisionKind, DecisionOption, DecisionQuestion, DecisionRequest, hexadecimal};
use sha2::{Digest, Sha256};

/// Instructions before the text: the beginning of all prompts.
const BEGINNING: &str = "Read the text, then answer the question about it: with yes or no, or with the letter or the number \
                         of the answer that fits best.";
/// Maximum number of options of a question that is asked once per option.
const MOST_TEXTS: usize = 32;
const YES: [&str; 6] = ["Yes", " Yes", "yes", " yes", "YES", " YES"];
const NO: [&str; 6] = ["No", " No", "no", " no", "NO", " NO"];

/// One request for a question.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    /// The text after the judged text.
    pub(super) text: Arc<str>,
    /// The part of the answer to read.
    pub(super) reading: Reading,
}

/// The options that a request gives information about.
#[derive(Debug, PartialEq)]
pub(super) enum Reading {
    /// The tokens that can begin an answer, each with its option.
    Labels(Vec<(String, usize)>),
    /// The text of one option.
    Text(String, usize),
}

impl Asked {
    /// All requests for a question: in at most `n_orders` orders, or once per option. `labels` are those of a choice.
    pub(super) fn all(
        question: &DecisionQuestion,
        form: DecisionForm,
        labels: &[String],
        n_orders: usize,
    ) -> Vec<Asked> {
        let instructions = question.instructions.trim();
        let form = if question.kind.n_options() > MOST_TEXTS { DecisionForm::Labels } else { form };
        match (&question.kind, form) {
            (DecisionKind::YesNo { yes, no }, _) => vec![yes_or_no(instructions, yes.as_deref(), no.as_deref())],
            (DecisionKind::Choice(options), DecisionForm::Texts) => {
                in_texts(instructions, options.iter().map(|option| option.name.as_str()), options.iter().map(described))
            }
            (DecisionKind::Score(levels), DecisionForm::Texts) => {
                in_texts(instructions, levels.iter().map(String::as_str), levels.iter().cloned())
            }
            (kind, DecisionForm::Labels) => in_orders(instructions, kind, labels, n_orders),
        }
    }

    /// The whole user turn, including the text that the question is about.
    pub(super) fn about(&self, text: &str) -> String {
        format!("{BEGINNING}\n\n<text>\n{text}\n</text>\n\n{}", self.text)
    }

    /// The forced answer: the text, or any label, since the probabilities of the other labels are read, too.
    pub(super) fn answer(&self) -> &str {
        match &self.reading {
            Reading::Labels(spellings) => spellings.first().map_or("", |(spelling, _)| spelling),
            Reading::Text(text, _) => text,
        }
    }

    /// The tokens whose probabilities count in addition to the answer's.
    pub(super) fn named(&self) -> Vec<String> {
        match &self.reading {
            Reading::Labels(spellings) => spellings.iter().map(|(spelling, _)| spelling.clone()).collect(),
            Reading::Text(..) => Vec::new(),
        }
    }
}

/// A digest of the prompts, in hexadecimal digits: of one question of each kind, in each form, with a text and with its
/// replacement.
pub(super) fn digest(no_text: &str) -> String {
    let option = |name: &str| DecisionOption { name: name.to_owned(), description: Some(name.to_owned()) };
    let kinds = [
        DecisionKind::YesNo { yes: Some("a".to_owned()), no: None },
        DecisionKind::Choice(vec![option("a"), option("b")]),
        DecisionKind::Score(vec!["a".to_owned(), "b".to_owned()]),
    ];
    let labels = ["A", "B"].map(str::to_owned);
    let mut sha256 = Sha256::new();
    // A statement has a different prompt than a question.
    let asked = kinds.iter().flat_map(|kind| ["q", "q?"].map(|text| (text, kind.clone())));
    for (instructions, kind) in asked {
        let question = DecisionQuestion { instructions: instructions.to_owned(), kind };
        for form in [DecisionForm::Labels, DecisionForm::Texts] {
            for asked in Asked::all(&question, form, &labels, DecisionRequest::ORDERS) {
                sha256.update(asked.about(no_text));
                sha256.update(asked.answer());
                asked.named().iter().for_each(|name| sha256.update(name));
            }
        }
    }
    hexadecimal(sha256.finalize())
}

/// A question whose options have labels, in several orders.
fn in_orders(instructions: &str, kind: &DecisionKind, labels: &[String], n_orders: usize) -> Vec<Asked> {
    let n = kind.n_options();
    match kind {
        DecisionKind::YesNo { .. } => Vec::new(),
        DecisionKind::Choice(options) => {
            let listed = |order: Vec<usize>| {
                // The labels keep their order, and so their positions.
                let labelled: Vec<_> = order.into_iter().zip(labels.iter().cloned()).collect();
                listed(instructions, "letter", &labelled, |option| described(&options[option]))
            };
            orders(n, n_orders).into_iter().map(listed).collect()
        }
        DecisionKind::Score(levels) => {
            let first = usize::from(n < 10);
            let listed = |order: Vec<usize>| {
                let labelled: Vec<_> = order.into_iter().map(|level| (level, (level + first).to_string())).collect();
                listed(instructions, "number", &labelled, |level| levels[level].clone())
            };
            // Levels have an order, which can only be reversed.
            orders(n, n_orders.min(2)).into_iter().map(listed).collect()
        }
    }
}

/// A question that is asked once per option, whose text is the answer. A full stop distinguishes a text from a longer
/// one with the same beginning.
fn in_texts<'a>(
    instructions: &str,
    names: impl Iterator<Item = &'a str>,
    described: impl Iterator<Item = String>,
) -> Vec<Asked> {
    let listed = described.collect::<Vec<_>>().join("; ");
    let text: Arc<str> = format!("{instructions} ({listed})").trim_start().into();
    let answer = |(option, name): (usize, &str)| Asked {
        text: Arc::clone(&text),
        reading: Reading::Text(format!("{}.", name.trim_end_matches('.')), option),
    };
    names.enumerate().map(answer).collect()
}

fn yes_or_no(instructions: &str, yes: Option<&str>, no: Option<&str>) -> Asked {
    let mut text = instructions.to_owned();
    for (name, description) in [("Yes", yes), ("No", no)] {
        if let Some(description) = description {
            text.push_str(if text.is_empty() { "" } else { "\n" });
            let _ = write!(text, "{name}: {description}");
        }
    }
    // All prompts begin with the instructions for answering a question; a statement does not look like one.
    if !text.ends_with('?') {
        text.push_str(" (yes or no)");
    }
    let spellings =
        [NO, YES].into_iter().enumerate().flat_map(|(option, texts)| texts.map(|text| (text.into(), option)));
    Asked { text: text.into(), reading: Reading::Labels(spellings.collect()) }
}

/// A question with a list of options, each an index with its label.
fn listed(instructions: &str, kind: &str, labelled: &[(usize, String)], describe: impl Fn(usize) -> String) -> Asked {
    let mut text = format!("{instructions} ({kind})").trim_start().to_owned();
    for (option, label) in labelled {
        let _ = write!(text, "\n{label}. {}", describe(*option));
    }
    let spell = |(option, label): &(usize, String)| [(label.clone(), *option), (format!(" {label}"), *option)];
    Asked { text: text.into(), reading: Reading::Labels(labelled.iter().flat_map(spell).collect()) }
}

fn described(option: &DecisionOption) -> String {
    match &option.description {
        None => option.name.clone(),
        Some(description) => format!("{}: {description}", option.name),
    }
}

/// At most `most` orders of `n` options: the given order, its reverse, then rotations and so on. A bias that grows with
/// the position cancels out in each pair, and with `2 n` orders every option has been in every position.
fn orders(n: usize, most: usize) -> Vec<Vec<usize>> {
    let n_rotations = most.div_ceil(2).min(n);
    let rotated =
        |rotation: usize| -> Vec<usize> { (0..n).map(|place| (place + rotation * n / n_rotations) % n).collect() };
    let both = |order: Vec<usize>| [order.clone(), order.into_iter().rev().collect()];
    let mut orders: Vec<Vec<usize>> = Vec::new();
    for order in (0..n_rotations).flat_map(|rotation| both(rotated(rotation))).take(most) {
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(kind: DecisionKind, n_orders: usize) -> Vec<String> {
        let question = DecisionQuestion { instructions: "Which one?".to_owned(), kind };
        let labels: Vec<String> = ["A", "B", "C"].map(str::to_owned).to_vec();
        Asked::all(&question, DecisionForm::Labels, &labels, n_orders)
            .into_iter()
            .map(|asked| asked.text.to_string())
            .collect()
    }

    #[test]
    fn questions_are_asked_in_several_orders() {
        let option = |name: &str, description: Option<&str>| DecisionOption {
            name: name.to_owned(),
            description: description.map(str::to_owned),
        };
        let choice = DecisionKind::Choice(vec![option("x", Some("a cross")), option("y", None), option("z", None)]);
        let expected =
            ["Which one? (letter)\nA. x: a cross\nB. y\nC. z", "Which one? (letter)\nA. z\nB. y\nC. x: a cross"];
        assert_eq!(texts(choice.clone(), 2), expected);
        assert_eq!(texts(choice.clone(), 1), expected[..1]);
        assert_eq!(texts(choice, 100).len(), 6);
        let levels = DecisionKind::Score(["low", "high"].map(str::to_owned).to_vec());
        assert_eq!(texts(levels, 9), ["Which one? (number)\n1. low\n2. high", "Which one? (number)\n2. high\n1. low"]);
        let plain = DecisionKind::YesNo { yes: None, no: None };
        assert_eq!(texts(plain, 2), ["Which one?"]);
        let described = DecisionKind::YesNo { yes: Some("red".to_owned()), no: Some("blue".to_owned()) };
        assert_eq!(texts(described, 2), ["Which one?\nYes: red\nNo: blue (yes or no)"]);
    }

    #[test]
    fn labels_mean_the_options_beside_them() {
        let kind = DecisionKind::Score((0..10).map(|level| format!("level {level}")).collect());
        let asked = Asked::all(&DecisionQuestion { instructions: String::new(), kind }, DecisionForm::Labels, &[], 2);
        assert!(asked[0].text.starts_with("(number)\n0. level 0\n1. level 1"), "{}", asked[0].text);
        assert!(asked[1].text.starts_with("(number)\n9. level 9\n8. level 8"), "{}", asked[1].text);
        for asked in asked {
            let Reading::Labels(spellings) = asked.reading else { panic!("{asked:?}") };
            for (spelling, option) in spellings {
                assert_eq!(spelling.trim(), option.to_string());
            }
        }
    }

    #[test]
    fn enough_orders_bring_every_option_to_every_place() {
        for n in 2..9 {
            let orders = orders(n, 2 * n);
            for option in 0..n {
                let mut places: Vec<usize> =
                    orders.iter().filter_map(|order| order.iter().position(|other| *other == option)).collect();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), n, "{orders:?}");
            }
        }
        assert_eq!(orders(2, 8), [[0, 1], [1, 0]]);
    }
}
