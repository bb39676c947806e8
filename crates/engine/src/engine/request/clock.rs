//! When a request arrived, and how long its parts took.

use std::time::{Duration, Instant};

use hone_protocol::Timings;

/// A request's timings.
pub(super) struct Clock {
    arrived: Instant,
    first_step: Option<FirstStep>,
    first_token: Option<Instant>,
    /// How long its steps may take in total.
    pub(super) time_limit: Option<Duration>,
}

struct FirstStep {
    at: Instant,
    /// Tokens that the cache held at the first step.
    n_cached: usize,
}

/// A request's token counts.
pub(super) struct Counts {
    pub(super) prompt: usize,
    pub(super) generated: usize,
    pub(super) guessed: usize,
    pub(super) guessed_right: usize,
}

impl Clock {
    pub(super) fn new(arrived: Instant, time_limit: Option<Duration>) -> Self {
        Clock { arrived, first_step: None, first_token: None, time_limit }
    }

    /// A step begins while the cache holds this many of the request's tokens. Returns whether it is the first step.
    pub(super) fn step_begins(&mut self, n_cached: usize) -> bool {
        let is_first = self.first_step.is_none();
        self.first_step.get_or_insert_with(|| FirstStep { at: Instant::now(), n_cached });
        is_first
    }

    /// A token of the answer is about to be chosen.
    pub(super) fn token_comes(&mut self) {
        self.first_token.get_or_insert_with(Instant::now);
    }

    /// Whether a token of the answer has been chosen.
    pub(super) fn has_token(&self) -> bool {
        self.first_token.is_some()
    }

    pub(super) fn timings(&self, counts: &Counts) -> Timings {
        let now = Instant::now();
        let (first_step, n_cached) = self.first_step.as_ref().map_or((now, 0), |first| (first.at, first.n_cached));
        let first_token = self.first_token.unwrap_or(now);
        let prompt_seconds = (first_token - first_step).as_secs_f64();
        let generation_seconds = (now - first_token).as_secs_f64();
        let rate = |count: usize, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Timings {
            prompt_tokens: counts.prompt,
            cached_tokens: n_cached,
            queue_seconds: (first_step - self.arrived).as_secs_f64(),
            prompt_seconds,
            prompt_tokens_per_second: rate(counts.prompt - n_cached, prompt_seconds),
            generation_tokens: counts.generated,
            generation_seconds,
            generation_tokens_per_second: rate(counts.generated.saturating_sub(1), generation_seconds),
            guessed_tokens: counts.guessed,
            accepted_tokens: counts.guessed_right,
        }
    }
}
