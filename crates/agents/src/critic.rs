//! The critic agent: has memories reviewed while no caller waits.
//!
//! Texts that no critic has seen are taken up one after the other, those recalled most often first, then the newest. As
//! soon as a question is asked, the agent drops the critic's work. `hone critic vet` reviews the rest: texts of a type
//! for which the critic has not passed its examination, texts that it wrote itself, and texts about which it came to no
//! decision.

pub(crate) mod states;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvError, after, select_biased};
use hone_bus::{Agent, Inbox, Wakeup};
use hone_judging::{CritiqueSettings, Judge, Review, critique_result};
use hone_memory::{Engram, EventFilter, MemoryError, MemoryStore};
use hone_protocol::{
    ContentType, CriticMode, CritiqueResult, Envelope, GenerationEvent, Lane, Payload, Prospect, QueryId, Subject,
    Timestamp, with_causes,
};

use self::states::{Decide, EngramAtCritic, Idle, Reviewing, StartReview, State, Withdraw};
use crate::backlog::open_questions::OpenQuestions;
use crate::gatekeeping::{Criticize, Gatekeeper};
use crate::machine::AgentState;
use crate::notes::{Vetter, content_type};

/// The agent's name.
pub(crate) const NAME: &str = "critic";

/// Idle time before the agent takes up a text.
const REST: Duration = Duration::from_secs(2);

/// Polling interval after the agent has found nothing to do, or may not continue.
const LONG_REST: Duration = Duration::from_secs(60);

/// The first pause after a critic fails to work; each further failure doubles it.
const SHORTEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The number of unreviewed texts considered, and of recollections that determine their importance.
const CANDIDATES: usize = 200;

/// A critic that reviews memories while no caller waits.
#[derive(Clone)]
pub struct BackgroundCritic {
    /// The reviewing judge.
    pub judge: Judge,
    /// Its prompts, and the weight of its opinion.
    pub settings: Arc<CritiqueSettings>,
    /// Returns why its opinion of texts of a type does not count; see [`Criticize::unproven`].
    pub unproven: Unproven,
}

/// See [`Criticize::unproven`].
pub type Unproven = Arc<dyn Fn(ContentType) -> Option<String> + Send + Sync>;

impl Criticize for BackgroundCritic {
    fn criticize(&self, kind: ContentType, content: &str, context: &str) -> CritiqueResult {
        let review = self.judge.judge(self.settings.task(kind, content, context), "");
        critique_result(kind, &review, self.unproven(kind).as_deref())
    }

    fn unproven(&self, kind: ContentType) -> Option<String> {
        (self.unproven)(kind)
    }
}

/// The agent's dependencies.
#[derive(Clone)]
pub(crate) struct CriticParts {
    pub(crate) store: MemoryStore,
    pub(crate) critic: BackgroundCritic,
}

/// The agent.
pub(crate) struct CriticAgent {
    parts: CriticParts,
    state: State,
    open: OpenQuestions,
    /// When the next text may be taken up.
    not_before: Instant,
    pause: Duration,
    /// Texts at which the critic has failed in this process.
    failed: HashSet<QueryId>,
}

/// The agent's events.
pub(crate) enum Event {
    Heard(Wakeup<GenerationEvent>),
    /// No message has arrived for a while.
    Rest,
}

impl CriticAgent {
    pub(crate) fn new(mut parts: CriticParts) -> Self {
        parts.critic.judge = parts.critic.judge.in_lane(Lane::Batch).of_unknown_authors();
        let not_before = Instant::now() + REST;
        let (state, open, failed) = (State::default(), OpenQuestions::default(), HashSet::new());
        CriticAgent { parts, state, open, not_before, pause: SHORTEST_PAUSE, failed }
    }

