//! Answers the open question of a session: requests the answer, streams it, stops it on Ctrl-C, and keeps it.

use std::time::Duration;

use crossbeam_channel::select_biased;
use hone_agents::{Asker, Exchange, ExchangeChange, TooSlow};
use hone_protocol::{
    Chunk, FinishReason, GenerateError, QueryId, RespondentId, Response, Tool, ToolLimits, ToolRounds,
};

use crate::conversations::Session;
use crate::interrupt::{Interrupt, Listening};
use crate::tools::{Tools, result_of};

/// How long nothing may happen before the user sees an indication of activity.
const PATIENCE: Duration = Duration::from_millis(400);

/// The message when an answer did not fit the context.
pub const CONTEXT_FULL: &str = "the answer was cut because the context is full: --context may make room for more";

/// The message when an answer was stopped because it repeated itself.
pub const REPEATS: &str = "the answer was stopped because it repeated itself: --repetition-limit 0 (in a chat: /set repetition_limit 0) lifts the limit";

/// Receives an answer and its progress.
pub trait Audience {
    /// Nothing has arrived for a while.
    fn waiting(&mut self);
    /// `done` of the `total` bytes of the model have been loaded.
    fn loading(&mut self, done: u64, total: u64);
    /// `done` of the `total` tokens of the prompt have been processed.
    fn prompt_progress(&mut self, done: usize, total: usize);
    /// A piece of the model's reasoning.
    fn thinking(&mut self, text: &str);
    /// A piece of the answer.
    ///
    /// # Errors
    /// When the reader of the output has gone.
    fn text(&mut self, text: &str) -> anyhow::Result<()>;
    /// The answer has ended, perhaps with an error.
    ///
    /// # Errors
    /// When the reader of the output has gone.
    fn end(&mut self) -> anyhow::Result<()>;
    /// A remark in addition to the answer.
    fn note(&mut self, text: &str);
}

/// How the open question was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer.
    Answered,
    /// By Ctrl-C, with the answer so far.
    Interrupted,
}

/// Answers the open question of `session` and closes it. If the prompt does not fit, the oldest exchanges are left out
/// one by one, and the user is told how many. Tool calls are carried out, and the model is then asked again.
///
/// # Errors
/// When there is no answer; the question is then withdrawn.
pub fn answer(
    session: &mut Session,
    asker: &mut Asker,
    interrupt: &Interrupt,
    tools: &dyn Tools,
    audience: &mut dyn Audience,
) -> anyhow::Result<(Ending, Exchange)> {
    let left_out_before = session.left_out();
    let listening = interrupt.listen();
    let limits = ToolLimits { rounds: session.config().chat.tool_rounds, calls: usize::MAX };
    let mut rounds = ToolRounds::new(limits);
    let outcome = loop {
        let may_call = rounds.may_call() && !session.continues();
        let offered = if may_call { tools.offered() } else { &[] };
        match attempt(session, asker, offered, &listening, audience) {
            Err(Trouble::Generate(GenerateError::ContextOverflow { .. })) if session.leave_out_oldest() => {}
            Ok((exchange, response)) if calls_tools(&response) => {
                match use_tools(&mut rounds, &response, tools, &listening, audience) {
                    Ok(true) => session.set_tool_turns(rounds.turns().to_vec()),
                    Ok(false) => break Ok((exchange, Response { finish_reason: None, ..response })),
                    Err(error) => break Err(error.into()),
                }
            }
            outcome => break outcome,
        }
    };
    // The screen is restored even if the answer failed, and the first error is the one to report.
    let ended = audience.end();
    let (exchange, response) = match outcome {
        Ok(answered) => answered,
        Err(trouble) => {
            session.withdraw();
            return Err(trouble.into());
        }
    };
    ended?;
    tell_what_was_left_out(session, left_out_before, audience);
    Ok((close(session, exchange.id(), response, audience), exchange))
}

/// Whether the model waits for tools.
fn calls_tools(response: &Response) -> bool {
    response.finish_reason.is_some() && !response.tool_calls.is_empty()
}

/// Carries out the model's tool calls; `false` after a Ctrl-C.
fn use_tools(
    rounds: &mut ToolRounds,
    response: &Response,
    tools: &dyn Tools,
    listening: &Listening<'_>,
    audience: &mut dyn Audience,
) -> anyhow::Result<bool> {
    audience.end()?;
    let mut note = |text: &str| audience.note(text);
    rounds.carry_out(&response.answer, &response.tool_calls, |call, _| result_of(tools, call, listening, &mut note))
}

/// Waits for all results that follow an answered question. Returns `false` if Ctrl-C came first.
///
/// # Errors
/// When more messages have arrived than the mailbox holds.
pub fn wait_for_verdicts(exchange: &mut Exchange, asker: &Asker, listening: &Listening<'_>) -> Result<bool, TooSlow> {
    while !exchange.is_complete(asker.expected()) {
        select_biased! {
            recv(listening.pressed()) -> _ => return Ok(false),
            recv(asker.heard()) -> envelope => exchange.take(&*envelope.map_err(|_| asker.too_slow())?),
        };
    }
    Ok(true)
}

