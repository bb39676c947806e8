//! The generator agent: answers questions, one after the other.
//!
//! There is one type for both respondents; they differ in their [`Respondent`] alone. While an answer is generated the agent
//! listens to its mailbox first, so that a cancellation ends the answer within one token, and puts further questions
//! aside. Every question ends with exactly one `response.generation` or `response.failed`.

mod answer;
pub(crate) mod states;

use std::collections::HashSet;
use std::sync::Arc;

use crossbeam_channel::{RecvError, never, select_biased};
use hone_bus::{Agent, Bus, Inbox};
use hone_protocol::{
    Envelope, FinishReason, Generate, GenerateError, GenerateRequest, GenerationEvent, Message, Payload, Prompt, Query,
    QueryId, Recall, RecallMode, RespondentId, Response, Role, Subject, ToolCall,
};

use self::answer::{Answer, Round, Step};
use self::states::{Action, State, TABLE};
use crate::machine::{IllegalTransition, Machine};
use crate::recall::{Recaller, search_of};
use crate::settings::MemoryMode;
use crate::thinking::ThinkingSettings;
use crate::tool_calls::CallScanner;
use crate::topic::{Topic, Withdrawal};

/// How often the model may ask memory for something in one answer.
const MOST_SEARCHES: usize = 3;

/// What the agent listens to.
pub(crate) const SUBJECTS: [Subject; 3] = [Subject::QueryReceived, Subject::QueryCancelled, Subject::SessionClosed];

/// Who answers, and how it differs from what the question asks for.
#[derive(Clone, Debug)]
pub(crate) struct Respondent {
    pub(crate) id: RespondentId,
    pub(crate) name: &'static str,
    pub(crate) model: Option<String>,
    pub(crate) temperature: Option<f32>,
}

/// What an agent needs from outside.
#[derive(Clone)]
pub(crate) struct GeneratorParts {
    pub(crate) bus: Bus,
    pub(crate) respondent: Respondent,
    pub(crate) generator: Arc<dyn Generate>,
    pub(crate) thinking: ThinkingSettings,
    pub(crate) recaller: Option<Recaller>,
}

/// The agent's state.
pub(crate) struct GeneratorAgent {
    parts: GeneratorParts,
    pub(crate) machine: Machine<State, Action>,
    work: Option<Work>,
    /// Models whose chat templates know no tools.
    without_tools: HashSet<String>,
}

/// What can happen to it.
pub(crate) enum Event {
    Message(Arc<Envelope>),
    Generation(Result<GenerationEvent, RecvError>),
}

/// An answer that is being generated.
struct Work {
    question: Question,
    round: Round,
}

/// A question, and what has come of it.
struct Question {
    topic: Topic,
    /// As this respondent takes it.
    query: Query,
    recollection: Recollection,
    /// What was recalled for the round, until it is known that the prompt fits and the model has seen it.
    recalled: Vec<Recall>,
    /// The model's calls and what the tool said to them.
    tool_turns: Vec<Message>,
    n_searches: usize,
    answer: Answer,
}

/// How memory takes part in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recollection {
    Tool,
    Context,
    Nothing,
}

impl GeneratorAgent {
    pub(crate) fn new(parts: GeneratorParts) -> Self {
        GeneratorAgent { parts, machine: Machine::new(&TABLE), work: None, without_tools: HashSet::new() }
    }

    fn receive(&mut self, message: Arc<Envelope>, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        if let Some(withdrawal) = Withdrawal::of(&message) {
            return self.withdraw(withdrawal, inbox);
        }
        if self.work.is_none() {
            return self.begin(&message, inbox);
        }
        if let Err(refused) = inbox.put_aside(message) {
            let reason = "too many questions wait already: ask again when one of them is answered";
            self.fail_unanswered(&refused, GenerateError::Request(reason.to_owned()));
        }
        Ok(())
    }

    fn begin(&mut self, message: &Arc<Envelope>, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        let Payload::QueryReceived(query) = &message.payload else { return Ok(()) };
        inbox.take_up(message);
        let mut query = query.clone();
        let respondent = &self.parts.respondent;
        query.model = respondent.model.clone().unwrap_or(query.model);
        query.sampling.temperature = respondent.temperature.unwrap_or(query.sampling.temperature);
        let recollection = self.recollection_for(&query.model);
        let question = Question {
            topic: self.topic_of(message),
            query,
            recollection,
            recalled: Vec::new(),
            tool_turns: Vec::new(),
            n_searches: 0,
            answer: Answer::default(),
        };
        self.machine.begin(Action::Receive)?;
        self.ask(question, inbox)
    }

    /// The question as this respondent knows it: A's is the one that was received, B's gets an id of its own.
    fn topic_of(&self, message: &Envelope) -> Topic {
        let received = message.query_id.unwrap_or_else(QueryId::fresh);
        let respondent_id = self.parts.respondent.id;
        Topic {
            session_id: message.session_id,
            query_id: if respondent_id == RespondentId::A { received } else { QueryId::fresh() },
            correlation_id: message.correlation_id.unwrap_or(received),
            respondent_id,
        }
    }

