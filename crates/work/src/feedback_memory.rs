//! Feedback for the next attempt at a phase about the previous ones, which grows with every attempt.
//!
//! The second attempt gets the latest feedback. From the third attempt on, it is the whole history: scores, feedback,
//! recurring issues, and whether the scores improve. The last attempt is told that it is the last.

use hone_judging::fill;

/// An attempt that was not accepted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PastAttempt {
    /// Its score, if it had one.
    pub(crate) score: Option<f64>,
    /// The feedback.
    pub(crate) feedback: String,
    /// Suggestions for improvement.
    pub(crate) suggestions: Vec<String>,
}

/// Maximum number of recurring issues in the prompt.
const MOST_RECURRING: usize = 5;

/// The prompt of the next attempt: `prompt`, preceded by the history of past attempts, if any.
pub(crate) fn optimized_prompt(prompt: &str, phase: &str, past: &[PastAttempt], most_attempts: usize) -> String {
    let Some(latest) = past.last() else { return prompt.to_owned() };
    let number = past.len() + 1;
    let mut parts =
        vec![format!("## Previous attempts of the {phase} phase\nThis is attempt {number} of {most_attempts}.")];
    match past.len() {
        1 => parts.push(fill(
            "The previous attempt scored {score} and was not accepted. Fix:\n{feedback}",
            &[("score", &score_of(latest)), ("feedback", latest.feedback.trim())],
        )),
        _ => {
            for (index, attempt) in past.iter().enumerate() {
                let (score, feedback) = (score_of(attempt), attempt.feedback.trim());
                parts.push(format!("### Attempt {}\nScore: {score}. Not accepted:\n{feedback}", index + 1));
            }
            parts.push(analysis(past));
        }
    }
    if number >= most_attempts {
        parts.push("This is the FINAL attempt. Address every issue above.".to_owned());
    }
    parts.push(format!("## Your task\n{prompt}"));
    parts.join("\n\n")
}

/// Whether the scores improve, and the recurring issues.
fn analysis(past: &[PastAttempt]) -> String {
    let mut lines = vec!["### Analysis".to_owned()];
    if let (Some(first), Some(last)) = (past.first().and_then(|one| one.score), past.last().and_then(|one| one.score)) {
        let trend = if last > first { "improve" } else { "do not improve" };
        lines.push(format!("The scores {trend}: {first:.2} to {last:.2}."));
    }
    let recurring = recurring_issues(past);
    if !recurring.is_empty() {
        lines.push(format!("These issues recur:\n- {}", recurring.join("\n- ")));
    }
    lines.join("\n")
}

/// Suggestions for more than one attempt, in order of first occurrence.
pub(crate) fn recurring_issues(past: &[PastAttempt]) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for suggestion in past.iter().flat_map(|attempt| &attempt.suggestions) {
        let n_attempts = past.iter().filter(|attempt| attempt.suggestions.contains(suggestion)).count();
        if n_attempts > 1 && !found.contains(&suggestion.as_str()) {
            found.push(suggestion);
        }
    }
    found.truncate(MOST_RECURRING);
    found
}

fn score_of(attempt: &PastAttempt) -> String {
    attempt.score.map_or("nothing".to_owned(), |score| format!("{score:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(score: f64, feedback: &str, suggestion: &str) -> PastAttempt {
        PastAttempt { score: Some(score), feedback: feedback.into(), suggestions: vec![suggestion.into()] }
    }

    #[test]
    fn the_context_grows_with_every_attempt() {
        let (one, two) = (attempt(0.3, "a test fails", "fix add"), attempt(0.5, "ruff: 1 error", "fix add"));
        let prompt = |past: &[PastAttempt]| optimized_prompt("Add numbers.", "coding", past, 3);
        assert_eq!(prompt(&[]), "Add numbers.");
        let second = prompt(std::slice::from_ref(&one));
        assert!(second.contains("attempt 2 of 3") && second.contains("a test fails"), "{second}");
        assert!(!second.contains("FINAL") && !second.contains("Analysis"), "{second}");
        assert!(second.ends_with("## Your task\nAdd numbers."), "{second}");
        let third = prompt(&[one, two]);
        for part in ["a test fails", "ruff: 1 error", "improve: 0.30 to 0.50", "recur:\n- fix add", "FINAL attempt"] {
            assert!(third.contains(part), "{part:?} is missing in {third}");
        }
    }

    #[test]
    fn only_what_recurs_is_called_so() {
        let past = [attempt(0.1, "", "a"), attempt(0.1, "", "b"), attempt(0.0, "", "b")];
        assert_eq!(recurring_issues(&past), ["b"]);
    }
}
