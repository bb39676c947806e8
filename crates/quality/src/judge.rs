//! A judge: a model, its settings and a rubric.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hone_protocol::{
    Constraint, Generate, GenerateRequest, Grade, Lane, LogprobOptions, Message, Preference, Prompt, Role,
    SamplingOptions,
};

use crate::comparing::Comparing;
use crate::fence::FenceKey;
use crate::grading::Grading;
use crate::prompt;
use crate::rubric::Rubric;
use crate::run::Run;
use crate::settings::{CriticSettings, InvalidSettings};

/// An answer to grade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradeTask {
    /// What was asked.
    pub query: String,
    /// What was answered.
    pub answer: String,
    /// An answer that deserves a 5, where there is one.
    pub reference: Option<String>,
}

/// Two answers to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareTask {
    /// What was asked.
    pub query: String,
    /// What A answered.
    pub answer_a: String,
    /// What B answered.
    pub answer_b: String,
}

/// Grades and compares answers. A clone is the same judge.
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
    /// A judge that works with `generator`, in the background, and puts fences made with `key` around what it is shown.
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

    /// The same judge, whose verdicts are needed that soon.
    pub fn in_lane(self, lane: Lane) -> Judge {
        Judge { lane, ..self }
    }

    /// Its settings.
    pub fn settings(&self) -> &CriticSettings {
        &self.shared.settings
    }

    /// What it grades by.
    pub fn rubric(&self) -> &Rubric {
        &self.shared.rubric
    }

    /// Starts to grade an answer of the model `answered_by`, which stands in for a judge that cannot be loaded. Returns at
    /// once.
    pub fn start_grade(&self, task: GradeTask, answered_by: &str) -> Grading {
        Grading::start(self.clone(), task, answered_by)
    }

    /// Starts to compare two answers, A's by the model `answered_by`, which stands in for a judge that cannot be loaded.
    /// Returns at once.
    pub fn start_compare(&self, task: CompareTask, answered_by: &str) -> Comparing {
        Comparing::start(self.clone(), task, answered_by)
    }

    /// Grades an answer, and waits for the grade.
    pub fn grade(&self, task: GradeTask, answered_by: &str) -> Grade {
        self.start_grade(task, answered_by).wait()
    }

    /// Compares two answers, and waits for the preference.
    pub fn compare(&self, task: CompareTask, answered_by: &str) -> Preference {
        self.start_compare(task, answered_by).wait()
    }

    /// Asks `model` one turn.
    pub(crate) fn ask(&self, model: &str, turn: Turn, form: Form) -> Run {
        let settings = self.settings();
        let prompt_characters = turn.text.chars().count();
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
            common_beginning: Some(turn.beginning),
            lane: self.lane,
            time_limit: Some(settings.grade_timeout),
            ..GenerateRequest::new(model, Prompt::Chat(vec![Message::new(Role::User, turn.text)]))
        };
        Run::start(&*self.shared.generator, request, prompt_characters)
    }

    /// The turn that asks for a grade of `answer`. The texts are neutralized already.
    pub(crate) fn absolute_turn(&self, query: &str, answer: &str, reference: Option<&str>) -> Turn {
        let templates = &self.settings().templates;
        let template = match reference {
            Some(_) => &templates.absolute_reference_prompt,
            None => &templates.absolute_prompt,
        };
        let mut texts = vec![("query", query), ("answer", answer)];
        texts.extend(reference.map(|reference| ("reference", reference)));
        self.turn(&templates.absolute_system, template, &texts)
    }

    /// The turn that asks for the better of two answers. The texts are neutralized already.
    pub(crate) fn pairwise_turn(&self, query: &str, answer_a: &str, answer_b: &str) -> Turn {
        let templates = &self.settings().templates;
        let texts = [("query", query), ("answer_a", answer_a), ("answer_b", answer_b)];
        self.turn(&templates.pairwise_system, &templates.pairwise_prompt, &texts)
    }

    /// A turn with these texts in their places, each in its fence.
    fn turn(&self, system: &str, template: &str, texts: &[(&str, &str)]) -> Turn {
        let judged: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
        let boundary = self.shared.key.boundary(&judged);
        let fence = |text| prompt::fill(&self.settings().templates.fence, &[("boundary", &boundary), ("text", text)]);
        let fenced: Vec<(&str, String)> = texts.iter().map(|(name, text)| (*name, fence(text))).collect();
        let rubric = self.rubric().text();
        let mut values = vec![("rubric", rubric.as_str()), ("boundary", boundary.as_str())];
        values.extend(fenced.iter().map(|(name, text)| (*name, text.as_str())));
        Turn::new(system, template, &values)
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
            .field("rubric", &self.shared.rubric)
            .finish_non_exhaustive()
    }
}

/// What a judge is asked.
#[derive(Clone)]
pub(crate) struct Turn {
    text: String,
    /// What it has in common with all of its kind.
    beginning: String,
}

impl Turn {
    fn new(system: &str, template: &str, values: &[(&str, &str)]) -> Turn {
        let text = prompt::turn(system, &prompt::fill(template, values));
        Turn { text, beginning: prompt::turn(system, prompt::before_places(template, values)) }
    }
}

/// The form that a verdict is held to.
#[derive(Clone)]
pub(crate) struct Form {
    /// Of the random choices, where the judge has a temperature: it says the same about the same answer every time.
    pub(crate) seed: u64,
    pub(crate) constraint: Constraint,
    pub(crate) max_tokens: usize,
    /// Tokens whose probabilities are wanted.
    pub(crate) named: Vec<String>,
}
