//! Measures the cost of a round of generation, even if it ends before its generator reports it.
//!
//! A round that calls a tool ends as soon as the call is complete, and a cancelled one ends at once. Its cost until
//! then is derived from its events: how much of the prompt was in the KV cache, and when each event came.

use std::time::{Duration, Instant};

use hone_protocol::{GenerationEvent, Timings};

/// Watches the events of one round.
#[derive(Debug)]
pub(crate) struct RoundClock {
    asked: Instant,
    /// When the prompt's processing began.
    began: Option<Instant>,
    first_token: Option<Instant>,
    latest: Instant,
    prompt_tokens: usize,
    cached_tokens: usize,
    /// Processed prompt tokens, including cached ones.
    done: usize,
    generation_tokens: usize,
    /// The generator's own report, at the end.
    told: Option<Timings>,
}

impl RoundClock {
    /// Starts the clock of a round that is requested now.
    pub(crate) fn started(now: Instant) -> RoundClock {
        RoundClock {
            asked: now,
            began: None,
            first_token: None,
            latest: now,
            prompt_tokens: 0,
            cached_tokens: 0,
            done: 0,
            generation_tokens: 0,
            told: None,
        }
    }

    /// Records an event.
    pub(crate) fn take(&mut self, event: &GenerationEvent, now: Instant) {
        self.latest = now;
        match event {
            GenerationEvent::Started { prompt_token_ids, .. } => self.prompt_tokens = prompt_token_ids.len(),
            GenerationEvent::Prefill { done, .. } => {
                if self.began.is_none() {
                    self.began = Some(now);
                    self.cached_tokens = *done;
                }
                self.done = *done;
            }
            GenerationEvent::Token { .. } => {
                self.first_token.get_or_insert(now);
                self.generation_tokens += 1;
            }
            GenerationEvent::Finished { timings, .. } => self.told = Some(*timings),
            GenerationEvent::Loading { .. }
            | GenerationEvent::OfPrompt(_)
            | GenerationEvent::Reward(_)
            | GenerationEvent::StoppedBy(_)
            | GenerationEvent::Failed(_) => {}
        }
    }

    /// The cost of the round so far.
    pub(crate) fn timings(&self) -> Timings {
        self.told.unwrap_or_else(|| self.measured())
    }

    fn measured(&self) -> Timings {
        let began = self.began.unwrap_or(self.latest);
        let first_token = self.first_token.unwrap_or(self.latest);
        let (prompt, generation) = (first_token - began, self.latest - first_token);
        Timings {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens,
            queue_seconds: (began - self.asked).as_secs_f64(),
            prompt_seconds: prompt.as_secs_f64(),
            prompt_tokens_per_second: speed(self.done.saturating_sub(self.cached_tokens), prompt),
            generation_tokens: self.generation_tokens,
            generation_seconds: generation.as_secs_f64(),
            generation_tokens_per_second: speed(self.generation_tokens.saturating_sub(1), generation),
            ..Timings::default()
        }
    }
}

fn speed(tokens: usize, duration: Duration) -> f64 {
    if duration.is_zero() { 0.0 } else { tokens as f64 / duration.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_is_cut_off_has_cost_what_its_events_tell() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut clock = RoundClock::started(start);
        let token = || GenerationEvent::Token { id: 1, text: String::new(), logprobs: None };
        clock.take(&GenerationEvent::Started { prompt_token_ids: vec![1; 100], reasoning: None }, at(1));
        for (seconds, done) in [(2, 60), (4, 90), (6, 100)] {
            clock.take(&GenerationEvent::Prefill { done, total: 100 }, at(seconds));
        }
        [6, 7, 8].into_iter().for_each(|seconds| clock.take(&token(), at(seconds)));
        let expected = Timings {
            prompt_tokens: 100,
            cached_tokens: 60,
            queue_seconds: 2.0,
            prompt_seconds: 4.0,
            prompt_tokens_per_second: 10.0,
            generation_tokens: 3,
            generation_seconds: 2.0,
            generation_tokens_per_second: 1.0,
            ..Timings::default()
        };
        assert_eq!(clock.timings(), expected);
    }

    #[test]
    fn what_the_generator_says_counts() {
        let timings = Timings { guessed_tokens: 7, ..Timings::default() };
        let mut clock = RoundClock::started(Instant::now());
        let reason = hone_protocol::FinishReason::Stop;
        clock.take(&GenerationEvent::Finished { reason, text: String::new(), timings }, Instant::now());
        assert_eq!(clock.timings(), timings);
    }
}