/// The cause of an attempt that ended without an answer: the model or the audience.
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
    offered: &[Tool],
    listening: &Listening<'_>,
    audience: &mut dyn Audience,
) -> Result<(Exchange, Response), Trouble> {
    let mut query = session.query().ok_or_else(|| GenerateError::Request("no question is open".to_string()))?;
    query.options.tools = offered.to_vec();
    let mut exchange = asker.ask(session.id(), query);
    let followed = follow(&mut exchange, asker, session, listening, audience);
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
    audience: &mut dyn Audience,
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
                    audience.waiting();
                }
                continue;
            }
        };
        match exchange.take(&envelope) {
            ExchangeChange::Chunk(RespondentId::A, chunk) => has_begun |= show(chunk, audience)?,
            ExchangeChange::Answered(RespondentId::A, response) => return Ok(response.clone()),
            ExchangeChange::Failed(RespondentId::A, error) => return Err(error.clone().into()),
            _ => {}
        }
    }
}

/// Shows a piece of the answer; returns whether it contains visible text.
fn show(chunk: &Chunk, audience: &mut dyn Audience) -> anyhow::Result<bool> {
    match chunk {
        Chunk::Loading { done, total } => audience.loading(*done, *total),
        Chunk::Prefill { done, total } => audience.prompt_progress(*done, *total),
        Chunk::Thinking(text) => audience.thinking(text),
        Chunk::Text(text) => audience.text(text)?,
        Chunk::Logprobs(_) => {}
    }
    Ok(matches!(chunk, Chunk::Thinking(_) | Chunk::Text(_)))
}

/// Keeps the answer, and tells the user if it is incomplete.
fn close(session: &mut Session, id: QueryId, response: Response, audience: &mut dyn Audience) -> Ending {
    let Response { answer, finish_reason, timings, .. } = response;
    match finish_reason {
        Some(FinishReason::Length) => {
            let tokens = timings.generation_tokens;
            audience.note(&format!(
                "the answer was cut after {tokens} tokens: --max-tokens 0 (in a chat: /set max_tokens 0) lifts the limit"
            ));
        }
        Some(FinishReason::ContextFull) => {
            audience.note(CONTEXT_FULL);
        }
        Some(FinishReason::Repetition) => audience.note(REPEATS),
        Some(FinishReason::Stop | FinishReason::Concluded | FinishReason::StopText) => {}
        None if answer.is_empty() => {
            audience.note(match session.continues() {
                true => "stopped before the answer grew: it is as it was",
                false => "stopped before the answer began: the question was withdrawn",
            });
            session.withdraw();
            return Ending::Interrupted;
        }
        None => audience.note("stopped"),
    }
    session.finish(id, answer, finish_reason, timings);
    if finish_reason.is_none() { Ending::Interrupted } else { Ending::Answered }
}

