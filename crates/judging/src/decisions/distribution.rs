//! Converts log-probabilities of tokens to probabilities of options.

use hone_protocol::{Completion, GenerateError, TokenLogprobs};

use super::asked::{Asked, Reading};

/// Smallest distinguishable logarithm, in nats; for a probability of 0 it would be infinite.
const LEAST: f64 = -1000.0;

/// Options with the logarithms of their probabilities.
pub(super) type OptionLogarithms = Vec<(usize, f64)>;

/// The logarithms of the probabilities of a request's options; `closing` precedes the answer.
///
/// # Errors
/// When the generator reported none for an option, or they are not numbers.
pub(super) fn log_probabilities(
    asked: &Asked,
    completion: &Completion,
    closing: &str,
) -> Result<OptionLogarithms, GenerateError> {
    match &asked.reading {
        Reading::Labels(spellings) => of_labels(spellings, completion),
        Reading::Text(_, option) => Ok(vec![(*option, of_answer(completion, closing)?)]),
    }
}

/// The logarithms for labels, summed over their spellings.
fn of_labels(spellings: &[(String, usize)], completion: &Completion) -> Result<OptionLogarithms, GenerateError> {
    let named = completion.logprobs.last().map_or(&[][..], |row| &row.named);
    let n_options = spellings.iter().map(|(_, option)| option + 1).max().unwrap_or(0);
    let mut logprobs: Vec<Vec<f64>> = vec![Vec::new(); n_options];
    for token in named {
        if let Some((_, option)) = spellings.iter().find(|(spelling, _)| *spelling == token.text) {
            logprobs[*option].push(f64::from(token.logprob));
        }
    }
    logprobs.iter().enumerate().map(|(option, logprobs)| Ok((option, log_sum(logprobs)?))).collect()
}

/// The logarithm for the whole answer.
fn of_answer(completion: &Completion, closing: &str) -> Result<f64, GenerateError> {
    let mut n_bytes = 0;
    let is_closing = |row: &&TokenLogprobs| {
        n_bytes += row.text.len();
        n_bytes <= closing.len()
    };
    let sum: f64 = completion.logprobs.iter().skip_while(is_closing).map(|row| f64::from(row.logprob)).sum();
    log_sum(&[sum])
}

fn log_sum(logprobs: &[f64]) -> Result<f64, GenerateError> {
    let failed = |reason: &str| Err(GenerateError::Failed(reason.to_owned()));
    if logprobs.is_empty() {
        return failed("the model has no token for one of the labels");
    }
    if logprobs.iter().any(|logprob| logprob.is_nan()) {
        return failed("the model's logits are not numbers: its file is damaged");
    }
    let largest = logprobs.iter().copied().fold(LEAST, f64::max);
    let sum = largest + logprobs.iter().map(|logprob| (logprob - largest).exp()).sum::<f64>().ln();
    Ok(sum.max(LEAST))
}

/// The distribution whose logarithms are the means over the requests for each of `n` options, divided by the
/// temperature.
pub(super) fn mean_distribution(
    n: usize,
    logarithms: impl IntoIterator<Item = (usize, f64)>,
    temperature: f64,
) -> Vec<f64> {
    let mut sums = vec![(0.0, 0); n];
    for (option, logarithm) in logarithms {
        sums[option].0 += logarithm;
        sums[option].1 += 1;
    }
    let means: Vec<f64> = sums.into_iter().map(|(sum, count)| sum / f64::from(count.max(1))).collect();
    let largest = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = means.iter().map(|mean| ((mean - largest) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_add_up_and_a_probability_of_nothing_stays_finite() {
        let sum = log_sum(&[0.25_f64.ln(), 0.5_f64.ln(), f64::NEG_INFINITY]).unwrap();
        assert!((sum - 0.75_f64.ln()).abs() < 1e-12);
        assert_eq!(log_sum(&[f64::NEG_INFINITY]), Ok(LEAST));
        assert!(log_sum(&[]).is_err() && log_sum(&[f64::NAN]).is_err());
    }

    #[test]
    fn orders_are_averaged_as_logarithms() {
        // The model favours the first position by a factor of two, and the first option, too.
        let logarithms = [(0, 0.8_f64.ln()), (1, 0.2_f64.ln()), (0, 0.5_f64.ln()), (1, 0.5_f64.ln())];
        let mean = mean_distribution(2, logarithms, 1.0);
        assert!((mean[0] - 2.0 / 3.0).abs() < 1e-12, "{mean:?}");
        let sure = mean_distribution(2, [(0, 0.0), (1, LEAST)], 0.5);
        assert!((sure.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
