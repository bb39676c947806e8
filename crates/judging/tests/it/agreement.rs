//! Compares hone's figures with those of scipy, krippendorff and scikit-learn, recorded by `scripts/check.sh
//! agreement`.

use hone_judging::{
    Calibration, Figure, GradedAnswer, MeasurementLevel, RatedAnswer, RatedUnit, SCORE_MEASURES, krippendorff_alpha,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Both intervals are random.
const TOLERANCE_OF_INTERVALS: f64 = 0.05;

#[derive(Deserialize)]
struct Recorded {
    graded: Vec<Graded>,
    alpha: Vec<Rated>,
    calibration: Vec<Calibrated>,
}

#[derive(Deserialize)]
struct Graded {
    references: Vec<f64>,
    scores: Vec<u8>,
    expected: Vec<f64>,
    characters: Vec<usize>,
    /// Value, lower and upper end.
    figures: BTreeMap<String, [f64; 3]>,
}

#[derive(Deserialize)]
struct Rated {
    level: String,
    units: Vec<Vec<usize>>,
    alpha: f64,
}

#[derive(Deserialize)]
struct Calibrated {
    scores: Vec<f64>,
    good: Vec<bool>,
    asked: Vec<f64>,
    probabilities: Vec<f64>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("data/agreement.json")).unwrap()
}

#[track_caller]
fn check(name: &str, figure: &Figure, [value, low, high]: [f64; 3]) {
    assert!((figure.value.unwrap() - value).abs() < 1e-9, "{name}: {figure:?} instead of {value}");
    let is_near = |end: Option<f64>, expected: f64| (end.unwrap() - expected).abs() < TOLERANCE_OF_INTERVALS;
    assert!(is_near(figure.low, low) && is_near(figure.high, high), "{name}: {figure:?} instead of {low} to {high}");
}

#[test]
fn the_figures_of_grades_are_those_of_scipy() {
    for case in recorded().graded {
        let answer = |question: usize| GradedAnswer {
            question,
            reference: case.references[question],
            score: case.scores[question],
            expected_score: Some(case.expected[question]),
            characters: case.characters[question],
            seconds: 1.0,
        };
        let answers: Vec<GradedAnswer> = (0..case.scores.len()).map(answer).collect();
        for (key, expected) in case.figures {
            let measure = SCORE_MEASURES.iter().find(|measure| measure.key == key).unwrap();
            check(&key, &measure.figure(&answers), expected);
        }
    }
}

#[test]
fn alpha_is_that_of_krippendorff() {
    for case in recorded().alpha {
        let level = if case.level == "ordinal" { MeasurementLevel::Ordinal } else { MeasurementLevel::Nominal };
        let unit = |(question, values)| RatedUnit { question, values };
        let units: Vec<RatedUnit> = case.units.into_iter().enumerate().map(unit).collect();
        let figure = krippendorff_alpha(&units, level);
        assert!((figure.value.unwrap() - case.alpha).abs() < 1e-9, "{figure:?} instead of {}", case.alpha);
        assert!(figure.low.unwrap() < case.alpha && case.alpha < figure.high.unwrap(), "{figure:?}");
    }
}

#[test]
fn a_map_is_that_of_scikit_learn() {
    for case in recorded().calibration {
        let answer = |question: usize| RatedAnswer {
            question,
            expected_score: case.scores[question],
            is_good: case.good[question],
        };
        let map = Calibration::fit(&(0..case.scores.len()).map(answer).collect::<Vec<_>>());
        for (score, expected) in case.asked.iter().zip(case.probabilities) {
            let probability = map.probability(*score);
            assert!((probability - expected).abs() < 1e-9, "at {score}: {probability} instead of {expected}");
        }
    }
}
