//! Guesses the next tokens from the existing text, so that one step can compute several tokens.
//!
//! Text repeats itself: an answer quotes its question, code names its variables again. If the last tokens occurred
//! before, the tokens that followed them then are a good guess for the next ones (prompt lookup,
//! <https://github.com/apoorvumang/prompt-lookup-decoding>). The step that would compute one token also computes the
//! guessed ones. The sampler then goes through the rows as it would have gone through single steps, and as soon as it
//! chooses a token that differs from the guess, the rest is discarded. So a guess never changes an answer, only its
//! time.
//!
//! Where nothing repeats itself, a second, smaller model may guess, if there is one ([`draft_model`]); otherwise the
//! model's own head, if its file has one ([`head`]).
//!
//! A guessed token costs a fraction of a step. Whether that pays off is tracked for every request and each way of
//! guessing: if it does not, guessing pauses, longer each time.

pub(crate) mod draft_model;
pub(crate) mod head;

/// The longest run of tokens that is searched for. A longer one would nearly always find the same places.
const LONGEST_MATCH: usize = 8;
/// The shortest run that is considered more than chance.
const SHORTEST_MATCH: usize = 2;

/// Minimum and maximum number of tokens guessed at once.
const DRAFT_LENGTHS: std::ops::RangeInclusive<usize> = 1..=12;

/// The cost of computing a guessed token, in steps; a right one saves one.
const COST: f32 = 0.2;
/// The steps that guessing may lose before it pauses, and the most that it can save up.
const CREDIT: f32 = 2.0;
/// The steps that it may lose after a pause.
const CREDIT_AFTER_REST: f32 = 0.4;
/// Tokens of the first pause; every pause is twice as long as the one before.
const FIRST_REST: usize = 16;

/// A model that guesses.
pub(crate) trait Guess {
    /// The cost of a guessed token before it is verified, in steps.
    fn relative_cost(&self) -> f32;

    /// Appends up to `most` tokens to `drafted` that may follow `tokens`, or no tokens if it cannot guess.
    fn guess(&mut self, tokens: &[u32], most: usize, drafted: &mut Vec<u32>);
}

/// Makes guesses for one request.
#[derive(Debug)]
pub(crate) struct Drafter {
    /// The prompt and the answer so far.
    tokens: Vec<u32>,
    lookup: Pace,
    model: Pace,
    /// The current guess, and whether a model made it.
    drafted: Vec<u32>,
    is_of_model: bool,
}

impl Drafter {
    pub(crate) fn new(prompt: &[u32]) -> Self {
        Drafter {
            tokens: prompt.to_vec(),
            lookup: Pace::default(),
            model: Pace::default(),
            drafted: Vec::new(),
            is_of_model: false,
        }
    }

    /// Records a token of the answer.
    pub(crate) fn observe(&mut self, token: u32) {
        self.tokens.push(token);
        self.lookup.pass_token();
        self.model.pass_token();
    }

    /// Guesses at most `most` of the next tokens.
    pub(crate) fn draft(&mut self, most: usize, model: Option<&mut dyn Guess>) -> &[u32] {
        self.drafted.clear();
        self.look_up(most);
        self.is_of_model = self.drafted.is_empty();
        if let Some(model) = model.filter(|_| self.is_of_model) {
            self.model.cost = COST + model.relative_cost();
            model.guess(&self.tokens, self.model.length().min(most), &mut self.drafted);
        }
        &self.drafted
    }

    /// Records how many of the first `n_drafted` guessed tokens were right.
    pub(crate) fn learn(&mut self, n_drafted: usize, n_accepted: usize) {
        match self.is_of_model {
            true => self.model.learn(n_drafted, n_accepted),
            false => self.lookup.learn(n_drafted, n_accepted),
        }
    }

    fn look_up(&mut self, most: usize) {
        let most = self.lookup.length().min(most);
        if most == 0 {
            return;
        }
        if let Some(start) = self.continuation() {
            let end = (start + most).min(self.tokens.len());
            self.drafted.extend_from_slice(&self.tokens[start..end]);
        }
    }

