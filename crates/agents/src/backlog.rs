//! The backlog agent: grades due answers from earlier while no caller waits.
//!
//! It claims one answer after the other in memory, so that no other process grades the same one, and has it judged in
//! the batch lane. As soon as a question is asked, it drops the judge's work; the answer keeps its place. Like the
//! judge agent, it publishes `critique.result`, and `pairwise.result` if a comparison is due.

pub(crate) mod open_questions;
pub(crate) mod states;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvError, after, select_biased};
use hone_bus::{Agent, Bus, Inbox, Wakeup};
use hone_judging::{GradeTask, Jury, Standings};
use hone_memory::{Due, Engram, Holder, MemoryError, MemoryStore};
use hone_protocol::prospect::ALONE;
use hone_protocol::{Envelope, GenerationEvent, Grade, Judging, Lane, Preference, Prospect, Subject, with_causes};

use self::open_questions::OpenQuestions;
use self::states::{
    Comparing, EngramAtJudge, EngramPairAtJudge, Grading, Idle, Publish, PublishPairwise, Reset, StartGrade,
    StartPairwise, State, Withdraw,
};
use crate::judge::FAILED;
use crate::judge::pairs::{AnswerPair, Graded};
use crate::machine::AgentState;

/// The agent's name.
pub(crate) const NAME: &str = "backlog";

/// The subjects that show whether a caller waits.
pub(crate) const SUBJECTS: [Subject; 4] =
    [Subject::QueryReceived, Subject::ResponseFailed, Subject::CritiqueResult, Subject::SessionClosed];

/// Idle time before the agent takes up an answer.
const REST: Duration = Duration::from_secs(2);

/// Polling interval after the agent has found nothing to do.
const LONG_REST: Duration = Duration::from_secs(60);

/// The first pause after a judge fails to work; each further failure doubles it.
const SHORTEST_PAUSE: Duration = Duration::from_secs(30);

/// Interval during such a pause for checking whether the judge may grade now, since it may have passed its examination.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The agent's dependencies.
#[derive(Clone)]
pub(crate) struct BacklogParts {
    pub(crate) bus: Bus,
    pub(crate) store: MemoryStore,
    pub(crate) judge: Jury,
    pub(crate) holder: Arc<Holder>,
    /// The agent's current engram, which outlives its panics.
    pub(crate) in_hand: Arc<Mutex<Option<Engram>>>,
}

/// The agent.
pub(crate) struct BacklogAgent {
    parts: BacklogParts,
    state: State,
    open: OpenQuestions,
    /// Claimed answers that are not judged yet.
    claimed: VecDeque<Engram>,
    /// When the next answer may be taken up.
    not_before: Instant,
    pause: Duration,
    /// Which judges could grade at the time of the last failure.
    standings: Vec<Standings>,
}

/// The agent's events.
pub(crate) enum Event {
    Heard(Wakeup<GenerationEvent>),
    /// No message has arrived for a while.
    Rest,
}

impl BacklogAgent {
    pub(crate) fn new(parts: BacklogParts) -> Self {
        let parts = BacklogParts { judge: parts.judge.in_lane(Lane::Batch), ..parts };
        let (state, open, claimed) = (State::default(), OpenQuestions::default(), VecDeque::new());
        let (not_before, pause, standings) = (Instant::now() + REST, SHORTEST_PAUSE, parts.judge.standings());
        let agent = BacklogAgent { parts, state, open, claimed, not_before, pause, standings };
        if let Some(engram) = agent.put_down() {
            agent.tell_failure(&engram);
        }
        agent
    }

    fn receive(&mut self, message: &Envelope) {
        if message.sender == NAME {
            return;
        }
        self.wait_for(REST);
        if self.open.take(message) {
            self.make_room();
        }
    }

    /// Drops the judge's current work. The answer is taken up again later.
    fn make_room(&mut self) {
        let (idle, engram) = match std::mem::take(&mut self.state) {
            State::Idle(idle) => (idle, None),
            State::Grading(grading, work) => (grading.act(Withdraw), Some(work.engram)),
            State::Comparing(comparing, work) => (comparing.act(Withdraw), Some(work.engram)),
        };
        self.put_down();
        self.claimed.extend(engram);
        self.state = State::Idle(idle);
    }

    /// Takes up the next answer, if it is time or the judge has changed.
    fn begin(&mut self) {
        if Instant::now() < self.not_before && self.standings == self.parts.judge.standings() {
            return;
        }
        self.not_before = Instant::now();
        self.standings = self.parts.judge.standings();
        let claimed = self.claimed.pop_front();
        let next = match &claimed {
            Some(engram) => self.parts.store.get(engram.query_id),
            None => self.parts.holder.claim_next(),
        };
        match next {
            Ok(Some(engram)) => self.take_up(engram),
            Ok(None) if claimed.is_some() => {}
            Ok(None) => self.wait_for(LONG_REST),
            Err(error) => {
                tracing::info!("due answers stay ungraded: {}", with_causes(&error));
                self.wait_for(LONG_REST);
            }
        }
    }

