//! A judge: a model, its settings, its profile and a rubric.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hone_protocol::{
    Constraint, Generate, GenerateRequest, Lane, LogprobOptions, Message, OwnerId, Prompt, Role, SamplingOptions,
    ThinkingOptions,
};

use crate::fence::FenceKey;
use crate::form::VerdictForm;
use crate::likelihood::{Fit, Likelihood};
use crate::neutralize::neutralized_against;
use crate::profile::{FeedbackMode, JudgeProfile};
use crate::prompt::JudgePrompt;
use crate::request::JudgeRequest;
use crate::rubric::Rubric;
use crate::settings::{InvalidJudgeSettings, JudgeSettings};
use crate::standing::Standings;

/// Grades and compares answers. Clones share one judge.
#[derive(Clone)]
pub struct Judge {
    shared: Arc<JudgeParts>,
    lane: Lane,
    /// The owner whose requests may use the KV cache of its verdicts, in addition to the terminal user.
    owner: Option<OwnerId>,
    /// Whether the author of the answers is unknown, so that no model counts as their author.
    is_author_unknown: bool,
    profile: Arc<JudgeProfile>,
    /// The profile of the model that answered if it stands in for the judge.
    stand_in: Arc<JudgeProfile>,
    rubric: Arc<Rubric>,
    /// Whether it writes its reasons, regardless of the settings and the profile.
    is_asked_why: bool,
    /// Whether its model is a reward model.
    is_reward_model: bool,
}

struct JudgeParts {
    generator: Arc<dyn Generate>,
    settings: JudgeSettings,
    key: FenceKey,
    likelihood: Option<Arc<Likelihood>>,
    standings: RwLock<Standings>,
    has_told: AtomicBool,
}

