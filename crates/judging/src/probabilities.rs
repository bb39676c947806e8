//! Evaluates the judge's log-probabilities: the confidence of its verdict.

use hone_protocol::TokenLogprobs;

use crate::form::{FormKind, Labels, VerdictForm};

/// Log-odds of a verdict without reported probabilities, in nats: 99 to 1.
const UNREPORTED_LOG_ODDS: f64 = 4.6;
/// Limit on log-odds, which would be infinite for a probability of 0.
const LARGEST_LOG_ODDS: f64 = 100.0;

/// Probabilities of the labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabelProbabilities(Vec<f64>);

impl LabelProbabilities {
    /// The probabilities of the labels where the judge chose `label` as its verdict; `None` if the generator reported
    /// none.
    ///
    /// The probability of a label is summed over all its spellings. The probabilities are normalized over the labels
    /// alone, as if no other token could have been chosen.
    pub(crate) fn of(form: &VerdictForm, rows: &[TokenLogprobs], label: usize) -> Option<LabelProbabilities> {
        let row = position(form, rows, label)?;
        let logprobs: Vec<Option<f64>> = (0..form.labels.len()).map(|label| logprob_of(form, row, label)).collect();
        let logprobs = logprobs.into_iter().collect::<Option<Vec<f64>>>()?;
        let largest = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logprobs.iter().map(|logprob| (logprob - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        largest.is_finite().then(|| LabelProbabilities(weights.iter().map(|weight| weight / total).collect()))
    }

    /// The mean of several distributions over the same labels; `None` for an empty slice.
    pub(crate) fn mean(distributions: &[LabelProbabilities]) -> Option<LabelProbabilities> {
        let n_labels = distributions.first()?.0.len();
        let share = 1.0 / distributions.len() as f64;
        let mean = |label: usize| distributions.iter().map(|distribution| distribution.0[label] * share).sum();
        Some(LabelProbabilities((0..n_labels).map(mean).collect()))
    }

    /// The mean of the labels' scores on the scale from 1 to 5, weighted by their probabilities.
    pub(crate) fn expected_score(&self, labels: &Labels) -> f64 {
        self.0.iter().enumerate().map(|(label, probability)| labels.score(label) * probability).sum()
    }

    /// Entropy in nats.
    pub(crate) fn entropy(&self) -> f64 {
        let surprise = |probability: &f64| if *probability > 0.0 { -probability * probability.ln() } else { 0.0 };
        // Certainty would otherwise give a negative zero.
        self.0.iter().map(surprise).sum::<f64>().max(0.0)
    }
}

/// Natural logarithm of the odds of the first label over the second where the judge chose `label` as its verdict. If
/// the generator reported no probabilities, the odds of a judge that is nearly sure.
pub(crate) fn log_odds_of_first(form: &VerdictForm, rows: &[TokenLogprobs], label: usize) -> f64 {
    let logprob = |row, label| logprob_of(form, row, label).unwrap_or(f64::NEG_INFINITY);
    let log_odds =
        position(form, rows, label).map(|row| logprob(row, 0) - logprob(row, 1)).filter(|log_odds| !log_odds.is_nan());
    let unreported = if label == 0 { UNREPORTED_LOG_ODDS } else { -UNREPORTED_LOG_ODDS };
    log_odds.unwrap_or(unreported).clamp(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)
}

/// The first position where `label` was chosen if the verdict comes first in the form, otherwise the last.
fn position<'a>(form: &VerdictForm, rows: &'a [TokenLogprobs], label: usize) -> Option<&'a TokenLogprobs> {
    let mut positions = rows.iter().filter(|row| chosen(form, row) == Some(label));
    if form.kind == FormKind::First { positions.next() } else { positions.next_back() }
}

/// The label that was chosen, if the token spells one.
fn chosen(form: &VerdictForm, row: &TokenLogprobs) -> Option<usize> {
    row.named.iter().find(|named| named.id == row.id).and_then(|named| form.label_of(&named.text))
}

/// Natural logarithm of the probability of a label over all its spellings; `None` if no token spells it.
fn logprob_of(form: &VerdictForm, row: &TokenLogprobs, label: usize) -> Option<f64> {
    let spelled = row.named.iter().filter(|named| form.label_of(&named.text) == Some(label));
    let logprobs: Vec<f64> = spelled.map(|named| f64::from(named.logprob)).collect();
    let largest = logprobs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (!logprobs.is_empty()).then(|| match largest.is_finite() {
        true => largest + logprobs.iter().map(|logprob| (logprob - largest).exp()).sum::<f64>().ln(),
        false => f64::NEG_INFINITY,
    })
}

#[cfg(test)]
mod tests {
    use hone_protocol::TokenLogprob;

    use super::*;
    use crate::form::ThinkingForm;

