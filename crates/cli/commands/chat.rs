//! `hone chat`: a conversation in the terminal, or the answer to a single question.
//!
//! A single question comes from the command line, or from stdin if that is not a terminal. Its answer is saved only if it
//! continues a saved conversation, so that scripts leave nothing behind. Ctrl-C ends it with the text so far and exit code
//! 130. With `--grade` the command waits for the grade, and with `--respondent-b` for the second answer and the comparison.

use std::io::{IsTerminal, Read};

use anyhow::Context;
use hone_agents::Exchange;
use hone_memory::MemoryStore;
use hone_protocol::{Comparison, FinishReason, Grade, RespondentId, Timings};
use serde::Serialize;

use crate::app::{App, StackOptions};
use crate::arguments::{ChatArguments, ChatQualityFlags};
use crate::badge::badge;
use crate::chat::announcements::{Announced, Announcements, comparison_text, no_answer_b};
use crate::chat::answer::{Ending, answer, wait_for_verdicts};
use crate::chat::repl;
use crate::chat::screen::{Screen, Terminal};
use crate::chat::session::{self, Session};
use crate::chat::shell::{ModelShelf, Shell, resumed};
use crate::chat::store::ConversationStore;
use crate::failure::{Outcome, usage};
use crate::logging;
use crate::terminal::interrupt::Interrupt;
use crate::terminal::lines::Lines;

/// Chats. Fails if anything that was said could be neither remembered nor kept for later.
///
/// # Errors
/// When there is no question, no model, or no answer.
pub(crate) fn run(app: &App, arguments: ChatArguments) -> anyhow::Result<Outcome> {
    let mut memory = None;
    let outcome = chat(app, arguments, &mut memory)?;
    // The agents have stopped, so everything to be remembered has been processed.
    let Some(loss) = memory.and_then(|memory| memory.loss()) else { return Ok(outcome) };
    app.output.error(&format!("not everything is remembered: {loss}"));
    Ok(if outcome == Outcome::Done { Outcome::Failed } else { outcome })
}

fn chat(app: &App, arguments: ChatArguments, memory: &mut Option<MemoryStore>) -> anyhow::Result<Outcome> {
    let json = arguments.json.json;
    let question = question(arguments.question, json)?;
    let store = ConversationStore::new(app.data_folder().join("conversations"));
    let mut session = Session::new(app.config.clone());
    let goes_on = question.is_none() || arguments.resume.is_some();
    let keeps_prefix = goes_on && session.config().chat.save;
    if let Some(name) = arguments.resume {
        resume(&mut session, &store, name)?;
    }
    app.installed(session.model())?;
    let quality = arguments.quality;
    let grades = if question.is_some() { quality.grade } else { session.config().chat.grade };
    let respondent_b = respondent_b(app, &quality)?;
    if question.is_none() {
        provide_embedder(app);
    }
    let stack = app.stack(StackOptions { grades, respondent_b, memory: None, keeps_prefix })?;
    *memory = stack.store().cloned();
    let announcements = Announcements::new(Lines::new(app.output));
    let asker = stack.asker("terminal");
    let announced = Announced { badges: question.is_none(), events: quality.monitor };
    let listener = announcements.listen(&asker, announced)?;
    let interrupt = Interrupt::install()?;
    let mut shell = Shell {
        session,
        stack: &stack,
        asker,
        announcements: &announcements,
        models: app,
        store: &store,
        interrupt: &interrupt,
    };
    let outcome = match question {
        Some(question) => answer_once(app, &mut shell, question, json),
        None => talk(app, &mut shell),
    };
    announcements.lines.release();
    drop(shell);
    if quality.monitor {
        // Events that stopping agents send are announced, too.
        drop(stack);
    }
    drop(listener);
    outcome
}

/// Downloads the embedding model if it is not installed. Without it, a chat continues but recalls nothing.
fn provide_embedder(app: &App) {
    let memory = &app.config.memory;
    if !memory.remember || app.embedder().is_ok() {
        return;
    }
    if let Err(error) = app.installed(&memory.embedder) {
        tracing::info!("the embedding model is unavailable: {error:#}");
    }
}

/// The second respondent's model and temperature, if one is requested.
fn respondent_b(app: &App, quality: &ChatQualityFlags) -> anyhow::Result<Option<(Option<String>, f32)>> {
    if !quality.respondent_b {
        return Ok(None);
    }
    if let Some(model) = &quality.model_b {
        app.provide(model)?;
    }
    if !(quality.temperature_b >= 0.0 && quality.temperature_b.is_finite()) {
        return Err(usage(format!("--temperature-b is {}: it must be 0 or more", quality.temperature_b)));
    }
    Ok(Some((quality.model_b.clone(), quality.temperature_b)))
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
    #[serde(skip_serializing_if = "Option::is_none")]
    grade: Option<&'a Grade>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer_b: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
}

