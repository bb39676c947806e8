//! `hone chat`: a conversation in the terminal, or the answer to a single question.
//!
//! A single question comes from the command line, or from stdin if that is not a terminal; with a question on the
//! command line, the text on stdin goes with it, as files do. Its answer is saved as a conversation only if it
//! continues one, so that scripts do not fill the list; the last one is kept for `--continue`. Ctrl-C ends it with the
//! text so far and exit code 130. `--grade` waits for the grade, and `--respondent-b` for the second answer and the
//! comparison.

mod resuming;
mod start;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use crossbeam_channel::RecvTimeoutError;
use hone_agents::{Exchange, Load};
use hone_app::StackOptions;
use hone_app::answering::{Audience, Ending, answer, wait_for_verdicts};
use hone_app::conversations::{ConversationStore, SavedExchange, Session};
use hone_app::judging::{Chat, IdleExamination, background_critic};
use hone_app::toolbox::Toolbox;
use hone_app::tools::{NoTools, Permit};
use hone_memory::MemoryStore;
use hone_protocol::{Comparison, FinishReason, Grade, JudgingMethod, RespondentId, Timings, ToolCall};
use serde::Serialize;

use self::start::{Downloads, Wanted};
use crate::arguments::{ChatArguments, ChatQualityFlags, ToolFlags};
use crate::badge::{badge, cannot_tell};
use crate::chat::announcements::{Announced, Announcements};
use crate::chat::attachments::{Attachment, compose};
use crate::chat::explanation::{comparison_text, no_answer_b};
use crate::chat::repl;
use crate::chat::screen::Terminal;
use crate::chat::shell::{ModelShelf, Shell, tell_resumed};
use crate::commands::doctor::judge_instead_of;
use crate::failure::{Outcome, usage};
use crate::invocation::Invocation;
use crate::logging;
use crate::terminal::interrupt;
use crate::terminal::keyboard::{self, Consent};
use crate::terminal::lines::Lines;
use crate::terminal::progress;
use crate::terminal::{Line, Output};

/// Polling interval for the last grade.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Chats. Fails if any message could be neither remembered nor kept for later.
///
/// # Errors
/// When there is no question, no model, or no answer.
pub(crate) fn run(app: &Invocation, arguments: ChatArguments) -> anyhow::Result<Outcome> {
    let app = &app.with_model_of_fleet()?;
    app.report_to_fleet()?;
    let is_guided = arguments.guide && !app.is_elsewhere(&app.config.engine.model);
    let wanted = if is_guided { start::guide(app)? } else { Wanted::default() };
    let mut remembered = Remembered::default();
    let outcome = chat(app, arguments, wanted, &mut remembered)?;
    // The agents have stopped, and so all pending memory writes are settled.
    if remembered.tells_due {
        tell_due(app, &remembered);
    }
    let Some(loss) = remembered.memory.and_then(|memory| memory.loss()) else { return Ok(outcome) };
    app.output.error(&format!("not everything is remembered: {loss}"));
    Ok(if outcome == Outcome::Done { Outcome::Failed } else { outcome })
}

/// State that outlives the agents.
#[derive(Default)]
struct Remembered {
    memory: Option<MemoryStore>,
    /// Whether to report the number of answers without grades.
    tells_due: bool,
}

/// Reports how many answers await their grades.
fn tell_due(app: &Invocation, remembered: &Remembered) {
    let backlog = remembered.memory.as_ref().and_then(|memory| memory.backlog().ok()).unwrap_or_default();
    match backlog.iter().filter(|entry| entry.due.grade).count() {
        0 => {}
        1 => app.output.note("1 answer is not graded yet: the next idle chat grades it, or `hone grade --due` now"),
        n_due => app.output.note(&format!(
            "{n_due} answers are not graded yet: the next idle chat grades them, or `hone grade --due` now"
        )),
    }
}

/// A new session, or the resumed or continued one.
fn session(
    app: &Invocation,
    store: &ConversationStore,
    resumed: Option<&str>,
    goes_on: bool,
    is_chat: bool,
) -> anyhow::Result<Session> {
    let mut session = Session::new(app.config.clone());
    match resumed {
        Some(text) => resuming::resume(app, &mut session, store, text, is_chat)?,
        None if goes_on => resuming::go_on(&mut session, store)?,
        None => {}
    }
    Ok(session)
}