fn tell_what_was_left_out(session: &Session, before: usize, audience: &mut dyn Audience) {
    let now = session.left_out();
    if now > before {
        let exchanges = if now == 1 { "exchange" } else { "exchanges" };
        audience.note(&format!(
            "the conversation exceeds the context: the model was not shown the {now} oldest {exchanges}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crossbeam_channel::Receiver;
    use hone_protocol::scripted::{Script, Scripted};
    use hone_protocol::{GenerateRequest, Prompt, Role, ToolCall};
    use serde_json::json;

    use super::*;
    use crate::config::Config;
    use crate::scripted::{Recorder, agents, holding, interrupt_never, interrupt_now, saying, session};
    use crate::tools::{Called, NoTools, Permit};

    /// Asks a question after `exchanges` exchanges, and checks the output and the ending.
    #[track_caller]
    fn check(exchanges: usize, generator: &Arc<Scripted>, expected: &str) {
        let mut session = session(exchanges);
        let mut audience = Recorder::default();
        session.ask("why?".into());
        match answer(&mut session, &mut agents(generator).asker, &interrupt_never(), &NoTools, &mut audience) {
            Ok((ending, _)) => audience.seen.push(format!("{ending:?}")),
            Err(error) => audience.seen.push(format!("error: {error:#}")),
        }
        assert_eq!(audience.seen.join("\n"), expected);
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
            "a|end\nnote: the answer was cut after 1 tokens: --max-tokens 0 (in a chat: /set max_tokens 0) lifts the limit\nAnswered",
        );
        check(
            0,
            &cut(FinishReason::Repetition),
            "a|end\nnote: the answer was stopped because it repeated itself: --repetition-limit 0 (in a chat: /set repetition_limit 0) lifts the limit\nAnswered",
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
        assert!(
            answer(&mut session, &mut agents(&full).asker, &interrupt_never(), &NoTools, &mut Recorder::default())
                .is_err()
        );
        session.ask("how?".into());
        let generator = saying(&["a"]);
        answer(&mut session, &mut agents(&generator).asker, &interrupt_never(), &NoTools, &mut Recorder::default())
            .unwrap();
        let Prompt::Chat(messages) = &generator.requests()[0].prompt else { panic!("a chat sends messages") };
        assert_eq!(messages.len(), 5, "both exchanges and the question");
    }

    #[test]
    fn a_failure_withdraws_the_question() {
        let mut session = session(1);
        session.ask("why?".into());
        let generator = Arc::new(Scripted::always(Script::failing(GenerateError::Failed("no memory".into()))));
        assert!(
            answer(&mut session, &mut agents(&generator).asker, &interrupt_never(), &NoTools, &mut Recorder::default())
                .is_err()
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
        let mut audience = Recorder::pressing(press, 2);
        let (ending, _) =
            answer(&mut session, &mut agents(&generator).asker, &interrupt, &NoTools, &mut audience).unwrap();
        assert_eq!(ending, Ending::Interrupted);
        assert_eq!(audience.seen.join("\n"), "Be|cause|end\nnote: stopped");
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
        let mut audience = Recorder::pressing(press, 0);
        assert_eq!(
            answer(&mut session, &mut agents(&generator).asker, &interrupt, &NoTools, &mut audience).unwrap().0,
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
            answer(&mut session, &mut agents(&generator).asker, &interrupt, &NoTools, &mut Recorder::default())
                .unwrap()
                .0,
            Ending::Answered
        );
    }

    /// A tool with fixed behavior.
    struct Staged {
        offered: Vec<Tool>,
        permit: Permit,
        called: Called,
    }

    impl Tools for Staged {
        fn offered(&self) -> &[Tool] {
            &self.offered
        }

        fn permit(&self, _: &ToolCall) -> anyhow::Result<Permit> {
            Ok(self.permit.clone())
        }

        fn call(&self, _: &ToolCall, _: &Receiver<()>) -> Called {
            self.called.clone()
        }
    }

    /// Asks a model that calls a tool in this many rounds, if it may, and returns the results that it read in the end.
    #[track_caller]
    fn check_tools(rounds: usize, permit: Permit, called: Called, expected: &str) -> Vec<String> {
        let results = |request: &GenerateRequest| match &request.prompt {
            Prompt::Chat(turns) => turns.iter().filter(|turn| turn.role == Role::Tool).cloned().collect::<Vec<_>>(),
            other => panic!("a chat sends messages, not {other:?}"),
        };
        let generator = Arc::new(Scripted::new(move |request| {
            match request.tools.is_empty() || results(request).len() == rounds {
                true => Script::saying(&["Done."]),
                false => Script::saying(&["<tool_call>{\"name\": \"look\", \"arguments\": {\"at\": 1}}</tool_call>"]),
            }
        }));
        let offered = vec![Tool { name: "look".into(), description: String::new(), parameters: json!({}) }];
        let tools = Staged { offered, permit, called };
        let (mut session, mut audience) = (session(0), Recorder::default());
        session.ask("why?".into());
        let ended =
            answer(&mut session, &mut agents(&generator).asker, &interrupt_never(), &tools, &mut audience).unwrap().0;
        audience.seen.push(format!("{ended:?}"));
        assert_eq!(audience.seen.join("\n"), expected);
        let last = generator.requests().pop().unwrap();
        results(&last).into_iter().map(|turn| turn.content).collect()
    }

    const CALLS: &str = "end\nnote: the model calls look {\"at\":1}";

    #[test]
    fn a_model_reads_what_its_tools_say() {
        let said = || Called::Said("42".into());
        let read = check_tools(1, Permit::Allowed, said(), &format!("{CALLS}\nDone.|end\nAnswered"));
        assert_eq!(read, ["42"]);
        let twice = format!("{CALLS}\n{CALLS}\nDone.|end\nAnswered");
        assert_eq!(check_tools(2, Permit::Allowed, said(), &twice), ["42", "42"]);
        let most_rounds = Config::defaults().unwrap().chat.tool_rounds;
        let often = format!("{}Done.|end\nAnswered", format!("{CALLS}\n").repeat(most_rounds));
        assert_eq!(check_tools(usize::MAX, Permit::Allowed, said(), &often).len(), most_rounds);
    }

    #[test]
    fn a_model_reads_why_a_tool_says_nothing() {
        let refused = format!("{CALLS}\nnote: not called: no\nDone.|end\nAnswered");
        let read = check_tools(1, Permit::Refused("no"), Called::Said("42".into()), &refused);
        assert_eq!(read, ["The call was not carried out: the person did not allow it."]);
        let failed = format!("{CALLS}\nnote: the call failed: it broke\nDone.|end\nAnswered");
        let read = check_tools(1, Permit::Allowed, Called::Failed("it broke".into()), &failed);
        assert_eq!(read, ["The call failed: it broke"]);
    }

    #[test]
    fn ctrl_c_during_a_call_takes_the_question_back() {
        let withdrawn = "note: stopped before the answer began: the question was withdrawn\nInterrupted";
        let expected = format!("{CALLS}\nend\n{withdrawn}");
        check_tools(1, Permit::Interrupted, Called::Said("42".into()), &expected);
        check_tools(1, Permit::Allowed, Called::Interrupted, &expected);
    }
}