impl Judge {
    /// A judge that uses `generator` in the background, with the prompts of `profile`, and fences the texts it is shown
    /// with boundaries derived from `key`.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(
        generator: Arc<dyn Generate>,
        settings: JudgeSettings,
        profile: JudgeProfile,
        rubric: Rubric,
        key: FenceKey,
    ) -> Result<Judge, InvalidJudgeSettings> {
        settings.check_together(&profile)?;
        let likelihood = Likelihood::of_model(&settings.likelihood_model).map(Arc::new);
        let (standings, has_told) = (RwLock::default(), AtomicBool::new(false));
        let shared = JudgeParts { generator, settings, key, likelihood, standings, has_told };
        let (shared, profile, rubric) = (Arc::new(shared), Arc::new(profile), Arc::new(rubric));
        let stand_in = Arc::clone(&profile);
        Ok(Judge {
            shared,
            lane: Lane::Background,
            owner: None,
            is_author_unknown: false,
            profile,
            stand_in,
            rubric,
            is_asked_why: false,
            is_reward_model: false,
        })
    }

    /// Puts its requests in this lane.
    pub fn in_lane(self, lane: Lane) -> Judge {
        Judge { lane, ..self }
    }

    /// Sets the owner of the judged texts: the time that a verdict takes must not reveal them to another owner.
    pub fn of_owner(self, owner: Option<OwnerId>) -> Judge {
        Judge { owner, ..self }
    }

    /// Sets the answers' author as unknown: the model that stands in for the judge did not write them.
    pub fn of_unknown_authors(self) -> Judge {
        Judge { is_author_unknown: true, ..self }
    }

    /// Sets the profile of the model that answered, for when it stands in.
    pub fn with_stand_in(self, profile: JudgeProfile) -> Judge {
        Judge { stand_in: Arc::new(profile), ..self }
    }

    /// Makes it write its reasons before every verdict.
    pub fn with_reasons(self) -> Judge {
        Judge { is_asked_why: true, ..self }
    }

    /// Sets whether its model is a reward model, which is not asked but rates answers.
    pub fn of_reward_model(self, is_reward_model: bool) -> Judge {
        Judge { is_reward_model, ..self }
    }

    /// Whether its model is a reward model.
    pub fn is_reward_model(&self) -> bool {
        self.is_reward_model
    }

    /// When it writes its reasons.
    pub fn feedback(&self) -> FeedbackMode {
        match self.is_asked_why {
            true => FeedbackMode::Always,
            false => self.settings().feedback.unwrap_or(self.profile.feedback),
        }
    }

    /// Sets the rubric.
    pub(crate) fn with_rubric(self, rubric: Rubric) -> Judge {
        Judge { rubric: Arc::new(rubric), ..self }
    }

    /// The model that answered, in the judge's place.
    pub(crate) fn standing_in(self) -> Judge {
        Judge { profile: Arc::clone(&self.stand_in), ..self }
    }

    /// Whether its verdicts may be shown.
    pub fn standings(&self) -> Standings {
        self.shared.standings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes which verdicts may be shown, starting with the next answer.
    pub fn set_standings(&self, standings: Standings) {
        *self.shared.standings.write().unwrap_or_else(PoisonError::into_inner) = standings;
    }

    /// The likelihood judge, if there are coefficients for the configured model.
    pub(crate) fn likelihood(&self) -> Option<Arc<Likelihood>> {
        self.shared.likelihood.clone()
    }

    /// Whether an answer of the model `answered_by` was written by the likelihood judge's own model.
    pub(crate) fn is_own(&self, likelihood: &Likelihood, answered_by: &str) -> bool {
        !self.is_author_unknown && likelihood.name == answered_by
    }

    /// The likelihood judge's fit for answers of the model `answered_by`.
    pub(crate) fn fit<'a>(&self, likelihood: &'a Likelihood, answered_by: &str) -> &'a Fit {
        if self.is_own(likelihood, answered_by) { &likelihood.own } else { &likelihood.foreign }
    }

    /// The engine of its models.
    pub fn generator(&self) -> &Arc<dyn Generate> {
        &self.shared.generator
    }

    /// Its settings.
    pub fn settings(&self) -> &JudgeSettings {
        &self.shared.settings
    }

    /// The profile of its prompts and answers.
    pub fn profile(&self) -> &JudgeProfile {
        &self.profile
    }

    /// The profile of a model that is the judge's own or stands in for it.
    pub fn profile_for(&self, model: &str) -> &JudgeProfile {
        if model == self.settings().model { &self.profile } else { &self.stand_in }
    }

    /// The rubric used for grading.
    pub fn rubric(&self) -> &Rubric {
        &self.rubric
    }

    /// Asks `model` for a verdict; a prompt that can be shortened fails early if it takes too much of the time limit.
    pub(crate) fn ask(
        &self,
        model: &str,
        prompt: JudgePrompt,
        form: VerdictOptions,
        can_be_shortened: bool,
    ) -> JudgeRequest {
        let settings = self.settings();
        let prompt_characters = prompt.characters();
        let system = prompt.system.map(|system| Message::new(Role::System, system));
        let begun = Some(form.begun).filter(|text| !text.is_empty());
        let begun = begun.map(|text| Message::new(Role::Assistant, text));
        let messages = system.into_iter().chain([Message::new(Role::User, prompt.text)]).chain(begun).collect();
        let request = GenerateRequest {
            sampling: SamplingOptions {
                temperature: settings.temperature,
                seed: Some(form.seed),
                ..SamplingOptions::default()
            },
            max_tokens: Some(form.max_tokens),
            context: Some(settings.context),
            constraint: Some(form.constraint),
            logprobs: LogprobOptions { top: None, named: form.named, state: false, of_prompt: false },
            common_beginning: Some(prompt.beginning),
            lane: self.lane,
            owner: self.owner,
            thinking: form.thinking,
            time_limit: Some(form.time_limit.unwrap_or(settings.grade_timeout)),
            conclusion_tokens: Some(form.conclusion_tokens),
            can_be_shortened,
            ..GenerateRequest::new(model, Prompt::Chat(messages))
        };
        JudgeRequest::start(&*self.shared.generator, request, prompt_characters)
    }

    /// The text without anything that the judge could take for a part of its prompt or of a verdict.
    pub(crate) fn neutralized(&self, text: &str) -> String {
        let profile = self.profile();
        neutralized_against(text, &[profile.score.markers(), profile.choice.markers()].concat())
    }

    /// Asks for the log-probabilities or the reward of an answer.
    pub(crate) fn ask_about(&self, request: GenerateRequest, answer: &str) -> JudgeRequest {
        let answer_characters = answer.chars().count();
        let settings = self.settings();
        let (lane, owner, time_limit) = (self.lane, self.owner, Some(settings.grade_timeout));
        let request = GenerateRequest { lane, owner, time_limit, ..request };
        JudgeRequest::start(&*self.shared.generator, request, answer_characters)
    }

    /// A prompt with these neutralized texts in their places, each in its fence.
    pub(crate) fn prompt(&self, system: &str, template: &str, texts: &[(&str, &str)]) -> JudgePrompt {
        let judged: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
        let (fenced, boundary) = self.shared.key.fenced(&self.settings().fence, &judged);
        let (criterion, scores) = self.profile().written(self.rubric());
        let rubric = format!("{criterion}\n{scores}");
        let shared = [("rubric", rubric.as_str()), ("criterion", &criterion), ("scores", &scores)];
        let mut values = vec![("boundary", boundary.as_str())];
        values.extend(texts.iter().zip(&fenced).map(|((name, _), text)| (*name, text.as_str())));
        JudgePrompt::new(system, self.profile().system_message, template, &shared, &values)
    }

    /// The constraints of a form of its profile, for one of several attempts that differ in their `seed`.
    pub(crate) fn form(&self, verdict: &VerdictForm, seed: u64) -> VerdictOptions {
        let feedback_tokens = self.settings().feedback_tokens;
        VerdictOptions {
            seed,
            constraint: verdict.constraint(feedback_tokens),
            max_tokens: verdict.max_tokens(feedback_tokens),
            conclusion_tokens: verdict.conclusion_tokens(feedback_tokens),
            named: verdict.named(),
            begun: verdict.alone.clone().unwrap_or_default(),
            thinking: ThinkingOptions { is_on: verdict.alone.as_ref().map(|_| false), ..ThinkingOptions::default() },
            time_limit: None,
        }
    }

    /// Logs a problem with the judge the first time it occurs.
    pub(crate) fn tell_once(&self, what: &str) {
        if !self.shared.has_told.swap(true, Ordering::Relaxed) {
            tracing::info!("{what}");
        }
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("settings", &self.shared.settings)
            .field("profile", &self.profile.name)
            .field("rubric", &self.rubric)
            .finish_non_exhaustive()
    }
}

/// The form that constrains a verdict.
pub struct VerdictOptions {
    /// Seed of the random choices, if the judge has a temperature: the same answer always gets the same verdict.
    pub(crate) seed: u64,
    pub(crate) constraint: Constraint,
    pub(crate) max_tokens: usize,
    /// Tokens needed after the free text.
    pub(crate) conclusion_tokens: usize,
    /// The beginning of its answer.
    pub(crate) begun: String,
    /// Tokens whose probabilities are requested.
    pub(crate) named: Vec<String>,
    /// Whether it thinks first, if its chat template supports that.
    pub(crate) thinking: ThinkingOptions,
    /// Time limit; `None` for the limit of a grading.
    pub(crate) time_limit: Option<Duration>,
}
