//! Plays a story against the stack, and reports what did not hold.

use std::time::{Duration, Instant};

use hone_agents::{Asker, Exchange, Reply};
use hone_protocol::{Envelope, Message, Query, RespondentId, Role, SessionId};
use serde::Serialize;
use serde_json::{Value, json};

use super::script::{ExpectedEngram, ExpectedEvent, Story, Turn};
use crate::config::Config;
use crate::stack::Stack;

/// How long memory may take to write the effects of an event.
const WRITING: Duration = Duration::from_secs(10);
/// How long to wait before checking memory again.
const GLANCE: Duration = Duration::from_millis(20);

/// The result of a story.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    id: String,
    title: String,
    pub(crate) passed: bool,
    turns: Vec<TurnReport>,
}

/// The result of a turn.
#[derive(Debug, Serialize)]
pub(crate) struct TurnReport {
    query: String,
    answer: Option<String>,
    seconds: f64,
    failures: Vec<String>,
}

impl Report {
    /// The result as lines for the user: whether the story holds, and what does not.
    pub(crate) fn lines(&self) -> Vec<String> {
        let seconds: f64 = self.turns.iter().map(|turn| turn.seconds).sum();
        let verdict = if self.passed { "holds" } else { "does not hold" };
        let mut lines = vec![format!("{} {verdict} ({seconds:.1} s): {}", self.id, self.title)];
        for turn in self.turns.iter().filter(|turn| !turn.failures.is_empty()) {
            lines.push(format!("  {:?}", turn.query));
            lines.extend(turn.failures.iter().map(|failure| format!("    {failure}")));
        }
        lines
    }
}

/// Plays `story` with the settings of `config`.
pub(crate) fn play(story: &Story, stack: &Stack, config: &Config) -> Report {
    let asker = stack.asker("story");
    let mut player = Player { stack, asker, config, session: (0, SessionId::fresh()), history: Vec::new() };
    let turns: Vec<TurnReport> = story.turns.iter().map(|turn| player.turn(turn)).collect();
    let passed = turns.iter().all(|turn| turn.failures.is_empty());
    Report { id: story.id.clone(), title: story.title.clone(), passed, turns }
}

struct Player<'a> {
    stack: &'a Stack,
    asker: Asker,
    config: &'a Config,
    /// The story's number of the conversation, and its id on the bus.
    session: (u32, SessionId),
    history: Vec<Message>,
}

impl Player<'_> {
    fn turn(&mut self, turn: &Turn) -> TurnReport {
        if turn.session != self.session.0 {
            self.session = (turn.session, SessionId::fresh());
            self.history.clear();
        }
        let asked = Instant::now();
        let query = self.query(turn);
        let exchange = self.asker.ask(self.session.1, query);
        let mut watch = Watch { exchange, turn, asked, found: vec![None; turn.events.len()] };
        while let Some(deadline) = watch.waits_until() {
            let Ok(envelope) = self.asker.heard().recv_deadline(deadline) else { break };
            watch.take(&envelope);
        }
        let mut failures = watch.failures();
        let answer = watch.answer();
        if answer.is_none() && watch.reply(RespondentId::A).failure.is_none() {
            failures.push("there is no answer".to_string());
        }
        let said = answer.clone().unwrap_or_default().to_lowercase();
        let missing = turn.expected_content.iter().filter(|text| !said.contains(&text.to_lowercase()));
        failures.extend(missing.map(|text| format!("the answer does not contain {text:?}: {answer:?}")));
        failures.extend(turn.engrams.iter().flat_map(|engram| self.check_engram(engram, &watch)));
        self.history.push(Message::new(Role::User, &turn.query));
        self.history.push(Message::new(Role::Assistant, answer.clone().unwrap_or_default()));
        TurnReport { query: turn.query.clone(), answer, seconds: asked.elapsed().as_secs_f64(), failures }
    }

    fn query(&self, turn: &Turn) -> Query {
        let sampling = &self.config.sampling;
        Query {
            query: turn.query.clone(),
            history: self.history.clone(),
            model: self.config.engine.model.clone(),
            sampling: sampling.options(),
            max_tokens: sampling.max_tokens,
            stop: sampling.stop.clone(),
        }
    }

    /// What is wrong with the engram of a respondent's answer, once memory has had time to write it.
    fn check_engram(&self, expected: &ExpectedEngram, watch: &Watch<'_>) -> Vec<String> {
        let respondent = expected.respondent;
        let Some(store) = self.stack.store() else { return vec!["there is no memory".to_string()] };
        let Some(id) = watch.reply(respondent).query_id else { return vec![format!("{respondent} gave no answer")] };
        let until = Instant::now() + WRITING;
        loop {
            let engram = store.get(id).map(|engram| engram.and_then(|engram| serde_json::to_value(engram).ok()));
            let faults: Vec<String> = match engram {
                Err(error) => vec![error.to_string()],
                Ok(None) => vec!["there is none".to_string()],
                Ok(Some(engram)) => {
                    let known = watch.known();
                    expected.fields.iter().filter_map(|(path, it)| it.fault(&engram, path, &known)).collect()
                }
            };
            if faults.is_empty() || Instant::now() >= until {
                return faults.into_iter().map(|fault| format!("engram of {respondent}: {fault}")).collect();
            }
            std::thread::sleep(GLANCE);
        }
    }
}

