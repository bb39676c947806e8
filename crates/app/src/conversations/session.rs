//! The state of a chat: the conversation, the effective settings, and the question that is being answered.
//!
//! A question is opened by [`Session::ask`] or [`Session::ask_again`] and closed by [`Session::finish`] or
//! [`Session::withdraw`]. Only complete exchanges are kept, so a conversation always alternates. Nothing here does I/O.

use std::collections::BTreeSet;

use hone_protocol::{AnswerOptions, Branches, FinishReason, Forks, Message, Query, QueryId, Role, SessionId, Timings};
use serde::{Deserialize, Serialize};

use crate::config::{Config, Source};

/// The format version of saved conversations.
pub const FORMAT: u32 = 1;

/// A question and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedExchange {
    /// The question.
    pub question: String,
    /// The answer.
    pub answer: String,
    /// The reasoning before the answer, if a page has it; the terminal does not keep it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thinking: String,
    /// The model that answered.
    pub model: String,
    /// Why the answer ended; `None` if the user stopped it.
    pub finish_reason: Option<FinishReason>,
    /// The token counts and times of the answer.
    pub timings: Timings,
    /// The exchange's id on the bus and in memory; `None` in conversations saved before memory existed.
    #[serde(default)]
    pub query_id: Option<QueryId>,
    /// The ids of the memories recalled for the answer, if a page asked. Their texts are kept in memory alone, where
    /// they can be forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recalled: Vec<QueryId>,
}

impl SavedExchange {
    /// Whether the answer ended before the model was done with it, so that it can be continued.
    pub fn is_cut_off(&self) -> bool {
        matches!(self.finish_reason, None | Some(FinishReason::Length)) && !self.answer.is_empty()
    }
}

/// A conversation as it is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// The [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// The model for the next answer.
    pub model: String,
    /// Instructions before the conversation; empty leaves them to the model's template.
    pub system: String,
    /// The exchanges of all branches, oldest first.
    pub exchanges: Vec<SavedExchange>,
    /// The order of the exchanges, where it is not linear.
    #[serde(default, skip_serializing_if = "Forks::is_empty")]
    pub forks: Forks,
    /// The ids of undone exchanges, which are not restored from the saved version.
    #[serde(skip)]
    pub undone_ids: BTreeSet<QueryId>,
}

impl Conversation {
    /// The conversation with the exchanges that another process has added to its saved version.
    pub(super) fn with_others(self, saved: Conversation) -> Conversation {
        let is_here = |exchange: &SavedExchange| self.exchanges.iter().any(|mine| mine.query_id == exchange.query_id);
        let is_new = |exchange: &SavedExchange| {
            exchange.query_id.is_some_and(|id| !self.undone_ids.contains(&id)) && !is_here(exchange)
        };
        if !saved.exchanges.iter().any(is_new) {
            return self;
        }
        let mine = Branches::from_list(self.exchanges.clone(), &self.forks);
        let (Ok(mut mine), Ok(saved)) = (mine, Branches::from_list(saved.exchanges, &saved.forks)) else { return self };
        let is_same = |mine: &SavedExchange, saved: &SavedExchange| {
            mine.query_id == saved.query_id && (mine.query_id.is_some() || mine == saved)
        };
        mine.merge(saved, is_same, is_new);
        let (exchanges, forks) = mine.into_list();
        Conversation { exchanges, forks, ..self }
    }
}

/// A chat.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    config: Config,
    exchanges: Branches<SavedExchange>,
    open: Option<OpenQuestion>,
    name: Option<String>,
    left_out: usize,
    undone_ids: BTreeSet<QueryId>,
    /// The tool calls and results before the last answer, if it was given here.
    turns_of_last: Vec<Message>,
}

#[derive(Debug, Default)]
struct OpenQuestion {
    question: String,
    /// The conversation with the answer that is being replaced; restored if the question is withdrawn.
    before: Option<Branches<SavedExchange>>,
    /// The number of exchanges left out before; restored if the question is withdrawn.
    left_out_before: usize,
    /// The tool calls since the question, and their results.
    turns_after: Vec<Message>,
    /// The model that answers, if it is not the conversation's.
    model: Option<String>,
    /// The answer so far, which is continued; empty for a new answer.
    begun: String,
}

impl Session {
    /// An empty conversation.
    pub fn new(config: Config) -> Session {
        let (exchanges, undone_ids) = (Branches::default(), BTreeSet::new());
        Session {
            id: SessionId::fresh(),
            config,
            exchanges,
            open: None,
            name: None,
            left_out: 0,
            undone_ids,
            turns_of_last: Vec::new(),
        }
    }

