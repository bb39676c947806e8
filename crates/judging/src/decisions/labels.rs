//! The labels of a choice's options: letters, and pairs of them where there are more options than letters.

use hone_protocol::{DecisionKind, GenerateError, GenerateRequest, Generation, LogprobOptions, Prompt};

use super::Deciding;

/// Labels for the largest choice of a request. Each is one token of the model.
///
/// # Errors
/// When the model has too few suitable tokens, or cannot be asked.
pub(super) fn labels(deciding: &Deciding<'_>) -> Result<Vec<String>, GenerateError> {
    let needed = |kind: &DecisionKind| if let DecisionKind::Choice(options) = kind { options.len() } else { 0 };
    let n = deciding.request.questions.iter().map(|question| needed(&question.kind)).max().unwrap_or(0);
    // Every vocabulary has a token for every letter.
    let letters: Vec<String> = ('A'..='Z').map(String::from).collect();
    if n <= letters.len() {
        return Ok(letters);
    }
    let pairs = letters.iter().flat_map(|first| letters.iter().map(move |second| format!("{first}{second}")));
    let pairs = in_vocabulary(deciding, pairs.collect())?;
    let labels: Vec<String> = letters.into_iter().chain(pairs).take(n).collect();
    if labels.len() < n {
        let most = labels.len();
        let reason = format!("the model has tokens for {most} labels: a question can have no more options");
        return Err(GenerateError::Request(reason));
    }
    Ok(labels)
}

/// The texts that are single tokens of the model.
fn in_vocabulary(deciding: &Deciding<'_>, texts: Vec<String>) -> Result<Vec<String>, GenerateError> {
    let prompt = Prompt::Text { text: "A".to_owned(), parse_special: false, add_special: true };
    let request = GenerateRequest {
        forced_answer: Some("A".to_owned()),
        logprobs: LogprobOptions { named: texts, ..LogprobOptions::default() },
        ..deciding.of_prompt(prompt)
    };
    let completion = Generation::start(deciding.generator, request).complete_unless(deciding.is_over)?;
    let named = completion.logprobs.into_iter().next().map(|row| row.named).unwrap_or_default();
    Ok(named.into_iter().map(|token| token.text).collect())
}
