//! State of the attempts at a verdict: the model that is asked, and how much of the answers is shown.

use std::sync::Arc;
use std::time::Instant;

use hone_protocol::prospect::NO_ROOM;
use hone_protocol::{FinishReason, GenerateError, Judging, JudgingMethod};

use crate::fallback::FallbackJudge;
use crate::judge::Judge;
use crate::likelihood::Likelihood;
use crate::request::{JudgeRequest, Limit, Overflow};

/// Minimum characters of shortened answers; fewer would be meaningless.
const LEAST_CHARACTERS: usize = 64;
/// Maximum number of times a prompt is shortened before the judge gives up.
const MOST_ATTEMPTS: usize = 8;

/// The model that is asked, how much of the answers is shown, and the cost so far.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    judge: Judge,
    answered_by: String,
    /// The model that is asked.
    pub(crate) model: String,
    /// How it is asked.
    pub(crate) method: Method,
    /// Total characters of the answers that are shown.
    pub(crate) shown: usize,
    n_shortened: usize,
    tokens_before: usize,
    queue_seconds_before: f64,
    started: Instant,
}

/// How a model judges.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// It is asked for a verdict.
    Prompted,
    /// The likelihood judge uses its log-probabilities.
    Likelihood(Arc<Likelihood>),
    /// Its head gives a reward.
    Reward,
}

impl Attempt {
    /// The first attempt, for answers with `characters` characters in total.
    pub(crate) fn first(judge: &Judge, answered_by: &str, characters: usize) -> Attempt {
        let mut attempt = Attempt {
            judge: judge.clone(),
            answered_by: answered_by.to_owned(),
            model: judge.settings().model.clone(),
            method: if judge.is_reward_model() { Method::Reward } else { Method::Prompted },
            shown: characters,
            n_shortened: 0,
            tokens_before: 0,
            queue_seconds_before: 0.0,
            started: Instant::now(),
        };
        judge.first_stand_in(answered_by).into_iter().for_each(|stand_in| attempt.replace_judge(stand_in));
        attempt
    }

    fn replace_judge(&mut self, stand_in: FallbackJudge) {
        match stand_in {
            FallbackJudge::Generator => {
                self.model = self.answered_by.clone();
                self.method = Method::Prompted;
            }
            FallbackJudge::Likelihood(likelihood) => {
                self.model = likelihood.name.clone();
                self.method = Method::Likelihood(likelihood);
            }
        }
    }

    /// Shortens the shown answers.
    ///
    /// # Errors
    /// If shortening would not help.
    pub(crate) fn shorten(&mut self, overflow: Overflow) -> Result<(), String> {
        let Overflow { prompt_tokens, prompt_characters, room, limit } = overflow;
        let excess = prompt_tokens.saturating_sub(room);
        let characters_per_token = prompt_characters as f64 / prompt_tokens.max(1) as f64;
        // The average gives the length that would fit if the answers had as many characters per token as the rest of
        // the prompt. Since they may not, a little more is removed, and one attempt never removes nearly everything or
        // nearly nothing.
        let fitting = self.shown as f64 - excess as f64 * characters_per_token;
        let shown = ((0.9 * fitting - 40.0).max(0.0) as usize).clamp(self.shown / 4, self.shown - self.shown / 4);
        self.shown = match limit {
            Limit::Time => shown.max(LEAST_CHARACTERS),
            Limit::Context(context) if room == 0 || shown < LEAST_CHARACTERS || self.n_shortened == MOST_ATTEMPTS => {
                return Err(format!(
                    "the prompt has {prompt_tokens} tokens, and the judge's context of {context} leaves room for {room}: \
                     {NO_ROOM}"
                ));
            }
            Limit::Context(_) => shown,
        };
        self.n_shortened += 1;
        Ok(())
    }

    /// Whether showing less of the answers would save a significant amount of time.
    pub(crate) fn can_be_shortened(&self) -> bool {
        self.shown > 2 * LEAST_CHARACTERS && self.n_shortened < MOST_ATTEMPTS
    }

    /// The model that gave the first of the answers.
    pub(crate) fn answered_by(&self) -> &str {
        &self.answered_by
    }

    /// Makes the configured fallback stand in for the judge if the judge cannot be loaded.
    ///
    /// # Errors
    /// The judge's failure, if no model can stand in.
    pub(crate) fn fall_back(&mut self, error: &GenerateError) -> Result<(), String> {
        match error {
            GenerateError::Model { .. } => {}
            GenerateError::TimedOut { .. } => return Err("timeout".to_owned()),
            error => return Err(error.to_string()),
        }
        let fallback = match self.model == self.judge.settings().model {
            true => self.judge.fallback(&self.answered_by),
            false => Err(String::new()),
        };
        match fallback {
            Ok(stand_in) => {
                let who = match &stand_in {
                    FallbackJudge::Generator => format!("{} grades its own answers", self.answered_by),
                    FallbackJudge::Likelihood(_) => "the likelihood judge grades".to_owned(),
                };
                self.judge.tell_once(&format!("{error}: {who} instead"));
                self.replace_judge(stand_in);
                Ok(())
            }
            Err(reason) => {
                let separator = if reason.is_empty() { "" } else { "; " };
                let failure = format!("{error}{separator}{reason}");
                self.judge.tell_once(&format!("{failure}: answers stay without a score"));
                Err(failure)
            }
        }
    }

    /// Whether the model that answered is asked in the judge's place.
    pub(crate) fn is_by_stand_in(&self) -> bool {
        matches!(self.method, Method::Prompted) && self.model != self.judge.settings().model
    }

    /// Adds the cost of a request that is abandoned for another one.
    pub(crate) fn count(&mut self, request: &JudgeRequest) {
        self.tokens_before += request.completion().token_ids.len();
        self.queue_seconds_before += request.completion().timings.queue_seconds;
    }

    /// The cost of the judging, including the requests that were not abandoned. A model that never started, because it
    /// was missing or had no time, is not named, since it has judged nothing.
    pub(crate) fn judging(&self, requests: &[JudgeRequest], failure: Option<String>) -> Judging {
        let (mut tokens, mut queue_seconds, mut has_begun) = (0, 0.0_f64, failure.is_none());
        let is_concluded = |request: &JudgeRequest| request.completion().finish_reason == Some(FinishReason::Concluded);
        for completion in requests.iter().map(JudgeRequest::completion) {
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
            concluded_early: requests.iter().any(is_concluded),
            method: match self.method {
                Method::Prompted => JudgingMethod::Prompted,
                Method::Likelihood(_) => JudgingMethod::Likelihood,
                Method::Reward => JudgingMethod::Reward,
            },
        }
    }
}
