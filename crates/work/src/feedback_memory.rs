//! What the next attempt at a phase is told about those before it: more with every attempt.
//!
//! The second attempt gets the latest feedback. From the third on, the whole history: scores, feedback, what recurs, and
//! whether the scores improve. The last one is told that it is the last.

use hone_judging::fill;

/// An attempt that was not accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct PastAttempt {
    /// Its score; `None` if it had none.
    pub score: Option<f64>,
    /// What was wrong.
    pub feedback: String,
    /// What would improve it.
    pub suggestions: Vec<String>,
}

/// The most recurring issues that are named.
const MOST_RECURRING: usize = 5;

/// The prompt of the next attempt: `prompt` for the first one, and before it what is known of the attempts so far.
pub fn optimized_prompt(prompt: &str, phase: &str, past: &[PastAttempt], most_attempts: usize) -> String {
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

/// Whether the scores improve, and what recurs.
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

/// Suggestions that more than one attempt got, in the order in which they came first.
pub fn recurring_issues(past: &[PastAttempt]) -> Vec<&str> {
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
