//! Has a model answer questions of the past, several at once, when the device is otherwise idle.

use std::path::PathBuf;

use anyhow::Context;
use crossbeam_channel::{Receiver, RecvError, Select};
use hone_agents::AnswerText;
use hone_app::PARALLEL_SEQUENCES;
use hone_app::judge::identity::identity;
use hone_app::{Interrupt, kept};
use hone_memory::Engram;
use hone_protocol::{
    Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, Lane, Message, Prompt, Role,
    SamplingOptions, hexadecimal,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::invocation::Invocation;

/// The seed of answers where none is configured, so that a run that resumes would give the same ones.
const SEED: u64 = 0;

/// A model's answer to a question, or the error that prevented it.
pub(super) type Answer = Result<String, String>;

/// A model that answers questions of the past, and the answers that it has given.
pub(super) struct Replay<'a> {
    app: &'a Invocation,
    model: &'a str,
    generator: &'a dyn Generate,
    folder: PathBuf,
    /// The inputs to answers besides the question.
    setting: Value,
}

/// An answer that is being written.
struct Writing {
    index: usize,
    generation: Generation,
    answer: AnswerText,
}

impl<'a> Replay<'a> {
    /// A model that answers on `generator`.
    ///
    /// # Errors
    /// When the model is not installed.
    pub(super) fn new(app: &'a Invocation, model: &'a str, generator: &'a dyn Generate) -> anyhow::Result<Replay<'a>> {
        let setting = json!([model, identity(&app.store.show(model)?), app.computed_by()?]);
        let folder = app.data_folder().join("cache").join("answers");
        Ok(Replay { app, model, generator, folder, setting })
    }

    /// The answers to these questions, in their order; `None` if the user stopped it. `on_progress` gets the number of
    /// answers so far. Each is kept as soon as it is written, and found by the next run.
    ///
    /// # Errors
    /// When the model cannot be run, or an answer cannot be kept.
    pub(super) fn answers(
        &self,
        questions: &[Engram],
        interrupt: &Interrupt,
        mut on_progress: impl FnMut(usize),
    ) -> anyhow::Result<Option<Vec<Answer>>> {
        let listening = interrupt.listen();
        let requests: Vec<GenerateRequest> = questions.iter().map(|question| self.request(&question.query)).collect();
        let mut answers: Vec<Option<Answer>> = requests.iter().map(|request| self.find(request).map(Ok)).collect();
        let missing: Vec<usize> = (0..answers.len()).filter(|index| answers[*index].is_none()).collect();
        let mut waiting = missing.into_iter();
        let mut running: Vec<Writing> = Vec::new();
        loop {
            on_progress(answers.iter().flatten().count());
            let room = PARALLEL_SEQUENCES - running.len();
            running.extend(waiting.by_ref().take(room).map(|index| self.start(index, &requests[index])));
            if running.is_empty() {
                return Ok(answers.into_iter().collect());
            }
            let Some((place, answer)) = next(&mut running, listening.pressed())? else { return Ok(None) };
            let index = running.swap_remove(place).index;
            if let Ok(text) = &answer {
                kept::write(&self.folder, &self.path_of(&requests[index]), text)?;
            }
            answers[index] = Some(answer);
        }
    }

    /// A question as a chat of today would ask it first.
    fn request(&self, question: &str) -> GenerateRequest {
        let (system, sampling) = (&self.app.config.chat.system, &self.app.config.sampling);
        let instructions = (!system.is_empty()).then(|| Message::new(Role::System, system));
        let messages = instructions.into_iter().chain([Message::new(Role::User, question)]).collect();
        let options = sampling.options();
        GenerateRequest {
            sampling: SamplingOptions { seed: options.seed.or(Some(SEED)), ..options },
            max_tokens: sampling.max_tokens,
            stop: sampling.stop.clone(),
            thinking: sampling.thinking(),
            lane: Lane::Batch,
            ..GenerateRequest::new(self.model, Prompt::Chat(messages))
        }
    }

    fn start(&self, index: usize, request: &GenerateRequest) -> Writing {
        let generation = Generation::start(self.generator, request.clone());
        Writing { index, generation, answer: AnswerText::default() }
    }

    /// The answer of an earlier run.
    fn find(&self, request: &GenerateRequest) -> Option<String> {
        serde_json::from_slice(&std::fs::read(self.path_of(request)).ok()?).ok()
    }

    fn path_of(&self, request: &GenerateRequest) -> PathBuf {
        let key = json!([self.setting, request]).to_string();
        self.folder.join(format!("{}.json", hexadecimal(Sha256::digest(key))))
    }
}

/// Waits until one of the answers is written, and returns its place; `None` if the user stops it.
///
/// # Errors
/// When the model cannot be run.
fn next(running: &mut [Writing], pressed: &Receiver<()>) -> anyhow::Result<Option<(usize, Answer)>> {
    loop {
        let Some((place, event)) = wait(running, pressed) else { return Ok(None) };
        let writing = &mut running[place];
        match writing.answer.take(event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped))) {
            Ok(false) => {}
            Ok(true) if writing.answer.text().is_empty() => {
                return Ok(Some((place, Err("the answer is empty".to_owned()))));
            }
            Ok(true) => return Ok(Some((place, Ok(writing.answer.text().to_owned())))),
            Err(error @ GenerateError::ContextOverflow { .. }) => return Ok(Some((place, Err(error.to_string())))),
            Err(error) => return Err(error).context("the model cannot answer questions of the past"),
        }
    }
}

/// The next event of an answer; `None` for Ctrl-C.
fn wait(running: &[Writing], pressed: &Receiver<()>) -> Option<(usize, Result<GenerationEvent, RecvError>)> {
    let mut select = Select::new();
    for writing in running {
        select.recv(writing.generation.events());
    }
    let interrupt = select.recv(pressed);
    loop {
        let ready = select.select();
        let place = ready.index();
        if place != interrupt {
            return Some((place, ready.recv(running[place].generation.events())));
        }
        match ready.recv(pressed) {
            Ok(()) => return None,
            // No further Ctrl-C can come.
            Err(RecvError) => select.remove(interrupt),
        }
    }
}
