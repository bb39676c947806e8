//! Strengths from comparisons of pairs (Bradley and Terry, 1952, "Rank analysis of incomplete block designs").
//!
//! The model: `P(i is better than j) = 1 / (1 + exp(s_j − s_i))`. A tie counts as half a win for each. The strengths
//! maximize the likelihood under a weak normal prior (standard deviation 10), without which a contender that won every
//! comparison would have infinite strength. The intervals are those of the normal distribution with the curvature at
//! the maximum as its precision (Laplace's approximation).

use serde::Serialize;

/// The precision of the prior of a strength: 1 / 10².
const PRIOR: f64 = 0.01;
/// Two-sided 95 % of the normal distribution.
const Z: f64 = 1.96;
/// Newton's method doubles the correct digits in every step.
const MOST_STEPS: usize = 100;
const PRECISE: f64 = 1e-10;
/// The largest change of a strength in one step, which keeps the first steps from overshooting.
const LARGEST_STEP: f64 = 2.0;

/// The strength of a contender relative to the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Strength {
    /// The contender's name.
    pub name: String,
    /// The number of comparisons.
    pub compared: u64,
    /// Logarithm of the odds of beating an average contender; the mean of all is 0.
    pub strength: f64,
    /// Its 95 % interval.
    pub interval: [f64; 2],
}

/// Win counts for each pair of contenders.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tournament {
    names: Vec<String>,
    /// `wins[i][j]`: how often i won against j; half of a tie.
    wins: Vec<Vec<f64>>,
}

impl Tournament {
    /// Counts a comparison of two contenders; `has_first_won` is `None` for a tie. A contender's comparison with itself
    /// is ignored.
    pub(crate) fn count(&mut self, first: &str, second: &str, has_first_won: Option<bool>) {
        if first == second {
            return;
        }
        let (first, second) = (self.place_of(first), self.place_of(second));
        let share = has_first_won.map_or(0.5, |won| if won { 1.0 } else { 0.0 });
        self.wins[first][second] += share;
        self.wins[second][first] += 1.0 - share;
    }

    /// The number of contenders.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The strengths, the strongest first. Indirect comparisons through a third contender count, too.
    pub(crate) fn strengths(&self) -> Vec<Strength> {
        let n = self.len();
        let mut strengths = vec![0.0; n];
        for _ in 0..MOST_STEPS {
            let (gradient, curvature) = self.derivatives(&strengths);
            let steps = solve(curvature, gradient.into_iter().map(|value| vec![value]).collect());
            let largest = steps.iter().map(|step| step[0].abs()).fold(0.0, f64::max);
            let shrink = if largest > LARGEST_STEP { LARGEST_STEP / largest } else { 1.0 };
            strengths.iter_mut().zip(&steps).for_each(|(strength, step)| *strength += shrink * step[0]);
            if largest < PRECISE {
                break;
            }
        }
        let mut found: Vec<Strength> = self.with_intervals(&strengths);
        found.sort_by(|a, b| b.strength.total_cmp(&a.strength));
        found
    }

    fn place_of(&mut self, name: &str) -> usize {
        if let Some(place) = self.names.iter().position(|known| known == name) {
            return place;
        }
        self.names.push(name.to_owned());
        self.wins.iter_mut().for_each(|row| row.push(0.0));
        self.wins.push(vec![0.0; self.names.len()]);
        self.names.len() - 1
    }

    /// The gradient of the log-posterior, and the negative of its second derivatives.
    fn derivatives(&self, strengths: &[f64]) -> (Vec<f64>, Vec<Vec<f64>>) {
        let n = self.len();
        let mut gradient: Vec<f64> = strengths.iter().map(|strength| -PRIOR * strength).collect();
        let mut curvature = vec![vec![0.0; n]; n];
        for i in 0..n {
            curvature[i][i] += PRIOR;
            for j in 0..n {
                let compared = self.wins[i][j] + self.wins[j][i];
                let expected = 1.0 / (1.0 + (strengths[j] - strengths[i]).exp());
                gradient[i] += self.wins[i][j] - compared * expected;
                let weight = compared * expected * (1.0 - expected);
                curvature[i][i] += weight;
                curvature[i][j] -= weight;
            }
        }
        (gradient, curvature)
    }

