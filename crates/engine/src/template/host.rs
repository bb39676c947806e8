//! Where a model's own template runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use hone_protocol::ReasoningTags;

use super::TemplateError;
use super::messages::{Answer, CallStyle, TemplateRequest};
use super::process::Workplace;
use super::rendering::{Engine, mentions};
use super::source::{IsCancelled, TemplateSource};

/// Where the chat templates of model files run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TemplateHost {
    /// In this process, which a template can then crash or make run out of memory: for tests, and for files that are
    /// trusted as much as the program itself.
    #[default]
    InProcess,
    /// In a process per template, which this command starts and which serves it like
    /// [`worker::serve`](super::worker::serve).
    Process {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<OsString>,
    },
}

/// A template and the place where it runs. It is parsed on first use.
#[derive(Debug)]
pub(super) struct Template {
    source: TemplateSource,
    mentions_tools: bool,
    reasoning_tags: Option<&'static ReasoningTags>,
    call_style: OnceLock<CallStyle>,
    runner: Runner,
}

#[derive(Debug)]
enum Runner {
    Here(Box<OnceLock<Engine>>),
    Elsewhere(Workplace),
}

impl Template {
    /// A template that runs where `host` says.
    pub(super) fn at(host: &TemplateHost, source: TemplateSource) -> Self {
        let runner = match host {
            TemplateHost::InProcess => Runner::Here(Box::default()),
            TemplateHost::Process { program, arguments } => {
                Runner::Elsewhere(Workplace::new(program.clone(), arguments.clone()))
            }
        };
        let mentions_tools = ["tools", "xml_tools"].iter().any(|name| mentions(&source.text, name));
        let reasoning_tags = ReasoningTags::mentioned_in(&source.text);
        Template { mentions_tools, reasoning_tags, call_style: OnceLock::new(), runner, source }
    }

    /// Whether the template uses tools.
    pub(super) fn mentions_tools(&self) -> bool {
        self.mentions_tools
    }

    /// The template's tags for reasoning, if it supports reasoning.
    pub(super) fn reasoning_tags(&self) -> Option<&'static ReasoningTags> {
        self.reasoning_tags
    }

    /// How calls are passed to it; determined once, with `probe`.
    pub(super) fn call_style(&self, probe: impl FnOnce() -> CallStyle) -> CallStyle {
        *self.call_style.get_or_init(probe)
    }

    /// Whether the template runs in another process, and may take up to the time limit.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.runner, Runner::Elsewhere(_))
    }

    /// Sends a request to the template.
    ///
    /// # Errors
    /// When the template does not parse, fails or exceeds a limit, or the request is cancelled.
    pub(super) fn ask(
        &self,
        request: &TemplateRequest<'_>,
        is_cancelled: IsCancelled<'_>,
    ) -> Result<String, TemplateError> {
        let answer = match &self.runner {
            Runner::Here(engine) => self.engine(engine)?.answer(request),
            Runner::Elsewhere(workplace) => workplace.ask(&self.source, request, is_cancelled)?,
        };
        match answer {
            Answer::Text(text) => Ok(text),
            Answer::Failed(failure) => Err(TemplateError::Failed(failure)),
        }
    }

    fn engine<'a>(&self, engine: &'a OnceLock<Engine>) -> Result<&'a Engine, TemplateError> {
        match engine.get() {
            Some(engine) => Ok(engine),
            None => {
                let parsed = Engine::new(&self.source).map_err(TemplateError::Failed)?;
                Ok(engine.get_or_init(|| parsed))
            }
        }
    }
}