    /// The conversation's id on the bus and in memory.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Resumes a saved conversation: its exchanges, and its model and instructions unless flags or a preset override
    /// them.
    ///
    /// # Errors
    /// When the conversation's settings or branches are not valid.
    pub fn resume(&mut self, name: String, conversation: Conversation) -> anyhow::Result<()> {
        self.go_on(Some(name), conversation)
    }

    /// Continues a conversation, which has no name if it is not saved; see [`Session::resume`].
    ///
    /// # Errors
    /// When the conversation's settings or branches are not valid.
    pub fn go_on(&mut self, name: Option<String>, conversation: Conversation) -> anyhow::Result<()> {
        let exchanges = Branches::from_list(conversation.exchanges, &conversation.forks)?;
        for (key, value) in [("engine.model", conversation.model), ("chat.system", conversation.system)] {
            if !matches!(self.config.source_of(key), Some(Source::Flag(_) | Source::Preset(_))) {
                self.config.set_text(key, &value, Source::Chat)?;
            }
        }
        self.clear();
        self.exchanges = exchanges;
        self.name = name;
        Ok(())
    }

    /// The effective settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The model that answers.
    pub fn model(&self) -> &str {
        &self.config.engine.model
    }

    /// The exchanges of the branch that is shown, oldest first.
    pub fn exchanges(&self) -> Vec<&SavedExchange> {
        self.exchanges.shown().collect()
    }

    /// The number of oldest exchanges that the prompt leaves out, because they do not fit the context.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The name under which the conversation is saved, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Names the conversation.
    pub fn rename(&mut self, name: String) {
        self.name = Some(name);
    }

    /// The conversation as it is saved.
    pub fn conversation(&self) -> Conversation {
        let (exchanges, forks) = self.exchanges.clone().into_list();
        let (model, system) = (self.model().to_string(), self.config.chat.system.clone());
        Conversation { format: FORMAT, model, system, exchanges, forks, undone_ids: self.undone_ids.clone() }
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// When the key does not exist or the value is not valid for it.
    pub fn set(&mut self, key: &str, text: &str) -> anyhow::Result<()> {
        self.config.set_text(key, text, Source::Chat)?;
        // Another model or shorter instructions may make room for the exchanges left out.
        self.left_out = 0;
        Ok(())
    }

    /// Starts a new conversation with the same settings.
    pub fn clear(&mut self) {
        self.id = SessionId::fresh();
        self.exchanges = Branches::default();
        self.open = None;
        self.name = None;
        self.left_out = 0;
        self.undone_ids.clear();
        self.turns_of_last.clear();
    }

    /// Removes and returns the last exchange, if there is one.
    pub fn undo(&mut self) -> Option<SavedExchange> {
        let ids = |exchanges: &Branches<SavedExchange>| exchanges.all().filter_map(|it| it.query_id).collect();
        let before: BTreeSet<QueryId> = ids(&self.exchanges);
        let undone = self.exchanges.remove_last();
        self.undone_ids.extend(before.difference(&ids(&self.exchanges)));
        self.turns_of_last.clear();
        self.left_out = 0;
        undone
    }

    /// Opens a question.
    pub fn ask(&mut self, question: String) {
        self.open(OpenQuestion { question, ..OpenQuestion::default() });
    }

    /// Reopens the last question, for `model` or the conversation's model. The earlier answer stays a branch. Returns
    /// `false` if there is no question.
    pub fn ask_again(&mut self, model: Option<String>) -> bool {
        let Some(last) = self.exchanges.shown().last() else { return false };
        self.open_again(OpenQuestion { question: last.question.clone(), model, ..OpenQuestion::default() });
        true
    }

    /// Reopens the last question for the rest of its answer, which was cut off. The earlier answer stays a branch.
    /// Returns `false` if there is none, or it is complete.
    pub fn continue_answer(&mut self) -> bool {
        let Some(last) = self.exchanges.shown().last().filter(|last| last.is_cut_off()) else { return false };
        let (question, begun, model) = (last.question.clone(), last.answer.clone(), Some(last.model.clone()));
        let turns_after = self.turns_of_last.clone();
        self.open_again(OpenQuestion { question, begun, model, turns_after, ..OpenQuestion::default() });
        true
    }

    /// Whether the open question's answer has begun, and is continued.
    pub fn continues(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.begun.is_empty())
    }

