//! Where a model's own template runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use hone_protocol::ReasoningTags;

use super::TemplateError;
use super::messages::{Answer, Request};
use super::process::Workplace;
use super::rendering::{Engine, mentions};
use super::source::{IsCancelled, Source};

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
    source: Source,
    mentions_tools: bool,
    reasoning_tags: Option<&'static ReasoningTags>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Here(Box<OnceLock<Engine>>),
    Elsewhere(Workplace),
}

impl Template {
    /// A template that runs in this process, without limits from outside.
    pub(super) fn here(source: Source) -> Self {
        Template::placed(source, Place::Here(Box::default()))
    }

    /// A template that runs where `host` says.
    pub(super) fn at(host: &TemplateHost, source: Source) -> Self {
        let place = match host {
            TemplateHost::InProcess => Place::Here(Box::default()),
            TemplateHost::Process { program, arguments } => {
                Place::Elsewhere(Workplace::new(program.clone(), arguments.clone()))
            }
        };
        Template::placed(source, place)
    }

    fn placed(source: Source, place: Place) -> Self {
        let mentions_tools = mentions(&source.text, "tools");
        Template { mentions_tools, reasoning_tags: ReasoningTags::mentioned_in(&source.text), place, source }
    }

    /// Whether the template uses tools.
    pub(super) fn mentions_tools(&self) -> bool {
        self.mentions_tools
    }

    /// How it marks reasoning, if it knows it.
    pub(super) fn reasoning_tags(&self) -> Option<&'static ReasoningTags> {
        self.reasoning_tags
    }

    /// Whether the template runs in another process, and may take up to the time limit.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self.place, Place::Elsewhere(_))
    }

    /// Sends a request to the template.
    ///
    /// # Errors
    /// When the template does not parse, fails or exceeds a limit, or the request is cancelled.
    pub(super) fn ask(&self, request: &Request<'_>, is_cancelled: IsCancelled<'_>) -> Result<String, TemplateError> {
        let answer = match &self.place {
            Place::Here(engine) => self.engine(engine)?.answer(request),
            Place::Elsewhere(workplace) => workplace.ask(&self.source, request, is_cancelled)?,
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
