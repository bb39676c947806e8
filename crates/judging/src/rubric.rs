//! Rubrics: a criterion, and the meaning of each score from 1 to 5.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The compiled-in rubrics.
const SHIPPED: [(&str, &str); 6] = [
    ("default", include_str!("../../../config/rubrics/default.toml")),
    ("factual_accuracy", include_str!("../../../config/rubrics/factual_accuracy.toml")),
    ("harmlessness", include_str!("../../../config/rubrics/harmlessness.toml")),
    ("helpfulness", include_str!("../../../config/rubrics/helpfulness.toml")),
    ("honesty", include_str!("../../../config/rubrics/honesty.toml")),
    ("reasoning", include_str!("../../../config/rubrics/reasoning.toml")),
];

/// A criterion with the meaning of each score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rubric {
    /// Its name.
    pub name: String,
    /// The question that the judge answers about the answer.
    pub criterion: String,
    /// The meanings of the scores 1 to 5.
    pub scores: [String; 5],
}

/// A text that is not a valid rubric.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the rubric {name:?} cannot be used: {reason}")]
pub struct InvalidRubric {
    /// The intended name.
    pub name: String,
    /// The reason why it is invalid.
    pub reason: String,
}

/// A rubric as stored in its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RubricFile {
    criterion: String,
    scores: Vec<String>,
}

impl Rubric {
    /// Reads a rubric from TOML: `criterion`, and `scores`, a list of five texts for the scores 1 to 5.
    ///
    /// # Errors
    /// When the text is not valid TOML, has unknown keys, or leaves a text empty.
    pub fn parse(name: &str, text: &str) -> Result<Rubric, InvalidRubric> {
        let invalid = |reason: String| InvalidRubric { name: name.to_owned(), reason };
        let file: RubricFile = toml::from_str(text).map_err(|error| invalid(error.to_string().trim().to_owned()))?;
        let n_scores = file.scores.len();
        let scores: [String; 5] = file
            .scores
            .try_into()
            .map_err(|_| invalid(format!("scores has {n_scores} texts, expected 5: one for each score from 1 to 5")))?;
        if file.criterion.trim().is_empty() {
            return Err(invalid("criterion is empty".to_owned()));
        }
        if let Some(index) = scores.iter().position(|score| score.trim().is_empty()) {
            return Err(invalid(format!("the text of score {} is empty", index + 1)));
        }
        Ok(Rubric { name: name.to_owned(), criterion: file.criterion, scores })
    }

    /// The compiled-in rubric with this name.
    ///
    /// # Errors
    /// Only if its file is invalid; a test checks it.
    pub fn shipped(name: &str) -> Option<Result<Rubric, InvalidRubric>> {
        SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(name, text)| Rubric::parse(name, text))
    }

    /// The names of the compiled-in rubrics, in alphabetical order.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::JudgeProfile;

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let error = Rubric::parse("mine", text).unwrap_err().to_string();
        assert!(error.starts_with("the rubric \"mine\" cannot be used: ") && error.contains(expected), "{error}");
    }

    #[test]
    fn the_default_rubric_reads_as_the_seed_has_it() {
        let expected = "[Is the response accurate, helpful, and well-reasoned?]\n\
            Score 1: The response is incorrect, harmful, or completely unhelpful.\n\
            Score 2: The response is mostly wrong or missing important information.\n\
            Score 3: The response is partially correct but incomplete or unclear.\n\
            Score 4: The response is mostly correct with minor gaps.\n\
            Score 5: The response is accurate, complete, and clearly explained.";
        let (criterion, scores) =
            JudgeProfile::shipped("prometheus").unwrap().written(&Rubric::shipped("default").unwrap().unwrap());
        assert_eq!(format!("{criterion}\n{scores}"), expected);
    }

    #[test]
    fn every_shipped_rubric_is_sound() {
        let names: Vec<&str> = Rubric::shipped_names().collect();
        assert_eq!(names, ["default", "factual_accuracy", "harmlessness", "helpfulness", "honesty", "reasoning"]);
        for name in names {
            assert_eq!(Rubric::shipped(name).unwrap().unwrap().name, name);
        }
        assert_eq!(Rubric::shipped("kindness"), None);
    }

    #[test]
    fn what_is_no_rubric_is_refused_with_the_reason() {
        check_refused("criterion = 'x'", "missing field `scores`");
        check_refused("criterion = 'x'\nscores = ['a', 'b']", "scores has 2 texts, expected 5");
        check_refused("criterion = ' '\nscores = ['a', 'b', 'c', 'd', 'e']", "criterion is empty");
        check_refused("criterion = 'x'\nscores = ['a', 'b', '', 'd', 'e']", "the text of score 3 is empty");
        check_refused("criterion = 'x'\nscores = ['a', 'b', 'c', 'd', 'e']\ntone = 1", "unknown field `tone`");
        check_refused("criterion = ", "TOML");
    }
}
