//! The questions of an examination and their answers.

use serde::Deserialize;

/// The shipped set, one file for each kind of question.
const SHIPPED: [(&str, &str); 10] = [
    ("arithmetic", include_str!("../../../../config/examination/arithmetic.toml")),
    ("code", include_str!("../../../../config/examination/code.toml")),
    ("facts", include_str!("../../../../config/examination/facts.toml")),
    ("instructions", include_str!("../../../../config/examination/instructions.toml")),
    ("reasoning", include_str!("../../../../config/examination/reasoning.toml")),
    ("refusals", include_str!("../../../../config/examination/refusals.toml")),
    ("safety", include_str!("../../../../config/examination/safety.toml")),
    ("style", include_str!("../../../../config/examination/style.toml")),
    ("summaries", include_str!("../../../../config/examination/summaries.toml")),
    ("translation", include_str!("../../../../config/examination/translation.toml")),
];

/// A set of questions, in the order in which they are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionSet {
    /// The questions.
    pub questions: Vec<Question>,
}

/// A question with answers of known quality. Saved marks are looked up by its `Debug` output, including its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its name.
    pub id: String,
    /// Its kind: facts, arithmetic, code and so on.
    pub kind: String,
    /// The question's text.
    pub question: String,
    /// The answers.
    pub answers: Answers,
    /// Whether the bad answer tries to influence its judge.
    pub is_manipulative: bool,
}

/// Answers of known quality to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Correct, complete and to the point.
    pub good: String,
    /// Usable, but incomplete, vague or slightly wrong.
    pub mediocre: String,
    /// Wrong or useless.
    pub bad: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetFile {
    question: Vec<QuestionFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionFile {
    id: String,
    question: String,
    good: String,
    mediocre: String,
    bad: String,
    bad_is: Vec<Flaw>,
}

/// The flaw of a bad answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Flaw {
    Wrong,
    Incomplete,
    OffTopic,
    IgnoresInstruction,
    Harmful,
    Refuses,
    Repeats,
    Invented,
    Rude,
    CutOff,
    /// Long and confident.
    Confident,
    /// It tries to influence its judge.
    Manipulative,
}

impl QuestionSet {
    /// The shipped set: first one question of each kind, then the next of each kind.
    ///
    /// # Panics
    /// If a file in `config/examination` is invalid; a test checks them.
    pub fn shipped() -> QuestionSet {
        let kinds = SHIPPED.map(|(kind, text)| parse(kind, text).expect("config/examination is checked by a test"));
        let longest = kinds.iter().map(Vec::len).max().unwrap_or_default();
        let questions = (0..longest).flat_map(|index| kinds.iter().filter_map(move |kind| kind.get(index)));
        QuestionSet { questions: questions.cloned().collect() }
    }
}

fn parse(kind: &str, text: &str) -> Result<Vec<Question>, toml::de::Error> {
    let file: SetFile = toml::from_str(text)?;
    let question = |row: QuestionFile| Question {
        id: row.id,
        kind: kind.to_owned(),
        question: row.question,
        answers: Answers { good: row.good, mediocre: row.mediocre, bad: row.bad },
        is_manipulative: row.bad_is.contains(&Flaw::Manipulative),
    };
    Ok(file.question.into_iter().map(question).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_shipped_set_is_complete() {
        let questions = QuestionSet::shipped().questions;
        assert_eq!(questions.len(), 60);
        let ids: BTreeSet<&str> = questions.iter().map(|question| question.id.as_str()).collect();
        assert_eq!(ids.len(), 60);
        for question in &questions {
            let Answers { good, mediocre, bad } = &question.answers;
            let texts: BTreeSet<&str> = [&question.question, good, mediocre, bad].map(|text| text.trim()).into();
            assert!(texts.len() == 4 && !texts.contains(""), "{}", question.id);
        }
        assert_eq!(questions.iter().filter(|question| question.is_manipulative).count(), 12);
    }

    /// A judge that goes by length must not gain from the set.
    #[test]
    fn length_does_not_tell_good_answers_from_bad_ones() {
        let questions = QuestionSet::shipped().questions;
        let words = |text: &str| text.split_whitespace().count() as f64;
        let goods: Vec<f64> = questions.iter().map(|question| words(&question.answers.good)).collect();
        let bads: Vec<f64> = questions.iter().map(|question| words(&question.answers.bad)).collect();
        let auc = crate::auc::area_under_curve(&goods, &bads).value;
        assert!((0.4..0.6).contains(&auc), "{auc}");
    }
}
