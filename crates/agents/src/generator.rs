//! The generator agent: answers questions, one after the other.
//!
//! One type serves both respondents; they differ only in their [`Respondent`]. While an answer is generated, the agent
//! checks its mailbox first, so that a cancellation ends the answer within one token, and defers further questions.
//! Every question leads to exactly one `response.generation` or `response.failed`.

mod answer;
mod clock;
mod question;
pub(crate) mod states;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::RecvError;
use hone_bus::{Agent, Bus, Inbox, Wakeup};
use hone_protocol::{
    Envelope, FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, Message, Payload,
    Prompt, QueryId, RecallMode, RespondentId, Role, Subject, ToolCall,
};

use self::answer::{Answer, Round, Step};
use self::question::{Question, Recollection, response};
use self::states::{Fail, Generating, Idle, Publish, Recall, Recalling, Receive, Reset, StartGenerate, State};
use crate::machine::AgentState;
use crate::recall::{Recaller, search_of};
use crate::settings::MemoryMode;
use crate::thinking::ThinkingSettings;
use crate::tool_calls::CallScanner;
use crate::topic::{Topic, Withdrawal};

/// How often the model may search memory in one answer.
const MOST_SEARCHES: usize = 3;

/// The subjects that the agent subscribes to.
pub(crate) const SUBJECTS: [Subject; 3] = [Subject::QueryReceived, Subject::QueryCancelled, Subject::SessionClosed];

/// A respondent, and the settings that override the question's.
#[derive(Clone, Debug)]
pub(crate) struct Respondent {
    pub(crate) id: RespondentId,
    pub(crate) name: &'static str,
    pub(crate) model: Option<String>,
    pub(crate) temperature: Option<f32>,
}

/// The dependencies of an agent.
#[derive(Clone)]
pub(crate) struct GeneratorParts {
    pub(crate) bus: Bus,
    pub(crate) respondent: Respondent,
    pub(crate) generator: Arc<dyn Generate>,
    pub(crate) thinking: ThinkingSettings,
    pub(crate) recaller: Option<Recaller>,
}

/// The agent.
pub(crate) struct GeneratorAgent {
    parts: GeneratorParts,
    state: State,
    /// Models whose chat templates do not support tools.
    without_tools: HashSet<String>,
}

impl GeneratorAgent {
    pub(crate) fn new(parts: GeneratorParts) -> Self {
        GeneratorAgent { parts, state: State::default(), without_tools: HashSet::new() }
    }

