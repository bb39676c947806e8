//! How a request's next token is chosen: sampled within its constraint and guessed ahead, or given by the caller.

use hone_protocol::{FinishReason, GenerateError};

use crate::constraint::{ConstraintError, ConstraintState, Taken};
use crate::engine::prepare::Choice;
use crate::model::Speculation;
use crate::repetition::RepetitionWatch;
use crate::sampler::Sampler;
use crate::speculation::{Drafter, Guess};

/// The method by which a request's tokens are chosen.
pub(super) enum Decoding {
    /// By the sampler.
    Sampled(Box<Sampling>),
    /// Given: the caller supplied the answer.
    Forced {
        /// The tokens of the answer.
        tokens: Vec<u32>,
        /// Number of them that have been taken.
        n_taken: usize,
    },
}

/// A sampler, its constraint, and the drafter that guesses its choices.
pub(super) struct Sampling {
    sampler: Sampler,
    constraint: Option<Box<ConstraintState>>,
    drafter: Option<Drafter>,
    /// Watches an answer whose form is free.
    repetition: Option<RepetitionWatch>,
    repeats: bool,
    /// The number of guesses, and how many of them were right.
    guesses: (usize, usize),
}

impl Decoding {
    pub(super) fn new(choice: Choice, speculation: Speculation, prompt: &[u32]) -> Self {
        match choice {
            Choice::Sampled(mut sampler, constraint) => {
                prompt.iter().for_each(|token| sampler.observe(*token));
                let drafter = (speculation == Speculation::Auto).then(|| Drafter::new(prompt));
                let is_free = constraint.as_ref().is_none_or(|constraint| constraint.is_optional());
                let limit = Some(sampler.repetition_limit()).filter(|limit| *limit > 0 && is_free);
                Decoding::Sampled(Box::new(Sampling {
                    sampler: *sampler,
                    constraint,
                    drafter,
                    repetition: limit.map(RepetitionWatch::new),
                    repeats: false,
                    guesses: (0, 0),
                }))
            }
            Choice::Forced(tokens) => Decoding::Forced { tokens, n_taken: 0 },
        }
    }

    /// The next token.
    pub(super) fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerateError> {
        match self {
            Decoding::Sampled(sampling) => sampling.choose(logits),
            Decoding::Forced { tokens, n_taken } => Ok(tokens[*n_taken]),
        }
    }

    /// Records a token of the answer.
    pub(super) fn observe(&mut self, token: u32) {
        match self {
            Decoding::Sampled(sampling) => sampling.observe(token),
            Decoding::Forced { n_taken, .. } => *n_taken += 1,
        }
    }

    /// At most `most` guesses of the next tokens, all allowed by the constraint. For a forced answer, its next tokens.
    pub(super) fn draft(&mut self, most: usize, model: Option<&mut dyn Guess>) -> &[u32] {
        match self {
            Decoding::Sampled(sampling) => sampling.draft(most, model),
            Decoding::Forced { tokens, n_taken } => {
                let left = &tokens[*n_taken..];
                &left[..most.min(left.len())]
            }
        }
    }

    /// Records how many guesses of a step were right.
    pub(super) fn learn(&mut self, n_guessed: usize, n_right: usize) {
        if let Decoding::Sampled(sampling) = self {
            sampling.learn(n_guessed, n_right);
        }
    }

    /// Whether no more tokens can follow.
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Decoding::Sampled(sampling) => {
                sampling.constraint.as_ref().is_some_and(|constraint| constraint.is_complete())
            }
            Decoding::Forced { tokens, n_taken } => *n_taken == tokens.len(),
        }
    }

    /// Whether the answer repeats itself.
    pub(super) fn repeats(&self) -> bool {
        matches!(self, Decoding::Sampled(sampling) if sampling.repeats)
    }

    /// Ends the free text before an answer's form after at most `most_tokens` more tokens.
    pub(super) fn conclude(&mut self, most_tokens: usize) {
        if let Decoding::Sampled(sampling) = self {
            sampling.constraint.iter_mut().for_each(|constraint| constraint.conclude(most_tokens));
        }
    }

    /// The bytes that complete a JSON answer cut off here.
    pub(super) fn closing(&self) -> Vec<u8> {
        match self {
            Decoding::Sampled(sampling) => {
                sampling.constraint.as_ref().and_then(|constraint| constraint.closing()).unwrap_or_default()
            }
            Decoding::Forced { .. } => Vec::new(),
        }
    }

    /// Why an answer that the model has completed ended.
    pub(super) fn end_reason(&self) -> FinishReason {
        match self {
            Decoding::Sampled(sampling) if sampling.was_concluded() => FinishReason::Concluded,
            _ => FinishReason::Stop,
        }
    }

    /// The number of guesses, and how many of them were right.
    pub(super) fn guesses(&self) -> (usize, usize) {
        match self {
            Decoding::Sampled(sampling) => sampling.guesses,
            Decoding::Forced { .. } => (0, 0),
        }
    }
}

impl Sampling {
    fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerateError> {
        // A form that is too complex is the request's fault; any other failure is not.
        let failed = |error: ConstraintError| match error {
            ConstraintError::TooInvolved(_) => GenerateError::Request(error.to_string()),
            _ => GenerateError::Failed(error.to_string()),
        };
        let no_choice = || GenerateError::Failed("the model's logits are not numbers: its file is damaged".into());
        let Some(constraint) = &mut self.constraint else {
            return self.sampler.sample(logits, |_| ()).ok_or_else(no_choice);
        };
        loop {
            let allowed = constraint.allowed().map_err(failed)?;
            let constrain = |logits: &mut [f32]| allowed.into_iter().for_each(|mask| mask.apply(logits));
            let token = self.sampler.sample(logits, constrain).ok_or_else(no_choice)?;
            if constraint.accept(token).map_err(failed)? == Taken::Appended {
                return Ok(token);
            }
        }
    }

    fn observe(&mut self, token: u32) {
        self.sampler.observe(token);
        self.drafter.iter_mut().for_each(|drafter| drafter.observe(token));
        self.repeats = self.repetition.as_mut().is_some_and(|watch| watch.push(token));
    }

    fn draft(&mut self, most: usize, model: Option<&mut dyn Guess>) -> &[u32] {
        let Some(drafter) = &mut self.drafter else { return &[] };
        let drafted = drafter.draft(most, model);
        let n_allowed = match &mut self.constraint {
            Some(constraint) => constraint.n_allowed(drafted),
            None => drafted.len(),
        };
        &drafted[..n_allowed]
    }

    fn was_concluded(&self) -> bool {
        self.constraint.as_ref().is_some_and(|constraint| constraint.was_concluded())
    }

    fn learn(&mut self, n_guessed: usize, n_right: usize) {
        if let Some(drafter) = self.drafter.as_mut().filter(|_| n_guessed > 0) {
            drafter.learn(n_guessed, n_right);
            self.guesses = (self.guesses.0 + n_guessed, self.guesses.1 + n_right);
        }
    }
}
