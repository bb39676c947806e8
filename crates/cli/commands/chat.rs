//! `hone chat`: a conversation in the terminal, or one answer.
//!
//! One answer is given where a question stands on the command line, or stdin is no terminal and holds it. It is
//! saved only where it continues a saved conversation, so that scripts leave nothing behind. Ctrl-C ends it with what
//! has come so far and exit code 130.

use std::io::{IsTerminal, Read};

use anyhow::Context;
use hone_protocol::{FinishReason, Timings};
use serde::Serialize;

use crate::app::App;
use crate::arguments::ChatArguments;
use crate::chat::answer::{Ending, answer};
use crate::chat::repl;
use crate::chat::screen::{Screen, Terminal};
use crate::chat::session::{Exchange, Session};
use crate::chat::shell::{ModelShelf, Shell, resumed};
use crate::chat::store::ConversationStore;
use crate::failure::{Outcome, usage};
use crate::interrupt::Interrupt;

/// Chats.
///
/// # Errors
/// When there is no question, no model, or no answer.
pub(crate) fn run(app: &App, arguments: ChatArguments) -> anyhow::Result<Outcome> {
    let json = arguments.json.json;
    let question = question(arguments.question, json)?;
    let store = ConversationStore::new(app.data_folder().join("conversations"));
    let mut session = Session::new(app.config.clone());
    if let Some(name) = arguments.resume {
        resume(&mut session, &store, name)?;
    }
    app.provide(session.model())?;
    let generator = app.generator()?;
    let interrupt = Interrupt::install()?;
    let mut shell = Shell { session, generator: &*generator, models: app, store: &store, interrupt: &interrupt };
    match question {
        Some(question) => answer_once(app, &mut shell, question, json),
        None => talk(app, &mut shell),
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct JsonAnswer<'a> {
    model: &'a str,
    question: &'a str,
    answer: &'a str,
    finish_reason: Option<FinishReason>,
    interrupted: bool,
    left_out_exchanges: usize,
    conversation: Option<&'a str>,
    timings: Timings,
}

impl<'a> JsonAnswer<'a> {
    fn new(session: &'a Session, exchange: &'a Exchange) -> JsonAnswer<'a> {
        JsonAnswer {
            model: &exchange.model,
            question: &exchange.question,
            answer: &exchange.answer,
            finish_reason: exchange.finish_reason,
            interrupted: exchange.finish_reason.is_none(),
            left_out_exchanges: session.left_out(),
            conversation: session.name(),
            timings: exchange.timings,
        }
    }
}

/// The one question to answer; none where a person is there to type.
fn question(argument: Option<String>, json: bool) -> anyhow::Result<Option<String>> {
    let from_stdin = argument.is_none() && !std::io::stdin().is_terminal();
    let text = match argument {
        Some(text) => text,
        None if from_stdin => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the question from stdin")?;
            text
        }
        None if json => return Err(usage("--json is for one answer: give a question as argument or on stdin")),
        None => return Ok(None),
    };
    match text.trim() {
        "" if from_stdin => Err(usage("stdin holds no question: give one there or as argument")),
        "" => Err(usage("the question is empty")),
        question => Ok(Some(question.to_string())),
    }
}

fn resume(session: &mut Session, store: &ConversationStore, name: String) -> anyhow::Result<()> {
    let latest = || store.names().map(|names| names.into_iter().next());
    let name = if name.is_empty() { latest()?.context("no conversation is saved to go on with")? } else { name };
    let conversation = store.load(&name)?;
    session.resume(name, conversation)
}

fn answer_once(app: &App, shell: &mut Shell<'_>, question: String, json: bool) -> anyhow::Result<Outcome> {
    let mut screen = if json { Terminal::without_answers(app.output) } else { Terminal::new(app.output) };
    let session = &mut shell.session;
    let exchanges_before = session.exchanges().len();
    session.ask(question);
    let ending = answer(session, shell.generator, shell.interrupt, &mut screen)?;
    let answered = session.exchanges().get(exchanges_before);
    if let Some(exchange) = answered.filter(|_| json) {
        app.output.print_json(&JsonAnswer::new(session, exchange))?;
    }
    if let Some(name) = session.name().filter(|_| answered.is_some()) {
        shell.store.save(name, &session.conversation())?;
    }
    Ok(match ending {
        Ending::Answered => Outcome::Done,
        Ending::Interrupted => Outcome::Interrupted,
    })
}

fn talk(app: &App, shell: &mut Shell<'_>) -> anyhow::Result<Outcome> {
    let mut screen = Terminal::new(app.output);
    match shell.session.name() {
        Some(_) => screen.note(&resumed(&shell.session)),
        None => screen.note(&format!("{} answers; /help lists the commands, Ctrl-D leaves", shell.session.model())),
    }
    repl::run(shell, &mut screen, app.data_folder().join("history.txt"), app.output)?;
    Ok(Outcome::Done)
}
