//! The meaning of a judge's scores, in terms of how often people agree: a file for each judge in the data folder, next
//! to its marks.

use std::path::{Path, PathBuf};

use anyhow::Context;
use hone_judging::{Calibration, HeldOut};
use hone_models::Store;
use hone_protocol::{Grade, JudgingMethod};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::marks::{FOLDER, JudgeSetup};
use crate::kept;

/// A map from a judge's scores to agreement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// The judge's model.
    pub model: String,
    /// The rubric.
    pub rubric: String,
    /// How well it predicts held-out data.
    pub held_out: HeldOut,
    map: Calibration,
}

impl Calibrated {
    /// A map for grades from this setup.
    pub fn new(setup: &JudgeSetup<'_>, held_out: HeldOut, map: Calibration) -> Calibrated {
        Calibrated { model: setup.model.to_owned(), rubric: setup.rubric.name.clone(), held_out, map }
    }

    /// The map of a judge; `None` if none was fitted.
    pub fn find(data_folder: &Path, store: &Store, setup: &JudgeSetup<'_>) -> Option<Calibrated> {
        serde_json::from_slice(&std::fs::read(path_of(data_folder, store, setup)?).ok()?).ok()
    }

    /// Saves it for the judge.
    ///
    /// # Errors
    /// When it cannot be written, or the judge's model is not installed.
    pub fn keep(&self, data_folder: &Path, store: &Store, setup: &JudgeSetup<'_>) -> anyhow::Result<()> {
        let path = path_of(data_folder, store, setup).with_context(|| format!("{} is not installed", setup.model))?;
        kept::write(&data_folder.join(FOLDER), &path, self)
    }

    /// The probability that a person finds an answer with this expected score good.
    pub fn probability(&self, expected_score: f64) -> f64 {
        self.map.probability(expected_score)
    }

    /// The probability that a person finds the answer good; `None` if the grade is from another judge, or the map does
    /// not help.
    pub fn agreement(&self, grade: &Grade) -> Option<f64> {
        let Grade { judging, rubric, .. } = grade;
        let is_of_judge = judging.judge == self.model && *rubric == self.rubric;
        let is_known = is_of_judge && judging.method == JudgingMethod::Prompted && self.held_out.helps();
        let score = grade.expected_score.or(grade.score.map(f64::from))?;
        is_known.then(|| self.probability(score))
    }
}

fn path_of(data_folder: &Path, store: &Store, setup: &JudgeSetup<'_>) -> Option<PathBuf> {
    Some(data_folder.join(FOLDER).join(setup.file_name(store, &json!("calibration"))?))
}

#[cfg(test)]
mod tests {
    use hone_judging::RatedAnswer;
    use hone_protocol::Judging;

    use super::*;

    fn calibrated(brier: f64) -> Calibrated {
        let rated = |question: usize| RatedAnswer {
            question,
            expected_score: 1.0 + question as f64 / 10.0,
            is_good: question > 20,
        };
        let map = Calibration::fit(&(0..=40).map(rated).collect::<Vec<_>>());
        let held_out = HeldOut { n: 41, n_good: 20, brier, brier_uncalibrated: 0.2, brier_base_rate: 0.25, auc: 1.0 };
        Calibrated { model: "m".to_owned(), rubric: "default".to_owned(), held_out, map }
    }

    fn grade(judge: &str, expected_score: f64) -> Grade {
        let judging = Judging { judge: judge.to_owned(), ..Judging::default() };
        let score = Some(expected_score.round() as u8);
        Grade { score, expected_score: Some(expected_score), rubric: "default".into(), judging, ..Grade::default() }
    }

    #[test]
    fn only_grades_of_the_judge_have_an_agreement() {
        let helpful = calibrated(0.1);
        assert!(helpful.agreement(&grade("m", 4.5)).unwrap() > 0.9);
        assert!(helpful.agreement(&grade("m", 1.5)).unwrap() < 0.1);
        assert_eq!(helpful.agreement(&grade("other", 4.5)), None);
        assert_eq!(helpful.agreement(&Grade { rubric: "honesty".into(), ..grade("m", 4.5) }), None);
        assert_eq!(helpful.agreement(&Grade::unscored("timeout")), None);
        assert_eq!(calibrated(0.3).agreement(&grade("m", 4.5)), None, "it does not help");
    }
}
