//! Krippendorff's alpha: agreement of judges beyond chance, from the coincidences of their values (Krippendorff 2011,
//! "Computing Krippendorff's alpha-reliability").

use super::{Figure, Statistic};

/// The meaning of differences between values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasurementLevel {
    /// Values are equal or not, such as winners.
    Nominal,
    /// Values have an order but no distances, such as the scores of a rubric.
    Ordinal,
}

/// The values that judges gave to one item; a judge without a verdict gave none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RatedUnit {
    /// The number of its question.
    pub question: usize,
    /// Values, starting from 0.
    pub values: Vec<usize>,
}

/// Agreement of the judges: 1 is perfect, 0 is chance level.
pub fn krippendorff_alpha(units: &[RatedUnit], level: MeasurementLevel) -> Figure {
    let rated_twice: Vec<&RatedUnit> = units.iter().filter(|unit| unit.values.len() > 1).collect();
    Figure::of(&rated_twice, |unit| unit.question, |units| value(units, level))
}

fn value(units: &[&RatedUnit], level: MeasurementLevel) -> Statistic {
    let n_values = units.iter().flat_map(|unit| &unit.values).max().map_or(0, |value| value + 1);
    let coincidences = coincidences(units, n_values);
    let totals: Vec<f64> = coincidences.iter().map(|row| row.iter().sum()).collect();
    let n: f64 = totals.iter().sum();
    let (mut observed, mut expected) = (0.0, 0.0);
    for first in 0..n_values {
        for second in 0..n_values {
            let difference = difference(level, &totals, first, second);
            observed += coincidences[first][second] * difference;
            expected += totals[first] * totals[second] * difference / (n - 1.0);
        }
    }
    if expected == 0.0 { Err("all judges gave the same verdict to everything") } else { Ok(1.0 - observed / expected) }
}

/// The counts of pairs of values, over all pairs of judges of a unit, normalized per unit.
fn coincidences(units: &[&RatedUnit], n_values: usize) -> Vec<Vec<f64>> {
    let mut counts = vec![vec![0.0; n_values]; n_values];
    for RatedUnit { values, .. } in units {
        for (place, first) in values.iter().enumerate() {
            for second in values.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, second)| second) {
                counts[*first][*second] += 1.0 / (values.len() - 1) as f64;
            }
        }
    }
    counts
}

/// The square of the difference between two values.
fn difference(level: MeasurementLevel, totals: &[f64], first: usize, second: usize) -> f64 {
    match level {
        MeasurementLevel::Nominal => f64::from(u8::from(first != second)),
        MeasurementLevel::Ordinal => {
            let [low, high] = [first.min(second), first.max(second)];
            let between: f64 = totals[low..=high].iter().sum();
            (between - f64::midpoint(totals[low], totals[high])).powi(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(judges: [&[usize]; 2]) -> Vec<RatedUnit> {
        let unit = |(question, (a, b)): (usize, (&usize, &usize))| RatedUnit { question, values: vec![*a, *b] };
        judges[0].iter().zip(judges[1]).enumerate().map(unit).collect()
    }

    /// Krippendorff 2011, example A: two observers, binary data.
    #[test]
    fn the_published_example_gives_the_published_value() {
        let meg = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0];
        let owen = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0];
        let figure = krippendorff_alpha(&units([&meg, &owen]), MeasurementLevel::Nominal);
        assert!((figure.value.unwrap() - 0.095).abs() < 0.0005, "{figure:?}");
    }

    #[test]
    fn neighbouring_scores_agree_more_than_distant_ones() {
        let scores = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4];
        let near = [1, 1, 3, 3, 4, 0, 2, 2, 3, 3];
        let far = [4, 1, 0, 3, 4, 0, 4, 2, 3, 0];
        let of = |other| krippendorff_alpha(&units([&scores, other]), MeasurementLevel::Ordinal).value.unwrap();
        assert!(of(&near) > 0.8 && of(&far) < 0.3, "{} {}", of(&near), of(&far));
        assert_eq!(of(&scores), 1.0);
        let nominal = |other| krippendorff_alpha(&units([&scores, other]), MeasurementLevel::Nominal).value.unwrap();
        assert!((nominal(&near) - nominal(&far)).abs() < 0.05);
    }

    #[test]
    fn judges_who_always_say_the_same_have_no_alpha() {
        let figure = krippendorff_alpha(&units([&[4; 10], &[4; 10]]), MeasurementLevel::Ordinal);
        assert_eq!(figure.reason.as_deref(), Some("all judges gave the same verdict to everything"));
        let lonely = vec![RatedUnit { question: 0, values: vec![4] }; 20];
        assert_eq!(krippendorff_alpha(&lonely, MeasurementLevel::Ordinal).n, 0);
    }
}
