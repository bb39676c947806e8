//! A judge: a model, its settings, its profile and a rubric.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hone_protocol::{
    Constraint, Generate, GenerateRequest, Lane, LogprobOptions, Message, Prompt, Role, SamplingOptions,
};

use crate::fence::FenceKey;
use crate::form::VerdictForm;
use crate::neutralize::neutralized_against;
use crate::profile::JudgeProfile;
use crate::prompt::{JudgePrompt, fill};
use crate::request::Request;
use crate::rubric::Rubric;
use crate::settings::{CriticSettings, InvalidSettings};

/// Grades and compares answers. A clone is the same judge.
#[derive(Clone)]
pub struct Judge {
    shared: Arc<Shared>,
    lane: Lane,
}

struct Shared {
    generator: Arc<dyn Generate>,
    settings: CriticSettings,
    profile: JudgeProfile,
    rubric: Rubric,
    key: FenceKey,
    has_told: AtomicBool,
}

impl Judge {
    /// A judge that works with `generator`, in the background, is asked as `profile` says, and sees what it judges in fences
    /// made with `key`.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(
        generator: Arc<dyn Generate>,
        settings: CriticSettings,
        profile: JudgeProfile,
        rubric: Rubric,
        key: FenceKey,
    ) -> Result<Judge, InvalidSettings> {
        settings.check_together(&profile)?;
        let has_told = AtomicBool::new(false);
        Ok(Judge {
            shared: Arc::new(Shared { generator, settings, profile, rubric, key, has_told }),
            lane: Lane::Background,
        })
    }

    /// The same judge, whose verdicts are needed that soon.
    pub fn in_lane(self, lane: Lane) -> Judge {
        Judge { lane, ..self }
    }

    /// Its settings.
    pub fn settings(&self) -> &CriticSettings {
        &self.shared.settings
    }

    /// How it is asked, and in which form it answers.
    pub fn profile(&self) -> &JudgeProfile {
        &self.shared.profile
    }

    /// What it grades by.
    pub fn rubric(&self) -> &Rubric {
        &self.shared.rubric
    }

    /// Asks `model` for a verdict.
    pub(crate) fn ask(&self, model: &str, prompt: JudgePrompt, form: Form) -> Request {
        let settings = self.settings();
        let prompt_characters = prompt.characters();
        let system = prompt.system.map(|system| Message::new(Role::System, system));
        let messages = system.into_iter().chain([Message::new(Role::User, prompt.text)]).collect();
        let request = GenerateRequest {
            sampling: SamplingOptions {
                temperature: settings.temperature,
                seed: Some(form.seed),
                ..SamplingOptions::default()
            },
            max_tokens: Some(form.max_tokens),
            context: Some(settings.context),
            constraint: Some(form.constraint),
            logprobs: LogprobOptions { top: None, named: form.named },
            common_beginning: Some(prompt.beginning),
            lane: self.lane,
            time_limit: Some(settings.grade_timeout),
            ..GenerateRequest::new(model, Prompt::Chat(messages))
        };
        Request::start(&*self.shared.generator, request, prompt_characters)
    }

    /// A text in which nothing is left that the judge could take for a part of its prompt or of a verdict.
    pub(crate) fn neutralized(&self, text: &str) -> String {
        let profile = self.profile();
        neutralized_against(text, &[profile.score.markers(), profile.choice.markers()].concat())
    }

    /// A prompt with these texts, which are neutralized already, in their places, each in its fence.
    pub(crate) fn prompt(&self, system: &str, template: &str, texts: &[(&str, &str)]) -> JudgePrompt {
        let judged: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
        let boundary = self.shared.key.boundary(&judged);
        let fence = |text| fill(&self.settings().fence, &[("boundary", &boundary), ("text", text)]);
        let fenced: Vec<(&str, String)> = texts.iter().map(|(name, text)| (*name, fence(text))).collect();
        let (criterion, scores) = self.profile().written(self.rubric());
        let rubric = format!("{criterion}\n{scores}");
        let mut values = vec![("rubric", rubric.as_str()), ("criterion", &criterion), ("scores", &scores)];
        values.push(("boundary", &boundary));
        values.extend(fenced.iter().map(|(name, text)| (*name, text.as_str())));
        JudgePrompt::new(system, self.profile().system_message, template, &values)
    }

    /// What holds the judge to a form of its profile, in one of several attempts that differ in their `seed`.
    pub(crate) fn form(&self, verdict: &VerdictForm, seed: u64) -> Form {
        let feedback_tokens = self.settings().feedback_tokens;
        Form {
            seed,
            constraint: verdict.constraint(feedback_tokens),
            max_tokens: verdict.max_tokens(feedback_tokens),
            named: verdict.named(),
        }
    }

    /// Logs what is wrong with the judge, the first time.
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
            .field("profile", &self.shared.profile.name)
            .field("rubric", &self.shared.rubric)
            .finish_non_exhaustive()
    }
}

/// The form that a verdict is held to.
pub struct Form {
    /// Of the random choices, where the judge has a temperature: it says the same about the same answer every time.
    pub(crate) seed: u64,
    pub(crate) constraint: Constraint,
    pub(crate) max_tokens: usize,
    /// Tokens whose probabilities are wanted.
    pub(crate) named: Vec<String>,
}