    fn open(&mut self, question: OpenQuestion) {
        self.open = Some(OpenQuestion { left_out_before: self.left_out, ..question });
    }

    /// Opens the question of the last exchange in its place.
    fn open_again(&mut self, question: OpenQuestion) {
        self.open(OpenQuestion { before: Some(self.exchanges.clone()), ..question });
        self.exchanges.show_first(self.exchanges.n_shown() - 1);
    }

    /// The query for the respondents; `None` if no question is open.
    pub fn query(&self) -> Option<Query> {
        let open = self.open.as_ref()?;
        let mut history = Vec::new();
        if !self.config.chat.system.is_empty() {
            history.push(Message::new(Role::System, &self.config.chat.system));
        }
        history.extend(self.config.chat.messages.iter().cloned());
        for exchange in self.exchanges.shown().skip(self.left_out) {
            history.push(Message::new(Role::User, &exchange.question));
            history.push(Message::new(Role::Assistant, &exchange.answer));
        }
        let sampling = &self.config.sampling;
        Some(Query {
            query: open.question.clone(),
            history,
            model: open.model.as_deref().unwrap_or_else(|| self.model()).to_string(),
            sampling: sampling.options(),
            max_tokens: sampling.max_tokens,
            stop: sampling.stop.clone(),
            options: AnswerOptions {
                thinking: sampling.thinking(),
                turns_after: open.turns_after.clone(),
                begun: open.begun.clone(),
                ..AnswerOptions::default()
            },
        })
    }

    /// Sets the tool calls and results after which the open question is answered.
    pub fn set_tool_turns(&mut self, turns: Vec<Message>) {
        if let Some(open) = &mut self.open {
            open.turns_after = turns;
        }
    }

    /// Leaves one more of the oldest exchanges out of the prompt; returns `false` if none is left.
    pub fn leave_out_oldest(&mut self) -> bool {
        let can = self.left_out < self.exchanges.n_shown();
        self.left_out += usize::from(can);
        can
    }

    /// Closes the open question with its answer, which is remembered under `query_id`.
    pub fn finish(&mut self, query_id: QueryId, answer: String, finish_reason: Option<FinishReason>, timings: Timings) {
        if let Some(OpenQuestion { question, model, turns_after, .. }) = self.open.take() {
            self.turns_of_last = turns_after;
            let (model, query_id) = (model.unwrap_or_else(|| self.model().to_string()), Some(query_id));
            let thinking = String::new();
            let recalled = Vec::new();
            let exchange =
                SavedExchange { question, answer, thinking, model, finish_reason, timings, query_id, recalled };
            self.exchanges.push(exchange);
        }
    }

