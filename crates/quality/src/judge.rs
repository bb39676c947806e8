//! A judge: a model, its settings and a rubric.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hone_protocol::{
    Constraint, Generate, GenerateRequest, Lane, LogprobOptions, Message, Prompt, Role, SamplingOptions,
};

use crate::fence::FenceKey;
use crate::prompt::{JudgePrompt, fill};
use crate::request::Request;
use crate::rubric::Rubric;
use crate::settings::{CriticSettings, InvalidSettings};

/// Grades and compares answers. Clones share one judge.
#[derive(Clone)]
pub struct Judge {
    shared: Arc<Shared>,
    lane: Lane,
}

struct Shared {
    generator: Arc<dyn Generate>,
    settings: CriticSettings,
    rubric: Rubric,
    key: FenceKey,
    has_told: AtomicBool,
}

impl Judge {
    /// A judge that uses `generator` in the background, and fences the texts it is shown with boundaries derived from
    /// `key`.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(
        generator: Arc<dyn Generate>,
        settings: CriticSettings,
        rubric: Rubric,
        key: FenceKey,
    ) -> Result<Judge, InvalidSettings> {
        settings.check_together()?;
        let has_told = AtomicBool::new(false);
        Ok(Judge { shared: Arc::new(Shared { generator, settings, rubric, key, has_told }), lane: Lane::Background })
    }

    /// The same judge, with its requests in this lane.
    pub fn in_lane(self, lane: Lane) -> Judge {
        Judge { lane, ..self }
    }

    /// Its settings.
    pub fn settings(&self) -> &CriticSettings {
        &self.shared.settings
    }

    /// The rubric that it grades by.
    pub fn rubric(&self) -> &Rubric {
        &self.shared.rubric
    }

    /// Asks `model` for a verdict.
    pub(crate) fn ask(&self, model: &str, prompt: JudgePrompt, form: Form) -> Request {
        let settings = self.settings();
        let prompt_characters = prompt.text.chars().count();
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
            ..GenerateRequest::new(model, Prompt::Chat(vec![Message::new(Role::User, prompt.text)]))
        };
        Request::start(&*self.shared.generator, request, prompt_characters)
    }

    /// A prompt with these neutralized texts in their places, each in its fence.
    pub(crate) fn prompt(&self, system: &str, template: &str, texts: &[(&str, &str)]) -> JudgePrompt {
        let judged: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
        let boundary = self.shared.key.boundary(&judged);
        let fence = |text| fill(&self.settings().templates.fence, &[("boundary", &boundary), ("text", text)]);
        let fenced: Vec<(&str, String)> = texts.iter().map(|(name, text)| (*name, fence(text))).collect();
        let rubric = self.rubric().text();
        let mut values = vec![("rubric", rubric.as_str()), ("boundary", boundary.as_str())];
        values.extend(fenced.iter().map(|(name, text)| (*name, text.as_str())));
        JudgePrompt::new(system, template, &values)
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
            .field("rubric", &self.shared.rubric)
            .finish_non_exhaustive()
    }
}

/// The form that constrains a verdict.
pub struct Form {
    /// Seed of the random choices, if the judge has a temperature: the same answer always gets the same verdict.
    pub(crate) seed: u64,
    pub(crate) constraint: Constraint,
    pub(crate) max_tokens: usize,
    /// Tokens whose probabilities are wanted.
    pub(crate) named: Vec<String>,
}
