//! Whether a prompt that was asked with another key is answered sooner than one that was never asked.

use serde_json::{Value, json};

use super::client::Server;
use super::code;

/// The number of pairs of prompts that are timed: one that was asked with another key, one that was never asked.
const PAIRS: usize = 16;
/// The maximum number of pairs in which the known prompt may be faster. If it makes no difference, it is faster in each
/// with probability 1/2, and in more than this many with probability 0.0003.
const MOST_FASTER: usize = 14;
/// The number of sentences after a secret, so that computing the prompt takes time.
const SENTENCES: usize = 40;

/// The result of timing the pairs.
#[derive(Default)]
pub(super) struct Timing {
    n_pairs: usize,
    /// The number of pairs in which the known prompt was answered sooner.
    n_faster: usize,
    /// Pairs in which more of the known prompt was reported as cached, with both numbers.
    cached: Vec<(u64, u64)>,
}

impl Timing {
    /// Times the pairs; the ids of the answers are added to `ids`.
    pub(super) fn take(server: &Server, n_keys: usize, ids: &mut Vec<(usize, String)>) -> anyhow::Result<Timing> {
        let mut timing = Timing::default();
        let mut ask = |key: usize, body: &Value| -> anyhow::Result<_> {
            let answered = server.ask(key, body)?;
            ids.push((key, answered.id.clone()));
            Ok(answered)
        };
        while timing.n_pairs < PAIRS {
            let secret = code()?;
            let (known, guessed) = (prompt(&secret), prompt(&guess(&secret)));
            let (owner, other) = (timing.n_pairs % n_keys, (timing.n_pairs + 1) % n_keys);
            ask(owner, &known)?;
            // Alternates, so that other load on the machine affects both.
            let known_first = (timing.n_pairs / n_keys).is_multiple_of(2);
            let (known, guessed) = if known_first {
                let known = ask(other, &known)?;
                (known, ask(other, &guessed)?)
            } else {
                let guessed = ask(other, &guessed)?;
                (ask(other, &known)?, guessed)
            };
            timing.n_pairs += 1;
            timing.n_faster += usize::from(known.duration < guessed.duration);
            // The second prompt begins like the first, which the same key has just asked.
            let is_cached = known_first && known.cached > guessed.cached;
            timing.cached.extend(is_cached.then_some((known.cached, guessed.cached)));
        }
        Ok(timing)
    }

    pub(super) fn pairs(&self) -> usize {
        self.n_pairs
    }

    pub(super) fn failures(&self) -> Vec<String> {
        let cached = self.cached.iter().map(|(known, guessed)| {
            format!("a prompt of another key had {known} cached tokens, and one that nobody had asked {guessed}")
        });
        let faster = (self.n_faster > MOST_FASTER).then(|| {
            let Timing { n_faster, n_pairs, .. } = self;
            format!(
                "a prompt of another key was answered sooner than one that nobody had asked, {n_faster} times of {n_pairs}"
            )
        });
        cached.chain(faster).collect()
    }
}

/// A secret that differs from another in its last letter. Other prompts share the same beginning with both, so that
/// those which a key has asked before affect both alike.
fn guess(secret: &str) -> String {
    let (begin, last) = secret.split_at(secret.len() - 1);
    begin.to_owned() + if last == "x" { "y" } else { "x" }
}

/// A question for one token, whose prompt is a secret and a long text.
fn prompt(code: &str) -> Value {
    let text = format!("The code is {code}. {}", "Nobody else is told. ".repeat(SENTENCES));
    json!({"messages": [{"role": "user", "content": text}], "temperature": 0.0, "max_tokens": 1})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_differs_in_the_last_letter() {
        assert_eq!(["abc", "abx"].map(guess), ["abx", "aby"]);
    }

    #[test]
    fn only_what_chance_does_not_explain_is_a_failure() {
        let failures = |n_faster| Timing { n_pairs: PAIRS, n_faster, cached: Vec::new() }.failures().len();
        assert_eq!([0, 8, 14, 15, 16].map(failures), [0, 0, 0, 1, 1]);
        assert_eq!(Timing { cached: vec![(64, 16)], ..Timing::default() }.failures().len(), 1);
    }
}
