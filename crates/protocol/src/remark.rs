//! Remarks on an answer, with its grade.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that a model has decided about an answer: yes or no.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remark {
    /// The question.
    pub about: AnswerTrait,
    /// The decision.
    pub holds: bool,
    /// The probability that it holds, by the model that decided.
    pub probability: f64,
    /// The model that decided.
    pub model: String,
}

/// A trait of an answer that a reader wants to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerTrait {
    /// It addresses the very question that was asked, rightly or wrongly.
    Addressed,
    /// It declines to do what was asked.
    Refusal,
    /// It contradicts itself.
    Inconsistency,
}

impl AnswerTrait {
    /// All of them.
    pub const ALL: [AnswerTrait; 3] = [AnswerTrait::Addressed, AnswerTrait::Refusal, AnswerTrait::Inconsistency];
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.about, self.holds) {
            (AnswerTrait::Addressed, true) => "answers the question",
            (AnswerTrait::Addressed, false) => "does not answer the question",
            (AnswerTrait::Refusal, true) => "refuses",
            (AnswerTrait::Refusal, false) => "does not refuse",
            (AnswerTrait::Inconsistency, true) => "contradicts itself",
            (AnswerTrait::Inconsistency, false) => "does not contradict itself",
        })
    }
}

/// Remarks in one line, by the models that decided; empty without any.
pub fn remarks_in_words(remarks: &[Remark]) -> String {
    let mut models: Vec<&str> = Vec::new();
    for remark in remarks {
        if !models.contains(&remark.model.as_str()) {
            models.push(&remark.model);
        }
    }
    let said: Vec<String> = remarks.iter().map(ToString::to_string).collect();
    if said.is_empty() { String::new() } else { format!("{} (by {})", said.join(", "), models.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_name_who_made_them() {
        let remark = |about, holds, model: &str| Remark { about, holds, probability: 0.5, model: model.to_owned() };
        let mut remarks = vec![remark(AnswerTrait::Addressed, false, "a"), remark(AnswerTrait::Refusal, true, "a")];
        assert_eq!(remarks_in_words(&remarks), "does not answer the question, refuses (by a)");
        remarks.insert(1, remark(AnswerTrait::Inconsistency, false, "b"));
        let expected = "does not answer the question, does not contradict itself, refuses (by a, b)";
        assert_eq!(remarks_in_words(&remarks), expected);
        assert_eq!(remarks_in_words(&[]), "");
    }
}
