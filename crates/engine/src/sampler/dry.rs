//! DRY ("don't repeat yourself"): a token that would continue a repetition becomes less likely the longer the
//! repetition already is.
//!
//! As described by its author (p-e-w, <https://github.com/oobabooga/text-generation-webui/pull/5677>): if the last `n`
//! tokens occur earlier, and `n` is at least the allowed length, `multiplier * base^(n - allowed_length)` is subtracted
//! from the logit of the token that followed them there. If there are several places, the longest match counts. No
//! match extends over a sequence breaker, and a breaker itself continues none.

use std::collections::HashMap;
use std::sync::Arc;

use hone_protocol::DryOptions;

/// Sequence breakers, as chosen by its author; a token that holds one of them ends every match.
const BREAKERS: [char; 4] = ['\n', ':', '"', '*'];

/// Tokens that no match extends over, by their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakers(Arc<[bool]>);

impl Breakers {
    /// The breakers among the tokens with these bytes, in the order of their ids.
    pub(crate) fn among<'a>(tokens: impl Iterator<Item = &'a [u8]>) -> Breakers {
        let is_breaker = |bytes: &[u8]| bytes.iter().any(|byte| BREAKERS.contains(&char::from(*byte)));
        Breakers(tokens.map(is_breaker).collect())
    }

    fn contains(&self, token: u32) -> bool {
        self.0.get(token as usize).copied().unwrap_or(false)
    }
}

/// The tokens so far, and the cost of their repetition.
#[derive(Debug)]
pub(super) struct Dry {
    options: DryOptions,
    breakers: Breakers,
    tokens: Vec<u32>,
    /// Length of the match between the end of the text and the text before each place, from the end on; reused.
    matches: Vec<usize>,
    /// The longest match that each token would continue; reused.
    longest: HashMap<u32, usize>,
}

impl Dry {
    pub(super) fn new(options: DryOptions, breakers: Breakers) -> Dry {
        let (tokens, matches, longest) = (Vec::new(), Vec::new(), HashMap::new());
        Dry { options, breakers, tokens, matches, longest }
    }

    pub(super) fn observe(&mut self, token: u32) {
        self.tokens.push(token);
    }

    pub(super) fn penalize(&mut self, logits: &mut [f32]) {
        self.find_matches();
        let DryOptions { multiplier, base, allowed_length, .. } = self.options;
        for (token, length) in &self.longest {
            let Some(logit) = logits.get_mut(*token as usize) else { continue };
            let exponent = (length - allowed_length).min(i32::MAX as usize) as i32;
            // Without a bound the penalty of a long repetition would not be a number.
            *logit -= (multiplier * base.powi(exponent)).min(f32::MAX / 2.0);
        }
    }

    /// Finds the longest match that each token would continue, in time linear in the tokens: the Z-function of the
    /// reversed text gives, for every place, how far the text before it agrees with the end.
    fn find_matches(&mut self) {
        self.longest.clear();
        let n_looked_at =
            if self.options.window == 0 { self.tokens.len() } else { self.options.window.min(self.tokens.len()) };
        let last = |back: usize| self.tokens[self.tokens.len() - 1 - back];
        let most = (0..n_looked_at).take_while(|back| !self.breakers.contains(last(*back))).count();
        self.matches.clear();
        self.matches.resize(n_looked_at, 0);
        // The tokens from `start` to `end`, counted from the end, are known to agree with the end.
        let (mut start, mut end) = (0, 0);
        for place in 1..n_looked_at {
            let mut length = if place < end { self.matches[place - start].min(end - place) } else { 0 };
            while place + length < n_looked_at && last(length) == last(place + length) {
                length += 1;
            }
            if place + length > end {
                (start, end) = (place, place + length);
            }
            self.matches[place] = length;
            let (length, next) = (length.min(most), last(place - 1));
            // A breaker continues no repetition.
            if length >= self.options.allowed_length.max(1) && !self.breakers.contains(next) {
                let longest = self.longest.entry(next).or_default();
                *longest = length.max(*longest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;

    /// Token 9 is a breaker.
    fn dry(options: DryOptions, tokens: &[u32]) -> Dry {
        let texts = (0..10).map(|id| if id == 9 { b"a:".as_slice() } else { b"a" });
        let mut dry = Dry::new(options, Breakers::among(texts));
        tokens.iter().for_each(|token| dry.observe(*token));
        dry
    }

    /// The penalty of a token, straight from the description.
    fn by_description(options: DryOptions, tokens: &[u32], token: u32) -> f32 {
        if token == 9 {
            return 0.0;
        }
        let start = if options.window == 0 { 0 } else { tokens.len().saturating_sub(options.window) };
        let tokens = &tokens[start..];
        let is_match = |length: &usize| {
            let end = &tokens[tokens.len() - length..];
            let places = (0..tokens.len() - length).filter(|place| tokens[place + length] == token);
            !end.contains(&9) && places.into_iter().any(|place| &tokens[place..place + length] == end)
        };
        let longest = (1..tokens.len()).filter(is_match).max().filter(|length| *length >= options.allowed_length);
        longest.map_or(0.0, |length| options.multiplier * options.base.powi((length - options.allowed_length) as i32))
    }

    #[test]
    fn the_penalties_are_those_of_the_description() {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let mut n_penalties = 0;
        for case in 0..300 {
            let n_kinds = 2 + case % 3;
            let tokens: Vec<u32> =
                (0..40).map(|_| if random.next_u32() % 12 == 0 { 9 } else { random.next_u32() % n_kinds }).collect();
            let options = DryOptions {
                multiplier: 0.8,
                base: 1.75,
                allowed_length: 1 + case as usize % 3,
                window: [0, 16][case as usize % 2],
            };
            let mut logits = [0.0; 10];
            dry(options, &tokens).penalize(&mut logits);
            for (token, logit) in (0..).zip(logits) {
                let expected = by_description(options, &tokens, token);
                assert!(
                    (logit + expected).abs() <= 1e-4 * expected.max(1.0),
                    "{options:?} {tokens:?} {token}: {logit}"
                );
                n_penalties += usize::from(expected > 0.0);
            }
        }
        assert!(n_penalties > 200, "{n_penalties}");
    }

    #[test]
    fn a_repetition_without_end_stays_a_number() {
        let options = DryOptions { multiplier: 0.8, ..DryOptions::default() };
        let mut logits = [0.0; 10];
        dry(options, &[1; 5000]).penalize(&mut logits);
        assert!(logits[1].is_finite() && logits[1] < -1e30);
    }
}
