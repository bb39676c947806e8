//! What changes from one attempt at a verdict to the next: who is asked, and how much of the answers is shown.

use std::time::Instant;

use hone_protocol::prospect::NO_ROOM;
use hone_protocol::{GenerateError, Judging};

use crate::judge::Judge;
use crate::request::{Overflow, Request};
use crate::settings::Fallback;

/// Answers are not shortened to less than this many characters: what is left would say nothing about them.
const LEAST_CHARACTERS: usize = 64;
/// How often a prompt is shortened before the judge gives up.
const MOST_ATTEMPTS: usize = 8;

/// Who is asked, how much of the answers is shown, and what it has cost so far.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    judge: Judge,
    answered_by: String,
    /// The model that is asked.
    pub(crate) model: String,
    /// Characters of the answers that are shown, in all.
    pub(crate) shown: usize,
    n_shortened: usize,
    tokens_before: usize,
    queue_seconds_before: f64,
    started: Instant,
}

impl Attempt {
    /// The first attempt, over answers that have `characters` characters together.
    pub(crate) fn first(judge: &Judge, answered_by: &str, characters: usize) -> Attempt {
        Attempt {
            judge: judge.clone(),
            answered_by: answered_by.to_owned(),
            model: judge.settings().model.clone(),
            shown: characters,
            n_shortened: 0,
            tokens_before: 0,
            queue_seconds_before: 0.0,
            started: Instant::now(),
        }
    }

    /// Shows less of the answers.
    ///
    /// # Errors
    /// When that would not help.
    pub(crate) fn shorten(&mut self, overflow: Overflow) -> Result<(), String> {
        let Overflow { prompt_tokens, prompt_characters, context, room } = overflow;
        let excess = prompt_tokens.saturating_sub(room);
        let characters_per_token = prompt_characters as f64 / prompt_tokens.max(1) as f64;
        // The average says what would fit, if the answers were like the rest of the prompt. Since they may not be, a little
        // more is taken out, and one attempt never takes out nearly everything or nearly nothing.
        let fitting = self.shown as f64 - excess as f64 * characters_per_token;
        let shown = ((0.9 * fitting - 40.0).max(0.0) as usize).clamp(self.shown / 4, self.shown - self.shown / 4);
        if room == 0 || shown < LEAST_CHARACTERS || self.n_shortened == MOST_ATTEMPTS {
            return Err(format!(
                "the prompt has {prompt_tokens} tokens, and the judge's context of {context} leaves room for {room}: \
                 {NO_ROOM}"
            ));
        }
        self.n_shortened += 1;
        self.shown = shown;
        Ok(())
    }

    /// Lets the answering model stand in for the judge where the judge cannot be loaded.
    ///
    /// # Errors
    /// What keeps the judge from judging, where nobody can stand in.
    pub(crate) fn fall_back(&mut self, error: &GenerateError) -> Result<(), String> {
        match error {
            GenerateError::Model { .. } => {}
            GenerateError::TimedOut { .. } => return Err("timeout".to_owned()),
            error => return Err(error.to_string()),
        }
        let settings = self.judge.settings();
        let is_judge = self.model == settings.model;
        let has_other = !self.answered_by.is_empty() && self.answered_by != self.model;
        if settings.fallback == Fallback::Generator && is_judge && has_other {
            self.judge.tell_once(&format!("{error}: {} grades its own answers instead", self.answered_by));
            self.model = self.answered_by.clone();
            return Ok(());
        }
        self.judge.tell_once(&format!("{error}: answers stay without a score"));
        Err(error.to_string())
    }

    /// Keeps account of a request that is given up for another one.
    pub(crate) fn count(&mut self, request: &Request) {
        self.tokens_before += request.completion().token_ids.len();
        self.queue_seconds_before += request.completion().timings.queue_seconds;
    }

    /// What the judging took, with the requests that were not given up. A model that never began on them, as it was not
    /// there or had no time to, is not named: it has judged nothing.
    pub(crate) fn judging(&self, requests: &[Request], failure: Option<String>) -> Judging {
        let (mut tokens, mut queue_seconds, mut has_begun) = (0, 0.0_f64, failure.is_none());
        for completion in requests.iter().map(Request::completion) {
            tokens += completion.token_ids.len();
            queue_seconds = queue_seconds.max(completion.timings.queue_seconds);
            has_begun |= !completion.prompt_token_ids.is_empty();
        }
        Judging {
            judge: if has_begun { self.model.clone() } else { String::new() },
            self_graded: has_begun && self.model == self.answered_by,
            tokens: self.tokens_before + tokens,
            seconds: self.started.elapsed().as_secs_f64(),
            queue_seconds: self.queue_seconds_before + queue_seconds,
            failure,
        }
    }
}
