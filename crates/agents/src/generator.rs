//! The generator agent: answers questions, several at once if allowed.
//!
//! One type serves both respondents; they differ only in their [`Respondent`]. Every answer in progress has a state of
//! its own. While answers are generated, the agent checks its mailbox first, so that a cancellation ends its answer
//! within one token. Questions that arrive while the agent is at its limit of answers are deferred. Every question
//! leads to exactly one `response.generation` or `response.failed`.

mod answer;
mod clock;
mod question;
pub(crate) mod states;

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvError;
use hone_bus::{Agent, Bus, Inbox, Wakeup};
use hone_protocol::{
    Envelope, FinishReason, Generate, GenerateError, GenerateRequest, Generation, GenerationEvent, Lane,
    LogprobOptions, Message, Payload, Prompt, Query, QueryId, RecallMode, RespondentId, Role, SecondAnswer, Subject,
    ToolCall,
};

use self::answer::{AnswerSoFar, Round, RoundKind, RoundStep};
use self::question::{QuestionInProgress, Recollection, response};
use self::states::{
    AnswerInProgress, Fail, Generating, Idle, Publish, Recall, Recalling, Receive, Reset, StartGenerate, State,
};
use crate::machine::AgentState;
use crate::recall::{Recaller, search_of};
use crate::settings::MemoryMode;
use crate::tool_calls::CallScanner;
use crate::topic::{Topic, Withdrawal};

/// The delay before a client whose question was refused for lack of room may retry.
const RETRY_AFTER: Duration = Duration::from_secs(2);

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

impl Respondent {
    /// The model that answers a question.
    fn model_for(&self, query: &Query) -> String {
        let asked_for = match &query.options.second {
            SecondAnswer::By(model) if self.id == RespondentId::B => Some(model),
            _ => self.model.as_ref(),
        };
        asked_for.unwrap_or(&query.model).clone()
    }
}

/// The dependencies of an agent.
#[derive(Clone)]
pub(crate) struct GeneratorParts {
    pub(crate) bus: Bus,
    pub(crate) respondent: Respondent,
    pub(crate) generator: Arc<dyn Generate>,
    pub(crate) recaller: Option<Recaller>,
    /// The most questions answered at once.
    pub(crate) most_answers: usize,
}

/// The agent.
pub(crate) struct GeneratorAgent {
    parts: GeneratorParts,
    /// The answers in progress in the order of their questions, keyed by the numbers of their channels.
    answers: BTreeMap<usize, (Generating, Box<AnswerInProgress>)>,
    n_begun: usize,
    /// Models whose chat templates do not support tools.
    without_tools: HashSet<String>,
}

impl GeneratorAgent {
    pub(crate) fn new(parts: GeneratorParts) -> Self {
        GeneratorAgent { parts, answers: BTreeMap::new(), n_begun: 0, without_tools: HashSet::new() }
    }

    fn receive(&mut self, message: Arc<Envelope>, inbox: &mut Inbox) {
        if let Some(withdrawal) = Withdrawal::of(&message) {
            return self.withdraw(withdrawal, inbox);
        }
        if self.question_in(&message).is_none() {
            return;
        }
        if self.has_room() {
            let number = self.n_begun;
            self.n_begun += 1;
            let state = self.begin(&message, inbox);
            self.enter(number, state);
        } else if let Err(refused) = inbox.defer(message) {
            let queued = inbox.deferred_count();
            let error = GenerateError::Busy { lane: Lane::Interactive, queued, retry_after: RETRY_AFTER };
            self.fail_unanswered(&refused, error);
        }
    }