    fn recollection_for(&self, model: &str) -> Recollection {
        let Some(recaller) = &self.parts.recaller else { return Recollection::Nothing };
        match (recaller.settings.mode, self.without_tools.contains(model)) {
            (MemoryMode::Auto | MemoryMode::Tool, false) => Recollection::Tool,
            (MemoryMode::Auto, true) => Recollection::Context,
            (MemoryMode::Tool, true) | (MemoryMode::Off, _) => Recollection::Nothing,
        }
    }

    /// Starts a round of generation.
    fn ask(&mut self, mut question: Question, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        let request = self.request(&mut question);
        let names: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
        let scanner = (!names.is_empty()).then(|| CallScanner::new(names));
        let splitter = self.parts.thinking.splitter(&request.model);
        self.machine.act(Action::StartGenerate)?;
        match self.parts.generator.generate(request) {
            Ok(generation) => {
                let round = Round::new(generation, splitter, scanner, &question.answer);
                self.work = Some(Work { question, round });
                Ok(())
            }
            Err(error) => self.fail(question, error, inbox),
        }
    }

    fn request(&self, question: &mut Question) -> GenerateRequest {
        let query = &question.query;
        let mut messages = query.history.clone();
        let mut turn = query.query.clone();
        let mut tools = Vec::new();
        match (&self.parts.recaller, question.recollection) {
            (Some(recaller), Recollection::Context) => {
                let engrams = recaller.search(&query.query, &query.history);
                turn = recaller.in_context(&engrams, &turn);
                if !engrams.is_empty() {
                    question.recalled =
                        vec![Recall { mode: RecallMode::Context, search: query.query.clone(), engrams }];
                }
            }
            (Some(recaller), Recollection::Tool) if question.n_searches < MOST_SEARCHES => tools.push(recaller.tool()),
            _ => {}
        }
        messages.push(Message::new(Role::User, turn));
        messages.extend(question.tool_turns.iter().cloned());
        GenerateRequest {
            sampling: query.sampling.clone(),
            max_tokens: query.max_tokens,
            stop: query.stop.clone(),
            session: Some(question.topic.session_id),
            tools,
            ..GenerateRequest::new(&query.model, Prompt::Chat(messages))
        }
    }

    fn follow(
        &mut self,
        event: Result<GenerationEvent, RecvError>,
        inbox: &mut Inbox,
    ) -> Result<(), IllegalTransition> {
        let Some(mut work) = self.work.take() else { return Ok(()) };
        let event = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
        let (chunks, step) = work.round.take(&mut work.question.answer, event);
        if work.round.has_begun {
            for recall in work.question.recalled.drain(..) {
                self.tell(&work.question.topic, Payload::MemoryRecalled(recall));
            }
        }
        for chunk in chunks {
            self.tell(&work.question.topic, Payload::ResponseChunk(chunk));
        }
        match step {
            Step::GoesOn => {
                self.work = Some(work);
                Ok(())
            }
            Step::Answered(reason) => self.publish(work, Some(reason), inbox),
            Step::Called(calls, text) => self.use_memory(work, calls, text, inbox),
            Step::Failed(error) => self.fail(work.question, error, inbox),
        }
    }

    /// Does what the model asks of the tool, and lets it go on.
    fn use_memory(
        &mut self,
        work: Work,
        calls: Vec<ToolCall>,
        text: String,
        inbox: &mut Inbox,
    ) -> Result<(), IllegalTransition> {
        let Work { mut question, round } = work;
        round.settle(&mut question.answer);
        self.machine.act(Action::Recall)?;
        question.tool_turns.push(Message { tool_calls: calls.clone(), ..Message::new(Role::Assistant, text) });
        for call in &calls {
            let result = self.result_of(call, &mut question);
            question.tool_turns.push(result);
        }
        self.ask(question, inbox)
    }

    fn result_of(&self, call: &ToolCall, question: &mut Question) -> Message {
        let search = match (&self.parts.recaller, search_of(call)) {
            (Some(recaller), Ok(search)) if question.n_searches < MOST_SEARCHES => Ok((recaller, search)),
            (_, Err(problem)) => Err(problem),
            (_, Ok(_)) => Err("Memory was searched often enough: answer now.".to_owned()),
        };
        question.n_searches += 1;
        match search {
            Ok((recaller, search)) => {
                let engrams = recaller.search(search, &question.query.history);
                let result = recaller.tool_result(&engrams);
                question.recalled.push(Recall { mode: RecallMode::Tool, search: search.to_owned(), engrams });
                result
            }
            Err(problem) => Message::new(Role::Tool, problem),
        }
    }