    fn receive(&mut self, message: Arc<Envelope>, inbox: &mut Inbox) {
        if let Some(withdrawal) = Withdrawal::of(&message) {
            return self.withdraw(withdrawal, inbox);
        }
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => self.begin(idle, &message, inbox),
            at_work => {
                if let Err(refused) = inbox.defer(message) {
                    let reason = "too many questions wait already: ask again when one of them is answered";
                    self.fail_unanswered(&refused, GenerateError::Request(reason.to_owned()));
                }
                at_work
            }
        };
    }

    fn begin(&mut self, idle: Idle, message: &Arc<Envelope>, inbox: &mut Inbox) -> State {
        let Payload::QueryReceived(query) = &message.payload else { return idle.into() };
        inbox.claim(message);
        let mut query = query.clone();
        let respondent = &self.parts.respondent;
        query.model = respondent.model.clone().unwrap_or(query.model);
        query.sampling.temperature = respondent.temperature.unwrap_or(query.sampling.temperature);
        let recollection = self.recollection_for(&query.model);
        let question = Question::new(self.topic_of(message), query, recollection);
        self.ask(idle.act(Receive, |()| question)).into()
    }

    /// The question as this respondent knows it: A's is the received one, B's gets its own id.
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
    fn ask(&self, recalling: Recalling) -> Generating {
        recalling.act(StartGenerate, |mut question| {
            let request = self.request(&mut question);
            let names: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
            let scanner = (!names.is_empty()).then(|| CallScanner::new(names));
            let splitter = self.parts.thinking.splitter(&request.model);
            let generation = Generation::start(&*self.parts.generator, request);
            let round = Round::new(generation, splitter, scanner, &question.answer);
            Box::new((question, round))
        })
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
                        vec![hone_protocol::Recall { mode: RecallMode::Context, search: query.query.clone(), engrams }];
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

    fn follow(&mut self, event: Result<GenerationEvent, RecvError>, inbox: &mut Inbox) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => idle.into(),
            State::Generating(generating) => self.resume(generating, event, inbox),
        };
    }

    fn resume(
        &mut self,
        mut generating: Generating,
        event: Result<GenerationEvent, RecvError>,
        inbox: &mut Inbox,
    ) -> State {
        let (question, round) = generating.work_mut().as_mut();
        let event = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
        let (chunks, step) = round.take(&mut question.answer, event, Instant::now());
        if round.has_begun {
            for recall in question.recalled.drain(..) {
                self.tell(&question.topic, Payload::MemoryRecalled(recall));
            }
        }
        for chunk in chunks {
            self.tell(&question.topic, Payload::ResponseChunk(chunk));
        }
        match step {
            Step::GoesOn => generating.into(),
            Step::Answered(reason) => self.publish(generating, Some(reason), inbox).into(),
            Step::Called(calls, text) => self.use_memory(generating, calls, text).into(),
            Step::Failed(error) => self.fail(generating, error, inbox),
        }
    }

    /// Carries out the model's tool calls, and lets it resume.
    fn use_memory(&self, generating: Generating, calls: Vec<ToolCall>, text: String) -> Generating {
        self.ask(generating.act(Recall, |work| {
            let (question, round) = *work;
            let mut question = question.after(round);
            question.tool_turns.push(Message { tool_calls: calls.clone(), ..Message::new(Role::Assistant, text) });
            for call in &calls {
                let result = self.result_of(call, &mut question);
                question.tool_turns.push(result);
            }
            question
        }))
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
                question.recalled.push(hone_protocol::Recall {
                    mode: RecallMode::Tool,
                    search: search.to_owned(),
                    engrams,
                });
                result
            }
            Err(problem) => Message::new(Role::Tool, problem),
        }
    }

    /// Ends an answer, complete or not.
    fn publish(&self, generating: Generating, finish_reason: Option<FinishReason>, inbox: &mut Inbox) -> Idle {
        let publishing = generating.act(Publish, |work| work.0.after(work.1).answered(finish_reason));
        let idle = publishing.act(Reset, |(topic, response)| self.tell(&topic, Payload::ResponseGeneration(response)));
        inbox.release();
        idle
    }

    /// Retries without what may have caused the error, or gives up the question.
    fn fail(&mut self, generating: Generating, error: GenerateError, inbox: &mut Inbox) -> State {
        let question = &generating.work().0;
        let recollection = match (&error, question.recollection) {
            (GenerateError::NoTools { .. }, Recollection::Tool) => {
                self.without_tools.insert(question.query.model.clone());
                self.recollection_for(&question.query.model)
            }
            (GenerateError::ContextOverflow { .. } | GenerateError::Request(_), recollection)
                if recollection == Recollection::Tool || !question.recalled.is_empty() =>
            {
                tracing::debug!("the prompt is rebuilt without memory: {error}");
                Recollection::Nothing
            }
            _ => return self.give_up(generating, error, inbox).into(),
        };
        let recalling = generating.act(Recall, |work| Question {
            recollection,
            recalled: Vec::new(),
            tool_turns: Vec::new(),
            ..work.0.after(work.1)
        });
        self.ask(recalling).into()
    }

    fn give_up(&self, generating: Generating, error: GenerateError, inbox: &mut Inbox) -> Idle {
        let idle = generating.act(Fail, |work| (work.0.topic, error)).act(Reset, |(topic, error)| {
            // The client is told, and may retry with a smaller request.
            tracing::info!(respondent = %topic.respondent_id, query_id = %topic.query_id, "no answer: {error}");
            self.tell(&topic, Payload::ResponseFailed(error));
        });
        inbox.release();
        idle
    }

    /// Ends work that is no longer wanted.
    fn withdraw(&mut self, withdrawal: Withdrawal, inbox: &mut Inbox) {
        let is_concerned = |message: &Envelope| Topic::of(message).is_some_and(|topic| withdrawal.concerns(&topic));
        for message in inbox.take_deferred(is_concerned) {
            self.cancel_unanswered(&message);
        }
        self.end_work(inbox, |topic| withdrawal.concerns(topic));
    }

    /// Ends the current answer if `is_meant` accepts it.
    fn end_work(&mut self, inbox: &mut Inbox, is_meant: impl Fn(&Topic) -> bool) {
        self.state = match std::mem::take(&mut self.state) {
            State::Generating(generating) if is_meant(&generating.work().0.topic) => {
                self.publish(generating, None, inbox).into()
            }
            state => state,
        };
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
    type Event = Wakeup<GenerationEvent>;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Self::Event> {
        match &self.state {
            State::Idle(_) => match inbox.next_deferred() {
                Some(message) => Some(Wakeup::Message(message)),
                None => inbox.wait([]),
            },
            State::Generating(generating) => inbox.wait([(0, generating.work().1.generation.events())]),
        }
    }

    fn handle_event(&mut self, event: Self::Event, inbox: &mut Inbox) {
        match event {
            Wakeup::Message(message) => self.receive(message, inbox),
            Wakeup::Work(_, event) => self.follow(event, inbox),
        }
    }

    fn stopped(&mut self, inbox: &mut Inbox) {
        self.end_work(inbox, |_| true);
        let mut left = inbox.take_deferred(|_| true);
        left.extend(inbox.messages().try_iter());
        left.iter().for_each(|message| self.cancel_unanswered(message));
    }

    fn recover(&mut self, message: &Envelope) {
        let reason = format!("the {} agent failed at this question and was started again", self.parts.respondent.name);
        self.fail_unanswered(message, GenerateError::Failed(reason));
    }
}