    /// The question in a message, if this respondent should answer it: A always, B if a second answer is wanted.
    fn question_in<'a>(&self, message: &'a Envelope) -> Option<&'a Query> {
        let Payload::QueryReceived(query) = &message.payload else { return None };
        let is_asked = self.parts.respondent.id == RespondentId::A || query.options.second != SecondAnswer::Unwanted;
        is_asked.then_some(query)
    }

    fn has_room(&self) -> bool {
        self.answers.len() < self.parts.most_answers
    }

    /// Moves the answer of this number to another state.
    fn enter(&mut self, number: usize, state: State) {
        if let State::Generating(generating, work) = state {
            self.answers.insert(number, (generating, work));
        }
    }

    fn begin(&mut self, message: &Arc<Envelope>, inbox: &mut Inbox) -> State {
        let idle = Idle::default();
        let Some(query) = self.question_in(message) else { return State::Idle(idle) };
        inbox.claim(message);
        let mut query = query.clone();
        let respondent = &self.parts.respondent;
        query.model = respondent.model_for(&query);
        query.sampling.temperature = respondent.temperature.unwrap_or(query.sampling.temperature);
        if respondent.id != RespondentId::A {
            // It is A's answer that is continued.
            query.options.begun.clear();
        }
        let recollection = self.recollection_for(&query);
        let searches = self.parts.recaller.as_ref().map_or(0, |recaller| recaller.settings.n_searches);
        let question = QuestionInProgress::new(self.topic_of(message), query, recollection, searches);
        self.ask(idle.act(Receive), question)
    }

    /// The question as this respondent knows it: A's is the received one, B's gets its own id.
    fn topic_of(&self, message: &Envelope) -> Topic {
        let received = message.query_id.unwrap_or_else(QueryId::fresh);
        let respondent_id = self.parts.respondent.id;
        Topic {
            session_id: message.session_id,
            owner: message.owner,
            query_id: if respondent_id == RespondentId::A { received } else { QueryId::fresh() },
            correlation_id: message.correlation_id.unwrap_or(received),
            respondent_id,
        }
    }

    fn recollection_for(&self, query: &Query) -> Recollection {
        let recaller = self.parts.recaller.as_ref().filter(|_| query.options.recalls && !query.options.is_raw);
        let Some(recaller) = recaller else { return Recollection::Nothing };
        // A program has tools of its own, and an answer that is held to a form, or has begun, cannot be a call.
        let options = &query.options;
        let is_free = !options.is_of_client && options.constraint.is_none() && options.begun.is_empty();
        let may_call = is_free && !self.without_tools.contains(&query.model);
        match (recaller.settings.mode, may_call) {
            (MemoryMode::Auto | MemoryMode::Tool, true) => Recollection::Tool,
            (MemoryMode::Auto, false) => Recollection::Context,
            (MemoryMode::Tool, false) | (MemoryMode::Off, _) => Recollection::Nothing,
        }
    }

    /// Starts a round of generation.
    fn ask(&self, recalling: Recalling, mut question: QuestionInProgress) -> State {
        let request = self.request(&mut question);
        // The client's tools come first, followed by the agent's own, if any.
        let (tools, own) = request.tools.split_at(question.query.options.tools.len());
        let scanner = (!request.tools.is_empty()).then(|| CallScanner::new(tools, own.first()));
        let kind = RoundKind::of(&request.prompt, &question.answer);
        let generation = Generation::start(&*self.parts.generator, request);
        let round = Round::new(generation, scanner, kind);
        State::Generating(recalling.act(StartGenerate), Box::new(AnswerInProgress { question, round }))
    }

    fn request(&self, question: &mut QuestionInProgress) -> GenerateRequest {
        let query = &question.query;
        let mut messages = query.history.clone();
        let mut turn = query.query.clone();
        let mut tools = query.options.tools.clone();
        match (&self.parts.recaller, question.recollection) {
            (Some(recaller), Recollection::Context) => {
                let engrams = recaller.search(&query.query, query, question.topic.owner);
                turn = recaller.in_context(&engrams, &turn);
                if !engrams.is_empty() {
                    question.recalled =
                        vec![hone_protocol::Recall { mode: RecallMode::Context, search: query.query.clone(), engrams }];
                }
            }
            (Some(recaller), Recollection::Tool) if question.rounds.may_call() => tools.push(recaller.tool()),
            _ => {}
        }
        let prompt = if query.options.is_raw {
            Prompt::Text { text: turn, parse_special: true, add_special: true }
        } else {
            messages.push(Message::new(Role::User, turn));
            messages.extend(query.options.turns_after.iter().chain(question.rounds.turns()).cloned());
            if !query.options.begun.is_empty() {
                messages.push(Message::new(Role::Assistant, &query.options.begun));
            }
            Prompt::Chat(messages)
        };
        GenerateRequest {
            sampling: query.sampling.clone(),
            max_tokens: query.max_tokens,
            stop: query.stop.clone(),
            constraint: query.options.constraint.clone(),
            completes_json: tools.is_empty(),
            session: Some(question.topic.session_id),
            owner: question.topic.owner,
            tools,
            // The agent's own memory search is not worth teaching: recollections can be placed in the question.
            teaches_tools: !query.options.tools.is_empty(),
            thinking: query.options.thinking,
            logprobs: LogprobOptions { top: query.options.logprobs, ..LogprobOptions::default() },
            ..GenerateRequest::new(&query.model, prompt)
        }
    }

    fn follow(&mut self, number: usize, event: Result<GenerationEvent, RecvError>, inbox: &mut Inbox) {
        if let Some((generating, work)) = self.answers.remove(&number) {
            let state = self.resume(generating, work, event, inbox);
            self.enter(number, state);
        }
    }

    fn resume(
        &mut self,
        generating: Generating,
        mut work: Box<AnswerInProgress>,
        event: Result<GenerationEvent, RecvError>,
        inbox: &mut Inbox,
    ) -> State {
        let AnswerInProgress { question, round } = &mut *work;
        let event = event.unwrap_or(GenerationEvent::Failed(GenerateError::Stopped));
        let (chunks, step) = round.take(&mut question.answer, event, Instant::now());
        if round.has_begun {
            for recall in question.recalled.drain(..) {
                self.tell(&question.topic, Payload::MemoryRecalled(recall));
            }
        }
        for chunk in question.resumed(round.has_begun).into_iter().chain(chunks) {
            self.tell(&question.topic, Payload::ResponseChunk(chunk));
        }
        match step {
            RoundStep::GoesOn => State::Generating(generating, work),
            RoundStep::Answered(reason) => State::Idle(self.publish(generating, *work, Some(reason), inbox)),
            RoundStep::Called(calls, text) => match question.calls_of_client(&calls) {
                calls_of_client if calls_of_client.is_empty() => self.use_memory(generating, *work, &calls, &text),
                calls_of_client => {
                    question.answer.tool_calls = calls_of_client;
                    State::Idle(self.publish(generating, *work, Some(FinishReason::Stop), inbox))
                }
            },
            RoundStep::Failed(error) => self.fail(generating, *work, error, inbox),
        }
    }

    /// Executes the model's tool calls, and lets it resume.
    fn use_memory(
        &self,
        generating: Generating,
        AnswerInProgress { question, round }: AnswerInProgress,
        calls: &[ToolCall],
        text: &str,
    ) -> State {
        let recalling = generating.act(Recall);
        let mut question = question.after(round);
        let mut rounds = question.rounds.clone();
        let result_of = |call: &ToolCall, may_search: bool| -> Result<_, Infallible> {
            Ok(Some(self.result_of(call, may_search, &mut question)))
        };
        let Ok(_) = rounds.carry_out(text, calls, result_of);
        self.ask(recalling, QuestionInProgress { rounds, ..question })
    }

    fn result_of(&self, call: &ToolCall, may_search: bool, question: &mut QuestionInProgress) -> Message {
        let search = match (&self.parts.recaller, search_of(call)) {
            (Some(recaller), Ok(search)) if may_search => Ok((recaller, search)),
            (_, Err(problem)) => Err(problem),
            (_, Ok(_)) => Err("Memory was searched often enough: answer now.".to_owned()),
        };
        match search {
            Ok((recaller, search)) => {
                let engrams = recaller.search(search, &question.query, question.topic.owner);
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
    fn publish(
        &self,
        generating: Generating,
        AnswerInProgress { question, round }: AnswerInProgress,
        finish_reason: Option<FinishReason>,
        inbox: &mut Inbox,
    ) -> Idle {
        let publishing = generating.act(Publish);
        let (topic, response) = question.after(round).answered(finish_reason);
        inbox.release(|message| topic.was_received_in(message));
        self.tell(&topic, Payload::ResponseGeneration(response));
        publishing.act(Reset)
    }

    /// Retries without the likely cause of the error, or gives up the question.
    fn fail(
        &mut self,
        generating: Generating,
        AnswerInProgress { question, round }: AnswerInProgress,
        error: GenerateError,
        inbox: &mut Inbox,
    ) -> State {
        let recollection = match (&error, question.recollection) {
            (GenerateError::NoTools { .. }, Recollection::Tool) => {
                self.without_tools.insert(question.query.model.clone());
                self.recollection_for(&question.query)
            }
            (GenerateError::ContextOverflow { .. } | GenerateError::Request(_), recollection)
                if recollection == Recollection::Tool || !question.recalled.is_empty() =>
            {
                tracing::debug!("the prompt is rebuilt without memory: {error}");
                Recollection::Nothing
            }
            _ => return State::Idle(self.give_up(generating, &question.topic, error, inbox)),
        };
        let recalling = generating.act(Recall);
        let mut question = question.after(round);
        question.rounds.forget();
        self.ask(recalling, QuestionInProgress { recollection, recalled: Vec::new(), ..question })
    }

    fn give_up(&self, generating: Generating, topic: &Topic, error: GenerateError, inbox: &mut Inbox) -> Idle {
        let failed = generating.act(Fail);
        inbox.release(|message| topic.was_received_in(message));
        // The client gets the error, and may retry with a smaller request.
        tracing::info!(respondent = %topic.respondent_id, query_id = %topic.query_id, "no answer: {error}");
        self.tell(topic, Payload::ResponseFailed(error));
        failed.act(Reset)
    }

    /// Ends work that is no longer wanted.
    fn withdraw(&mut self, withdrawal: Withdrawal, inbox: &mut Inbox) {
        let is_concerned = |message: &Envelope| Topic::of(message).is_some_and(|topic| withdrawal.concerns(&topic));
        for message in inbox.take_deferred(is_concerned) {
            self.cancel_unanswered(&message);
        }
        self.end_work(inbox, |topic| withdrawal.concerns(topic));
    }

    /// Ends the answers that `is_meant` accepts.
    fn end_work(&mut self, inbox: &mut Inbox, is_meant: impl Fn(&Topic) -> bool) {
        let ended: Vec<(Generating, Box<AnswerInProgress>)> = self
            .answers
            .extract_if(.., |_, (_, work)| is_meant(&work.question.topic))
            .map(|(_, answer)| answer)
            .collect();
        for (generating, work) in ended {
            self.publish(generating, *work, None, inbox);
        }
    }

    fn cancel_unanswered(&self, message: &Envelope) {
        if let Some(query) = self.question_in(message) {
            let response = response(query, AnswerSoFar::default(), None);
            self.tell(&self.topic_of(message), Payload::ResponseGeneration(response));
        }
    }

    fn fail_unanswered(&self, message: &Envelope, error: GenerateError) {
        if self.question_in(message).is_some() {
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
        if self.has_room()
            && let Some(message) = inbox.next_deferred()
        {
            return Some(Wakeup::Message(message));
        }
        let answers = self.answers.iter();
        inbox.wait(answers.map(|(number, (_, work))| (*number, work.round.generation.events())))
    }

    fn handle_event(&mut self, event: Self::Event, inbox: &mut Inbox) {
        match event {
            Wakeup::Message(message) => self.receive(message, inbox),
            Wakeup::Work(number, event) => self.follow(number, event, inbox),
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
