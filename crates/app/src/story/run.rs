//! Plays a story against the stack, and reports failed expectations.

use std::time::{Duration, Instant};

use hone_agents::Asker;
use hone_memory::MemoryStore;
use hone_protocol::{AnswerOptions, Envelope, Message, Query, QueryId, Role, SessionId};
use serde::Serialize;
use serde_json::Value;

use super::script::{Story, Turn};
use super::watch::Watch;
use crate::config::Config;
use crate::stack::Stack;

/// How long to wait, after the last turn, for outstanding results.
const SETTLING: Duration = Duration::from_secs(600);

/// The result of a story.
#[derive(Debug, Serialize)]
pub struct StoryReport {
    id: String,
    title: String,
    /// Whether everything held.
    pub passed: bool,
    turns: Vec<TurnReport>,
}

/// The result of a turn.
#[derive(Debug, Serialize)]
pub struct TurnReport {
    query: String,
    answer: Option<String>,
    seconds: f64,
    failures: Vec<String>,
}

impl StoryReport {
    /// The result as lines for the user: whether the story holds, and the failed expectations.
    pub fn lines(&self) -> Vec<String> {
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

/// Plays `story` with the settings of `config`, until all results have come and the agents have stopped.
pub fn play(story: &Story, stack: Stack, config: &Config) -> StoryReport {
    let asker = stack.asker("story");
    let session = (0, SessionId::fresh());
    let mut player = Player { asker, config, session, history: Vec::new(), watches: Vec::new(), seconds: Vec::new() };
    story.turns.iter().for_each(|turn| player.play(turn));
    let unsettled = player.settle();
    let store = stack.store().cloned();
    drop(stack);
    player.hear_the_rest();
    let engram = |id| read_engram(store.as_ref(), id);
    let mut turns = player.report(engram);
    if let (Some(last), Some(unsettled)) = (turns.last_mut(), unsettled) {
        last.failures.push(unsettled);
    }
    let passed = turns.iter().all(|turn| turn.failures.is_empty());
    StoryReport { id: story.id.clone(), title: story.title.clone(), passed, turns }
}

/// The fields of an engram as it is stored.
fn read_engram(store: Option<&MemoryStore>, id: QueryId) -> Result<Value, String> {
    let store = store.ok_or("there is no memory")?;
    let fields = store.fields(id).map_err(|error| error.to_string())?;
    fields.map(Value::Object).ok_or_else(|| "it is not in memory".to_owned())
}

struct Player<'a> {
    asker: Asker,
    config: &'a Config,
    /// The story's number of the conversation, and its id on the bus.
    session: (u32, SessionId),
    history: Vec<Message>,
    /// The results of the turns so far.
    watches: Vec<Watch<'a>>,
    /// The seconds that each of them took.
    seconds: Vec<f64>,
}

impl<'a> Player<'a> {
    /// Asks, and waits for the events that are expected within a time.
    fn play(&mut self, turn: &'a Turn) {
        if turn.session != self.session.0 {
            self.session = (turn.session, SessionId::fresh());
            self.history.clear();
        }
        let asked = Instant::now();
        let query = self.query(turn);
        let exchange = self.asker.ask(self.session.1, query);
        self.watches.push(Watch::new(turn, exchange, asked));
        while let Some(deadline) = self.watches.last().and_then(|watch| watch.waits_until(Instant::now())) {
            if !self.hear_until(deadline) {
                break;
            }
        }
        let answer = self.watches.last().and_then(Watch::answer).unwrap_or_default();
        self.history.extend([Message::new(Role::User, &turn.query), Message::new(Role::Assistant, answer)]);
        self.seconds.push(asked.elapsed().as_secs_f64());
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
            options: AnswerOptions { thinking: sampling.thinking(), ..AnswerOptions::default() },
        }
    }

    /// Receives the next message; returns `false` if none comes in time.
    fn hear_until(&mut self, deadline: Instant) -> bool {
        let heard = self.asker.heard().recv_deadline(deadline);
        heard.inspect(|envelope| self.take(envelope)).is_ok()
    }

    fn take(&mut self, envelope: &Envelope) {
        let now = Instant::now();
        self.watches.iter_mut().for_each(|watch| watch.take(envelope, now));
    }

    /// Waits for all outstanding results. Returns the problem if they do not come.
    fn settle(&mut self) -> Option<String> {
        let deadline = Instant::now() + SETTLING;
        let expected = self.asker.expected();
        while self.watches.iter().any(|watch| !watch.exchange().is_complete(expected)) {
            if !self.hear_until(deadline) {
                return Some(format!(
                    "not every answer was judged within {} s after the last turn",
                    SETTLING.as_secs()
                ));
            }
        }
        None
    }

    /// Receives the messages that the agents sent while they stopped.
    fn hear_the_rest(&mut self) {
        let rest: Vec<_> = self.asker.heard().try_iter().collect();
        rest.iter().for_each(|envelope| self.take(envelope));
    }

    fn report(&self, engram: impl Fn(QueryId) -> Result<Value, String>) -> Vec<TurnReport> {
        let of_turn = |(watch, seconds): (&Watch<'_>, &f64)| TurnReport {
            query: watch.turn().query.clone(),
            answer: watch.answer().map(str::to_owned),
            seconds: *seconds,
            failures: watch.failures(&engram),
        };
        self.watches.iter().zip(&self.seconds).map(of_turn).collect()
    }
}