impl<'a> JsonAnswer<'a> {
    fn new(session: &'a Session, answered: &'a session::Exchange, exchange: &'a Exchange) -> JsonAnswer<'a> {
        JsonAnswer {
            model: &answered.model,
            question: &answered.question,
            answer: &answered.answer,
            finish_reason: answered.finish_reason,
            interrupted: answered.finish_reason.is_none(),
            left_out_exchanges: session.left_out(),
            conversation: session.name(),
            timings: answered.timings,
            grade: exchange.reply(RespondentId::A).grade.as_ref(),
            answer_b: exchange.reply(RespondentId::B).response.as_ref().map(|response| response.answer.as_str()),
            comparison: exchange.comparison(),
        }
    }
}

/// The single question to answer; `None` for an interactive chat.
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
    let name = if name.is_empty() { latest()?.context("there is no saved conversation to continue")? } else { name };
    if name.contains(char::is_whitespace) && !store.contains(&name) {
        let hint = "no conversation has this name: to ask a question in the latest one, write `--resume= \"QUESTION\"`";
        return Err(usage(format!("--resume {name:?}: {hint}")));
    }
    let conversation = store.load(&name)?;
    session.resume(name, conversation)
}

fn answer_once(app: &App, shell: &mut Shell<'_>, question: String, json: bool) -> anyhow::Result<Outcome> {
    let mut screen = if json { Terminal::without_answers(app.output) } else { Terminal::new(app.output) };
    let session = &mut shell.session;
    let exchanges_before = session.exchanges().len();
    session.ask(question);
    let lines = &shell.announcements.lines;
    lines.hold();
    let (ending, mut exchange) = answer(session, &mut shell.asker, shell.interrupt, &mut screen)?;
    lines.release();
    let answered = session.exchanges().get(exchanges_before);
    if let Some(name) = session.name().filter(|_| answered.is_some()) {
        shell.store.save(name, &session.conversation())?;
    }
    let Some(answered) = answered else { return Ok(outcome_of(ending)) };
    let is_whole =
        ending == Ending::Answered && wait_for_verdicts(&mut exchange, &shell.asker, &shell.interrupt.listen())?;
    if json {
        if let Some(error) = &exchange.reply(RespondentId::B).failure {
            app.output.note(&no_answer_b(error));
        }
        app.output.print_json(&JsonAnswer::new(session, answered, &exchange))?;
    } else {
        show_verdicts(app, &exchange);
    }
    Ok(if is_whole { Outcome::Done } else { Outcome::Interrupted })
}

fn outcome_of(ending: Ending) -> Outcome {
    match ending {
        Ending::Answered => Outcome::Done,
        Ending::Interrupted => Outcome::Interrupted,
    }
}

/// Prints the badge, or why the answer has no grade.
fn show_grade(app: &App, grade: &Grade) {
    match (badge(grade), &grade.judging.failure) {
        (Some(badge), _) => app.output.announce(&badge),
        (None, failure) => app.output.note(&format!("not graded: {}", failure.as_deref().unwrap_or("no verdict"))),
    }
}

/// Prints the grade, the second respondent's answer, and how the two compare.
fn show_verdicts(app: &App, exchange: &Exchange) {
    if let Some(grade) = &exchange.reply(RespondentId::A).grade {
        show_grade(app, grade);
    }
    let b = exchange.reply(RespondentId::B);
    if let Some(response) = &b.response {
        app.output.note(&format!("respondent B: {}", response.answer.trim()));
    }
    if let Some(error) = &b.failure {
        app.output.note(&no_answer_b(error));
    }
    if let Some(comparison) = exchange.comparison() {
        app.output.note(&format!("the answer: {}", comparison_text(&comparison.preference)));
    }
}

fn talk(app: &App, shell: &mut Shell<'_>) -> anyhow::Result<Outcome> {
    let mut screen = Terminal::new(app.output);
    match shell.session.name() {
        Some(_) => screen.note(&resumed(&shell.session)),
        None => screen.note(&format!("{} answers; /help lists the commands, Ctrl-D leaves", shell.session.model())),
    }
    let lines = shell.announcements.lines.clone();
    let diverted = logging::divert(move |line| lines.announce_log(line));
    let ended = repl::run(shell, &mut screen, app.data_folder().join("history.txt"), app.output);
    drop(diverted);
    shell.announcements.lines.release();
    ended.map(|()| Outcome::Done)
}