/// Chats while the wanted models are downloaded.
fn chat(
    app: &Invocation,
    arguments: ChatArguments,
    wanted: Wanted,
    remembered: &mut Remembered,
) -> anyhow::Result<Outcome> {
    let json = arguments.json.json;
    let asked = ChatInput::read(arguments.question(), &arguments.files, json)?;
    let ChatInput { question, attachments } = asked;
    let store = app.conversation_store();
    let session = session(app, &store, arguments.resume.as_deref(), arguments.goes_on, question.is_none())?;
    let keeps_prefix = (question.is_none() || session.name().is_some()) && session.config().chat.save;
    app.obtain(session.model())?;
    let quality = arguments.quality;
    let options = options(app, &session, &quality, question.is_some(), keeps_prefix)?;
    let tells_due = options.grades && question.is_none();
    let toolbox = toolbox(app, &arguments.tools)?;
    let stack = app.stack(options)?;
    *remembered = Remembered { memory: stack.store().cloned(), tells_due };
    let announcements = Announcements::new(Lines::new(app.output))
        .calibrated_by(app.calibrated()?)
        .remarking_on_silence(question.as_ref().map_or_else(|| start::remark_on_silence(app), |_| None));
    let asker = stack.asker("terminal");
    let announced = Announced { badges: question.is_none(), events: quality.monitor };
    let listener = announcements.listen(&asker, announced)?;
    let interrupt = interrupt::install()?;
    let downloads = Downloads::start(app, wanted, &session, &announcements.lines)?;
    let mut shell = Shell {
        session,
        stack: &stack,
        asker,
        announcements: &announcements,
        models: app,
        store: &store,
        interrupt: &interrupt,
        attached: attachments,
        tools: match &toolbox {
            Some(toolbox) => toolbox,
            None => &NoTools,
        },
        fetching: downloads.generator.as_ref(),
    };
    let examination = question.is_none().then(|| examine(app, &shell)).flatten();
    let outcome = match question {
        Some(question) => answer_once(app, &mut shell, question, json),
        None => talk(app, &mut shell, quality.wait_grades),
    };
    drop(examination);
    announcements.lines.release();
    downloads.tell_unfinished(app.output);
    drop(shell);
    if quality.monitor {
        // Events that stopping agents send are announced, too.
        drop(stack);
    }
    drop(listener);
    outcome
}

/// The agents that a chat or a single question needs.
fn options(
    app: &Invocation,
    session: &Session,
    quality: &ChatQualityFlags,
    is_one_shot: bool,
    keeps_prefix: bool,
) -> anyhow::Result<StackOptions> {
    let chat = &session.config().chat;
    let respondent_b = respondent_b(app, quality)?;
    if !is_one_shot {
        provide_embedder(app);
    }
    Ok(StackOptions {
        grades: if is_one_shot { quality.grade || quality.wait_grades } else { chat.grade },
        respondent_b,
        memory: None,
        grades_due: chat.grade,
        works_off_backlog: !is_one_shot && chat.grade_due,
        critic: (!is_one_shot).then_some(background_critic),
        keeps_prefix,
        load: Load::PERSON,
    })
}

/// Starts the servers whose tools the model may call.
fn toolbox(app: &Invocation, flags: &ToolFlags) -> anyhow::Result<Option<Toolbox>> {
    let can_ask = keyboard::can_ask(app.output);
    let (output, allows) = (app.output, flags.allow_tools);
    let permission = move |_: &ToolCall| match (allows, can_ask) {
        (true, _) => Ok(Permit::Allowed),
        (false, true) => permit(output),
        (false, false) => Ok(Permit::Refused("nobody can be asked without a terminal; --allow-tools allows all calls")),
    };
    flags.mcp.as_ref().map(|file| Toolbox::open(file, Box::new(permission), &app.output)).transpose()
}

/// Asks the person whether a call may be carried out.
fn permit(output: Output) -> anyhow::Result<Permit> {
    let reply = keyboard::consent(output, "allow it? [y/N] ")?;
    Ok(match reply {
        Consent::Yes => Permit::Allowed,
        Consent::No => Permit::Refused("you did not allow it"),
        Consent::Interrupted => Permit::Interrupted,
    })
}

