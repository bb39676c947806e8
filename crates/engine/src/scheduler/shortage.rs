//! Handles requests that run short of time, where they say how they can be shortened.
//!
//! Both decisions rest on the request's own measurements: the speed of its prompt and of its answer so far.

use std::time::Duration;

use super::admission::Turn;
use super::request::Request;
use super::{RequestId, Scheduler};

/// Maximum number of tokens by which free text may continue when it is ended: about a sentence.
pub(crate) const LAST_SENTENCE_TOKENS: usize = 24;
/// The share of the time limit that the prompt may take; the rest is for the answer.
const PROMPT_SHARE: f64 = 0.6;
/// The share of the time limit after which the speed of the prompt is known well enough.
const MEASURED_SHARE: f64 = 0.1;
/// Factor on the expected time of the last tokens, because machines are not equally fast all the time.
const MARGIN: f64 = 1.5;

/// Why the time of a request runs short.
enum Shortage {
    /// The prompt takes too long; this many of its tokens would fit.
    Prompt(usize),
    /// The free text of the answer must end now.
    Answer,
}

impl Scheduler {
    /// Finds the requests whose time runs short. Requests whose prompts take too long are forgotten.
    pub(super) fn find_shortages(&mut self, turn: &mut Turn) {
        let short: Vec<(RequestId, Shortage)> =
            self.requests.values().filter_map(|request| Some((request.id, request.shortage()?))).collect();
        for (id, shortage) in short {
            match shortage {
                Shortage::Prompt(room) => {
                    let lane = self.requests[&id].lane;
                    self.metrics.lane_mut(lane).counts.timed_out += 1;
                    self.forget(id);
                    turn.too_slow.push((id, room));
                }
                Shortage::Answer => {
                    self.requests.get_mut(&id).into_iter().for_each(|request| request.is_concluding = true);
                    turn.concluding.push(id);
                }
            }
        }
    }
}

impl Request {
    fn shortage(&self) -> Option<Shortage> {
        let limit = self.time_limit.filter(|_| self.is_running())?;
        match self.generated {
            0 if self.can_be_shortened => self.room_for_prompt(limit).map(Shortage::Prompt),
            1.. if !self.is_concluding => {
                self.must_conclude(limit, self.conclusion_tokens?).then_some(Shortage::Answer)
            }
            _ => None,
        }
    }

    /// Number of tokens of the prompt that can be computed in time; `None` if all of them can, or if that is not known
    /// yet.
    fn room_for_prompt(&self, limit: Duration) -> Option<usize> {
        let n_done = self.n_paid();
        if self.ran < limit.mul_f64(MEASURED_SHARE) || n_done == 0 {
            return None;
        }
        let seconds_per_token = self.ran.as_secs_f64() / n_done as f64;
        let left = limit.mul_f64(PROMPT_SHARE).saturating_sub(self.ran).as_secs_f64();
        let n_possible = (left / seconds_per_token) as usize;
        (n_possible < self.uncomputed).then_some(self.computed + n_possible)
    }

    fn must_conclude(&self, limit: Duration, conclusion_tokens: usize) -> bool {
        let seconds_per_token = self.decode_ran.as_secs_f64() / self.n_decoded.max(1) as f64;
        let needed = MARGIN * seconds_per_token * (LAST_SENTENCE_TOKENS + conclusion_tokens) as f64;
        limit.saturating_sub(self.ran).as_secs_f64() < needed
    }
}