    /// Closes the open question as if it had not been asked.
    pub fn withdraw(&mut self) {
        if let Some(OpenQuestion { before, left_out_before, .. }) = self.open.take() {
            if let Some(before) = before {
                self.exchanges = before;
            }
            self.left_out = left_out_before;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A session with this many exchanges.
    pub(in super::super) fn session(exchanges: usize) -> Session {
        let mut session = Session::new(Config::defaults().unwrap());
        for number in 1..=exchanges {
            session.ask(format!("q{number}"));
            session.finish(QueryId::fresh(), format!("a{number}"), Some(FinishReason::Stop), Timings::default());
        }
        session
    }

    /// The prompt of the open question after `steps`, as one line.
    #[track_caller]
    fn check(exchanges: usize, steps: impl FnOnce(&mut Session), expected: &str) {
        let mut session = session(exchanges);
        steps(&mut session);
        let seen = session.query().map_or("None".to_string(), |query| {
            let history = query.history.into_iter().map(|message| message.content);
            history.chain([query.query]).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_prompt_holds_what_was_said_and_the_open_question() {
        check(0, |_| (), "None");
        check(2, |_| (), "None");
        check(2, |session| session.ask("q3".into()), "q1 a1 q2 a2 q3");
        let with_system = |session: &mut Session| {
            session.set("chat.system", "be brief").unwrap();
            session.ask("q2".into());
        };
        check(1, with_system, "be brief q1 a1 q2");
        let with_messages = |session: &mut Session| {
            let messages = vec!["user: Hi", "assistant: Yo"];
            session.config.set("chat.messages", messages.into(), Source::Chat).unwrap();
            session.ask("q2".into());
        };
        check(1, with_messages, "Hi Yo q1 a1 q2");
    }

    #[test]
    fn the_last_question_is_asked_again_without_its_answer() {
        check(2, |session| assert!(session.ask_again(None)), "q1 a1 q2");
        check(0, |session| assert!(!session.ask_again(None)), "None");
    }

    #[test]
    fn a_withdrawn_repetition_keeps_the_old_answer() {
        let mut session = session(2);
        session.ask_again(None);
        session.withdraw();
        assert_eq!(session.exchanges().last().unwrap().answer, "a2");
        session.ask("q3".into());
        session.withdraw();
        assert_eq!(session.exchanges().len(), 2);
    }

    #[test]
    fn an_answer_that_is_given_again_keeps_the_earlier_one_in_a_branch() {
        let mut chat = session(2);
        chat.ask_again(None);
        chat.finish(QueryId::fresh(), "another".into(), None, Timings::default());
        let saved = chat.conversation();
        assert_eq!(saved.exchanges.iter().map(|it| it.answer.as_str()).collect::<Vec<_>>(), ["a1", "a2", "another"]);
        let mut resumed = session(0);
        resumed.resume("tides".into(), saved.clone()).unwrap();
        assert_eq!(resumed.exchanges().iter().map(|it| it.answer.as_str()).collect::<Vec<_>>(), ["a1", "another"]);
        assert_eq!(resumed.conversation(), saved);
    }

    #[test]
    fn the_oldest_exchanges_are_left_out_one_by_one_and_the_instructions_stay() {
        let leave_out = |count: usize| {
            move |session: &mut Session| {
                session.set("chat.system", "be brief").unwrap();
                session.ask("q3".into());
                for _ in 0..count {
                    assert!(session.leave_out_oldest());
                }
            }
        };
        check(2, leave_out(1), "be brief q2 a2 q3");
        check(2, leave_out(2), "be brief q3");
        let mut session = session(1);
        session.ask("q2".into());
        assert!(session.leave_out_oldest());
        assert!(!session.leave_out_oldest());
        assert_eq!(session.exchanges().len(), 1, "what is left out of the prompt stays in the conversation");
    }

    #[test]
    fn a_withdrawn_question_leaves_out_no_more_than_before() {
        let mut session = session(3);
        session.leave_out_oldest();
        session.ask("much too long".into());
        while session.leave_out_oldest() {}
        session.withdraw();
        assert_eq!(session.left_out(), 1);
    }

    #[test]
    fn a_resumed_conversation_brings_its_model_unless_a_flag_names_one() {
        let saved = || Conversation { model: "old".into(), system: "s".into(), ..session(1).conversation() };
        let mut resumed = session(0);
        resumed.resume("tides".into(), saved()).unwrap();
        assert_eq!((resumed.model(), resumed.name(), resumed.exchanges().len()), ("old", Some("tides"), 1));
        let mut config = Config::defaults().unwrap();
        config.set_text("engine.model", "new", Source::Flag("--model")).unwrap();
        let mut flagged = Session::new(config);
        flagged.resume("tides".into(), saved()).unwrap();
        assert_eq!((flagged.model(), flagged.config().chat.system.as_str()), ("new", "s"));
    }

    #[test]
    fn an_answer_that_was_cut_off_is_continued_and_stays_a_branch() {
        let mut session = session(1);
        assert!(!session.continue_answer(), "it is complete");
        session.ask("q2".into());
        session.finish(QueryId::fresh(), "a2 and".into(), Some(FinishReason::Length), Timings::default());
        assert!(session.continue_answer() && session.continues());
        let query = session.query().unwrap();
        assert_eq!((query.query.as_str(), query.history.len(), query.options.begun.as_str()), ("q2", 2, "a2 and"));
        session.withdraw();
        assert_eq!(session.exchanges()[1].answer, "a2 and");
        session.continue_answer();
        session.finish(QueryId::fresh(), "a2 and so on".into(), Some(FinishReason::Stop), Timings::default());
        let answers: Vec<&str> = session.exchanges().iter().map(|exchange| exchange.answer.as_str()).collect();
        assert_eq!(answers, ["a1", "a2 and so on"]);
        assert_eq!(session.conversation().exchanges.len(), 3);
        assert!(!session.continue_answer());
    }

    #[test]
    fn what_is_left_out_comes_back_when_there_may_be_room() {
        let forget = |step: fn(&mut Session)| {
            let mut session = session(2);
            session.leave_out_oldest();
            step(&mut session);
            session.left_out()
        };
        assert_eq!(forget(|_| ()), 1);
        assert_eq!(forget(|session| drop(session.undo())), 0);
        assert_eq!(forget(|session| session.set("engine.model", "larger").unwrap()), 0);
        assert_eq!(forget(Session::clear), 0);
    }
}