    fn keeper(&self) -> Gatekeeper<'_> {
        let CriticParts { store, critic } = &self.parts;
        Gatekeeper { store, critic, settings: &critic.settings, is_batch: true, clock: &Timestamp::now }
    }

    fn receive(&mut self, message: &Envelope) {
        self.rest(REST);
        if self.open.take(message) {
            self.make_room();
        }
    }

    /// Drops the critic's current work. The text is taken up again later.
    fn make_room(&mut self) {
        self.state = State::Idle(match std::mem::take(&mut self.state) {
            State::Idle(idle) => idle,
            State::Reviewing(reviewing, _) => reviewing.act(Withdraw),
        });
    }

    fn rest(&mut self, duration: Duration) {
        self.not_before = self.not_before.max(Instant::now() + duration);
    }

    /// Takes up the next text.
    fn begin(&mut self) {
        let next = self.next().unwrap_or_else(|error| {
            tracing::info!("nothing is reviewed now: {}", with_causes(&error));
            None
        });
        let Some((engram, context)) = next else { return self.rest(LONG_REST) };
        let BackgroundCritic { judge, settings, .. } = &self.parts.critic;
        let run = judge.start(settings.task(content_type(engram.kind), &engram.answer, &context), "");
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => State::Reviewing(idle.act(StartReview), Box::new(EngramAtCritic { engram, run })),
            other => other,
        };
    }

    /// A text about which the critic may be asked now, and its context.
    fn next(&self) -> Result<Option<(Engram, String)>, MemoryError> {
        if self.parts.critic.judge.refusal("").is_some() {
            return Ok(None);
        }
        let vetter = Vetter { gatekeeper: self.keeper() };
        let mut pending: Vec<Engram> =
            vetter.untried(CANDIDATES)?.into_iter().filter(|engram| self.may_review(engram)).collect();
        if pending.is_empty() {
            return Ok(None);
        }
        let keeper = &vetter.gatekeeper;
        let mut kinds = HashSet::new();
        for kind in ContentType::ALL {
            let counts = keeper.mode(kind)? != CriticMode::Off && keeper.critic.unproven(kind).is_none();
            if counts && keeper.refusal(kind)?.is_none() {
                kinds.insert(kind);
            }
        }
        pending.retain(|engram| kinds.contains(&content_type(engram.kind)));
        let recalled = self.recalled()?;
        // The sort is stable: among texts recalled equally often, the newest comes first.
        pending.sort_by_key(|engram| std::cmp::Reverse(recalled.get(&engram.query_id).copied().unwrap_or_default()));
        let Some(engram) = pending.into_iter().next() else { return Ok(None) };
        let context = vetter.context(&engram)?;
        Ok(Some((engram, context)))
    }

    /// Whether this critic is responsible for a text, did not write it, and has not failed at it.
    fn may_review(&self, engram: &Engram) -> bool {
        let BackgroundCritic { judge, settings, .. } = &self.parts.critic;
        let model = judge.settings().model.as_str();
        let is_its = settings.critic_of(&engram.model).is_none_or(|critic| critic == model);
        is_its && engram.model != model && !self.failed.contains(&engram.query_id)
    }

    /// How often each text was recalled lately.
    fn recalled(&self) -> Result<HashMap<QueryId, usize>, MemoryError> {
        let recollections =
            EventFilter { subjects: vec![Subject::MemoryRecalled], last: Some(CANDIDATES), ..EventFilter::default() };
        let mut counts = HashMap::new();
        for (_, envelope) in self.parts.store.events(&recollections, None)? {
            if let Payload::MemoryRecalled(recall) = &envelope.payload {
                recall.engrams.iter().for_each(|engram| *counts.entry(engram.query_id).or_default() += 1);
            }
        }
        Ok(counts)
    }

    fn follow(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => State::Idle(idle),
            State::Reviewing(reviewing, mut work) => match work.run.take(channel, event) {
                Some(review) => State::Idle(self.conclude(reviewing, &work.engram, &review)),
                None => State::Reviewing(reviewing, work),
            },
        };
    }

    fn conclude(&mut self, reviewing: Reviewing, engram: &Engram, review: &Review) -> Idle {
        let kind = content_type(engram.kind);
        let result = critique_result(kind, review, self.parts.critic.unproven(kind).as_deref());
        if result.judging.prospect() == Some(Prospect::Failed) {
            tracing::info!("the critic failed: {}", result.judging.failure.unwrap_or_default());
            self.failed.insert(engram.query_id);
            self.rest(self.pause);
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
            return reviewing.act(Decide);
        }
        self.pause = SHORTEST_PAUSE;
        if let Err(error) = self.keeper().conclude(engram, kind, result) {
            tracing::info!("a review is not stored: {}", with_causes(&error));
            self.rest(LONG_REST);
        }
        reviewing.act(Decide)
    }
}

impl Agent for CriticAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let heard = match &self.state {
            State::Idle(_) if self.open.is_empty() => {
                let rest = after(self.not_before.saturating_duration_since(Instant::now()));
                return select_biased! {
                    recv(inbox.stop()) -> _ => None,
                    recv(inbox.messages()) -> message => message.ok().map(Wakeup::Message).map(Event::Heard),
                    recv(rest) -> _ => Some(Event::Rest),
                };
            }
            State::Idle(_) => inbox.wait([]),
            State::Reviewing(_, work) => inbox.wait(work.run.channels()),
        };
        heard.map(Event::Heard)
    }

    fn handle_event(&mut self, event: Event, _: &mut Inbox) {
        match event {
            Event::Heard(Wakeup::Message(message)) => self.receive(&message),
            Event::Heard(Wakeup::Work(channel, event)) => self.follow(channel, event),
            Event::Rest => self.begin(),
        }
    }

    fn stopped(&mut self, _: &mut Inbox) {
        self.make_room();
    }

    fn recover(&mut self, _: &Envelope) {}
}