    fn take_up(&mut self, engram: Engram) {
        let due = engram.due.clone().unwrap_or_default();
        self.pick_up(&engram);
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) if due.grade => self.grade(idle, engram),
            State::Idle(idle) if due.comparison => self.compare_or_not(idle, engram),
            other => other,
        };
        if matches!(self.state, State::Idle(_)) {
            self.put_down();
        }
    }

    fn grade(&self, idle: Idle, engram: Engram) -> State {
        let task = GradeTask { query: engram.query.clone(), answer: engram.answer.clone(), reference: None };
        let run = self.judge_of(&engram).start(task, &engram.model);
        State::Grading(idle.act(StartGrade), Box::new(EngramAtJudge { engram, run }))
    }

    fn judge_of(&self, engram: &Engram) -> Jury {
        self.parts.judge.clone().of_owner(engram.owner)
    }

    /// Compares an answer of respondent B with that of A, if A's exists.
    fn compare_or_not(&mut self, idle: Idle, engram: Engram) -> State {
        match self.pair_of(&engram) {
            Ok(Some(pair)) => {
                let run = self.judge_of(&engram).start(pair.task(), &pair.a.model);
                State::Comparing(idle.act(StartPairwise), Box::new(EngramPairAtJudge { engram, pair, run }))
            }
            Ok(None) => {
                Graded::of_engram(&engram).tell_uncompared(&self.parts.bus, NAME, ALONE);
                State::Idle(idle)
            }
            Err(error) => {
                tracing::info!("two answers stay uncompared: {}", with_causes(&error));
                self.claimed.push_back(engram);
                self.wait_for(LONG_REST);
                State::Idle(idle)
            }
        }
    }

    /// The answer with respondent A's answer to the same question; `None` if that does not exist, or was never
    /// finished.
    fn pair_of(&self, b: &Engram) -> Result<Option<AnswerPair>, MemoryError> {
        let a = self.parts.store.other_answer(b)?;
        Ok(a.map(|a| AnswerPair { a: Graded::of_engram(&a), b: Graded::of_engram(b) }))
    }

    fn follow(&mut self, channel: usize, event: Result<GenerationEvent, RecvError>) {
        self.state = match std::mem::take(&mut self.state) {
            State::Idle(idle) => State::Idle(idle),
            State::Grading(grading, mut work) => match work.run.take(channel, event) {
                Some(grade) => self.conclude(grading, work.engram, grade),
                None => State::Grading(grading, work),
            },
            State::Comparing(comparing, mut work) => match work.run.take(channel, event) {
                Some(preference) => State::Idle(self.prefer(comparing, &work.engram, &work.pair, preference)),
                None => State::Comparing(comparing, work),
            },
        };
    }

    fn conclude(&mut self, grading: Grading, engram: Engram, grade: Grade) -> State {
        self.note(&grade.judging);
        let publishing = grading.act(Publish);
        if self.is_still_due(&engram, |due| due.grade) {
            Graded::of_engram(&engram).tell(&self.parts.bus, NAME, grade.clone());
        }
        let idle = publishing.act(Reset);
        if engram.due.as_ref().is_some_and(|due| due.comparison) {
            return self.compare_or_not(idle, Engram { grade: Some(grade), ..engram });
        }
        self.put_down();
        State::Idle(idle)
    }

    fn prefer(&mut self, comparing: Comparing, engram: &Engram, pair: &AnswerPair, preference: Preference) -> Idle {
        self.note(&preference.judging);
        if self.is_still_due(engram, |due| due.comparison) {
            pair.tell(&self.parts.bus, NAME, preference);
        }
        self.put_down();
        comparing.act(PublishPairwise)
    }

    /// Whether an answer is still due. Another process that took this one for dead may have judged it in the meantime.
    fn is_still_due(&self, engram: &Engram, is_due: impl Fn(&Due) -> bool) -> bool {
        match self.parts.store.get(engram.query_id) {
            Ok(stored) => stored.and_then(|stored| stored.due).is_some_and(|due| is_due(&due)),
            Err(_) => true,
        }
    }

    /// Pauses after a failure of the judge.
    fn note(&mut self, judging: &Judging) {
        if judging.prospect() == Some(Prospect::Failed) {
            self.wait_for(self.pause);
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        } else {
            self.pause = SHORTEST_PAUSE;
        }
    }

    /// Reports that the agent has panicked, so that its claim on the answer is released.
    fn tell_failure(&self, engram: &Engram) {
        let (due, graded) = (engram.due.clone().unwrap_or_default(), Graded::of_engram(engram));
        if due.grade {
            graded.tell(&self.parts.bus, NAME, Grade::unscored(FAILED));
        }
        if due.comparison {
            graded.tell_uncompared(&self.parts.bus, NAME, FAILED);
        }
    }

    fn wait_for(&mut self, rest: Duration) {
        self.not_before = self.not_before.max(Instant::now() + rest);
    }

    fn pick_up(&self, engram: &Engram) {
        *self.parts.in_hand.lock().unwrap_or_else(PoisonError::into_inner) = Some(engram.clone());
    }

    fn put_down(&self) -> Option<Engram> {
        self.parts.in_hand.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Agent for BacklogAgent {
    type Event = Event;

    fn next_event(&mut self, inbox: &mut Inbox) -> Option<Event> {
        let heard = match &self.state {
            State::Idle(_) if self.open.is_empty() => {
                let rest = after(self.not_before.saturating_duration_since(Instant::now()).min(LOOK_INTERVAL));
                return select_biased! {
                    recv(inbox.stop()) -> _ => None,
                    recv(inbox.messages()) -> message => message.ok().map(Wakeup::Message).map(Event::Heard),
                    recv(rest) -> _ => Some(Event::Rest),
                };
            }
            State::Idle(_) => inbox.wait([]),
            State::Grading(_, work) => inbox.wait(work.run.channels()),
            State::Comparing(_, work) => inbox.wait(work.run.channels()),
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
