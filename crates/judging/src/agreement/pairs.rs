//! Agreement of a judge's choices between two answers with human choices.

use hone_protocol::RespondentId;

use super::Statistic;
use super::measure::{FigureUnit, Measure, OfQuestion};
use crate::examination::median;

/// A comparison and its human reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparedPair {
    /// The number of its question: pairs of answers to the same question are not independent.
    pub question: usize,
    /// The better answer according to people; `None` for a tie.
    pub reference: Option<RespondentId>,
    /// The better answer according to the judge; `None` for a tie.
    pub winner: Option<RespondentId>,
    /// Whether the judge preferred the same answer in both orders; `None` if its verdict does not depend on an order.
    pub is_consistent: Option<bool>,
    /// The longer answer; `None` if both have the same length.
    pub longer: Option<RespondentId>,
    /// Seconds that the comparison took.
    pub seconds: f64,
}

impl ComparedPair {
    /// 1 if the judge chose as people did, 0.5 if the judge declared a tie.
    fn agreement(&self) -> f64 {
        match self.winner {
            None => 0.5,
            winner => f64::from(u8::from(winner == self.reference)),
        }
    }
}

impl OfQuestion for ComparedPair {
    fn question(&self) -> usize {
        self.question
    }
}

/// The measures of comparisons.
pub const PAIR_MEASURES: [Measure<ComparedPair>; 5] = [
    row("pairwise_accuracy", "pairs in order", FigureUnit::Share, is_decided, accuracy),
    row(
        "pairwise_accuracy_consistent",
        "pairs in order, consistent ones",
        FigureUnit::Share,
        |pair| is_decided(pair) && pair.is_consistent == Some(true),
        accuracy,
    ),
    row(
        "position_bias",
        "position bias",
        FigureUnit::Share,
        |pair| pair.is_consistent.is_some(),
        |pairs| Ok(share(pairs, |pair| pair.is_consistent == Some(false))),
    ),
    row(
        "pairwise_length_bias",
        "length bias of comparisons",
        FigureUnit::DifferenceOfShares,
        |pair| is_decided(pair) && pair.longer.is_some(),
        length_bias,
    ),
    row(
        "seconds_per_comparison",
        "seconds per comparison",
        FigureUnit::Seconds,
        |_| true,
        |pairs| Ok(median(&pairs.iter().map(|pair| pair.seconds).collect::<Vec<_>>())),
    ),
];

const fn row(
    key: &'static str,
    label: &'static str,
    unit: FigureUnit,
    is_about: fn(&ComparedPair) -> bool,
    statistic: fn(&[&ComparedPair]) -> Statistic,
) -> Measure<ComparedPair> {
    Measure { key, label, unit, is_about, statistic }
}

/// Whether people found one answer better.
fn is_decided(pair: &ComparedPair) -> bool {
    pair.reference.is_some()
}

fn accuracy(pairs: &[&ComparedPair]) -> Statistic {
    Ok(pairs.iter().map(|pair| pair.agreement()).sum::<f64>() / pairs.len() as f64)
}

fn share(pairs: &[&ComparedPair], is_counted: impl Fn(&ComparedPair) -> bool) -> f64 {
    pairs.iter().filter(|pair| is_counted(pair)).count() as f64 / pairs.len() as f64
}

/// The accuracy where the better answer is longer, minus the accuracy where it is shorter (Saito et al. 2023,
/// "Verbosity bias in preference labeling by large language models"). Above 0, the judge favours long answers.
fn length_bias(pairs: &[&ComparedPair]) -> Statistic {
    let (longer, shorter): (Vec<&ComparedPair>, Vec<&ComparedPair>) =
        pairs.iter().copied().partition(|pair| pair.reference == pair.longer);
    if longer.is_empty() || shorter.is_empty() {
        return Err("the better answer is always the longer one, or always the shorter one");
    }
    Ok(accuracy(&longer)? - accuracy(&shorter)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::Figure;

    const A: Option<RespondentId> = Some(RespondentId::A);
    const B: Option<RespondentId> = Some(RespondentId::B);

    fn pair(reference: Option<RespondentId>, winner: Option<RespondentId>, is_consistent: bool) -> ComparedPair {
        ComparedPair { question: 0, reference, winner, is_consistent: Some(is_consistent), longer: A, seconds: 1.0 }
    }

    fn figure(key: &str, pairs: &[ComparedPair]) -> Figure {
        let pairs: Vec<ComparedPair> =
            pairs.iter().enumerate().map(|(question, pair)| ComparedPair { question, ..*pair }).collect();
        PAIR_MEASURES.iter().find(|measure| measure.key == key).unwrap().figure(&pairs)
    }

    #[test]
    fn ties_of_the_judge_count_half_and_those_of_people_not_at_all() {
        let pairs = [vec![pair(A, A, true); 8], vec![pair(A, B, false); 2], vec![pair(A, None, false); 2]].concat();
        assert_eq!(figure("pairwise_accuracy", &pairs).value, Some(0.75));
        assert_eq!(figure("position_bias", &pairs).value, Some(4.0 / 12.0));
        let with_ties = [pairs, vec![pair(None, B, true); 5]].concat();
        let figure = figure("pairwise_accuracy", &with_ties);
        assert_eq!((figure.value, figure.n), (Some(0.75), 12));
    }

    #[test]
    fn inconsistent_pairs_are_left_out_where_they_are_said_to_be() {
        let pairs = [vec![pair(A, A, true); 15], vec![pair(A, B, false); 15]].concat();
        assert_eq!(figure("pairwise_accuracy", &pairs).value, Some(0.5));
        let consistent = figure("pairwise_accuracy_consistent", &pairs);
        assert_eq!((consistent.value, consistent.n), (Some(1.0), 15));
        let without_order = vec![ComparedPair { is_consistent: None, ..pair(A, A, true) }; 15];
        assert_eq!(figure("position_bias", &without_order).n, 0);
    }

    #[test]
    fn a_judge_that_chooses_the_longer_answer_has_a_length_bias() {
        let pairs = [vec![pair(A, A, true); 10], vec![pair(B, A, true); 10]].concat();
        assert_eq!(figure("pairwise_length_bias", &pairs).value, Some(1.0));
        let fair = [vec![pair(A, A, true); 10], vec![pair(B, B, true); 10]].concat();
        assert_eq!(figure("pairwise_length_bias", &fair).value, Some(0.0));
        let reason = figure("pairwise_length_bias", &pairs[..10]).reason.unwrap();
        assert!(reason.contains("always the longer one"), "{reason}");
    }
}