    /// The index after the longest earlier occurrence of the tokens that end the text; the latest of several.
    fn continuation(&self) -> Option<usize> {
        let last = *self.tokens.last()?;
        let mut best = (SHORTEST_MATCH - 1, None);
        for end in (1..self.tokens.len()).rev() {
            if self.tokens[end - 1] != last {
                continue;
            }
            let length = self.match_length(end);
            if length > best.0 {
                best = (length, Some(end));
                if length == LONGEST_MATCH {
                    break;
                }
            }
        }
        best.1
    }

    /// Number of tokens before `end` that match the end of the text, up to the longest run that is searched for.
    fn match_length(&self, end: usize) -> usize {
        let before = self.tokens[..end].iter().rev();
        before.zip(self.tokens.iter().rev()).take(LONGEST_MATCH).take_while(|(a, b)| a == b).count()
    }
}

/// Decides how much is guessed: more after right guesses, and nothing for a while if guessing does not pay off.
#[derive(Debug)]
struct Pace {
    /// Cost of a guessed token, in steps.
    cost: f32,
    length: usize,
    credit: f32,
    rest: usize,
    next_rest: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { cost: COST, length: *DRAFT_LENGTHS.start(), credit: CREDIT, rest: 0, next_rest: FIRST_REST }
    }
}

impl Pace {
    /// Maximum number of tokens in the next guess.
    fn length(&self) -> usize {
        if self.rest > 0 { 0 } else { self.length }
    }

    fn pass_token(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    fn learn(&mut self, n_drafted: usize, n_accepted: usize) {
        let (shortest, longest) = DRAFT_LENGTHS.into_inner();
        self.length = match n_accepted == n_drafted {
            true => (2 * self.length).min(longest),
            false => (n_accepted + 1).max(shortest),
        };
        self.credit = (self.credit + n_accepted as f32 - self.cost * n_drafted as f32).min(CREDIT);
        if self.credit < 0.0 {
            self.rest = self.next_rest;
            self.next_rest *= 2;
            self.credit = CREDIT_AFTER_REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tokens: &[u32], expected: &[u32]) {
        let mut drafter = Drafter::new(tokens);
        drafter.lookup.length = 4;
        assert_eq!(drafter.draft(usize::MAX, None), expected, "{tokens:?}");
        assert_eq!(drafter.draft(1, None), &expected[..expected.len().min(1)], "{tokens:?}");
        assert!(drafter.draft(0, None).is_empty());
    }

    #[test]
    fn the_longest_run_that_stood_before_goes_on() {
        check(&[], &[]);
        check(&[1], &[]);
        check(&[1, 2, 3], &[]);
        check(&[1, 2, 3, 2], &[]);
        check(&[1, 2, 3, 4, 5, 6, 1, 2], &[3, 4, 5, 6]);
        check(&[1, 2, 3, 1, 2], &[3, 1, 2]);
        check(&[1, 2, 3, 9, 2, 4, 1, 2], &[3, 9, 2, 4]);
        check(&[1, 2, 3, 1, 2, 4, 1, 2], &[4, 1, 2]);
        check(&[0, 1, 2, 3, 7, 1, 2, 4, 0, 1, 2], &[3, 7, 1, 2]);
        check(&[5, 5, 5], &[5]);
    }

    #[test]
    fn right_guesses_grow_and_wrong_ones_shrink() {
        let mut pace = Pace::default();
        pace.learn(1, 1);
        pace.learn(2, 2);
        pace.learn(4, 4);
        assert_eq!(pace.length, 8);
        pace.learn(8, 3);
        assert_eq!(pace.length, 4);
        pace.learn(4, 0);
        assert_eq!(pace.length, 1);
        (0..9).for_each(|_| pace.learn(pace.length, pace.length));
        assert_eq!(pace.length, *DRAFT_LENGTHS.end());
    }

    #[test]
    fn guesses_that_are_wrong_too_often_rest() {
        let mut drafter = Drafter::new(&[1, 2, 3, 1, 2]);
        let mut n_guesses = 0;
        for _ in 0..1000 {
            if !drafter.draft(9, None).is_empty() {
                n_guesses += 1;
                drafter.learn(2, 0);
            }
            drafter.observe(1);
            drafter.observe(2);
        }
        assert!((6..40).contains(&n_guesses), "{n_guesses}");
        let mut drafter = Drafter::new(&[1, 2, 3, 1, 2]);
        drafter.draft(9, None);
        (0..100).for_each(|_| drafter.learn(4, 1));
        assert!(!drafter.draft(9, None).is_empty(), "one in four pays");
    }
}