    /// The form of Prometheus' scores, or of a letter at the start.
    fn form(kind: FormKind, labels: &[&str]) -> VerdictForm {
        let labels = Labels::new(labels.iter().map(|label| (*label).to_owned()).collect());
        let thinking = ThinkingForm { tokens: 0, end: String::new() };
        VerdictForm { kind, place: "[RESULT]".to_owned(), reason_place: String::new(), labels, thinking, alone: None }
    }

    fn scores() -> VerdictForm {
        form(FormKind::Marker, &["1", "2", "3", "4", "5"])
    }

    /// A position where `chosen` was chosen, with these probabilities of the tokens.
    fn row(chosen: &str, probabilities: &[(&str, f32)]) -> TokenLogprobs {
        let named: Vec<TokenLogprob> = (10..)
            .zip(probabilities)
            .map(|(id, (text, probability))| TokenLogprob { id, logprob: probability.ln(), text: (*text).to_owned() })
            .collect();
        let (id, logprob) = named.iter().find(|row| row.text == chosen).map_or((0, -1.0), |row| (row.id, row.logprob));
        TokenLogprobs { id, text: chosen.to_owned(), logprob, named, ..TokenLogprobs::default() }
    }

    #[track_caller]
    fn check(rows: &[TokenLogprobs], expected: Option<(f64, f64)>) {
        let form = scores();
        let seen =
            LabelProbabilities::of(&form, rows, 3).map(|seen| (seen.expected_score(&form.labels), seen.entropy()));
        let is_close = |(a, b): ((f64, f64), (f64, f64))| (a.0 - b.0).abs() < 1e-5 && (a.1 - b.1).abs() < 1e-5;
        assert!(seen.is_some() == expected.is_some(), "{seen:?}");
        assert!(seen.zip(expected).is_none_or(is_close), "{seen:?} is not {expected:?}");
    }

    #[test]
    fn the_expected_score_is_the_mean_over_the_five_scores() {
        let half_four = [("1", 0.0), ("2", 0.0), ("3", 0.0), ("4", 0.25), ("5", 0.25)];
        check(&[row("4", &half_four)], Some((4.5, 2f64.ln())));
        let even = [("1", 0.1), ("2", 0.1), ("3", 0.1), ("4", 0.1), ("5", 0.1)];
        check(&[row("4", &even)], Some((3.0, 5f64.ln())));
        let certain = [("1", 0.0), ("2", 0.0), ("3", 0.0), ("4", 1e-30), ("5", 0.0)];
        check(&[row("4", &certain)], Some((4.0, 0.0)));
    }

    #[test]
    fn both_spellings_count() {
        let both = [("1", 0.0), ("2", 0.0), ("3", 0.0), ("4", 0.1), ("5", 0.1), (" 4", 0.2), (" 5", 0.0)];
        check(&[row(" 4", &both)], Some((0.75 * 4.0 + 0.25 * 5.0, -(0.75 * 0.75f64.ln() + 0.25 * 0.25f64.ln()))));
    }

    #[test]
    fn the_last_position_of_the_score_counts() {
        let sure_of = |score: &str| ["1", "2", "3", "4", "5"].map(|name| (name, f32::from(u8::from(name == score))));
        let rows = [row("4", &sure_of("1")), row("4", &sure_of("4")), row("5", &sure_of("2")), row("x", &sure_of("3"))];
        check(&rows, Some((4.0, 0.0)));
    }

    #[test]
    fn without_probabilities_there_is_no_expected_score() {
        check(&[], None);
        check(&[row("4", &[("4", 0.5)])], None);
        check(&[row("x", &[("1", 0.2), ("2", 0.2), ("3", 0.2), ("4", 0.2), ("5", 0.2)])], None);
        let mut unknown = row("4", &[("1", 0.2), ("2", 0.2), ("3", 0.2), ("4", 0.2), ("5", 0.2)]);
        unknown.named.iter_mut().for_each(|named| named.logprob = f32::NAN);
        check(&[unknown], None);
    }

    #[track_caller]
    fn check_odds(rows: &[TokenLogprobs], letter: &str, expected: f64) {
        let form = form(FormKind::First, &["A", "B"]);
        let seen = log_odds_of_first(&form, rows, usize::from(letter == "B"));
        assert!((seen - expected).abs() < 1e-5, "{seen} is not {expected}");
    }

    #[test]
    fn log_odds_compare_the_letters_in_both_spellings() {
        check_odds(&[row("A", &[("A", 0.6), ("B", 0.2)])], "A", 3f64.ln());
        check_odds(&[row(" B", &[("A", 0.1), (" B", 0.2), ("B", 0.1)])], "B", (1.0f64 / 3.0).ln());
        check_odds(&[row("x", &[("A", 0.6), ("B", 0.2)]), row("A", &[("A", 0.4), ("B", 0.2)])], "A", 2f64.ln());
        check_odds(&[row("A", &[("A", 0.6), ("B", 0.0)])], "A", LARGEST_LOG_ODDS);
        check_odds(&[], "A", UNREPORTED_LOG_ODDS);
        check_odds(&[], "B", -UNREPORTED_LOG_ODDS);
    }
}
