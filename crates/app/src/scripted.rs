//! For tests: agents with a scripted model, and an audience that records what it is shown.

use std::sync::Arc;

use crossbeam_channel::{Sender, bounded};
use hone_agents::{Asker, Load, TeamParts};
use hone_protocol::scripted::{Script, Scripted};
use hone_protocol::{FinishReason, GenerateError, Prompt, QueryId, Timings};

use crate::answering::Audience;
use crate::config::Config;
use crate::conversations::Session;
use crate::interrupt::Interrupt;
use crate::stack::Stack;

/// The agents with `generator`, without judge and memory.
pub fn stack(generator: &Arc<Scripted>) -> Stack {
    let generator = generator.clone();
    let (respondent_b, judge, memory, works_off_backlog) = (None, None, None, false);
    let load = Load::PERSON;
    Stack::start(TeamParts {
        generator,
        respondent_b,
        judge,
        graders: None,
        memory,
        works_off_backlog,
        critic: None,
        load,
    })
    .expect("a test has what it needs")
}

/// The agents with a scripted model, and a line to them.
pub struct Agents {
    /// The line.
    pub asker: Asker,
    /// The agents, dropped last.
    pub stack: Stack,
}

/// The agents, and a line to them.
pub fn agents(generator: &Arc<Scripted>) -> Agents {
    let stack = stack(generator);
    Agents { asker: stack.asker("test"), stack }
}

/// A model that always says these pieces.
pub fn saying(pieces: &[&str]) -> Arc<Scripted> {
    Arc::new(Scripted::always(Script::saying(pieces)))
}

/// A model that says "a" to prompts of at most `messages` messages.
pub fn holding(messages: usize) -> Arc<Scripted> {
    Arc::new(Scripted::new(move |request| match &request.prompt {
        Prompt::Chat(prompt) if prompt.len() <= messages => Script::saying(&["a"]),
        Prompt::Chat(prompt) => {
            let (prompt_tokens, context_tokens) = (prompt.len(), messages);
            Script::failing(GenerateError::ContextOverflow { prompt_tokens, context_tokens })
        }
        other => panic!("a chat sends messages, not {other:?}"),
    }))
}

/// Records the output: the pieces of an answer on one line, each closed by `|`.
#[derive(Default)]
pub struct Recorder {
    /// Everything that it was shown.
    pub seen: Vec<String>,
    pieces: String,
    press_after: Option<(usize, Sender<()>)>,
}

impl Recorder {
    /// Presses Ctrl-C after `pieces` pieces; with 0, while the prompt is processed.
    pub fn pressing(press: Sender<()>, pieces: usize) -> Recorder {
        Recorder { press_after: Some((pieces, press)), ..Recorder::default() }
    }
}

impl Audience for Recorder {
    fn waiting(&mut self) {}

    fn loading(&mut self, _done: u64, _total: u64) {}

    fn prompt_progress(&mut self, _done: usize, _total: usize) {
        if let Some((0, press)) = &self.press_after {
            press.send(()).expect("a test has what it needs");
        }
    }

    fn thinking(&mut self, text: &str) {
        self.pieces += &format!("({text})");
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        if !text.is_empty() {
            self.pieces += &format!("{text}|");
        }
        if let Some((pieces, press)) = &mut self.press_after {
            *pieces -= 1;
            if *pieces == 0 {
                press.send(()).expect("a test has what it needs");
            }
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.seen.push(format!("{}end", std::mem::take(&mut self.pieces)));
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.seen.push(format!("note: {text}"));
    }
}

/// A session with this many exchanges.
pub fn session(exchanges: usize) -> Session {
    let mut session = Session::new(Config::defaults().expect("a test has what it needs"));
    for number in 1..=exchanges {
        session.ask(format!("q{number}"));
        session.finish(QueryId::fresh(), format!("a{number}"), Some(FinishReason::Stop), Timings::default());
    }
    session
}

/// A Ctrl-C that is never pressed.
pub fn interrupt_never() -> Interrupt {
    Interrupt::from_channel(crossbeam_channel::never())
}

/// A Ctrl-C, and a sender that presses it.
pub fn interrupt_now() -> (Interrupt, Sender<()>) {
    let (sender, receiver) = bounded(1);
    (Interrupt::from_channel(receiver), sender)
}