    /// Ends an answer, complete or not.
    fn publish(
        &mut self,
        work: Work,
        finish_reason: Option<FinishReason>,
        inbox: &mut Inbox,
    ) -> Result<(), IllegalTransition> {
        let Work { mut question, round } = work;
        round.settle(&mut question.answer);
        let step = self.machine.act(Action::Publish);
        let response = response(&question.query, question.answer, finish_reason);
        self.tell(&question.topic, Payload::ResponseGeneration(response));
        inbox.put_down();
        step?;
        self.machine.act(Action::Reset)
    }

    /// Tries again without what may have caused the error, or gives the question up.
    fn fail(
        &mut self,
        mut question: Question,
        error: GenerateError,
        inbox: &mut Inbox,
    ) -> Result<(), IllegalTransition> {
        question.recollection = match (&error, question.recollection) {
            (GenerateError::NoTools { .. }, Recollection::Tool) => {
                self.without_tools.insert(question.query.model.clone());
                self.recollection_for(&question.query.model)
            }
            (GenerateError::ContextOverflow { .. } | GenerateError::Request(_), recollection)
                if recollection == Recollection::Tool || !question.recalled.is_empty() =>
            {
                tracing::debug!("the prompt is put together again without memory: {error}");
                Recollection::Nothing
            }
            _ => return self.give_up(&question.topic, error, inbox),
        };
        question.recalled.clear();
        question.tool_turns.clear();
        self.machine.act(Action::Recall)?;
        self.ask(question, inbox)
    }

    fn give_up(&mut self, topic: &Topic, error: GenerateError, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        let step = self.machine.act(Action::Fail);
        // Whoever asked is told, and may try again with less.
        tracing::info!(respondent = %topic.respondent_id, query_id = %topic.query_id, "no answer: {error}");
        self.tell(topic, Payload::ResponseFailed(error));
        inbox.put_down();
        step?;
        self.machine.act(Action::Reset)
    }

    /// Ends what nobody waits for any more.
    fn withdraw(&mut self, withdrawal: Withdrawal, inbox: &mut Inbox) -> Result<(), IllegalTransition> {
        let is_concerned = |message: &Envelope| Topic::of(message).is_some_and(|topic| withdrawal.concerns(&topic));
        for message in inbox.take_waiting(is_concerned) {
            self.cancel_unanswered(&message);
        }
        match self.work.take_if(|work| withdrawal.concerns(&work.question.topic)) {
            Some(work) => self.publish(work, None, inbox),
            None => Ok(()),
        }
    }

    fn cancel_unanswered(&self, message: &Envelope) {
        if let Payload::QueryReceived(query) = &message.payload {
            let response = response(query, Answer::default(), None);
            self.tell(&self.topic_of(message), Payload::ResponseGeneration(response));
        }
    }

    fn fail_unanswered(&self, message: &Envelope, error: GenerateError) {
        if matches!(message.payload, Payload::QueryReceived(_)) {
            self.tell(&self.topic_of(message), Payload::ResponseFailed(error));
        }
    }

    fn tell(&self, topic: &Topic, payload: Payload) {
        topic.publish(&self.parts.bus, self.parts.respondent.name, payload);
    }
}

impl Agent for GeneratorAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        if self.work.is_none()
            && let Some(message) = inbox.next_waiting()
        {
            return Some(Event::Message(message));
        }
        let nothing = never();
        let generation = self.work.as_ref().map_or(&nothing, |work| work.round.generation.events());
        select_biased! {
            recv(inbox.stop()) -> _ => None,
            recv(inbox.messages()) -> message => message.ok().map(Event::Message),
            recv(generation) -> event => Some(Event::Generation(event)),
        }
    }

    fn handle_event(&mut self, event: Event, inbox: &mut Inbox) {
        let outcome = match event {
            Event::Message(message) => self.receive(message, inbox),
            Event::Generation(event) => self.follow(event, inbox),
        };
        if let Err(illegal) = outcome {
            self.work = None;
            if let Some(message) = inbox.put_down() {
                self.fail_unanswered(&message, GenerateError::Failed(illegal.to_string()));
            }
        }
    }

    fn stopped(&mut self, inbox: &mut Inbox) {
        if let Some(work) = self.work.take() {
            // The agent ends here: where its state machine stands does not matter any more.
            let _ = self.publish(work, None, inbox);
        }
        let mut left = inbox.take_waiting(|_| true);
        left.extend(inbox.messages().try_iter());
        left.iter().for_each(|message| self.cancel_unanswered(message));
    }

    fn recover(&mut self, message: &Envelope) {
        let reason = format!("the {} agent failed at this question and was started again", self.parts.respondent.name);
        self.fail_unanswered(message, GenerateError::Failed(reason));
    }
}

fn response(query: &Query, answer: Answer, finish_reason: Option<FinishReason>) -> Response {
    Response {
        query: query.query.clone(),
        answer: answer.text,
        thinking: answer.thinking,
        model: query.model.clone(),
        sampling: query.sampling.clone(),
        finish_reason,
        timings: answer.timings,
    }
}