/// Begins the examination of an unexamined judge.
fn examine(app: &Invocation, shell: &Shell<'_>) -> Option<IdleExamination> {
    let (jury, generator) = (shell.stack.jury()?, shell.stack.generator());
    let (asker, lines) = (&shell.asker, shell.announcements.lines.clone());
    let announce = Box::new(move |text| lines.announce(Line::plain(text)));
    IdleExamination::start(app, Chat { jury, generator, asker, announce, advice: Box::new(judge_instead_of) })
}

/// Downloads the embedding model if it is not installed. Without it, a chat continues but recalls nothing.
fn provide_embedder(app: &Invocation) {
    let memory = &app.config.memory;
    let recalls = memory.recalls() && (memory.remember || app.has_memory());
    if !recalls {
        return;
    }
    if let Err(error) = app.obtain_embedder() {
        tracing::info!("the embedding model is unavailable: {error:#}");
    }
}

/// The second respondent's model and temperature, if one is requested.
fn respondent_b(app: &Invocation, quality: &ChatQualityFlags) -> anyhow::Result<Option<(Option<String>, f32)>> {
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

/// The output of `--json`.
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
    fn new(session: &'a Session, answered: &'a SavedExchange, exchange: &'a Exchange) -> JsonAnswer<'a> {
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

/// The question from the command line or stdin, with its attachments.
struct ChatInput {
    /// The single question to answer; `None` for an interactive chat.
    question: Option<String>,
    /// The attachments of the question, or of the first one of a chat.
    attachments: Vec<Attachment>,
}

impl ChatInput {
    fn read(argument: Option<String>, files: &[String], json: bool) -> anyhow::Result<ChatInput> {
        let stdin_is_file = files.iter().any(|file| file == "-");
        let is_piped = !stdin_is_file && !std::io::stdin().is_terminal();
        let mut attachments = Vec::new();
        let question = match argument {
            Some(question) if question.trim().is_empty() => return Err(usage("the question is empty")),
            Some(question) => {
                attachments.extend(if is_piped { Attachment::stdin()? } else { None });
                Some(question)
            }
            None if is_piped => Some(question_on_stdin()?),
            None if stdin_is_file => return Err(usage("-f - takes stdin as a file: give the question as argument")),
            None if json => {
                return Err(usage("--json is for one answer: give a question as argument or on stdin"));
            }
            None => None,
        };
        for file in files {
            attachments.extend(Attachment::read_all(file)?);
        }
        Ok(ChatInput { question: question.map(|question| question.trim().to_owned()), attachments })
    }
}

fn question_on_stdin() -> anyhow::Result<String> {
    let text = std::io::read_to_string(std::io::stdin()).context("cannot read the question from stdin")?;
    if text.trim().is_empty() {
        return Err(usage("stdin holds no question: give one there or as an argument"));
    }
    Ok(text)
}

fn answer_once(app: &Invocation, shell: &mut Shell<'_>, question: String, json: bool) -> anyhow::Result<Outcome> {
    let mut screen = if json { Terminal::without_answers(app.output) } else { terminal(app) };
    let session = &mut shell.session;
    let exchanges_before = session.exchanges().len();
    let attached = std::mem::take(&mut shell.attached);
    session.ask(compose(&attached, &question));
    let lines = &shell.announcements.lines;
    lines.hold();
    let (ending, mut exchange) = answer(session, &mut shell.asker, shell.interrupt, shell.tools, &mut screen)?;
    lines.release();
    let answered = session.exchanges().into_iter().nth(exchanges_before);
    let Some(answered) = answered else { return Ok(outcome_of(ending)) };
    let kept = keep(session, shell.store);
    let is_whole =
        ending == Ending::Answered && wait_for_verdicts(&mut exchange, &shell.asker, &shell.interrupt.listen())?;
    if json {
        if let Some(error) = &exchange.reply(RespondentId::B).failure {
            app.output.note(&no_answer_b(error));
        }
        if exchange.comparison().is_none() && exchange.reply(RespondentId::B).response.is_some() {
            app.output.note(NOT_COMPARED);
        }
        app.output.print_json(&JsonAnswer::new(session, answered, &exchange))?;
    } else {
        show_verdicts(app, &exchange)?;
    }
    kept?;
    Ok(if is_whole { Outcome::Done } else { Outcome::Interrupted })
}

/// Saves a continued conversation, or keeps a single question for `--continue` if saving and remembering are on.
fn keep(session: &Session, store: &ConversationStore) -> anyhow::Result<()> {
    match session.name() {
        Some(name) => match store.save(name, &session.conversation())? {
            true => Ok(()),
            false => {
                anyhow::bail!("the answer is not saved: the conversation {name:?} was deleted or renamed meanwhile")
            }
        },
        None if session.config().chat.save && session.config().memory.remember => {
            if let Err(error) = store.keep_single(&session.conversation()) {
                // The answer is there; only --continue would miss it.
                tracing::info!("the question is not kept for `hone chat --continue`: {error:#}");
            }
            Ok(())
        }
        None => Ok(()),
    }
}

/// The screen, which renders Markdown unless disabled.
fn terminal(app: &Invocation) -> Terminal {
    Terminal::new(app.output, app.config.chat.markdown)
}

fn outcome_of(ending: Ending) -> Outcome {
    match ending {
        Ending::Answered => Outcome::Done,
        Ending::Interrupted => Outcome::Interrupted,
    }
}

/// Prints the badge, or why the answer has none.
fn show_grade(app: &Invocation, grade: &Grade) -> anyhow::Result<()> {
    match (badge(grade, app.agreement(grade)?), &grade.judging.failure) {
        (Some(badge), _) => app.output.announce(&badge),
        (None, Some(failure)) => app.output.note(&format!("not graded: {failure}")),
        (None, None) => {
            let advice = start::remark_on_silence(app).filter(|_| grade.judging.method == JudgingMethod::Likelihood);
            let reason = || format!("no mark: {}", cannot_tell(&grade.judging));
            app.output.note(&advice.map_or_else(reason, |advice| advice()));
        }
    }
    Ok(())
}

/// Shown when two answers are requested without a judge.
const NOT_COMPARED: &str = "not compared: --grade has the two answers graded and compared";

/// Prints the grade, the second respondent's answer, and how the two compare.
fn show_verdicts(app: &Invocation, exchange: &Exchange) -> anyhow::Result<()> {
    if let Some(grade) = &exchange.reply(RespondentId::A).grade {
        show_grade(app, grade)?;
    }
    let b = exchange.reply(RespondentId::B);
    if let Some(response) = &b.response {
        app.output.note(&format!("respondent B: {}", response.answer.trim()));
    }
    if let Some(error) = &b.failure {
        app.output.note(&no_answer_b(error));
    }
    match exchange.comparison() {
        Some(comparison) => app.output.note(&format!("the answer: {}", comparison_text(&comparison.preference))),
        None if b.response.is_some() => app.output.note(NOT_COMPARED),
        None => {}
    }
    Ok(())
}

fn talk(app: &Invocation, shell: &mut Shell<'_>, waits_for_grades: bool) -> anyhow::Result<Outcome> {
    let mut screen = terminal(app);
    match shell.session.name() {
        Some(_) => tell_resumed(&shell.session, &mut screen)?,
        None => screen.note(&format!("{} answers; /help lists the commands, Ctrl-D leaves", shell.session.model())),
    }
    start::hint(app, &shell.session)?;
    let lines = shell.announcements.lines.clone();
    let diverted = logging::divert(move |line| lines.announce_log(line));
    let ended = repl::run(shell, &mut screen, app.data_folder().join("history.txt"), app.output);
    drop(diverted);
    shell.announcements.lines.release();
    if waits_for_grades && ended.is_ok() {
        wait_for_grades(app, shell);
    }
    ended.map(|()| Outcome::Done)
}

/// Waits for all expected outcomes. On Ctrl-C, missing ones stay due.
fn wait_for_grades(app: &Invocation, shell: &Shell<'_>) {
    let listening = shell.interrupt.listen();
    let spinner = progress::spinner(app.output, "waiting for grades; Ctrl-C leaves without them");
    while shell.announcements.n_pending(shell.asker.expected()) > 0 {
        if listening.pressed().recv_timeout(LOOK_INTERVAL) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    spinner.finish_and_clear();
}