/// The progress of a turn's expectations.
struct Watch<'a> {
    exchange: Exchange,
    turn: &'a Turn,
    asked: Instant,
    /// The event that matched each expectation.
    found: Vec<Option<Value>>,
}

impl Watch<'_> {
    /// The deadline of what is still expected; `None` if nothing is.
    fn waits_until(&self) -> Option<Instant> {
        let open = self.turn.events.iter().zip(&self.found).filter(|(_, found)| found.is_none());
        let deadline = open.map(|(event, _)| self.deadline(event)).max();
        // The answer is awaited even if the story expects no event.
        let answer = self.answer().is_none().then(|| self.asked + Duration::from_secs(600));
        let until = deadline.max(answer)?;
        (self.reply(RespondentId::A).failure.is_none() && Instant::now() < until).then_some(until)
    }

    fn deadline(&self, event: &ExpectedEvent) -> Instant {
        self.asked + Duration::from_secs_f64(event.within_seconds)
    }

    fn take(&mut self, envelope: &Envelope) {
        if envelope.correlation_id != Some(self.exchange.id()) {
            return;
        }
        self.exchange.take(envelope);
        let late = |event: &ExpectedEvent| Instant::now() > self.deadline(event);
        let fits = |event: &ExpectedEvent| {
            event.subject == envelope.subject()
                && event.respondent.is_none_or(|respondent| envelope.respondent_id == Some(respondent))
        };
        let place = self
            .turn
            .events
            .iter()
            .zip(&self.found)
            .position(|(event, found)| found.is_none() && fits(event) && !late(event));
        if let Some(place) = place {
            self.found[place] = serde_json::to_value(envelope).ok();
        }
    }

    fn failures(&self) -> Vec<String> {
        let known = self.known();
        let failed = self.reply(RespondentId::A).failure.iter().map(|failure| format!("there is no answer: {failure}"));
        let events = self.turn.events.iter().zip(&self.found).flat_map(|(expected, found)| {
            let of = expected.respondent.map(|respondent| format!(" of {respondent}")).unwrap_or_default();
            let faults: Vec<String> = match found {
                Some(_) if expected.absent => vec!["has come".to_string()],
                Some(event) => expected.fields.iter().filter_map(|(path, it)| it.fault(event, path, &known)).collect(),
                None if expected.absent => Vec::new(),
                None => vec![format!("has not come within {} s", expected.within_seconds)],
            };
            faults.into_iter().map(move |fault| format!("{}{of}: {fault}", expected.subject))
        });
        failed.chain(events).collect()
    }

    /// The values that expectations can refer to.
    fn known(&self) -> Value {
        json!({ "query_id": self.exchange.id() })
    }

    fn answer(&self) -> Option<String> {
        self.reply(RespondentId::A).response.as_ref().map(|response| response.answer.clone())
    }

    fn reply(&self, respondent: RespondentId) -> &Reply {
        self.exchange.reply(respondent)
    }
}
