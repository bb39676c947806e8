//! Answers the open question of a session: requests the answer, streams it, stops it on Ctrl-C, and keeps it.

use std::time::Duration;

use crossbeam_channel::select_biased;
use hone_agents::{Asker, Change, Exchange, TooSlow};
use hone_protocol::{Chunk, FinishReason, GenerateError, QueryId, RespondentId, Response};

use super::screen::Screen;
use super::session::Session;
use crate::terminal::interrupt::{Interrupt, Listening};

/// How long nothing may happen before the user sees an indication of activity.
const PATIENCE: Duration = Duration::from_millis(400);

/// The message when an answer did not fit the context.
pub(crate) const CONTEXT_FULL: &str =
    "the answer was cut because the context is full: --context may make room for more";

/// How the open question was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With an answer.
    Answered,
    /// By Ctrl-C, with the answer so far.
    Interrupted,
}

/// Answers the open question of `session` and closes it. If the prompt does not fit, the oldest exchanges are left out
/// one by one, and the user is told how many.
///
/// # Errors
/// When there is no answer; the question is then withdrawn.
pub(crate) fn answer(
    session: &mut Session,
    asker: &mut Asker,
    interrupt: &Interrupt,
    screen: &mut dyn Screen,
) -> anyhow::Result<(Ending, Exchange)> {
    let left_out_before = session.left_out();
    let listening = interrupt.listen();
    let outcome = loop {
        match attempt(session, asker, &listening, screen) {
            Err(Trouble::Generate(GenerateError::ContextOverflow { .. })) if session.leave_out_oldest() => {}
            outcome => break outcome,
        }
    };
    // The screen is restored even if the answer failed, and the first error is the one to report.
    let ended = screen.end();
    let (exchange, response) = match outcome {
        Ok(answered) => answered,
        Err(trouble) => {
            session.withdraw();
            return Err(trouble.into());
        }
    };
    ended?;
    tell_what_was_left_out(session, left_out_before, screen);
    Ok((close(session, exchange.id(), response, screen), exchange))
}

/// Waits for everything that follows an answered question. Returns `false` if Ctrl-C came first.
///
/// # Errors
/// When more messages have arrived than the mailbox holds.
pub(crate) fn wait_for_verdicts(
    exchange: &mut Exchange,
    asker: &Asker,
    listening: &Listening<'_>,
) -> Result<bool, TooSlow> {
    while !exchange.is_complete(asker.expected()) {
        select_biased! {
            recv(listening.pressed()) -> _ => return Ok(false),
            recv(asker.heard()) -> envelope => exchange.take(&*envelope.map_err(|_| asker.too_slow())?),
        };
    }
    Ok(true)
}

/// The cause of an attempt that ended without an answer: the model or the screen.
#[derive(Debug)]
enum Trouble {
    Generate(GenerateError),
    Screen(anyhow::Error),
}

impl From<TooSlow> for Trouble {
    fn from(error: TooSlow) -> Self {
        Trouble::Screen(error.into())
    }
}

impl From<GenerateError> for Trouble {
    fn from(error: GenerateError) -> Self {
        Trouble::Generate(error)
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Trouble::Screen(error)
    }
}

impl From<Trouble> for anyhow::Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Generate(error) => error.into(),
            Trouble::Screen(error) => error,
        }
    }
}

fn attempt(
    session: &Session,
    asker: &mut Asker,
    listening: &Listening<'_>,
    screen: &mut dyn Screen,
) -> Result<(Exchange, Response), Trouble> {
    let query = session.query().ok_or_else(|| GenerateError::Request("no question is open".to_string()))?;
    let mut exchange = asker.ask(session.id(), query);
    let followed = follow(&mut exchange, asker, session, listening, screen);
    if let Err(Trouble::Screen(_)) = followed {
        asker.cancel(session.id(), exchange.id());
    }
    Ok((exchange, followed?))
}

