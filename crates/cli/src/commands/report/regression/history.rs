//! Past questions that another model may be asked.

use std::collections::{BTreeMap, HashMap, HashSet};

use hone_app::conversations::ConversationStore;
use hone_memory::{Engram, EventFilter, Filters, MemoryStore, Whose};
use hone_protocol::{FinishReason, Payload, QueryId, RespondentId, SessionId, Subject};
use serde::Serialize;

use crate::arguments::ReportArguments;
use crate::invocation::Invocation;

/// Why a question is not asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// The answer was stopped, cut or blank.
    Cut,
    /// The question is not the first of its conversation.
    Later,
    /// It came over an API, with a conversation that is not kept.
    Api,
    /// Memory contributed to the answer.
    Recalled,
    /// It was answered by the model under comparison.
    Own,
    /// It was asked again later.
    Repeated,
}

impl Reason {
    /// The reason, after a number of questions.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Reason::Cut => "whose answer was stopped or cut",
            Reason::Later => "from the middle of a conversation",
            Reason::Api => "that came over an API",
            Reason::Recalled => "whose answer used something remembered",
            Reason::Own => "that the same model answered",
            Reason::Repeated => "that were asked again",
        }
    }
}

/// The user's questions and answers of the past.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The questions that may be asked again, latest first.
    pub(super) questions: Vec<Engram>,
    /// The number of questions left out, by reason.
    pub(super) left_out: BTreeMap<Reason, usize>,
}

impl History {
    /// The user's own questions that the arguments select, for a comparison with `model`.
    ///
    /// # Errors
    /// When memory cannot be read.
    pub(super) fn read(
        app: &Invocation,
        store: &MemoryStore,
        model: &str,
        arguments: &ReportArguments,
    ) -> anyhow::Result<History> {
        let whose = Whose::Of(None);
        let engrams = store.list(&Filters { whose, ..Filters::default() }, usize::MAX)?;
        let mut circumstances = Circumstances::of(&engrams, model);
        circumstances.take_events(store, whose)?;
        circumstances.take_conversations(&app.conversation_store());
        Ok(History::choose(engrams, &circumstances, arguments))
    }

    fn choose(engrams: Vec<Engram>, circumstances: &Circumstances<'_>, arguments: &ReportArguments) -> History {
        let respondent = arguments.respondent.unwrap_or(RespondentId::A);
        let is_wanted = |engram: &Engram| {
            engram.respondent_id == respondent
                && arguments.agent.as_ref().is_none_or(|model| *model == engram.model)
                && arguments.since.is_none_or(|since| since <= engram.at)
        };
        let mut history = History::default();
        let mut asked = HashSet::new();
        for engram in engrams.into_iter().filter(is_wanted) {
            let reason = circumstances.against(&engram);
            let reason = reason.or_else(|| (!asked.insert(engram.query.clone())).then_some(Reason::Repeated));
            match reason {
                Some(reason) => *history.left_out.entry(reason).or_default() += 1,
                None => history.questions.push(engram),
            }
        }
        history
    }
}

/// Facts about questions beyond their engrams. Questions are identified by the id under which they were received.
struct Circumstances<'a> {
    model: &'a str,
    /// The first question of each conversation that memory knows.
    first: HashMap<SessionId, QueryId>,
    /// Questions that follow others in saved conversations.
    later: HashSet<QueryId>,
    api: HashSet<QueryId>,
    recalled: HashSet<QueryId>,
}

