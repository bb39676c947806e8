//! Correlation coefficients.

use super::{Statistic, mean};

const SAME_SCORES: &str = "the judge gave all answers the same score";
const SAME_REFERENCES: &str = "all answers have the same reference score";

/// Pearson's product-moment correlation of scores with their references.
pub(super) fn pearson(scores: &[f64], references: &[f64]) -> Statistic {
    refuse_constants(scores, references)?;
    let centred = |values: &[f64]| -> Vec<f64> {
        let mean = mean(values.iter().copied());
        values.iter().map(|value| value - mean).collect()
    };
    let (scores, references) = (centred(scores), centred(references));
    let product = |a: &[f64], b: &[f64]| std::iter::zip(a, b).map(|(a, b)| a * b).sum::<f64>();
    let spread = (product(&scores, &scores) * product(&references, &references)).sqrt();
    Ok((product(&scores, &references) / spread).clamp(-1.0, 1.0))
}

/// Spearman's rank correlation: Pearson's over ranks, where equal values share the mean of their ranks.
pub(super) fn spearman(scores: &[f64], references: &[f64]) -> Statistic {
    pearson(&ranks(scores), &ranks(references))
}

/// Kendall's tau-b, which accounts for ties (Kendall 1945, "The treatment of ties in ranking problems"), in the time of
/// a sort (Knight 1966, "A computer method for calculating Kendall's tau with ungrouped data").
pub(super) fn kendall(scores: &[f64], references: &[f64]) -> Statistic {
    refuse_constants(scores, references)?;
    let mut points: Vec<(f64, f64)> = scores.iter().copied().zip(references.iter().copied()).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let n_pairs = pairs_of(points.len());
    let tied_scores = tied_pairs(points.iter(), |a, b| a.0 == b.0);
    let tied_in_both = tied_pairs(points.iter(), |a, b| a == b);
    let mut references: Vec<f64> = points.iter().map(|point| point.1).collect();
    let discordant = sort_counting_swaps(&mut references);
    let tied_references = tied_pairs(references.iter(), |a, b| a == b);
    let concordant_less_discordant = n_pairs - tied_scores - tied_references + tied_in_both - 2.0 * discordant;
    Ok(concordant_less_discordant / ((n_pairs - tied_scores) * (n_pairs - tied_references)).sqrt())
}

fn refuse_constants(scores: &[f64], references: &[f64]) -> Result<(), &'static str> {
    let is_constant = |values: &[f64]| values.iter().all(|value| *value == values[0]);
    match () {
        () if is_constant(scores) => Err(SAME_SCORES),
        () if is_constant(references) => Err(SAME_REFERENCES),
        () => Ok(()),
    }
}

/// Ranks from 1.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut n_before = 0;
    for tied in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let rank = n_before as f64 + (tied.len() + 1) as f64 / 2.0;
        tied.iter().for_each(|index| ranks[*index] = rank);
        n_before += tied.len();
    }
    ranks
}

fn pairs_of(n: usize) -> f64 {
    (n * n.saturating_sub(1)) as f64 / 2.0
}

/// The number of equal pairs, given values in sorted order.
fn tied_pairs<'a, T: 'a>(sorted: impl Iterator<Item = &'a T>, is_same: impl Fn(&T, &T) -> bool) -> f64 {
    let mut tied = 0.0;
    let mut run: Option<(&T, usize)> = None;
    for item in sorted {
        run = match run {
            Some((first, n)) if is_same(first, item) => {
                tied += n as f64;
                Some((first, n + 1))
            }
            _ => Some((item, 1)),
        };
    }
    tied
}

/// Merge sort that counts the pairs in the wrong order.
fn sort_counting_swaps(values: &mut [f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let (left, right) = values.split_at_mut(values.len() / 2);
    let mut swaps = sort_counting_swaps(left) + sort_counting_swaps(right);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut from_left, mut from_right) = (0, 0);
    while from_left < left.len() || from_right < right.len() {
        if from_right == right.len() || from_left < left.len() && left[from_left] <= right[from_right] {
            merged.push(left[from_left]);
            from_left += 1;
        } else {
            swaps += (left.len() - from_left) as f64;
            merged.push(right[from_right]);
            from_right += 1;
        }
    }
    values.copy_from_slice(&merged);
    swaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(statistic: fn(&[f64], &[f64]) -> Statistic, scores: &[f64], references: &[f64], expected: f64) {
        let value = statistic(scores, references).unwrap();
        assert!((value - expected).abs() < 1e-12, "{value} instead of {expected}");
    }

    #[test]
    fn perfect_agreement_is_one_and_the_opposite_minus_one() {
        let values = [1.0, 2.0, 4.0, 5.0];
        let opposite = [5.0, 4.0, 2.0, 1.0];
        for statistic in [pearson, spearman, kendall] {
            check(statistic, &values, &values, 1.0);
            check(statistic, &values, &opposite, -1.0);
        }
    }

    #[test]
    fn tau_counts_pairs_as_their_definition_does() {
        let scores: [f64; 9] = [1.0, 5.0, 3.0, 3.0, 2.0, 5.0, 4.0, 4.0, 1.0];
        let references: [f64; 9] = [2.0, 4.0, 4.0, 3.0, 1.0, 5.0, 5.0, 2.0, 1.0];
        let (mut difference, mut untied): (f64, [f64; 2]) = (0.0, [0.0, 0.0]);
        for first in 0..9 {
            for second in 0..first {
                let [a, b] = [scores[first] - scores[second], references[first] - references[second]];
                difference += if a * b == 0.0 { 0.0 } else { (a * b).signum() };
                untied[0] += f64::from(u8::from(a != 0.0));
                untied[1] += f64::from(u8::from(b != 0.0));
            }
        }
        check(kendall, &scores, &references, difference / (untied[0] * untied[1]).sqrt());
    }

    #[test]
    fn equal_values_share_their_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 7.0]), [2.5, 1.0, 2.5, 4.0]);
    }

    #[test]
    fn a_constant_has_no_correlation() {
        for statistic in [pearson, spearman, kendall] {
            assert_eq!(statistic(&[5.0, 5.0], &[1.0, 2.0]), Err(SAME_SCORES));
            assert_eq!(statistic(&[1.0, 2.0], &[5.0, 5.0]), Err(SAME_REFERENCES));
        }
    }
}