    /// The prior barely determines the mean, and leaves it a wide interval. The mean is 0 by definition, so that part
    /// of the covariance is left out.
    fn with_intervals(&self, strengths: &[f64]) -> Vec<Strength> {
        let n = self.len();
        let (_, curvature) = self.derivatives(strengths);
        let identity = (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
        let covariance = solve(curvature, identity);
        let of_mean = 1.0 / (PRIOR * n as f64);
        let strength = |(i, name): (usize, &String)| {
            let half = Z * (covariance[i][i] - of_mean).max(0.0).sqrt();
            let compared: f64 = (0..n).map(|j| self.wins[i][j] + self.wins[j][i]).sum();
            let interval = [strengths[i] - half, strengths[i] + half];
            Strength { name: name.clone(), compared: compared.round() as u64, strength: strengths[i], interval }
        };
        self.names.iter().enumerate().map(strength).collect()
    }
}

/// Solves `matrix · x = right` for a positive definite matrix, by Gauss–Jordan elimination with partial pivoting.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let n = matrix.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()));
        let pivot = pivot.unwrap_or(column);
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let scale = matrix[column][column];
        matrix[column].iter_mut().chain(&mut right[column]).for_each(|value| *value /= scale);
        let (row, of_row) = (matrix[column].clone(), right[column].clone());
        for other in (0..n).filter(|other| *other != column) {
            let factor = matrix[other][column];
            matrix[other].iter_mut().zip(&row).for_each(|(value, of_pivot)| *value -= factor * of_pivot);
            right[other].iter_mut().zip(&of_row).for_each(|(value, of_pivot)| *value -= factor * of_pivot);
        }
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tournament(results: &[(&str, &str, usize, usize, usize)]) -> Tournament {
        let mut tournament = Tournament::default();
        for (first, second, won, lost, tied) in results {
            for (count, outcome) in [(won, Some(true)), (lost, Some(false)), (tied, None)] {
                (0..*count).for_each(|_| tournament.count(first, second, outcome));
            }
        }
        tournament
    }

    /// The figures of `choix.ilsr_pairwise` (choix 0.4) and of a minimization of the negative log-likelihood with
    /// SciPy, which agree. The standard errors come from the pseudo-inverse of SciPy's Hessian.
    #[test]
    fn strengths_are_those_of_an_independent_computation() {
        let tournament = tournament(&[
            ("a", "b", 12, 8, 3),
            ("a", "c", 7, 3, 0),
            ("a", "d", 9, 1, 0),
            ("b", "c", 6, 9, 0),
            ("b", "d", 11, 4, 0),
            ("c", "d", 5, 5, 2),
        ]);
        let expected =
            [("a", 0.66984, 0.25637), ("b", 0.08114, 0.21619), ("c", -0.06496, 0.25613), ("d", -0.68602, 0.27365)];
        let strengths = tournament.strengths();
        assert_eq!(strengths.iter().map(|it| it.compared).collect::<Vec<_>>(), [43, 53, 37, 37]);
        for (found, (name, strength, error)) in strengths.iter().zip(expected) {
            assert_eq!(found.name, name);
            assert!((found.strength - strength).abs() < 1e-3, "{found:?}");
            let [low, high] = found.interval;
            assert!((high - low - 2.0 * Z * error).abs() < 2e-3, "{found:?}: {}", high - low);
        }
    }

    #[test]
    fn who_always_wins_is_stronger_by_a_finite_amount_that_is_uncertain() {
        let strengths = tournament(&[("weak", "strong", 0, 5, 0)]).strengths();
        let [strong, weak] = &strengths[..] else { panic!("{strengths:?}") };
        assert_eq!((strong.name.as_str(), strong.compared), ("strong", 5));
        assert!(strong.strength > 1.0 && strong.strength < 20.0 && (strong.strength + weak.strength).abs() < 1e-9);
        assert!(strong.interval[0] < 0.5 && strong.interval[1].is_finite(), "{strong:?}");
    }

    #[test]
    fn without_comparisons_there_are_no_strengths() {
        let mut tournament = Tournament::default();
        assert_eq!(tournament.strengths(), []);
        tournament.count("a", "a", Some(true));
        assert_eq!(tournament.len(), 0, "nobody competes with themselves");
    }
}