impl Circumstances<'_> {
    /// The circumstances that are evident from these engrams, latest first.
    fn of<'a>(engrams: &[Engram], model: &'a str) -> Circumstances<'a> {
        let mut first = HashMap::new();
        for engram in engrams.iter().rev() {
            first.entry(engram.session_id).or_insert(engram.correlation_id);
        }
        Circumstances { model, first, later: HashSet::new(), api: HashSet::new(), recalled: HashSet::new() }
    }

    fn take_events(&mut self, store: &MemoryStore, whose: Whose) -> anyhow::Result<()> {
        let subjects = vec![Subject::QueryReceived, Subject::MemoryRecalled];
        for (_, event) in store.events(&EventFilter { whose, subjects, ..EventFilter::default() }, None)? {
            let Some(question) = event.correlation_id else { continue };
            match &event.payload {
                Payload::QueryReceived(_) if event.sender == hone_server::API_SENDER => drop(self.api.insert(question)),
                Payload::MemoryRecalled(recall) if !recall.engrams.is_empty() => drop(self.recalled.insert(question)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Memory sees a resumed conversation as a new one. An unreadable file is ignored.
    fn take_conversations(&mut self, conversations: &ConversationStore) {
        let names = conversations.names().unwrap_or_default();
        for conversation in names.iter().filter_map(|name| conversations.load(name).ok()) {
            self.later.extend(conversation.exchanges.iter().skip(1).filter_map(|exchange| exchange.query_id));
        }
    }

    /// Why this question is not asked again.
    fn against(&self, engram: &Engram) -> Option<Reason> {
        let question = engram.correlation_id;
        let is_complete =
            engram.finish_reason.is_some_and(FinishReason::is_complete) && !engram.answer.trim().is_empty();
        let is_first = self.first.get(&engram.session_id) == Some(&question) && !self.later.contains(&question);
        match () {
            () if engram.model == self.model => Some(Reason::Own),
            () if self.api.contains(&question) => Some(Reason::Api),
            () if !is_first => Some(Reason::Later),
            () if !is_complete => Some(Reason::Cut),
            () if self.recalled.contains(&question) => Some(Reason::Recalled),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use hone_protocol::Response;

    use super::*;
    use crate::arguments::{Arguments, Command};

    fn engram(number: u128, conversation: u128) -> Engram {
        let response = Response::new(format!("question {number}"), "an answer", "past:1b");
        Engram::new(QueryId::from_bits(number), SessionId::from_bits(conversation), &response)
    }

    /// Checks the choice among four questions, latest first, of which 3 and 4 are in one conversation.
    #[track_caller]
    fn check(
        change: impl FnOnce(&mut Circumstances<'_>),
        arguments: &[&str],
        asked: &[u128],
        left_out: &[(Reason, usize)],
    ) {
        let arguments = [&["hone", "report", "--compare", "new:1b"], arguments].concat();
        let Command::Report(arguments) = Arguments::parse_from(arguments).command else { panic!("no report") };
        let engrams = vec![engram(4, 3), engram(3, 3), engram(2, 2), engram(1, 1)];
        let mut circumstances = Circumstances::of(&engrams, "new:1b");
        change(&mut circumstances);
        let history = History::choose(engrams, &circumstances, &arguments);
        let ids: Vec<QueryId> = history.questions.iter().map(|engram| engram.query_id).collect();
        assert_eq!(ids, asked.iter().map(|id| QueryId::from_bits(*id)).collect::<Vec<_>>());
        assert_eq!(history.left_out, left_out.iter().copied().collect());
    }

    #[test]
    fn questions_that_need_more_than_themselves_are_left_out_and_counted() {
        let later = (Reason::Later, 1);
        check(|_| (), &[], &[3, 2, 1], &[later]);
        let second = QueryId::from_bits(2);
        check(|it| it.api = HashSet::from([second]), &[], &[3, 1], &[(Reason::Api, 1), later]);
        check(|it| it.recalled = HashSet::from([second]), &[], &[3, 1], &[(Reason::Recalled, 1), later]);
        // A resumed conversation has another id in memory.
        check(|it| it.later = HashSet::from([second]), &[], &[3, 1], &[(Reason::Later, 2)]);
        check(|it| it.model = "past:1b", &[], &[], &[(Reason::Own, 4)]);
    }

    #[test]
    fn filters_leave_nothing_out_that_is_counted() {
        check(|_| (), &["--model", "other:1b"], &[], &[]);
        check(|_| (), &["--respondent", "B"], &[], &[]);
        check(|_| (), &["--since", "2100-01-01"], &[], &[]);
    }
}
