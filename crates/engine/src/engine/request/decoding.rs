//! How a request's next token is chosen: sampled within its constraint, and guessed ahead.

use hone_protocol::GenerateError;

use crate::constraint::{ConstraintError, ConstraintState, Taken};
use crate::sampler::Sampler;
use crate::scheduler::RequestId;
use crate::speculation::Drafter;
use crate::speculation::draft_model::DraftModel;

/// What chooses a request's tokens.
pub(super) struct Decoding {
    sampler: Sampler,
    constraint: Option<ConstraintState>,
    drafter: Option<Drafter>,
    /// The number of guesses, and how many of them were right.
    pub(super) guesses: (usize, usize),
}

impl Decoding {
    pub(super) fn new(
        mut sampler: Sampler,
        constraint: Option<ConstraintState>,
        drafter: Option<Drafter>,
        prompt: &[u32],
    ) -> Self {
        prompt.iter().for_each(|token| sampler.observe(*token));
        Decoding { sampler, constraint, drafter, guesses: (0, 0) }
    }

    /// The next token.
    pub(super) fn choose(&mut self, logits: &[f32]) -> Result<u32, GenerateError> {
        let failed = |error: ConstraintError| GenerateError::Failed(error.to_string());
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

    /// Records a token of the answer.
    pub(super) fn observe(&mut self, token: u32) {
        self.sampler.observe(token);
        self.drafter.iter_mut().for_each(|drafter| drafter.observe(token));
    }

    /// Guesses at most `most` of the next tokens, none of which the constraint would refuse.
    pub(super) fn draft(&mut self, most: usize, model: Option<(&mut DraftModel, RequestId)>) -> &[u32] {
        let Some(drafter) = &mut self.drafter else { return &[] };
        let drafted = drafter.draft(most, model);
        let n_allowed = match &mut self.constraint {
            Some(constraint) => constraint.n_allowed(drafted),
            None => drafted.len(),
        };
        &drafted[..n_allowed]
    }

    /// Records how many guesses of a step were right.
    pub(super) fn learn(&mut self, n_guessed: usize, n_right: usize) {
        if let Some(drafter) = self.drafter.as_mut().filter(|_| n_guessed > 0) {
            drafter.learn(n_guessed, n_right);
            self.guesses = (self.guesses.0 + n_guessed, self.guesses.1 + n_right);
        }
    }

    /// Whether the constraint allows nothing more.
    pub(super) fn is_complete(&self) -> bool {
        self.constraint.as_ref().is_some_and(ConstraintState::is_complete)
    }
}