/// Streams an answer until it ends. Ctrl-C cancels it, which ends it at once with the text so far.
fn follow(
    exchange: &mut Exchange,
    asker: &Asker,
    session: &Session,
    listening: &Listening<'_>,
    screen: &mut dyn Screen,
) -> Result<Response, Trouble> {
    let mut has_begun = false;
    loop {
        let envelope = select_biased! {
            recv(listening.pressed()) -> _ => {
                asker.cancel(session.id(), exchange.id());
                continue;
            }
            recv(asker.heard()) -> envelope => envelope.map_err(|_| asker.too_slow())?,
            default(PATIENCE) => {
                if !has_begun {
                    screen.waiting();
                }
                continue;
            }
        };
        match exchange.take(&envelope) {
            Change::Chunk(RespondentId::A, chunk) => has_begun |= show(chunk, screen)?,
            Change::Answered(RespondentId::A, response) => return Ok(response.clone()),
            Change::Failed(RespondentId::A, error) => return Err(error.clone().into()),
            _ => {}
        }
    }
}

/// Shows a piece of the answer; returns whether it contains visible text.
fn show(chunk: &Chunk, screen: &mut dyn Screen) -> anyhow::Result<bool> {
    match chunk {
        Chunk::Prefill { done, total } => screen.prompt_progress(*done, *total),
        Chunk::Thinking(text) => screen.thinking(text),
        Chunk::Text(text) => screen.text(text)?,
        Chunk::Logprobs(_) => {}
    }
    Ok(matches!(chunk, Chunk::Thinking(_) | Chunk::Text(_)))
}

/// Keeps the answer, and tells the user if it is incomplete.
fn close(session: &mut Session, id: QueryId, response: Response, screen: &mut dyn Screen) -> Ending {
    let Response { answer, finish_reason, timings, .. } = response;
    match finish_reason {
        Some(FinishReason::Length) => {
            let tokens = timings.generation_tokens;
            screen.note(&format!(
                "the answer was cut after {tokens} tokens: --max-tokens 0 (or /set max_tokens 0) lifts the limit"
            ));
        }
        Some(FinishReason::ContextFull) => {
            screen.note(CONTEXT_FULL);
        }
        Some(FinishReason::Stop | FinishReason::Concluded | FinishReason::StopText) => {}
        None if answer.is_empty() => {
            session.withdraw();
            screen.note("stopped before the answer began: the question was withdrawn");
            return Ending::Interrupted;
        }
        None => screen.note("stopped"),
    }
    session.finish(id, answer, finish_reason, timings);
    if finish_reason.is_none() { Ending::Interrupted } else { Ending::Answered }
}

fn tell_what_was_left_out(session: &Session, before: usize, screen: &mut dyn Screen) {
    let now = session.left_out();
    if now > before {
        let exchanges = if now == 1 { "exchange" } else { "exchanges" };
        screen.note(&format!(
            "the conversation exceeds the context: the model was not shown the {now} oldest {exchanges}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hone_protocol::Prompt;
    use hone_protocol::scripted::{Script, Scripted};

    use super::super::scripted::{Recorder, agents, holding, interrupt_never, interrupt_now, saying, session};
    use super::*;

    /// Asks `question` after `exchanges` exchanges, and returns what was shown and how it ended.
    #[track_caller]
    fn check(exchanges: usize, generator: &Arc<Scripted>, expected: &str) {
        let mut session = session(exchanges);
        let mut screen = Recorder::default();
        session.ask("why?".into());
        match answer(&mut session, &mut agents(generator).asker, &interrupt_never(), &mut screen) {
            Ok((ending, _)) => screen.seen.push(format!("{ending:?}")),
            Err(error) => screen.seen.push(format!("error: {error:#}")),
        }
        assert_eq!(screen.seen.join("\n"), expected);
    }

    #[test]
    fn an_answer_is_shown_as_it_comes() {
        check(0, &saying(&["Be", "cause", "."]), "Be|cause|.|end\nAnswered");
    }

    #[test]
    fn what_was_held_back_until_the_end_is_shown() {
        let script = Script { held_back: "END".to_string(), ..Script::saying(&["a"]) };
        let generator = Arc::new(Scripted::always(script));
        check(0, &generator, "a|END|end\nAnswered");
    }

    #[test]
    fn an_answer_that_was_cut_says_so() {
        let cut = |reason| Arc::new(Scripted::always(Script { finish_reason: Some(reason), ..Script::saying(&["a"]) }));
        check(0, &cut(FinishReason::StopText), "a|end\nAnswered");
        check(
            0,
            &cut(FinishReason::Length),
            "a|end\nnote: the answer was cut after 1 tokens: --max-tokens 0 (or /set max_tokens 0) lifts the limit\nAnswered",
        );
        check(
            0,
            &cut(FinishReason::ContextFull),
            "a|end\nnote: the answer was cut because the context is full: --context may make room for more\nAnswered",
        );
    }

    #[test]
    fn the_oldest_exchanges_make_room_and_the_person_is_told() {
        // Two messages per exchange, and the question.
        check(2, &holding(5), "a|end\nAnswered");
        check(
            2,
            &holding(3),
            "a|end\nnote: the conversation exceeds the context: the model was not shown the 1 oldest exchange\nAnswered",
        );
        check(
            3,
            &holding(2),
            "a|end\nnote: the conversation exceeds the context: the model was not shown the 3 oldest exchanges\nAnswered",
        );
    }

    #[test]
    fn a_question_that_alone_does_not_fit_is_an_error() {
        check(
            1,
            &holding(0),
            "end\nerror: the prompt has 1 tokens and the context holds 0: shorten it by 2 or more, or raise the context length (--context)",
        );
    }

    #[test]
    fn a_question_that_does_not_fit_is_all_that_is_forgotten() {
        let mut session = session(2);
        session.ask("why?".into());
        let full = holding(0);
        assert!(answer(&mut session, &mut agents(&full).asker, &interrupt_never(), &mut Recorder::default()).is_err());
        session.ask("how?".into());
        let generator = saying(&["a"]);
        answer(&mut session, &mut agents(&generator).asker, &interrupt_never(), &mut Recorder::default()).unwrap();
        let Prompt::Chat(messages) = &generator.requests()[0].prompt else { panic!("a chat sends messages") };
        assert_eq!(messages.len(), 5, "both exchanges and the question");
    }

    #[test]
    fn a_failure_withdraws_the_question() {
        let mut session = session(1);
        session.ask("why?".into());
        let generator = Arc::new(Scripted::always(Script::failing(GenerateError::Failed("no memory".into()))));
        assert!(
            answer(&mut session, &mut agents(&generator).asker, &interrupt_never(), &mut Recorder::default()).is_err()
        );
        assert_eq!(session.exchanges().len(), 1);
        assert!(session.query().is_none());
    }

    #[test]
    fn ctrl_c_keeps_what_came_so_far() {
        let generator = Arc::new(Scripted::always(Script::never_ending(&["Be", "cause"])));
        let mut session = session(0);
        session.ask("why?".into());
        let (interrupt, press) = interrupt_now();
        let mut screen = Recorder::pressing(press, 2);
        let (ending, _) = answer(&mut session, &mut agents(&generator).asker, &interrupt, &mut screen).unwrap();
        assert_eq!(ending, Ending::Interrupted);
        assert_eq!(screen.seen.join("\n"), "Be|cause|end\nnote: stopped");
        assert_eq!(session.exchanges()[0].answer, "Because");
        assert_eq!(session.exchanges()[0].finish_reason, None);
        assert!(generator.was_cancelled(), "the generator is to learn that nobody listens");
    }

    #[test]
    fn ctrl_c_before_the_first_word_takes_the_question_back() {
        let generator = Arc::new(Scripted::always(Script::never_ending(&[])));
        let mut session = session(0);
        session.ask("why?".into());
        let (interrupt, press) = interrupt_now();
        let mut screen = Recorder::pressing(press, 0);
        assert_eq!(
            answer(&mut session, &mut agents(&generator).asker, &interrupt, &mut screen).unwrap().0,
            Ending::Interrupted
        );
        assert!(session.exchanges().is_empty());
    }

    #[test]
    fn a_ctrl_c_from_before_stops_nothing() {
        let (interrupt, press) = interrupt_now();
        press.send(()).unwrap();
        let mut session = session(0);
        session.ask("why?".into());
        let generator = saying(&["a"]);
        assert_eq!(
            answer(&mut session, &mut agents(&generator).asker, &interrupt, &mut Recorder::default()).unwrap().0,
            Ending::Answered
        );
    }
}
